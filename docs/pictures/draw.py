"""Pictures of the policies of schedules: `python -m docs.pictures.draw` lets the product compute them."""

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from duecourse import Again, Done, Task
from duecourse.base.times import parse_instant
from duecourse.ledger.schedule import (
    GRACE_MS,
    Cron,
    Fold,
    Gap,
    Missed,
    Overlap,
    Progress,
    Rule,
    Schedule,
    StoredSchedule,
    occurrence_id,
)
from duecourse.ledger.task import Status
from duecourse.schedules.calendar import Calendar
from duecourse.schedules.firing import Firer
from duecourse.testing import Duecourse

from .svg import Axis, Bar, Dot, Drawing, Lane, Mark, Moved, Nothing, Span, Waits

FOLDER = Path(__file__).parent
ZONE = "Europe/Vienna"
MINUTE = 60_000
HOUR = 60 * MINUTE
CALENDAR = Calendar()
NIGHTLY = Cron("30 2 * * *")
INTERVAL = Cron("*/30 * * * *")
OF_INTERVAL = f"of {INTERVAL.expression}"
HOURLY = Cron("0 * * * *")


def drawings() -> Mapping[str, str]:
    """The SVG of each picture, by the name of its file."""
    made = {"gap": gap(), "fold": fold(), "missed": missed(), "overlap": overlap(), "jitter": jitter()}
    return {f"schedule-{name}.svg": one.svg() for name, one in made.items()}


def write() -> None:
    """Write all of them."""
    for name, made in drawings().items():
        (FOLDER / name).write_text(made)


def gap() -> Drawing:
    """A night in spring: 02:30 does not exist."""
    since, until = _at("2027-03-28T01:00:00+01:00"), _at("2027-03-28T04:00:00+02:00")
    change = _at("2027-03-28T01:00:00Z")
    said = {Gap.AUTO: "of 30 2 * * *: shift", Gap.SHIFT: "first instant after it", Gap.SKIP: "no occurrence"}
    lanes = []
    for choice in Gap:
        found = _times(Rule(NIGHTLY, since, ZONE, gap=choice), since, until)
        marks: list[Mark] = [Dot(at, _wall(at), aside=True) for at in found]
        marks = marks or [Nothing(change, "none", aside=True)]
        lanes.append(_lane(choice, Gap.AUTO, said[choice], marks))
    lanes.append(_through(since, until))
    return _drawing(
        "gap: on 28 March 2027, 02:30 does not exist in Vienna",
        "30 2 * * *, Europe/Vienna; last */30 * * * *, an interval. At 02:00 the clocks go to 03:00.",
        (since, until, HOUR // 2),
        lanes,
        [Span(change, change, "")],
    )


def fold() -> Drawing:
    """A night in autumn: 02:30 comes twice."""
    since, until = _at("2027-10-31T01:30:00+02:00"), _at("2027-10-31T03:30:00+01:00")
    change = _at("2027-10-31T01:00:00Z")
    said = {
        Fold.AUTO: "of 30 2 * * *: first",
        Fold.FIRST: "in summer time",
        Fold.SECOND: "in winter time",
        Fold.BOTH: "two occurrences",
    }
    lanes = [
        _lane(choice, Fold.AUTO, said[choice], [Dot(at, _wall(at)) for at in _times(rule, since, until)])
        for choice in Fold
        for rule in [Rule(NIGHTLY, since, ZONE, fold=choice)]
    ]
    return _drawing(
        "fold: on 31 October 2027, 02:30 comes twice in Vienna",
        "30 2 * * *, Europe/Vienna; last */30 * * * *, an interval. At 03:00 the clocks go back to 02:00.",
        (since, until, HOUR // 2),
        [*lanes, _through(since, until)],
        [Span(change, change, "")],
    )


def _through(since: int, until: int) -> Lane:
    """Times of an interval, through a change of the clocks."""
    marks: list[Mark] = [Dot(at, _wall(at)) for at in _times(Rule(INTERVAL, since, ZONE), since, until)]
    return Lane(Gap.AUTO, OF_INTERVAL, marks)


def missed() -> Drawing:
    """An outage of four hours, hour by hour."""
    day = "2027-01-12T{}:00+01:00"
    since, until, down, up = (_at(day.format(at)) for at in ("08:30", "15:30", "09:30", "13:30"))
    said = {Missed.LATEST: "one, late", Missed.ALL: "those within catch_up", Missed.NONE: "no occurrence for them"}
    lanes = []
    for choice in Missed:
        schedule = Schedule("s", "report", Rule(HOURLY, since, ZONE), missed=choice, catch_up_ms=2 * HOUR)
        lanes.append(_lane(choice, Missed.LATEST, said[choice], list(_fired(schedule, until, (down, up)))))
    return _drawing(
        "missed: nothing runs from 09:30 to 13:30",
        "0 * * * *, Europe/Vienna, with catch_up PT2H. An open circle is a time whose occurrence fires later.",
        (since, until, HOUR),
        lanes,
        [Span(down, up, "nothing runs")],
    )


def _fired(schedule: Schedule, until: int, outage: tuple[int, int]) -> Iterator[Mark]:
    """The steps of a schedule; nothing fires during an outage."""
    # A step reads and writes nothing.
    firer = Firer(ledger=None, calendar=CALENDAR)  # type: ignore[arg-type]
    first = next(CALENDAR.times(schedule.rule, schedule.rule.starts_at - 1))
    kept = StoredSchedule(schedule, Progress(nominal=first, next_at=schedule.fires_at(first)), 1, 0)
    while (now := kept.progress.next_at) <= until:
        now = outage[1] if outage[0] <= now < outage[1] else now
        step = firer.step(kept, now)
        fired = {task.id for task in step.tasks}
        recent = step.progress.recent[len(kept.progress.recent) :]
        for one in recent:
            if occurrence_id(schedule.id, one.nominal) not in fired:
                yield Nothing(one.nominal)
            elif now - one.nominal <= GRACE_MS:
                yield Dot(now)
            else:
                yield from (Moved(one.nominal, now), Dot(now, f"stands for {1 + one.besides}" if one.besides else ""))
        gone = _times(schedule.rule, kept.progress.nominal or 0, now)
        yield from (Nothing(at) for at in gone if at not in {one.nominal for one in recent})
        kept = kept._replace(progress=step.progress)


RUN_MS = 100 * MINUTE
"""Time that an occurrence takes in the picture of overlap."""


def overlap() -> Drawing:
    """Occurrences that take longer than an hour, each hour."""
    since, until = _at("2027-01-12T08:45:00+01:00"), _at("2027-01-12T14:30:00+01:00")
    said = {
        Overlap.ALLOW: "both run",
        Overlap.SKIP: "not while one runs",
        Overlap.QUEUE: "one waits: the newest",
        Overlap.REPLACE: "the running one ends",
    }
    return _drawing(
        "overlap: an occurrence each hour takes 100 minutes",
        "0 * * * *, Europe/Vienna, four times. An orange bar is cancelled, an open circle waits, a cross never runs.",
        (since, until, HOUR),
        [_lane(one, Overlap.ALLOW, said[one], _ran(one, since, until)) for one in Overlap],
    )


def _ran(choice: Overlap, since: int, until: int) -> list[Mark]:
    """Four occurrences on the test kit's clock; each runs, comes again after RUN_MS, and is done."""
    began, ended = dict[str, int](), dict[str, int]()

    def work(task: Task) -> Done | Again:
        now = round(duecourse.now.timestamp() * 1000)
        if began.setdefault(task.id, now) == now:
            return Again(after=RUN_MS // 1000)
        ended[task.id] = now
        return Done()

    with Duecourse(start=datetime.fromtimestamp(since / 1000).astimezone()) as duecourse:
        duecourse.handle("report", work)
        repeat = {"cron": HOURLY.expression}
        duecourse.client.schedules.add(
            id="s", kind="report", payload={}, repeat=repeat, time_zone=ZONE, overlap=choice.value, limit=4
        )
        for at in range(since, until, MINUTE):
            duecourse.advance(MINUTE / 1000)
            for one in duecourse.client.schedules.get("s").recent:
                if one.state in {"cancelled", "skipped"}:
                    ended.setdefault(one.id, at + MINUTE)
        recent = reversed(duecourse.client.schedules.get("s").recent)
    return list(_in_rows([_Run(one.nominal, began.get(one.id), ended[one.id], one.state) for one in recent]))


class _Run(NamedTuple):
    """An occurrence: its nominal time, its first run, its end (epoch ms), and the state that it ended in."""

    nominal: int
    began: int | None
    ended: int
    state: str


def _in_rows(runs: Iterable[_Run]) -> Iterator[Mark]:
    """The runs in two rows, each in the first that is free."""
    free = [0, 0]
    for nominal, began, ended, state in runs:
        row = 0 if free[0] <= nominal else 1
        free[row] = ended
        first = ended if began is None else began
        if first > nominal:
            yield Waits(nominal, first, row)
        if began is None:
            yield Nothing(nominal, row=row)
        else:
            yield Bar(began, ended, _wall(nominal), state == Status.CANCELLED, row)


def jitter() -> Drawing:
    """Six schedules of the same minute."""
    nominal = _at("2027-01-25T09:00:00+01:00")
    since, until = nominal - 2 * MINUTE, nominal + 12 * MINUTE
    lanes = []
    for name, most, said in (("PT0S", 0, "all at once"), ("PT10M", 10 * MINUTE, "each at its own time")):
        rule = Rule(Cron("0 9 * * *"), since, ZONE)
        times = {one: Schedule(one, "report", rule, jitter_ms=most).fires_at(nominal) for one in "abcdef"}
        marks: list[Mark] = [Dot(at, one) for one, at in times.items()] if most else [Dot(nominal, "a to f")]
        lanes.append(_lane(name, "PT0S", said, marks))
    return _drawing(
        "jitter: six schedules, a to f, at 09:00",
        "0 9 * * *, Europe/Vienna. The delay is drawn from the schedule's id and the time.",
        (since, until, 2 * MINUTE),
        lanes,
    )


def _drawing(
    title: str, note: str, time: tuple[int, int, int], lanes: list[Lane], spans: list[Span] | None = None
) -> Drawing:
    """A drawing of a time from the first to the second instant, with texts at multiples of the third."""
    since, until, step = time
    ticks = range(since + -since % step, until + 1, step)
    wall = Axis(ZONE, [(at, _around(at)) for at in ticks])
    utc = Axis("UTC", [(at, CALENDAR.local(at, "UTC")[11:16]) for at in ticks])
    return Drawing(title, note, since, until, wall, utc, lanes, spans or [])


def _lane(choice: str, default: str, said: str, marks: list[Mark]) -> Lane:
    return Lane(f"{choice} (default)" if choice == default else choice, said, marks)


def _times(rule: Rule, since: int, until: int) -> list[int]:
    """Nominal times from one instant to another."""
    found = []
    for at in islice(CALENDAR.times(rule, since - 1), 100):
        if at > until:
            break
        found.append(at)
    return found


def _wall(at: int) -> str:
    return CALENDAR.local(at, ZONE)[11:16]


def _around(at: int) -> str:
    """Wall-clock time, both where the clocks change."""
    before = datetime.fromisoformat(CALENDAR.local(at - MINUTE, ZONE)) + timedelta(minutes=1)
    after = _wall(at)
    return after if f"{before:%H:%M}" == after else f"{before:%H:%M} → {after}"


def _at(instant: str) -> int:
    return parse_instant(instant)


if __name__ == "__main__":
    write()
