"""Schedule: a task that comes again, the rule of its times, its status, and the file of schedules."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from enum import StrEnum
from functools import lru_cache
from hashlib import blake2b
from itertools import accumulate
from typing import Annotated, NamedTuple, TypeAlias

from duecourse.base.described_fields import About
from duecourse.base.times import DAY_MS, MAX_INSTANT, format_instant, span
from duecourse.base.value_classes import Deferred, brief, value
from duecourse.errors import FieldError
from duecourse.ledger.queue import Throttle, ThrottleReason
from duecourse.ledger.task import DEFAULT_QUEUE, DEFAULT_TENANT, RESERVED, NewTask, OnDuplicate, RetryPolicy, Task
from duecourse.ledger.timeline import waiting

# Schedule: a task that comes again, the rule of its times, and what became of its occurrences.

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
MAX_LIMIT = 1_000_000_000
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


@value
class Every:
    """Elapsed time between two occurrences, in milliseconds, from the schedule's start; it knows no time zone."""

    every_ms: int

    @property
    def is_interval(self) -> bool:
        """True: `every` counts elapsed time."""
        return True


@value
class Cron:
    """Five fields of cron, read as wall-clock time."""

    expression: str

    @property
    def is_interval(self) -> bool:
        """True if the minute or hour field is `*` or has a step."""
        return _is_interval(self.expression)


@lru_cache(maxsize=1024)
def _is_interval(expression: str) -> bool:
    minute_and_hour = expression.split()[:2]
    return any(sign in field.lower() for field in minute_and_hour for sign in INTERVAL_SIGNS)


@value
class RRule:
    """Recurrence rule of RFC 5545, read as wall-clock time from the schedule's start, without `exdates` (epoch ms)."""

    rule: str
    exdates: tuple[int, ...] = ()

    @property
    def is_interval(self) -> bool:
        """True if the rule repeats by the hour or by the minute."""
        return any(f"FREQ={unit}" in self.rule.upper() for unit in ("HOURLY", "MINUTELY"))


Repeat: TypeAlias = Every | Cron | RRule
AUTO_GAP = (
    "By `auto`, an interval skips: a `cron` whose minute or hour is `*` or has a step, or an hourly or minutely"
    " `rrule`. Other rules shift."
)
AUTO_FOLD = "By `auto`, an interval has both, as for `gap`; other rules have the first."


@value
class Rule:
    """The rule of a schedule's nominal times: none before `starts_at`, none after `until` (epoch ms; None: no end).

    `starts_at` is AT_ADD in a request that names no start.
    """

    repeat: Annotated[
        Repeat,
        About("Rule by which the schedule comes again.", example={"cron": "0 9 * * MON-FRI"}),
    ]
    starts_at: Annotated[
        int,
        About(
            "Time before which no occurrence comes.",
            asked="No occurrence comes before this time. Default: now.",
            changed="No occurrence comes before this time.",
        ),
    ]
    time_zone: Annotated[
        str,
        About(
            "IANA time zone in which the rule is read.",
            asked="IANA time zone in which `cron` and `rrule` are read; default UTC.",
            changed="IANA time zone in which `cron` and `rrule` are read.",
            example="Europe/Vienna",
        ),
    ] = "UTC"
    until: Annotated[
        int | None,
        About(
            "Time after which no occurrence comes.",
            asked="No occurrence comes after this time. Default: no end.",
            changed="No occurrence comes after this time; null for no end.",
        ),
    ] = None
    gap: Annotated[
        Gap,
        About(
            "Treatment of a time that a change of the clocks leaves out.",
            asked="Treatment of a wall-clock time that a change of the clocks leaves out: `shift` to the first instant"
            f" after it, `skip`, or `auto`. {AUTO_GAP}",
        ),
    ] = Gap.AUTO
    fold: Annotated[
        Fold,
        About(
            "Treatment of a time that a change of the clocks repeats.",
            asked="Treatment of a wall-clock time that a change of the clocks repeats: the `first`, the `second`,"
            f" `both`, or `auto`. {AUTO_FOLD}",
        ),
    ] = Fold.AUTO

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
        return replace(self, starts_at=at) if self.starts_at == AT_ADD else self

    def as_stored(self, stored: "Rule") -> "Rule":
        """This rule with the gap and fold of a stored rule, where `auto` here changes nothing there."""
        # A release without `auto` stored `shift` and `first`, also where the caller had named neither.
        keeps_gap = self.gap is Gap.AUTO and stored.gap in {Gap.SHIFT, self.gap_used}
        keeps_fold = self.fold is Fold.AUTO and stored.fold in {Fold.FIRST, self.fold_used}
        return replace(self, gap=stored.gap if keeps_gap else self.gap, fold=stored.fold if keeps_fold else self.fold)

    def ending_as(self, other: "Rule") -> "Rule":
        """The rule with the `until` and the `exdates` of another one."""
        repeat = self.repeat
        if isinstance(repeat, RRule) and isinstance(other.repeat, RRule):
            repeat = replace(repeat, exdates=other.repeat.exdates)
        return replace(self, repeat=repeat, until=other.until)


@value
class Schedule:
    """A schedule as asked for; `payload` is JSON text.

    `limit` is the number of times after which it ends, None for no limit. Each occurrence is due `lead_ms` before its
    nominal time and up to `jitter_ms` after that, and dead `deadline_ms` after it was due. A backfill adds occurrences
    `of` another schedule. `file` is the number of the file that made it, 0 for none. `mark` is that of the request with
    a key that wrote it last, `added_by` of the one that added it, "" for none. `starts_at_add` is True where its start
    was not given: it is the time of the add by the store's clock.

    A described field is one of requests and answers, of the client and of a file, and can be changed. To add a field,
    add it here, with About if callers see it, and a letter for it to `_definition` and `_policies` of
    record.py. A field that occurrences have as tasks also belongs to `Schedule.occurrence`, and to OF_TASKS of
    `schedules/verbs.py`. A type that `api/derived_models.py` does not know (`_form_of`) needs its form in
    `schedules/http.py`. Then `make reference`, and its row in `docs/how-to/schedules.md`.
    """

    id: str
    kind: str
    rule: Rule
    payload: Annotated[
        str,
        About(
            "Payload of each occurrence.",
            asked="Payload of each occurrence, as for a task, without credentials.",
            changed="Payload of each further occurrence.",
            example={"url": "https://hooks.example.com/report"},
        ),
    ] = "{}"
    queue: str = DEFAULT_QUEUE
    tenant: str = DEFAULT_TENANT
    limit: Annotated[
        int | None,
        About(
            "Number of occurrences after which the schedule ends.",
            asked="Number of occurrences after which the schedule ends. Default: no limit.",
            changed="Number of occurrences, those so far counted, after which the schedule ends; null for none.",
            low=1,
            high=MAX_LIMIT,
            example=10,
        ),
    ] = None
    jitter_ms: Annotated[
        int,
        About(
            "Upper bound of the delay of an occurrence.",
            asked="Upper bound of a delay that differs between schedules and occurrences; default PT0S, at most P1D.",
            high=DAY_MS,
        ),
    ] = 0
    lead_ms: int = 0
    missed: Annotated[
        Missed,
        About(
            "Treatment of times that were missed.",
            asked="Treatment of times that passed while nothing ran, or while the schedule was paused: one"
            " occurrence for the `latest`, `all` within `catch_up`, or `none`.",
        ),
    ] = Missed.LATEST
    catch_up_ms: Annotated[
        int,
        About(
            "Age up to which missed times are made up for.",
            asked="Age up to which `missed` = `all` makes up for times; default PT1H.",
        ),
    ] = CATCH_UP_MS
    overlap: Annotated[
        Overlap,
        About(
            "Treatment of an occurrence beside a running one.",
            asked="Treatment of an occurrence that comes before the one before has ended: `allow` both, `skip` it,"
            " `queue` one of them, or `replace` the running one.",
        ),
    ] = Overlap.ALLOW
    retry: Annotated[
        RetryPolicy,
        About(
            "Attempts and backoff of an occurrence.",
            asked="Attempts and backoff of an occurrence after failures.",
            changed="Attempts and backoff of further occurrences.",
        ),
    ] = RetryPolicy()
    deadline_ms: Annotated[
        int | None,
        About(
            "Time from its due time after which an occurrence is dead.",
            asked="Time from its due time after which an occurrence is dead, as for a task.",
            example="PT1H",
        ),
    ] = None
    notify: Annotated[
        str,
        About(
            "Receiver of a completion notification.",
            asked="Receiver of a completion notification when an occurrence is done or dead.",
            changed="Receiver of a completion notification; null for none.",
            name="notify_done",
        ),
    ] = ""
    paused: Annotated[
        bool,
        About(
            "True while nothing fires.",
            asked="Add the schedule paused: nothing fires. Default: false.",
            changed="Pause the schedule, or resume it.",
        ),
    ] = False
    by: str = ""
    of: str = ""
    file: int = 0
    mark: str = ""
    added_by: str = ""
    starts_at_add: bool = False

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


@value
class Occurrence:
    """A nominal time that has passed (epoch ms), what became of it, and how many missed times it makes up for."""

    nominal: int
    became: Became
    besides: int = 0


@value
class FormerTime:
    """The next nominal time (epoch ms) as an earlier version of the time zones had it."""

    zones: str
    nominal: int


@value
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


class StoredSchedule(NamedTuple):
    """A schedule as the ledger keeps it; each change by a caller draws its record another `generation`.

    `refused` counts its firings in a row, up to the last one, that were over a quota of its tenant.
    """

    schedule: Schedule
    progress: Progress
    generation: int
    created_at: int
    refused: int = 0


class Firing(NamedTuple):
    """One step of a schedule: it adds `tasks` and moves to `progress`, if it still is as `stored` was read.

    `tasks` are those of the newest entries of `progress.recent` that are live, in their order. One `by_hand` adds its
    task whatever runs, or does nothing at all. It is none where the store's clock is far behind `at` (epoch ms, 0 for
    any): then `at` was read before that was put back.
    """

    stored: StoredSchedule
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


# Answers of the verbs on schedules: a schedule's status, why it fires or does not, and times of a rule.


@value
class Upcoming:
    """An occurrence to come: its nominal time and its due time (epoch ms), and both as text in the schedule's zone.

    `clock_change` is True if the zone's distance to UTC is another than before it.
    """

    nominal: int
    due_at: int
    local: str
    clock_change: bool = False


@value
class Passed:
    """An occurrence that has passed: id of its task, nominal time, state, and the number of times that it makes up for.

    `state` is that of its task, `skipped` or `missed`.
    """

    id: str
    nominal: int
    state: str
    stands_for: int


@value
class ScheduleStatus(Deferred):
    """A schedule as the ledger has it: its progress, the next occurrences, and the last ones, newest first.

    `why` says when it fires, or why it does not.
    """

    schedule: Schedule
    progress: Progress
    created_at: int
    upcoming: tuple[Upcoming, ...]
    recent: tuple[Passed, ...]
    why: str

    def __repr__(self) -> str:
        return brief(self, "schedule", "upcoming")


class Preview(NamedTuple):
    """Times of a rule from `since` on (epoch ms), at most `most`."""

    rule: Rule
    since: int
    most: int


def why(
    schedule: Schedule, progress: Progress, throttle: Throttle, late: Task | None = None, *, runs: bool = True
) -> str:
    """Reason why a schedule fires when it does, or not at all, in sentences.

    `throttle` is that of its queue at the time; `late` is an occurrence that is due and not claimed. `runs` is False
    if nothing is known that runs its kind.
    """
    sentences = [_when(schedule, progress, throttle)]
    if former := progress.former:
        by_former = f"by {former.zones} it was {format_instant(former.nominal)}"
        sentences.append(f"Recomputed by time zones {progress.zones}; {by_former}.")
    if not runs:
        sentences.append(f"Nothing is known that runs its kind {schedule.kind}: name a target, or start a worker.")
    if throttle.reason is ThrottleReason.PAUSE and not schedule.paused:
        sentences.append(f"Its queue {schedule.queue} is paused: nothing fires or runs until it is resumed.")
    elif late:
        text = waiting(late, throttle).text.replace("its queue", f"its queue {schedule.queue}")
        sentences.append(f"Its occurrence {late.id} waits. {text}")
    if progress.recent and progress.recent[-1].became is Became.SKIPPED:
        sentences.append(_skipped(schedule))
    return " ".join(sentences)


def _when(schedule: Schedule, progress: Progress, throttle: Throttle) -> str:
    if schedule.paused:
        return "It is paused: nothing fires until it is resumed."
    if progress.nominal is None:
        is_over = schedule.is_over(progress.fired)
        return "It has fired as often as `limit` says." if is_over else "Its rule has no time left."
    away = progress.next_at - throttle.now
    if away > 0:
        zones = "" if isinstance(schedule.rule.repeat, Every) else f", by time zones {progress.zones}"
        return f"Its next occurrence is due in {span(away)}, at {format_instant(progress.next_at)}{zones}."
    is_paused = throttle.reason is ThrottleReason.PAUSE
    if schedule.missed is Missed.NONE and -away > GRACE_MS and not is_paused:
        passed = f"Its time of {format_instant(progress.next_at)} has passed, and `missed` is none"
        return f"{passed}: nothing fires for it. A ring or the next tick moves it on."
    since = f"Its next occurrence has been due for {span(-away)}"
    return f"{since}." if is_paused else f"{since}, and waits for a ring or the next tick."


def _skipped(schedule: Schedule) -> str:
    beside = "one before it had not ended, or " if schedule.overlap in {Overlap.SKIP, Overlap.QUEUE} else ""
    return f"Its last occurrence was skipped: {beside}tenant {schedule.tenant} is over a quota of {schedule.queue}."


# The numbered file of schedules that a deployment carries, and what it would change in a ledger.


class Entry(NamedTuple):
    """Key of a schedule that a file made."""

    queue: str
    tenant: str
    id: str


class ScheduleFile(NamedTuple):
    """A file's number, which grows with each change of it, and its schedules; a start of AT_ADD is that of the add.

    `problems` are those of the schedules that are left out. `digest` tells files apart that have one number.
    """

    number: int
    schedules: tuple[Schedule, ...]
    problems: tuple[FieldError, ...] = ()
    digest: str = ""


class FileState(NamedTuple):
    """State of the schedule files in a ledger.

    `begun` is the highest number that was begun, at `begun_at` (epoch ms). `applied` is the last number of which all
    was made. `settled` is the last one beside which no earlier file is being applied any more. `digest` is that of the
    file that was begun. `entries` are the schedules that a file may have made.
    """

    begun: int = 0
    begun_at: int = 0
    applied: int = 0
    settled: int = 0
    digest: str = ""
    entries: frozenset[Entry] = frozenset()


class FileChanges(NamedTuple):
    """Changes that a file made: schedules that were added, changed and deleted.

    `foreign` ones have the id of a schedule that was not made by a file, and are left alone.
    """

    added: tuple[Entry, ...]
    changed: tuple[Entry, ...]
    deleted: tuple[Entry, ...]
    foreign: tuple[Entry, ...]


def key_of(schedule: Schedule) -> Entry:
    """Key of a schedule."""
    return Entry(schedule.queue, schedule.tenant, schedule.id)
