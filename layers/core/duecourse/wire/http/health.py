"""The answer of `/health`."""

from typing import Annotated

from typing_extensions import TypedDict

from duecourse.wire.http.fields import about


class Health(TypedDict):
    """State of the service."""

    status: Annotated[str, about("State of the service: `ok` or `unavailable`.", "ok")]
    store: Annotated[str, about("State of the store: `ok` or `unavailable`.", "ok")]
