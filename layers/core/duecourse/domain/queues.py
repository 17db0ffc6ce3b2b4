"""Settings of a queue, and the part of its limits that each of its shards gets."""

from enum import StrEnum
from typing import NamedTuple, TypedDict

from duecourse.errors import FieldError, InvalidInput

MAX_PRIORITY = 9
DEFAULT_PRIORITY = 5
"""Middle of 0 to 9, so that a queue can be put behind all others as well as before them."""


class Rate(NamedTuple):
    """At most so many claimed tasks in any `per_ms` milliseconds; HTTP calls them `count` and `per`."""

    most: int
    per_ms: int


class QueueSettings(NamedTuple):
    """Settings of a queue; None where there is no limit, or the caller's default applies.

    `max_running` tasks are leased at a time, `tenant_max_running` of one tenant. A drain claims first from what has the
    higher `priority`. `retention_ms` is how long a finished task is kept, `lease_ms` how long a claimed one is leased.
    """

    paused: bool = False
    max_running: int | None = None
    rate: Rate | None = None
    tenant_max_running: int | None = None
    priority: int = DEFAULT_PRIORITY
    retention_ms: int | None = None
    lease_ms: int | None = None


class Stats(NamedTuple):
    """A shard in numbers; `oldest_due_at` is the earliest scheduled due time and `bell_at` the bell's, 0 for none.

    `done` counts the cancelled too. `settings` is how the queue is set, with this shard's part of its limits.
    """

    scheduled: int
    leased: int
    done: int
    dead: int
    oldest_due_at: int
    bell_at: int
    settings: QueueSettings
    now: int

    @property
    def overdue_ms(self) -> int:
        """Time for which the oldest due task has waited, throttled or not."""
        return max(0, self.now - self.oldest_due_at) if self.oldest_due_at else 0


class ThrottleReason(StrEnum):
    """Reason why due tasks are throttled: a pause, or a limit of the queue or of a task's target that is reached."""

    PAUSE = "pause"
    MAX_RUNNING = "max_running"
    TENANT_MAX_RUNNING = "tenant_max_running"
    RATE = "rate"
    TARGET = "target"


class Throttle(NamedTuple):
    """Reason why due tasks are throttled at `now`, or None; `until` is the end, 0 if unknown."""

    by: ThrottleReason | None = None
    until: int = 0
    now: int = 0


class ShardStatus(NamedTuple):
    """One shard of a queue: what runs in it, and its part of the limits."""

    number: int
    running: int
    settings: QueueSettings


class QueueStatus(NamedTuple):
    """A queue in numbers: tasks by state, `done` with the cancelled.

    In ms: how long the oldest due task waits, and how late those of the last hour were claimed, None where none was.
    """

    name: str
    settings: QueueSettings
    scheduled: int
    running: int
    done: int
    dead: int
    oldest_overdue_ms: int
    late_p50_ms: int | None
    late_p99_ms: int | None
    shards: list[ShardStatus]


class QueueChanges(TypedDict, total=False):
    """Changes: fields of QueueSettings, None for the default."""

    paused: bool | None
    max_running: int | None
    rate: Rate | None
    tenant_max_running: int | None
    priority: int | None
    retention_ms: int | None
    lease_ms: int | None


def changed(settings: QueueSettings, changes: QueueChanges) -> QueueSettings:
    """The settings after a change: only what is given changes."""
    cleared = {name: value for name, value in QueueSettings()._asdict().items() if name in changes}
    return settings._replace(**cleared | {name: value for name, value in changes.items() if value is not None})


def share(settings: QueueSettings, number: int, count: int) -> QueueSettings:
    """Settings of the shard `number` of `count`: its part of each limit; the first shards get the remainder.

    A tenant's limit is divided too, so that it holds for the queue as a whole.
    """

    def part(whole: int | None) -> int | None:
        return None if whole is None else whole // count + (number < whole % count)

    rate = settings.rate and settings.rate._replace(most=part(settings.rate.most) or 0)
    running, tenants = part(settings.max_running), part(settings.tenant_max_running)
    return settings._replace(max_running=running, rate=rate, tenant_max_running=tenants)


def check_split(settings: QueueSettings, count: int) -> None:
    """Return if each of `count` shards gets a part of each limit. Raises InvalidInput, naming what is too low."""
    limits = {
        "max_running": settings.max_running,
        "rate.count": settings.rate and settings.rate.most,
        "tenant_max_running": settings.tenant_max_running,
    }
    problem = f"must be at least {count}: the queue has {count} shards, and each gets its part"
    low = [FieldError(name, problem) for name, limit in limits.items() if limit is not None and limit < count]
    if low:
        raise InvalidInput(low)
