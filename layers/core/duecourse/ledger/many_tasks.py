"""Many tasks of a queue: pages of them, acts on them, the dead by their errors, and replay."""

import re
from base64 import urlsafe_b64encode
from collections.abc import Iterable
from enum import StrEnum
from typing import NamedTuple

from duecourse.base.masking import MASK, masked_error
from duecourse.base.value_classes import brief, value
from duecourse.ledger.api_query import DEADLINE_MS, QUEUE_PREFIX
from duecourse.ledger.task import DEADLINES_MS, Action, Change, DueTask, Status, Task

# Pages of a queue's tasks: the filter, the order, and a place in it.

MAX_PAGE = 100
"""The most tasks of one page."""
PAGE_BYTES = 1_200_000
"""Size of a page's texts at which the page ends. Lambda counts up to 3.5 bytes for each of them in its 6 MiB."""
BESIDE_BYTES = 8_000
"""Size of a record's other fields."""
SECTIONS: dict[str, tuple[Status, ...]] = {
    "due": (Status.SCHEDULED,),
    "leased": (Status.LEASED,),
    "done": (Status.DONE, Status.CANCELLED),
    "dead": (Status.DEAD,),
}
"""The order of tasks: section after section, in each by time (when due, the end of the lease, when it ended), then by
id."""


def record_size(*texts: str) -> int:
    """Size of a record with these texts, in a page."""
    return BESIDE_BYTES + sum(len(text.encode(errors="surrogatepass")) for text in texts)


def fill_page(sizes: Iterable[int], room: int) -> tuple[int, int]:
    """Number of records, at least one, that fill a page, and the room that is left."""
    count = 0
    for size in sizes:
        count, room = count + 1, room - size
        if room <= 0:
            break
    return count, room


class TaskFilter(NamedTuple):
    """Filter: tasks of one state, kind, group and error, since an instant (epoch ms); None, "" and 0 for all.

    `error` is a part of the error, in which `#` matches any text. `since_at` counts from the add for a scheduled or
    leased task, from its end for others.
    """

    status: Status | None = None
    kind: str = ""
    group: str = ""
    error: str = ""
    since_at: int = 0

    def sections(self) -> list[str]:
        """Sections of the tasks that pass the filter, in order."""
        return [name for name, states in SECTIONS.items() if self.status is None or self.status in states]


class PagePosition(NamedTuple):
    """Start of a page: after the task `id` of that instant; "" is before all of them."""

    section: str
    at: int = 0
    id: str = ""

    @property
    def cursor(self) -> str:
        """The place as text for a request: opaque, and fit for a URL."""
        return urlsafe_b64encode(":".join(map(str, self)).encode()).decode().rstrip("=")


class Page(NamedTuple):
    """Tasks in their order, and where the next page begins; None after the last."""

    tasks: list[Task]
    next: PagePosition | None


# Acts on many tasks of a queue at once: purge and cancel by state, kind, group and age, step by step.

MAX_BULK = 10_000
"""The most tasks of one call."""
DEFAULT_BULK = 1_000


class Act(StrEnum):
    """Effect on each task: count it only, delete it, or cancel it."""

    COUNT = "count"
    DELETE = "delete"
    CANCEL = "cancel"


class BulkProgress(NamedTuple):
    """Place of a call's last step: after the task `id` of that instant, in one state of one shard."""

    shard: int
    status: Status
    at: int = 0
    id: str = ""


class Bulk(NamedTuple):
    """Request: at most `limit` tasks of these states, one kind, group and error ("": all), `min_age_ms` old or older.

    `error` is a part of the error, in which `#` matches any text.
    The age counts from the add for a scheduled or leased task, from its end for others. Completion notifications that
    are scheduled or leased are left out. With `before` (epoch ms), tasks whose age begins later, or that a caller
    changed later, are left out; with `until`, tasks behind that place.
    """

    act: Act
    statuses: tuple[Status, ...]
    kind: str = ""
    group: str = ""
    min_age_ms: int = 0
    limit: int = DEFAULT_BULK
    error: str = ""
    before: int = 0
    until: BulkProgress | None = None


class BulkResult(NamedTuple):
    """Number of tasks, and the place at which the next call begins; None after the last task."""

    tasks: int
    next: BulkProgress | None


# Dead tasks by their errors: errors that differ in numbers and ids alone are one group.

MAX_GROUPS = 100
"""The most groups of one answer."""
ANY = "#"
"""Sign for a part that differs between the errors of a group; in a filter it matches any text."""

_CLASS = re.compile(r"[A-Za-z_][\w.]*(?=:)")
"""Name of an exception at the beginning of an error."""
_PLACE = re.compile(r" at \S+:\d+$")
_VARYING = re.compile(
    r"\b(?P<word>status|code|http|answered|errno|error)[ :=]{1,2}\d{1,5}\b"
    r"|(?<![\w-])(?=[\w-]*\d)(?:[0-9a-f]{8,}|[0-9a-f]{4,12}(?:-[0-9a-f]{4,12}){2,}|0x[0-9a-f]+|[\w-]{20,})(?![\w-])"
    r"|\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d[\d:.]*(?:Z|[+-]\d\d:?\d\d)?)?"
    r"|\d+(?:\.\d+)?",
    re.IGNORECASE,
)
"""Parts that vary: numbers, hexadecimal ids, long ids with a digit, dates. A number after `status`, `code`, `HTTP`,
`answered`, `errno` or `error` stays: 404 and 503 are two errors."""


class Deaths(NamedTuple):
    """Request: at most `limit` dead tasks of one kind, group and error ("": all), that died since an instant."""

    kind: str = ""
    group: str = ""
    error: str = ""
    since_at: int = 0
    limit: int = DEFAULT_BULK


class Death(NamedTuple):
    """Death of one task: its shard, the instant (epoch ms) and the error."""

    shard: int
    id: str
    at: int
    kind: str
    error: str


class DeathsFound(NamedTuple):
    """Deaths of one call, and the place at which the next one begins; None after the last."""

    deaths: list[Death]
    next: BulkProgress | None


@value
class DeadGroup:
    """Dead tasks of one kind and error: their number, the first and the last death (epoch ms), and the newest's id.

    `error` has `#` for numbers and ids, in which the errors of a group may differ.
    """

    error: str
    kind: str
    count: int
    first_at: int
    last_at: int
    id: str


@value
class DeadGroups:
    """Groups of dead tasks, the largest first, and the place at which the next call begins; None after the last."""

    groups: list[DeadGroup]
    next: BulkProgress | None

    def __repr__(self) -> str:
        return brief(self, "groups", "next")


def pattern_of(error: str) -> str:
    """An error without what differs from task to task; the exception's name and the place in code stay.

    Credentials are hidden before: a sign within one, or within an address, would change what is found to be one.
    """
    shown = masked_error(error)
    error = error if shown == error else shown.replace(MASK, ANY)
    named = _CLASS.match(error)
    place = _PLACE.search(error)
    begin, end = named.end() if named else 0, place.start() if place else len(error)
    return error[:begin] + _VARYING.sub(_varying, error[begin:end]) + error[end:]


def _varying(found: re.Match[str]) -> str:
    return found[0] if found["word"] else ANY


def group_deaths(found: DeathsFound) -> DeadGroups:
    """Deaths by kind and pattern, until these are MAX_GROUPS groups."""
    groups: dict[tuple[str, str], list[Death]] = {}
    before: Death | None = None
    for death in found.deaths:
        key = (pattern_of(death.error), death.kind)
        if before and key not in groups and len(groups) == MAX_GROUPS:
            return DeadGroups(_by_size(groups), BulkProgress(before.shard, Status.DEAD, before.at, before.id))
        groups.setdefault(key, []).append(death)
        before = death
    return DeadGroups(_by_size(groups), found.next)


def _by_size(groups: dict[tuple[str, str], list[Death]]) -> list[DeadGroup]:
    return sorted((_group(*key, deaths) for key, deaths in groups.items()), key=lambda one: (-one.count, one.error))


def _group(error: str, kind: str, deaths: Iterable[Death]) -> DeadGroup:
    ordered = sorted(deaths, key=lambda one: one.at)
    return DeadGroup(error, kind, len(ordered), ordered[0].at, ordered[-1].at, ordered[-1].id)


# Replaying a queue's dead: how many, of which kind, and how fast.

MAX_REPLAY = 1_000
"""The most tasks of one replay."""
MAX_LOOKS = 100
"""Maximum number of pages that are searched."""


class Replay(NamedTuple):
    """Request: the oldest `limit` after a place, of one kind and error ("": all), `at_a_time` in each `per_ms`.

    `per_ms` 0 replays all at once. The first task is due `start_ms` from now. In `error`, `#` matches any text.
    """

    limit: int
    kind: str = ""
    at_a_time: int = 1
    per_ms: int = 0
    dry_run: bool = False
    error: str = ""
    start_ms: int = 0
    after: PagePosition | None = None

    def delay_ms(self, index: int) -> int:
        """Delay of the task of that number, evenly spread."""
        return self.start_ms + index * self.per_ms // self.at_a_time


@value
class Replayed:
    """Result: the tasks, `more` if others may remain, and then the cursor of the next request."""

    tasks: list[DueTask]
    more: bool
    next_cursor: str | None = None

    def __repr__(self) -> str:
        return brief(self, "tasks", "more")


def deadline_ms(task: Task) -> int:
    """Time from the new due time to the deadline of a dead task: as long as before, 0 for none.

    The time before counts from the newest replay in the task's log, else from the add. A query always has the same
    time. A task without a deadline, or with one in the past, gets its kind's default.
    """
    if task.queue.startswith(QUEUE_PREFIX):
        return DEADLINE_MS
    replays = [entry.due_at for entry in task.log if isinstance(entry, Change) and entry.action is Action.REPLAYED]
    had_ms = task.deadline_at - (replays[-1] if replays else task.created_at)
    return had_ms if had_ms > 0 else DEADLINES_MS.get(task.kind, 0)
