"""What users of other schedulers complain of, on every store: each complaint by its number in our list of peers'."""

import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from duecourse import errors
from duecourse.app import App, Parts
from duecourse.base.times import parse_instant
from duecourse.ledger.operation_types import Fired
from duecourse.ledger.operations.ledger import Ledger
from duecourse.ledger.schedule import (
    Cron,
    Every,
    Fold,
    Gap,
    Missed,
    Overlap,
    Rule,
    Schedule,
    StoredSchedule,
    occurrence_id,
)
from duecourse.ledger.task import Done, Drop, Status, Task
from duecourse.schedules.firing import Firer
from duecourse.settings import Settings
from tests.support.clock import START, HandClock
from tests.support.engine import ample
from tests.support.ledger import SHARD, claim
from tests.support.schedules import MINUTE, due, fire_due

HOUR = 60 * MINUTE
Passing = Callable[[int], None]


class Work:
    """What occurrences do, and which have run, in order."""

    def __init__(self) -> None:
        self.ran: list[str] = []
        self.ends: Callable[[Task], Any] = lambda _: Done()

    def __call__(self, task: Task) -> Any:
        self.ran.append(task.id)
        return self.ends(task)


@pytest.fixture
def work() -> Work:
    return Work()


@pytest.fixture
def app(ledger: Ledger, work: Work) -> Iterator[App]:
    app = App(Settings(), Parts(ledger=ledger, kinds={"webhook": work}))
    yield app
    app.close()


@pytest.fixture
def pass_time(app: App, clock: HandClock) -> Passing:
    def passed(ms: int) -> None:
        clock.advance(ms)
        app.drainer.drain([SHARD], ample)

    return passed


def add(app: App, rule: Rule | None = None, **fields: Any) -> None:
    app.schedules.add(Schedule("s", "webhook", rule or Rule(Every(HOUR), START + HOUR), **fields))


def hours(*numbers: int) -> list[str]:
    """Ids of the occurrences of these hours."""
    return [occurrence_id("s", START + number * HOUR) for number in numbers]


@pytest.mark.parametrize("end", ["died", "cancelled", "deleted", "replayed", "lost"])
def test_peers_8_a_series_goes_on_whatever_becomes_of_an_occurrence(
    app: App, ledger: Ledger, clock: HandClock, work: Work, pass_time: Passing, end: str
) -> None:
    add(app)
    work.ends = lambda _: Drop("no use")
    if end in {"cancelled", "deleted", "lost"}:
        clock.advance(HOUR)
        assert fire_due(ledger, app.fire)
        if end == "lost":  # its worker is gone, and its lease lapses
            claim(ledger, lease_ms=1)
        else:
            ledger.cancel("default", hours(1))
        if end == "deleted":
            ledger.sweep(SHARD, retention_ms=0)
    else:
        pass_time(HOUR)
        found = ledger.get("default", hours(1)[0])
        assert found
        assert found.status is Status.DEAD
        if end == "replayed":
            ledger.replay("default", hours(1))
    work.ends = lambda _: Done()
    for _ in range(3):
        pass_time(HOUR)
    assert [id for id in work.ran if id not in hours(1)] == hours(2, 3, 4)


def test_peers_8_two_schedulers_that_look_at_once_add_one_occurrence(
    app: App, ledger: Ledger, clock: HandClock, pass_time: Passing, work: Work
) -> None:
    add(app)
    clock.advance(HOUR)
    one, other = (Firer(ledger, app.calendar) for _ in range(2))
    [seen] = due(ledger)
    steps = [firer.step(seen, clock.at) for firer in (one, other)]
    assert [ledger.fire(SHARD, [step])[0] for step in steps] == [Fired.FIRED, Fired.STALE]
    pass_time(0)
    pass_time(0)
    assert work.ran == hours(1)


@pytest.mark.slow
def test_peers_8_times_are_the_schedules_and_do_not_drift_with_how_late_a_run_was(
    app: App, pass_time: Passing, work: Work
) -> None:
    add(app)
    draw = random.Random(8)
    passed, at = 0, 0
    while passed < 24 * HOUR:
        at = draw.randrange(20_000, 50_000)
        pass_time(at)
        passed += at
    assert work.ran == hours(*range(1, passed // HOUR + 1))


@pytest.mark.parametrize(
    ("gap", "fold", "spring", "autumn"),
    [
        ("shift", "first", ["01:00"], ["00:30"]),
        ("skip", "second", [], ["01:30"]),
        ("shift", "both", ["01:00"], ["00:30", "01:30"]),
    ],
)
def test_peers_9_a_time_in_a_change_of_the_clocks_fires_as_its_schedule_says(
    app: App,
    clock: HandClock,
    pass_time: Passing,
    work: Work,
    gap: str,
    fold: str,
    spring: list[str],
    autumn: list[str],
) -> None:
    days = {"2026-10-25": autumn, "2027-03-28": spring}
    expected = [f"s@{day}T{time}:00Z" for day, times in days.items() for time in times]
    for day in days:
        clock.at = parse_instant(f"{day}T00:00:00Z") - 30 * MINUTE
        if day == "2026-10-25":
            add(
                app,
                Rule(Cron("30 2 * * *"), clock.at, "Europe/Vienna", gap=Gap(gap), fold=Fold(fold)),
                missed=Missed.NONE,
            )
        else:
            app.schedules.change("default", "s", {"paused": False})
        for _ in range(12):
            pass_time(15 * MINUTE)
        app.schedules.change("default", "s", {"paused": True})
    assert [id for id in work.ran if id.partition("T")[0].removeprefix("s@") in days] == expected


@pytest.mark.parametrize(
    ("missed", "ran", "counted"),
    [(Missed.LATEST, [50], 49), (Missed.ALL, [49, 50], 48), (Missed.NONE, [], 50)],
)
def test_peers_10_after_an_outage_neither_all_is_lost_nor_all_comes_at_once(
    app: App, pass_time: Passing, work: Work, missed: Missed, ran: list[int], counted: int
) -> None:
    add(app, missed=missed, catch_up_ms=110 * MINUTE)
    pass_time(50 * HOUR + 2 * MINUTE)
    assert sorted(work.ran) == hours(*ran)
    status = app.schedules.get("default", "s")
    assert status.progress.missed == counted
    assert status.upcoming[0].nominal == START + 51 * HOUR
    if missed is Missed.LATEST:
        assert status.recent[0].stands_for == 50


def test_peers_10_what_was_missed_comes_at_a_pace_beside_what_is_due(app: App, pass_time: Passing, work: Work) -> None:
    add(app, Rule(Every(MINUTE), START + MINUTE), missed=Missed.ALL)
    pass_time(HOUR)
    steps = [len(work.ran)]
    for _ in range(6):
        pass_time(1_000)
        steps.append(len(work.ran))
    assert steps == [10, 20, 30, 40, 50, 60, 60]
    assert sorted(work.ran) == [occurrence_id("s", START + n * MINUTE) for n in range(1, 61)]


def test_peers_12_a_schedule_that_is_changed_while_it_fires_does_one_or_the_other(
    app: App, ledger: Ledger, clock: HandClock, pass_time: Passing, work: Work
) -> None:
    add(app)
    clock.advance(HOUR)
    [seen] = due(ledger)
    step = Firer(ledger, app.calendar).step(seen, clock.at)
    app.schedules.change("default", "s", {"rule": {"repeat": Every(2 * HOUR)}})
    assert ledger.fire(SHARD, [step]) == [Fired.STALE]
    pass_time(0)
    pass_time(2 * HOUR)
    pass_time(2 * HOUR)
    assert work.ran == hours(1, 3, 5)


def test_peers_12_a_schedule_that_is_deleted_or_paused_fires_no_more_at_once(
    app: App, ledger: Ledger, clock: HandClock, pass_time: Passing, work: Work
) -> None:
    def seen_due() -> StoredSchedule:
        [one] = due(ledger)
        return one

    add(app)
    clock.advance(HOUR)
    firer = Firer(ledger, app.calendar)
    step = firer.step(seen_due(), clock.at)
    app.schedules.change("default", "s", {"paused": True})
    assert ledger.fire(SHARD, [step]) == [Fired.STALE]
    app.schedules.change("default", "s", {"paused": False})
    step = firer.step(seen_due(), clock.at)
    app.schedules.delete("default", "s")
    assert ledger.fire(SHARD, [step]) == [Fired.STALE]
    pass_time(5 * HOUR)
    assert work.ran == []
    with pytest.raises(errors.TaskNotFound):
        app.schedules.change("default", "s", {"paused": False})


def test_peers_12_an_occurrence_that_runs_can_be_replaced_or_cancelled(
    app: App, ledger: Ledger, clock: HandClock
) -> None:
    add(app, overlap=Overlap.REPLACE)
    clock.advance(HOUR)
    fire_due(ledger, app.fire)
    [running] = claim(ledger)
    clock.advance(HOUR)
    fire_due(ledger, app.fire)
    states = {id: found.status for id in hours(1, 2) if (found := ledger.get("default", id))}
    assert states == dict(zip(hours(1, 2), (Status.CANCELLED, Status.SCHEDULED), strict=True))
    assert running.id == hours(1)[0]


def test_peers_13_lateness_of_a_schedule_is_seen(app: App, clock: HandClock) -> None:
    add(app)
    clock.advance(HOUR + 90_000)
    since = "Its next occurrence has been due for 1 minute 30 seconds"
    assert app.schedules.get("default", "s").why == f"{since}, and waits for a ring or the next tick."
