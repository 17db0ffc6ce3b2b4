"""Acts on many tasks of a queue at once: purge and cancel by state, kind, group and age, step by step."""

from enum import StrEnum
from typing import NamedTuple

from duecourse.domain.task import Status

MAX_BULK = 10_000
"""The most tasks of one call."""
DEFAULT_BULK = 1_000


class Act(StrEnum):
    """Effect on each task: count it only, delete it, or cancel it."""

    COUNT = "count"
    DELETE = "delete"
    CANCEL = "cancel"


class Reached(NamedTuple):
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
    until: Reached | None = None


class BulkResult(NamedTuple):
    """Number of tasks, and the place at which the next call begins; None after the last task."""

    tasks: int
    next: Reached | None
