"""Contract of rendering a reminder's templates for each recipient."""

from collections.abc import Iterable
from typing import NamedTuple, Protocol

from duecourse.domain.task import DEFAULT_TENANT, Json
from duecourse.ports.sender import Message


class Letter(NamedTuple):
    """One message still to be written: a reminder task's payload, its start (epoch ms), and whose it is."""

    payload: Json
    starts_at: int
    tenant: str = DEFAULT_TENANT


class Writer(Protocol):
    """Writer of messages."""

    def __call__(self, letters: Iterable[Letter], /) -> list[Message]:
        """Each letter as its recipient reads it, in order, within bounds of work, size and time.

        Raises InvalidInput for the first that cannot be written, naming the template's field, the line and the fix.
        """
