"""Queue: its settings, the part of its limits that each shard gets, its numbers, quotas and lateness."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from enum import StrEnum
from typing import Annotated, Any, NamedTuple

from duecourse.base.described_fields import About, fields_of
from duecourse.base.times import DAY_MS
from duecourse.base.value_classes import brief, value
from duecourse.errors import FieldError, InvalidInput
from duecourse.ledger.task import DEFAULT_TENANT

# Settings of a queue, and the part of its limits that each of its shards gets.

MAX_PRIORITY = 9
DEFAULT_PRIORITY = 5
"""Middle of 0 to 9, so that a queue can be put behind all others as well as before them."""


@value
class Rate:
    """At most so many claimed tasks in any `per_ms` milliseconds; HTTP calls them `count` and `per`."""

    most: int
    per_ms: int


QueueChanges = Mapping[str, bool | int | Rate | None]
"""Changes of a queue's settings, by the fields of QueueSettings; None for the default."""


class LimitAbout(About):
    """Description of a limit: each shard gets its part of it."""

    __slots__ = ()


MAX_LIMIT = 1_000_000
"""Upper bound of a limit."""


MAX_BYTES = 1_000_000_000_000
"""Upper bound of a limit in bytes."""


def _limit(meaning: str) -> LimitAbout:
    return LimitAbout(f"{meaning}, 1 to {MAX_LIMIT:,}; null means no limit.", low=1, high=MAX_LIMIT)


def _quota(meaning: str, high: int = MAX_LIMIT) -> LimitAbout:
    described = f"Quota of each tenant: {meaning}, 1 to {high:,}; null means DUECOURSE_TENANT_QUOTAS."
    return LimitAbout(described, low=1, high=high)


@value
class QueueSettings:
    """Settings of a queue, each declared here alone: type, description, default.

    Requests, answers, the fields in Redis and the reference follow (SETTINGS). None is no limit, or leaves the value to
    the caller. Times are in ms (`…_ms`).

    To add a setting, add its field here, with LimitAbout if each shard gets its part, and its name to SET of
    `lua/modules/idleness.lua`. Scripts read it by `shard.read_meta`. A limit that throttles has a reason in
    ThrottleReason, which `lua/throttle.lua` answers. A quota has its letter in `lua/modules/settings.lua`
    (`note_quotas`), its check in `lua/modules/quotas.lua`, its field in Quotas, two Reply, and its name in QUOTAS and
    BEYOND. Then `make reference`.
    """

    paused: Annotated[bool, About("Pause: no task is claimed, and running tasks continue. Default: false.")] = False
    max_running: Annotated[int | None, _limit("Maximum number of tasks that run at the same time")] = None
    rate: Annotated[
        Rate | None,
        LimitAbout("Maximum number of claims in a sliding window, divided among the shards; null means no limit."),
    ] = None
    tenant_max_running: Annotated[
        int | None, _limit("Maximum number of tasks of one tenant that run at the same time")
    ] = None
    priority: Annotated[
        int,
        About("Priority, 0 to 9; a drain claims from the highest first. Default: 5.", high=MAX_PRIORITY),
    ] = DEFAULT_PRIORITY
    retention_ms: Annotated[
        int | None,
        About(
            "Time for which a finished task is kept, at most P366D; null means DUECOURSE_RETENTION.",
            high=366 * DAY_MS,
        ),
    ] = None
    lease_ms: Annotated[
        int | None,
        About(
            "Length of an inline task's lease, PT1S to P1D, longer than the timeout of on_expired; null means "
            "DUECOURSE_LEASE.",
            low=1_000,
            high=DAY_MS,
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


DEFAULTS = QueueSettings()
"""Settings of a queue that has none of its own."""
SETTINGS = fields_of(QueueSettings)
"""Every setting of a queue, in the order of the fields."""
LIMITS = [one for one in SETTINGS if isinstance(one.about, LimitAbout)]
"""Settings of which each shard gets its part."""


class Stats(NamedTuple):
    """A shard in numbers; `oldest_due_at` is the earliest scheduled due time and `bell_at` the bell's, 0 for none.

    `done` counts the cancelled too. `settings` is how the queue is set, with this shard's part of its limits.
    Where more than a thousand tenants take turns, `oldest_due_at` is that of a thousand of them. `schedules` is None in
    one tenant's numbers, and `fires_at` is when the first of them fires, 0 for none. In the last hour, `lapsed` runs
    ended without a settle. A target had begun `lapsed_at_target` of them. Both are 0 in one tenant's numbers.
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
    lapsed: int = 0
    lapsed_at_target: int = 0

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


@value
class ShardStatus:
    """One shard of a queue: what runs in it, and its part of the limits."""

    number: int
    running: int
    settings: QueueSettings


@value
class QueueStatus:
    """A queue in numbers: tasks by state, `done` with the cancelled.

    In ms: how long the oldest due task waits, and how late handlers began in the last hour, None where none did.
    `dead_by_tenant` is None where it was not asked for. `schedules` is their number, None in one tenant's numbers, and
    `fires_at` is when the next one fires (epoch ms), None for none. In the last hour, `lapsed` runs ended
    without a settle. A target had begun `lapsed_at_target` of them.
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
    lapsed: int = 0
    lapsed_at_target: int = 0

    @property
    def lagging(self) -> list[int]:
        """Numbers of the shards that do not have these settings yet, after a change that was cut off."""
        count = len(self.shards)
        return [one.number for one in self.shards if one.settings != share(self.settings, one.number, count)]

    def __repr__(self) -> str:
        return brief(self, "name", "scheduled", "running", "done", "dead", "settings")


def apply_changes(settings: QueueSettings, changes: QueueChanges) -> QueueSettings:
    """The settings after a change: only what is given changes."""
    new: dict[str, Any] = {name: getattr(DEFAULTS, name) if value is None else value for name, value in changes.items()}
    return replace(settings, **new)


def share(settings: QueueSettings, number: int, count: int) -> QueueSettings:
    """Settings of the shard `number` of `count`: its part of each limit; the first shards get the remainder.

    A tenant's limit is divided too, so that it holds for the queue as a whole.
    """

    def part(whole: Any) -> Any:
        if isinstance(whole, Rate):
            return replace(whole, most=part(whole.most))
        return None if whole is None else whole // count + (number < whole % count)

    return replace(settings, **{one.field: part(getattr(settings, one.field)) for one in LIMITS})


def check_split(settings: QueueSettings, count: int) -> None:
    """Return if each of `count` shards gets a part of each limit. Raises InvalidInput, naming what is too low."""
    problem = f"must be at least {count}: the queue has {count} shards, and each gets its part"
    low = [FieldError(name, problem) for name, limit in _limits(settings) if limit < count]
    if low:
        raise InvalidInput(low)


def _limits(settings: QueueSettings) -> Iterator[tuple[str, int]]:
    for one in LIMITS:
        limit = getattr(settings, one.field)
        if limit is not None:
            yield (f"{one.name}.count", limit.most) if isinstance(limit, Rate) else (one.name, limit)


# Quotas of a deployment: of each tenant by name and of all others, where a queue has none of its own.

OTHERS = DEFAULT_TENANT
"""Name in a table of quotas for all tenants that it does not name; who has no tenant has no quota."""


class Quotas(NamedTuple):
    """Quotas of one tenant, by the names of a queue's settings; None is no quota."""

    tenant_max_pending: int | None = None
    tenant_max_bytes: int | None = None
    tenant_adds_per_minute: int | None = None
    tenant_max_schedules: int | None = None


TenantQuotas = Mapping[str, Quotas]
"""Quotas by tenant."""
NO_QUOTAS = Quotas()


def quotas_of(table: TenantQuotas, tenant: str) -> Quotas:
    """Quotas of one tenant."""
    return NO_QUOTAS if tenant == DEFAULT_TENANT else table.get(tenant) or table.get(OTHERS, NO_QUOTAS)


def quotas_text(table: TenantQuotas) -> str:
    """The table as a shard keeps it (lua/modules/settings.lua): each tenant a line; "" for none."""
    rows = {OTHERS: NO_QUOTAS, **table} if table else {}
    return "".join(f"\n{tenant} {_quota_line(quotas)}" for tenant, quotas in sorted(rows.items()))


def _quota_line(quotas: Quotas) -> str:
    # Releases must write the same text, or their sweeps set it in turns: the fourth is left out where it is none.
    return " ".join(map(_number_or_dash, quotas[:3] if quotas.tenant_max_schedules is None else quotas))


def _number_or_dash(quota: int | None) -> str:
    return "-" if quota is None else str(quota)


# Lateness of runs, from due time to handler, as counts in buckets that grow with it: histograms that add up.

SLOT_MS = 300_000
"""Length of one slot of the histogram; older slots are overwritten."""
SLOTS = 13
"""Number of slots: those of the last hour, and the current one."""
PARTS = 8
"""Number of buckets for each doubling of the lateness: a bucket spans 12 %, and below 16 ms it is exact."""


def bucket_upper_bound(bucket: int) -> int:
    """The longest lateness that a bucket counts, in whole milliseconds."""
    if bucket < PARTS:
        return 0
    exponent, part = divmod(bucket, PARTS)
    edge = (0.5 + (part + 1) / (2 * PARTS)) * 2.0**exponent
    return int(edge) - 1 if edge == int(edge) else int(edge)


def merge_histograms(histograms: Iterable[Mapping[int, int]]) -> dict[int, int]:
    """One histogram of several: how many were as late as each bucket says."""
    total = Counter[int]()
    for histogram in histograms:
        total.update(histogram)
    return total


def quantile(
    histogram: Mapping[int, int], share: float, upper_bound: Callable[[int], int] = bucket_upper_bound
) -> int | None:
    """The duration that `share` of all did not exceed, rounded up to its bucket's end; None where there is none."""
    rank = share * sum(histogram.values())
    reached = 0
    for bucket, count in sorted(histogram.items()):
        reached += count
        if reached >= rank:
            return upper_bound(bucket)
    return None
