"""The answer of `/health`."""

from typing import Annotated

from pydantic import Field
from typing_extensions import TypedDict


class Health(TypedDict):
    """State of the service."""

    status: Annotated[str, Field(description="State of the service: `ok` or `unavailable`.", examples=["ok"])]
    store: Annotated[str, Field(description="State of the store: `ok` or `unavailable`.", examples=["ok"])]
