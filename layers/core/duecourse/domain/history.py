"""History of a task: its finished runs, and what callers did to it."""

from enum import StrEnum
from typing import TypeAlias

from duecourse.domain.masking import masked_error
from duecourse.domain.values import value

LOG_LENGTH = 20
"""Maximum number of entries that a task remembers, the newest."""
LOG_BYTES = 6_000
"""Maximum size of the packed entries, in bytes: long errors leave room for fewer."""
DETAIL_LENGTH = 400
"""Maximum length of an entry's error or reason, in bytes."""
MAX_LOOKED_AT = 20_000
"""Number of characters that are searched for credentials before a text is cut."""
BY_LENGTH = 192
"""Maximum length of a source's name, in bytes: the longest session of an IAM role fits."""


class Trigger(StrEnum):
    """Trigger of a claim: a key event, the bridge's timer, a tick, or a request that took the task itself."""

    RING = "ring"
    TIMER = "timer"
    TICK = "tick"
    TAKE = "take"


class Action(StrEnum):
    """Action of a caller. The log has earlier adds and replacements, but not the one that made the record."""

    ADDED = "added"
    REPLACED = "replaced"
    DEBOUNCED = "debounced"
    MOVED = "moved"
    REPLAYED = "replayed"
    CANCELLED = "cancelled"


ORIGINS = frozenset({Action.ADDED, Action.REPLACED})
"""Actions that make a record. In a log, one ends an earlier life of the id: later entries are its successor's."""


@value(frozen=True, slots=True)
class Run:
    """One finished lease. `outcome` is one of the keys of timeline.OUTCOMES: `done`, `again`, `lapsed` and so on.

    `trigger` is None where nothing was claimed. `claimed_at` is when the handler began, or the claim where none did;
    `late_ms` is the time from the due time to that. `times` is over 1 for leases given back in a row, which make one
    entry, the last.
    """

    run: int
    fence: int
    claimed_at: int
    ended_at: int
    outcome: str
    detail: str = ""
    trigger: Trigger | None = None
    late_ms: int = 0
    times: int = 1


@value(frozen=True, slots=True)
class Change:
    """Action of a caller, its source, and the due time before and after it.

    `times` is over 1 for debounces in a row, which make one entry.
    """

    at: int
    action: Action
    by: str = ""
    due_before: int = 0
    due_at: int = 0
    times: int = 1


Entry: TypeAlias = Run | Change


def cut_detail(text: str) -> str:
    """Cut an error or a reason to what an entry keeps, between characters and without credentials."""
    return _cut(masked_error(text[:MAX_LOOKED_AT]), DETAIL_LENGTH) if text else text


def with_place(detail: str, place: str) -> str:
    """A cut error and the place in code, together within DETAIL_LENGTH; "" is no place."""
    behind = f" at {place}" if place else ""
    return _cut(detail, DETAIL_LENGTH - len(behind.encode())) + behind


def cut_by(text: str) -> str:
    """Cut a source's name to what a record keeps."""
    return _cut(text, BY_LENGTH)


def _cut(text: str, most: int) -> str:
    return text.encode(errors="replace")[:most].decode(errors="ignore")
