"""Schedule: a task that comes again, the rule of its times, and what became of its occurrences."""

from collections.abc import Iterable, Iterator
from enum import StrEnum
from hashlib import blake2b
from itertools import accumulate
from typing import NamedTuple, TypeAlias

from duecourse.domain.notification import RESERVED
from duecourse.domain.task import DEFAULT_QUEUE, DEFAULT_TENANT, NewTask, OnDuplicate, RetryPolicy
from duecourse.domain.times import MAX_INSTANT, format_instant
from duecourse.domain.values import brief, replaced, value

TENANT = "*"
"""Tenant of schedules in the ledger: no user's tenant can be called so, and no claim works its tasks."""
NEVER = MAX_INSTANT
"""Due time of a schedule that is paused, or that has no time left."""
RECENT = 10
"""Number of occurrences that a schedule remembers."""
CATCH_UP_MS = 3_600_000
"""Age up to which missed times are made up for, where none is asked for."""
MIN_EVERY_MS = 1_000
MAX_RULE = 1_000
"""Maximum length of a rule as text."""
MAX_EXDATES = 200
GRACE_MS = 60_000
"""Lateness from which an occurrence counts as missed."""
INTERVAL_SIGNS = ("*", "?", "/", "@hourly")
"""Signs in the minute or hour field of cron that make it an interval."""
AT_ADD = -1
"""Start of a rule that begins when its schedule is added; no instant, for those begin with 1970."""


class Gap(StrEnum):
    """Treatment of a wall-clock time that a change of the clocks leaves out."""

    AUTO = "auto"
    SHIFT = "shift"
    SKIP = "skip"


class Fold(StrEnum):
    """Treatment of a wall-clock time that a change of the clocks repeats."""

    AUTO = "auto"
    FIRST = "first"
    SECOND = "second"
    BOTH = "both"


class Missed(StrEnum):
    """Treatment of times that passed while nothing ran, or while the schedule was paused."""

    LATEST = "latest"
    ALL = "all"
    NONE = "none"


class Overlap(StrEnum):
    """Treatment of an occurrence that comes while one before has not ended."""

    ALLOW = "allow"
    SKIP = "skip"
    QUEUE = "queue"
    REPLACE = "replace"


@value(frozen=True, slots=True)
class Every:
    """Elapsed time between two occurrences, in milliseconds, from the schedule's start; it knows no time zone."""

    every_ms: int

    @property
    def is_interval(self) -> bool:
        """True: `every` counts elapsed time."""
        return True


@value(frozen=True, slots=True)
class Cron:
    """Five fields of cron, read as wall-clock time."""

    expression: str

    @property
    def is_interval(self) -> bool:
        """True if the minute or hour field is `*` or has a step."""
        minute_and_hour = self.expression.split()[:2]
        return any(sign in field.lower() for field in minute_and_hour for sign in INTERVAL_SIGNS)


@value(frozen=True, slots=True)
class RRule:
    """Recurrence rule of RFC 5545, read as wall-clock time from the schedule's start, without `exdates` (epoch ms)."""

    rule: str
    exdates: tuple[int, ...] = ()

    @property
    def is_interval(self) -> bool:
        """True if the rule repeats by the hour or by the minute."""
        return any(f"FREQ={unit}" in self.rule.upper() for unit in ("HOURLY", "MINUTELY"))


Repeat: TypeAlias = Every | Cron | RRule


@value(frozen=True, slots=True)
class Rule:
    """The rule of a schedule's nominal times: none before `starts_at`, none after `until` (epoch ms; None: no end).

    `starts_at` is AT_ADD in a request that names no start.
    """

    repeat: Repeat
    starts_at: int
    time_zone: str = "UTC"
    until: int | None = None
    gap: Gap = Gap.AUTO
    fold: Fold = Fold.AUTO

    @property
    def gap_used(self) -> Gap:
        """Gap by which the times are computed; by `auto`, an interval goes by elapsed time."""
        if self.gap is not Gap.AUTO:
            return self.gap
        return Gap.SKIP if self.repeat.is_interval else Gap.SHIFT

    @property
    def fold_used(self) -> Fold:
        """Fold by which the times are computed; by `auto`, an interval goes by elapsed time."""
        if self.fold is not Fold.AUTO:
            return self.fold
        return Fold.BOTH if self.repeat.is_interval else Fold.FIRST

    def starting(self, at: int) -> "Rule":
        """The rule with a start: its own, or `at`."""
        return replaced(self, starts_at=at) if self.starts_at == AT_ADD else self

    def as_kept(self, kept: "Rule") -> "Rule":
        """This rule with the gap and fold of a stored rule, where `auto` here changes nothing there."""
        # A release without `auto` stored `shift` and `first`, also where the caller had named neither.
        keeps_gap = self.gap is Gap.AUTO and kept.gap in {Gap.SHIFT, self.gap_used}
        keeps_fold = self.fold is Fold.AUTO and kept.fold in {Fold.FIRST, self.fold_used}
        return replaced(self, gap=kept.gap if keeps_gap else self.gap, fold=kept.fold if keeps_fold else self.fold)

    def ending_as(self, other: "Rule") -> "Rule":
        """The rule with the `until` and the `exdates` of another one."""
        repeat = self.repeat
        if isinstance(repeat, RRule) and isinstance(other.repeat, RRule):
            repeat = replaced(repeat, exdates=other.repeat.exdates)
        return replaced(self, repeat=repeat, until=other.until)


@value(frozen=True, slots=True, repr=False)
class Schedule:
    """A schedule as asked for; `payload` is JSON text.

    `limit` is the number of times after which it ends, None for no limit. Each occurrence is due `lead_ms` before its
    nominal time and up to `jitter_ms` after that, and dead `deadline_ms` after it was due. A backfill adds occurrences
    `of` another schedule. `file` is the number of the file that made it, 0 for none. `mark` is that of the request with
    a key that wrote it last, "" for none.
    """

    id: str
    kind: str
    rule: Rule
    payload: str = "{}"
    queue: str = DEFAULT_QUEUE
    tenant: str = DEFAULT_TENANT
    limit: int | None = None
    jitter_ms: int = 0
    lead_ms: int = 0
    missed: Missed = Missed.LATEST
    catch_up_ms: int = CATCH_UP_MS
    overlap: Overlap = Overlap.ALLOW
    retry: RetryPolicy = RetryPolicy()
    deadline_ms: int | None = None
    notify: str = ""
    paused: bool = False
    by: str = ""
    of: str = ""
    file: int = 0
    mark: str = ""

    def __repr__(self) -> str:
        return brief(self, "id", "kind", "queue", "paused")

    @property
    def series(self) -> str:
        """Id of the schedule whose occurrences it adds, and their group."""
        return self.of or self.id

    def fires_at(self, nominal: int) -> int:
        """Due time of the occurrence of a nominal time: the same on every machine, and different for each schedule."""
        earliest = max(1, nominal - self.lead_ms)
        if not self.jitter_ms:
            return earliest
        drawn = blake2b(f"{self.tenant}/{self.id}@{nominal}".encode(), digest_size=8).digest()
        return earliest + int.from_bytes(drawn) % (self.jitter_ms + 1)

    def next_at(self, nominal: int | None) -> int:
        """Due time of the occurrence that comes next: NEVER where there is none, and while it is paused."""
        return NEVER if nominal is None or self.paused else self.fires_at(nominal)

    def is_over(self, fired: int) -> bool:
        """True if so many occurrences are as many as `limit` says."""
        return self.limit is not None and fired >= self.limit

    def fire_in_order(self, nominals: Iterable[int], next_at: int) -> Iterator[int]:
        """Due times of nominal times that follow one another: none comes before `next_at`, or before the one before."""
        return accumulate((max(next_at, self.fires_at(nominal)) for nominal in nominals), max)

    def occurrence(self, nominal: int, due_at: int) -> NewTask:
        """The task of one nominal time; one of a kind of duecourse's own reads its schedule, and has no payload."""
        return NewTask(
            id=occurrence_id(self.series, nominal),
            kind=self.kind,
            payload="{}" if self.kind.startswith(RESERVED) else self.payload,
            queue=self.queue,
            tenant=self.tenant,
            group=self.series,
            due_at=due_at,
            deadline_ms=self.deadline_ms,
            retry=self.retry,
            on_duplicate=OnDuplicate.KEEP,
            by=self.by,
            notify=self.notify,
        )


class Became(StrEnum):
    """State of an occurrence, as its schedule remembers it."""

    LIVE = "live"
    DONE = "done"
    DEAD = "dead"
    CANCELLED = "cancelled"
    SKIPPED = "skipped"
    MISSED = "missed"


@value(frozen=True, slots=True)
class Occurrence:
    """A nominal time that has passed (epoch ms), what became of it, and how many missed times it makes up for."""

    nominal: int
    became: Became
    besides: int = 0


@value(frozen=True, slots=True)
class FormerTime:
    """The next nominal time (epoch ms) as an earlier version of the time zones had it."""

    zones: str
    nominal: int


@value(frozen=True, slots=True)
class Progress:
    """State of a schedule, which changes.

    `version` counts its changes by callers. `nominal` is the nominal time that comes next, None for none, and
    `next_at` when it fires; `NEVER` for none or while paused. `fired`, `skipped` and `missed` count nominal times.
    `zones` is the version of the time zones by which `nominal` was computed, and `former` what an earlier one gave, if
    that was another time. `recent` are the last occurrences, oldest first.
    """

    version: int = 1
    nominal: int | None = None
    next_at: int = NEVER
    fired: int = 0
    skipped: int = 0
    missed: int = 0
    zones: str = ""
    former: FormerTime | None = None
    recent: tuple[Occurrence, ...] = ()


class Kept(NamedTuple):
    """A schedule as the ledger keeps it; each change by a caller draws its record another `generation`.

    `refused` counts its firings in a row, up to the last one, that were over a quota of its tenant.
    """

    schedule: Schedule
    progress: Progress
    generation: int
    created_at: int
    refused: int = 0


class Firing(NamedTuple):
    """One step of a schedule: it adds `tasks` and moves to `progress`, if it still is as `kept` was read.

    `tasks` are those of the newest entries of `progress.recent` that are live, in their order. One `by_hand` adds its
    task whatever runs, or does nothing at all. It is none where the store's clock is far behind `at` (epoch ms, 0 for
    any): then `at` was read before that was put back.
    """

    kept: Kept
    tasks: tuple[NewTask, ...]
    progress: Progress
    by_hand: bool = False
    at: int = 0


class Purge(NamedTuple):
    """Request to delete at most `limit` schedules, those after an id; a kind and a beginning of the id, "" for any.

    Those whose ids come behind `until` stay, if one is given, and those that were added later than `before` (epoch ms).
    """

    kind: str = ""
    prefix: str = ""
    after: str = ""
    limit: int = 1_000
    dry_run: bool = False
    until: str = ""
    before: int | None = None


class Purged(NamedTuple):
    """Number of schedules that are deleted, or would be, and the id after which to go on; "" after the last."""

    schedules: int
    next: str


def backfill_id(id: str, since: int) -> str:
    """Id of the backfill of a schedule from an instant on; no user's id has a `~`."""
    return f"{id}~{since}"


def occurrence_id(id: str, nominal: int) -> str:
    """Id of the task of a nominal time: `daily@2026-11-26T09:00:00Z`, with milliseconds only if there are any."""
    return f"{id}@{format_instant(nominal).replace('.000Z', 'Z')}"
