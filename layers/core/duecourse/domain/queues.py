"""Settings of a queue, and the part of its limits that each of its shards gets."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from enum import StrEnum
from typing import Annotated, Any, NamedTuple, get_args

from duecourse.domain.times import DAY_MS
from duecourse.domain.values import brief, value
from duecourse.errors import FieldError, InvalidInput

MAX_PRIORITY = 9
DEFAULT_PRIORITY = 5
"""Middle of 0 to 9, so that a queue can be put behind all others as well as before them."""


@value(frozen=True, slots=True)
class Rate:
    """At most so many claimed tasks in any `per_ms` milliseconds; HTTP calls them `count` and `per`."""

    most: int
    per_ms: int


QueueChanges = Mapping[str, bool | int | Rate | None]
"""Changes of a queue's settings, by the fields of QueueSettings; None for the default."""


class About(NamedTuple):
    """Description of a setting: its meaning, its bounds (a time's in ms), and if each shard gets its part of it."""

    meaning: str
    low: int = 0
    high: int = 0
    split: bool = False


MAX_LIMIT = 1_000_000
"""Upper bound of a limit."""


MAX_BYTES = 1_000_000_000_000
"""Upper bound of a limit in bytes."""


def _limit(meaning: str) -> About:
    return About(f"{meaning}, 1 to {MAX_LIMIT:,}; null means no limit.", 1, MAX_LIMIT, split=True)


def _quota(meaning: str, high: int = MAX_LIMIT) -> About:
    described = f"Quota of each tenant: {meaning}, 1 to {high:,}; null means DUECOURSE_TENANT_QUOTAS."
    return About(described, 1, high, split=True)


@value(frozen=True, slots=True, repr=False)
class QueueSettings:
    """Settings of a queue, each declared here alone: type, description, default.

    Requests, answers, the fields in Redis and the reference follow (SETTINGS). None is no limit, or leaves the value to
    the caller. Times are in ms (`…_ms`).
    """

    paused: Annotated[bool, About("Pause: no task is claimed, and running tasks continue. Default: false.")] = False
    max_running: Annotated[int | None, _limit("Maximum number of tasks that run at the same time")] = None
    rate: Annotated[
        Rate | None,
        About(
            "Maximum number of claims in a sliding window, divided among the shards; null means no limit.", split=True
        ),
    ] = None
    tenant_max_running: Annotated[
        int | None, _limit("Maximum number of tasks of one tenant that run at the same time")
    ] = None
    priority: Annotated[
        int,
        About("Priority, 0 to 9; a drain claims from the highest first. Default: 5.", 0, MAX_PRIORITY),
    ] = DEFAULT_PRIORITY
    retention_ms: Annotated[
        int | None,
        About(
            "Time for which a finished task is kept, at most P366D; null means DUECOURSE_RETENTION.", 0, 366 * DAY_MS
        ),
    ] = None
    lease_ms: Annotated[
        int | None,
        About(
            "Length of an inline task's lease, PT1S to P1D, longer than the timeout of on_expired; null means "
            "DUECOURSE_LEASE.",
            1_000,
            DAY_MS,
        ),
    ] = None
    tenant_max_pending: Annotated[int | None, _quota("maximum number of its tasks that wait or run")] = None
    tenant_max_bytes: Annotated[
        int | None,
        _quota("maximum size of the payloads and results of its tasks, ended ones too, in bytes", MAX_BYTES),
    ] = None
    tenant_adds_per_minute: Annotated[int | None, _quota("maximum number of tasks that it adds in a minute")] = None
    tenant_max_schedules: Annotated[int | None, _quota("maximum number of its schedules")] = None

    def __repr__(self) -> str:
        return brief(self, *(one.field for one in SETTINGS if getattr(self, one.field) != one.default))


class Setting(NamedTuple):
    """One setting: its field of QueueSettings, its name elsewhere, its type (bool, int or Rate), and more."""

    field: str
    name: str
    kind: type
    about: About
    default: Any

    @property
    def is_time(self) -> bool:
        """True for milliseconds, which requests and answers have as a duration."""
        return self.field != self.name


def _setting(field: str, annotation: Any) -> Setting:
    kinds = get_args(annotation.__origin__) or (annotation.__origin__,)
    [about] = annotation.__metadata__
    return Setting(field, field.removesuffix("_ms"), kinds[0], about, getattr(USUAL, field))


USUAL = QueueSettings()
"""Settings of a queue that has none of its own."""
SETTINGS = [_setting(*one) for one in QueueSettings.__annotations__.items()]
"""Every setting of a queue, in the order of the fields."""


class Stats(NamedTuple):
    """A shard in numbers; `oldest_due_at` is the earliest scheduled due time and `bell_at` the bell's, 0 for none.

    `done` counts the cancelled too. `settings` is how the queue is set, with this shard's part of its limits.
    Where more than a thousand tenants take turns, `oldest_due_at` is that of a thousand of them. `schedules` is None in
    one tenant's numbers, and `fires_at` is when the first of them fires, 0 for none.
    """

    scheduled: int
    leased: int
    done: int
    dead: int
    oldest_due_at: int
    bell_at: int
    settings: QueueSettings
    now: int
    schedules: int | None = None
    fires_at: int = 0

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
    KIND = "kind"


THROTTLED: dict[ThrottleReason, str] = {
    ThrottleReason.PAUSE: "its queue is paused",
    ThrottleReason.MAX_RUNNING: "its queue runs as many tasks as max_running allows",
    ThrottleReason.TENANT_MAX_RUNNING: "its tenant runs as many tasks as tenant_max_running allows",
    ThrottleReason.RATE: "its queue has claimed as many tasks as its rate allows",
    ThrottleReason.TARGET: "its target has as many tasks to begin as DUECOURSE_OUTSTANDING allows, or is busy",
    ThrottleReason.KIND: "no worker or function that looked at its queue has its kind",
}
"""Each reason as a part of a sentence on a task."""


class Throttle(NamedTuple):
    """Reason why due tasks are throttled at `now`, or None; `until` is the end, 0 if unknown."""

    reason: ThrottleReason | None = None
    until: int = 0
    now: int = 0


@value(frozen=True, slots=True)
class ShardStatus:
    """One shard of a queue: what runs in it, and its part of the limits."""

    number: int
    running: int
    settings: QueueSettings


@value(frozen=True, slots=True, repr=False)
class QueueStatus:
    """A queue in numbers: tasks by state, `done` with the cancelled.

    In ms: how long the oldest due task waits, and how late handlers began in the last hour, None where none did.
    `dead_by_tenant` is None where it was not asked for. `schedules` is their number, None in one tenant's numbers, and
    `fires_at` is when the next one fires (epoch ms), None for none.
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
    schedules: int | None = None
    fires_at: int | None = None
    dead_by_tenant: Mapping[str, int] | None = None

    @property
    def lagging(self) -> list[int]:
        """Numbers of the shards that do not have these settings yet, after a change that was cut off."""
        count = len(self.shards)
        return [one.number for one in self.shards if one.settings != share(self.settings, one.number, count)]

    def __repr__(self) -> str:
        return brief(self, "name", "scheduled", "running", "done", "dead", "settings")


def changed(settings: QueueSettings, changes: QueueChanges) -> QueueSettings:
    """The settings after a change: only what is given changes."""
    new: dict[str, Any] = {name: getattr(USUAL, name) if value is None else value for name, value in changes.items()}
    return replace(settings, **new)


def share(settings: QueueSettings, number: int, count: int) -> QueueSettings:
    """Settings of the shard `number` of `count`: its part of each limit; the first shards get the remainder.

    A tenant's limit is divided too, so that it holds for the queue as a whole.
    """

    def part(whole: Any) -> Any:
        if isinstance(whole, Rate):
            return replace(whole, most=part(whole.most))
        return None if whole is None else whole // count + (number < whole % count)

    return replace(settings, **{one.field: part(getattr(settings, one.field)) for one in SETTINGS if one.about.split})


def check_split(settings: QueueSettings, count: int) -> None:
    """Return if each of `count` shards gets a part of each limit. Raises InvalidInput, naming what is too low."""
    problem = f"must be at least {count}: the queue has {count} shards, and each gets its part"
    low = [FieldError(name, problem) for name, limit in _limits(settings) if limit < count]
    if low:
        raise InvalidInput(low)


def _limits(settings: QueueSettings) -> Iterator[tuple[str, int]]:
    for one in SETTINGS:
        limit = getattr(settings, one.field)
        if one.about.split and limit is not None:
            yield (f"{one.name}.count", limit.most) if isinstance(limit, Rate) else (one.name, limit)
