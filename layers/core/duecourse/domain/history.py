"""What a task remembers of itself: its finished runs, and what callers did to it."""

from enum import StrEnum
from typing import NamedTuple, TypeAlias

from duecourse.domain.masking import masked_error

LOG_LENGTH = 20
"""How many of its newest entries a task remembers."""
LOG_BYTES = 6_000
"""How many packed bytes of them it keeps at most: long errors make it remember fewer."""
DETAIL_LENGTH = 400
"""How many bytes of an error or a reason an entry keeps."""
MAX_LOOKED_AT = 20_000
"""How many characters of a text are looked through for the part that is kept."""
BY_LENGTH = 32
"""How many bytes the name of a caller's door may have."""


class Door(StrEnum):
    """How a due task was found: a key event rang, the bridge's timer rang, a tick looked, or one who asked took it."""

    RING = "ring"
    TIMER = "timer"
    TICK = "tick"
    TAKE = "take"


class Deed(StrEnum):
    """What a caller did. The add or replacement that the record itself came of is not in the log, those before are."""

    ADDED = "added"
    REPLACED = "replaced"
    DEBOUNCED = "debounced"
    MOVED = "moved"
    REPLAYED = "replayed"
    CANCELLED = "cancelled"


ORIGINS = frozenset({Deed.ADDED, Deed.REPLACED})
"""What a record comes of. In a log it ends the life of one before: what follows is what its successor did."""


class Run(NamedTuple):
    """One finished lease: how it ended (`done`, `again`, `retry`, `drop`, `release`, `lapsed`, `undelivered`, `taken`,
    `expired`).

    `door` is None where nothing was claimed; `late_ms` is how long after it was due it was claimed. `times` is over 1
    where leases that were given back one after the other are told as one, the last.
    """

    run: int
    fence: int
    claimed_at: int
    ended_at: int
    outcome: str
    detail: str = ""
    door: Door | None = None
    late_ms: int = 0
    times: int = 1


class Change(NamedTuple):
    """What a caller did, by which of the product's doors it came, and the due time before and after it.

    `times` is over 1 where debounces that followed each other are told as one.
    """

    at: int
    deed: Deed
    by: str = ""
    due_before: int = 0
    due_at: int = 0
    times: int = 1


Entry: TypeAlias = Run | Change


def cut_detail(text: str) -> str:
    """As much of an error or a reason as an entry keeps, without credentials, cut between characters."""
    return _cut(masked_error(text[:MAX_LOOKED_AT]), DETAIL_LENGTH) if text else text


def cut_by(text: str) -> str:
    """As much of a caller's door as a record keeps."""
    return _cut(text, BY_LENGTH)


def _cut(text: str, most: int) -> str:
    return text.encode(errors="replace")[:most].decode(errors="ignore")
