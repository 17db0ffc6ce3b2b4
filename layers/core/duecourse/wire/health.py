"""The answer of `/health`."""

from typing import Annotated

from pydantic import Field
from typing_extensions import TypedDict


class Health(TypedDict):
    """Whether the service can take tasks."""

    status: Annotated[str, Field(description="`ok`, or `unavailable`.", examples=["ok"])]
    store: Annotated[str, Field(description="Whether the store answers: `ok`, or `unavailable`.", examples=["ok"])]
