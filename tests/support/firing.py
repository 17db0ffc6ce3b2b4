"""Schedules that fire in a drain: many of them in several zones, what an oracle says of each, and what came of them."""

import random
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import cache
from itertools import product
from typing import NamedTuple

from duecourse.base.times import parse_instant
from duecourse.ledger.operations.ledger import Ledger
from duecourse.ledger.schedule import Cron, Every, Fold, Gap, Progress, Rule, Schedule
from duecourse.ledger.task import Done, Task
from duecourse.running.drain import Drainer, Limits
from duecourse.running.run import Runner
from duecourse.running.threads import Threads
from duecourse.schedules.calendar import Calendar
from duecourse.schedules.firing import Firer
from tests.support import calendar_oracle as oracle
from tests.support.engine import Lambda, targets_of

CALENDAR = Calendar()
ZONES = [
    "Europe/Vienna",
    "UTC",
    "Atlantic/Azores",
    "Asia/Kathmandu",
    "Europe/London",
    "America/New_York",
    "Antarctica/Troll",
    "Australia/Lord_Howe",
]
"""The first, third, fifth and seventh change their clocks in the same instant: by one hour, Troll's by two."""


class Times(NamedTuple):
    """A cron expression, or elapsed time in ms, with its zone and policies."""

    repeat: str | int
    zone: str
    gap: str
    fold: str

    def schedule(self, id: str, start: int) -> Schedule:
        """A schedule of these times."""
        repeat = Cron(self.repeat) if isinstance(self.repeat, str) else Every(self.repeat)
        return Schedule(id, "work", Rule(repeat, start, self.zone, None, Gap(self.gap), Fold(self.fold)))


@cache
def oracle_times(times: Times, start: int, end: int) -> list[int]:
    """What the oracle says: the times from `start` to `end`, both included (epoch ms)."""
    if isinstance(times.repeat, int):
        return [*range(start, end + 1, times.repeat)]
    fires = _window(times.zone, start, end).fires(oracle.Expression(times.repeat))
    return [at for at in fires[times.gap, times.fold] if start <= at <= end]


@cache
def _window(zone: str, start: int, end: int) -> oracle.Window:
    """A clock's minutes, with those around in which it may change back."""
    around = 3 * 3_600_000
    first, last = (datetime.fromtimestamp(at / 1000, UTC) for at in (start - around, end + around))
    return oracle.window(zone, first, last)


def mixed(expressions: Sequence[str | int], count: int) -> dict[str, Times]:
    """Times for `count` schedules, by their ids: expressions, zones and policies in every combination."""
    every = [Times(*one) for one in product(expressions, ZONES, oracle.GAPS, oracle.FOLDS)]
    random.Random(7).shuffle(every)
    return {f"s-{n:05}": every[n % len(every)] for n in range(count)}


def put_all(ledger: Ledger, asked: dict[str, Times], start: int) -> None:
    """Add schedules of these times, which begin at `start`."""
    for id, times in asked.items():
        schedule = times.schedule(id, start)
        first = next(CALENDAR.times(schedule.rule, start - 1))
        ledger.put_schedule(schedule, Progress(nominal=first, next_at=first, zones=CALENDAR.version))


class Working(NamedTuple):
    """A drainer that fires what is due, and how often it ran each task."""

    drainer: Drainer
    ran: Counter[str]


@contextmanager
def working(ledger: Ledger, *, lease_ms: int = 600_000) -> Iterator[Working]:
    """Such a drainer; its threads end with the test."""
    ran = Counter[str]()

    def count(task: Task) -> Done:
        ran[task.id] += 1
        return Done()

    threads = Threads(2)
    runner = Runner(lambda _name: count, None, ledger.now, random.Random(7))
    fire = Firer(ledger, CALENDAR).fire
    try:
        yield Working(Drainer(ledger, runner, targets_of({}, Lambda()), threads, Limits(lease_ms, 1_000), fire), ran)
    finally:
        threads.close()


def by_schedule(ids: Iterable[str]) -> dict[str, list[int]]:
    """Nominal times of occurrences, in order, by schedule: read off their ids."""
    found: dict[str, list[int]] = {}
    for id in ids:
        name, _, time = id.partition("@")
        found.setdefault(name, []).append(parse_instant(time))
    return {name: sorted(times) for name, times in found.items()}
