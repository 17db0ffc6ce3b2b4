"""Reminder that comes again: a schedule whose occurrences are reminders of their own, and what was changed by hand."""

import json
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from duecourse.domain.notification import RESERVED
from duecourse.domain.reminder import QUEUE, Recipient, Reminder
from duecourse.domain.schedule import Missed, Rule, Schedule, occurrence_id
from duecourse.domain.schedule_status import Upcoming
from duecourse.domain.task import DEFAULT_TENANT, Json, NewTask, OnDuplicate, RetryPolicy, Task, dump_json
from duecourse.domain.times import parse_instant
from duecourse.domain.values import brief, replaced, value
from duecourse.errors import TaskDamaged

KIND = f"{RESERVED}series"
"""Kind of the tasks that keep the occurrences as their series says: one for each occurrence, until its start."""
MAX_ID = 39
"""Maximum length of a series' id: with a start, it is a reminder's id of at most 64 characters."""
MAX_STANDING = 100
"""Most occurrences whose largest lead time has begun and whose start has not."""
MAX_LIMIT = 10_000
AHEAD_MS = 60_000
"""Time from the add of an occurrence to its first message."""
POLICY = RetryPolicy(max_attempts=1_000, backoff_ms=1_000, max_backoff_ms=AHEAD_MS)


@value(frozen=True, slots=True, repr=False)
class Series:
    """A reminder that comes again, as asked for; its fields are those of Reminder, and the rule of its starts.

    A recipient whose time zone is "" has that of the rule. `limit` is the number of starts, counted from the rule's
    first; None for no limit. `since` is when it was last changed (epoch ms), another one with each change. A lead time
    that had passed by then is not made up for, but of the start `first`.
    """

    id: str
    rule: Rule
    subject: str
    leads_ms: tuple[int, ...]
    recipients: tuple[Recipient, ...]
    message: str = ""
    html: str = ""
    data: Json = None
    limit: int | None = None
    since: int = 0
    first: int = 0
    fields: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return brief(self, "id", "rule")

    @classmethod
    def of(cls, schedule: Schedule) -> "Series":
        """The series in its schedule. Raises TaskDamaged."""
        try:
            found = json.loads(schedule.payload)
            people = tuple(Recipient(**one) for one in found["recipients"])
            rule = replaced(schedule.rule, until=found["until"])
            kept = {name: found[name] for name in KEPT}
            return cls(schedule.id, rule, recipients=people, leads_ms=tuple(found["leads_ms"]), **kept)
        except (ValueError, LookupError, TypeError) as error:
            raise TaskDamaged(f"the record of reminder {schedule.id} cannot be read: {error}") from error

    @property
    def lead_ms(self) -> int:
        """Time before a start at which the occurrence is added."""
        return max(self.leads_ms) + AHEAD_MS

    def schedule(self, until: int | None, tenant: str = DEFAULT_TENANT) -> Schedule:
        """The schedule that adds the occurrences, the last at `until`."""
        return Schedule(
            id=self.id,
            kind=KIND,
            rule=replaced(self.rule, until=until),
            payload=dump_json(self._payload()),
            queue=QUEUE,
            tenant=tenant,
            missed=Missed.ALL,
            catch_up_ms=0,  # those whose start is still to come
            lead_ms=self.lead_ms,
            retry=POLICY,
        )

    def _payload(self) -> dict[str, Json]:
        kept = {name: getattr(self, name) for name in KEPT}
        people = [one.fields() for one in self.recipients]
        return {
            **kept,
            "data": self.data or {},
            "until": self.rule.until,
            "leads_ms": self.leads_ms,
            "recipients": people,
        }

    def reminder(self, nominal: int, starts_at: int) -> Reminder:
        """The reminder of one start, with all its lead times; `starts_at` is another one where it is moved."""
        zone = self.rule.time_zone
        return Reminder(
            id=occurrence_id(self.id, nominal),
            subject=self.subject,
            starts_at=starts_at,
            leads_ms=self.leads_ms,
            recipients=tuple(one if one.time_zone else replaced(one, time_zone=zone) for one in self.recipients),
            message=self.message,
            html=self.html,
            data=self.data,
            fields=self.fields,
        )

    def leads_of(self, nominal: int) -> tuple[int, ...]:
        """Lead times of a start that its messages are added for."""
        return tuple(lead for lead in self.leads_ms if nominal == self.first or nominal - lead > self.since)

    def matches(self, request: "Series") -> bool:
        """True if a request describes this series as it is, so that nothing is to change."""
        again = replaced(request, rule=request.rule.as_kept(self.rule))
        return self._asked() == again._asked()  # noqa: SLF001 - of its own class

    def _asked(self) -> "Series":
        return replaced(self, since=0, first=0, fields=(), data=self.data or {})


KEPT = ("subject", "message", "html", "data", "limit", "since", "first")
"""Fields that a payload keeps as they are."""


@value(frozen=True, slots=True)
class Mark:
    """State of an occurrence's task: the change of the series that it follows, or what was done by hand.

    `starts_at` is the start to which it was moved by hand (epoch ms), None for none.
    """

    since: int = 0
    starts_at: int | None = None
    cancelled: bool = False

    @classmethod
    def of(cls, task: Task) -> "Mark":
        """The state of a task. Raises TaskDamaged."""
        state = task.state or {}
        if not isinstance(state, Mapping):
            raise TaskDamaged(f"the state of {task.id} cannot be read")
        return cls(state.get("since", 0), state.get("starts_at"), bool(state.get("cancelled")))

    @property
    def by_hand(self) -> bool:
        """True if the series has no say in this occurrence."""
        return self.cancelled or self.starts_at is not None

    def state(self) -> dict[str, Json]:
        """The same as JSON."""
        fields = {"since": self.since or None, "starts_at": self.starts_at, "cancelled": self.cancelled or None}
        return {name: one for name, one in fields.items() if one is not None}

    def task(self, id: str, nominal: int, now: int, tenant: str, by: str) -> NewTask:
        """The task of an occurrence with this mark, due now: it looks at once if all is as the mark says."""
        return NewTask(
            id=occurrence_id(id, nominal),
            kind=KIND,
            queue=QUEUE,
            tenant=tenant,
            group=id,
            state=dump_json(self.state()),
            due_at=now,
            retry=POLICY,
            on_duplicate=OnDuplicate.REPLACE,
            by=by,
        )


class Name(NamedTuple):
    """Series and start (epoch ms) of an occurrence, as its id names them."""

    series: str
    nominal: int

    @classmethod
    def of(cls, id: str) -> "Name":
        """Read an occurrence's id. Raises TaskDamaged."""
        series, _, start = id.rpartition("@")
        try:
            return cls(series, parse_instant(start))
        except ValueError as error:
            raise TaskDamaged(f"{id} names no occurrence: {error}") from error


@value(frozen=True, slots=True)
class Standing:
    """An occurrence with messages, or one that was changed by hand; `state` is `standing`, `moved` or `cancelled`.

    `id` is that of its reminder, `nominal` its start by the rule, `starts_at` the start that it has (epoch ms).
    """

    id: str
    nominal: int
    starts_at: int
    state: Literal["standing", "moved", "cancelled"]


@value(frozen=True, slots=True, repr=False)
class SeriesStatus:
    """A series as the ledger has it: its next starts but for those changed by hand, and occurrences with messages."""

    series: Series
    version: int
    created_at: int
    upcoming: tuple[Upcoming, ...]
    occurrences: tuple[Standing, ...]

    @property
    def next_start(self) -> int:
        """The next start, or the first one where none is to come."""
        return self.upcoming[0].nominal if self.upcoming else self.series.rule.starts_at

    def __repr__(self) -> str:
        return brief(self, "series", "version")


class SeriesChange(NamedTuple):
    """Fields of Series to change, those of its Rule under `rule`; `named` are the fields of the request.

    Another version than `if_version` is not changed.
    """

    fields: dict[str, Any]
    named: tuple[str, ...]
    if_version: int | None = None
