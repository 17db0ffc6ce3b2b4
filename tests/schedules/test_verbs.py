"""The verbs on schedules, in process: added, changed, paused, run, backfilled and shown, on a clock moved by hand."""

import pickle
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from duecourse import errors
from duecourse.app import App, Parts
from duecourse.base.json_text import dump_json
from duecourse.base.times import MAX_INSTANT, format_instant, parse_instant
from duecourse.ledger.embedded.ledger import EmbeddedLedger
from duecourse.ledger.queue import Rate
from duecourse.ledger.schedule import (
    AT_ADD,
    NEVER,
    Cron,
    Every,
    Missed,
    Overlap,
    Preview,
    Progress,
    RRule,
    Rule,
    Schedule,
    ScheduleStatus,
    Upcoming,
    occurrence_id,
)
from duecourse.ledger.task import Again, Done, NewTask, RetryPolicy, Shard, Status, Task
from duecourse.schedules.calendar import Calendar
from duecourse.schedules.rrule import rrule_times
from duecourse.schedules.verbs import MAX_BACKFILL, SHOWN, Schedules
from duecourse.settings import Settings
from tests.support.call_count import within
from tests.support.clock import START, HandClock
from tests.support.engine import ample
from tests.support.ledger import SHARD, claim
from tests.support.requests import POLL
from tests.support.schedules import MINUTE, fire_due, kept, put
from tests.support.seals import LOCAL_KEY

HOUR = 60 * MINUTE
DAY = 24 * HOUR


@pytest.fixture
def ran() -> list[str]:
    """Ids of what ran."""
    return []


@pytest.fixture
def app(ledger: EmbeddedLedger, ran: list[str]) -> Iterator[App]:
    """An App whose tasks are noted and done at once, one after another."""

    def work(task: Task) -> Done:
        ran.append(task.id)
        return Done()

    parts = Parts(ledger=ledger, kinds=dict.fromkeys(["webhook", "poll"], work), wrapping=LOCAL_KEY)
    app = App(Settings(parallel=1), parts)
    yield app
    app.close()


@pytest.fixture
def pass_time(app: App, clock: HandClock) -> Callable[[int], None]:
    """Let time pass in which nothing runs, and then work all that is due."""

    def passed(ms: int = 0) -> None:
        clock.advance(ms)
        app.drainer.drain([SHARD], ample)

    return passed


Passing = Callable[[int], None]


def hourly(id: str = "s", **fields: Any) -> Schedule:
    """A schedule of every hour from START on; its first time is an hour later."""
    return Schedule(id, **{"kind": "webhook", "rule": Rule(Every(HOUR), START + HOUR)} | fields)


def add(app: App, id: str = "s", **fields: Any) -> ScheduleStatus:
    return app.schedules.add(hourly(id, **fields))[0]


def occurrences(*numbers: int, id: str = "s") -> list[str]:
    """Ids of the occurrences of the hours with these numbers."""
    return [occurrence_id(id, START + number * HOUR) for number in numbers]


def states(status: ScheduleStatus) -> list[tuple[int, str, int]]:
    """Of each of the last occurrences its hour, its state and how many times it stands for; oldest first."""
    return [((one.nominal - START) // HOUR, one.state, one.stands_for) for one in reversed(status.recent)]


def problems(action: Callable[[], object]) -> dict[str, str]:
    with pytest.raises(errors.InvalidInput) as caught:
        action()
    return {one.field: one.problem for one in caught.value.problems}


def test_an_added_schedule_is_answered_with_its_next_times(app: App) -> None:
    status = add(app, limit=60, deadline_ms=MINUTE, retry=RetryPolicy(3, 10, 1.25), notify="https://a.example/")
    assert [one.nominal for one in status.upcoming] == [START + n * HOUR for n in range(1, SHOWN + 1)]
    assert (status.progress.version, status.progress.fired, status.created_at) == (1, 0, START)
    assert status.recent == ()
    assert app.schedules.get("default", "s") == status


def test_the_same_schedule_again_is_kept_whenever_it_comes_and_another_one_is_rejected(
    app: App, pass_time: Passing
) -> None:
    asked = hourly(rule=Rule(Every(HOUR), AT_ADD))
    first, created = app.schedules.add(asked)
    assert (created, first.schedule.rule.starts_at) == (True, START)
    pass_time(90 * MINUTE)
    again, created = app.schedules.add(asked)
    assert (created, again.schedule, again.progress.fired) == (False, first.schedule, 1)
    for field, value in {"payload": "[1]", "overlap": Overlap.SKIP, "limit": 3, "paused": True}.items():
        with pytest.raises(errors.ScheduleExists):
            app.schedules.add(hourly(rule=Rule(Every(HOUR), AT_ADD), **{field: value}))
    with pytest.raises(errors.ScheduleExists):
        app.schedules.add(hourly(rule=Rule(Every(HOUR), START + 1)))
    assert app.schedules.get("default", "s").progress.version == 1


def test_one_that_starts_now_fires_first_after_its_first_interval_and_one_with_a_start_at_it(
    app: App, pass_time: Passing, ran: list[str]
) -> None:
    add(app, "now", rule=Rule(Every(HOUR), AT_ADD))
    add(app, "at", rule=Rule(Every(HOUR), START))
    pass_time(0)
    assert ran == occurrences(0, id="at")
    pass_time(HOUR)
    assert sorted(ran[1:]) == [*occurrences(1, id="at"), *occurrences(1, id="now")]


def test_each_occurrence_is_a_task_as_the_schedule_says(app: App, ledger: EmbeddedLedger, clock: HandClock) -> None:
    add(
        app,
        payload='{"a":1}',
        tenant="acme",
        retry=RetryPolicy(max_attempts=2),
        deadline_ms=5 * MINUTE,
        notify="https://a.example/",
    )
    clock.advance(HOUR + 5)
    assert fire_due(ledger, app.fire)
    task = ledger.get("default", *occurrences(1), "acme")
    assert task is not None
    assert (task.kind, task.payload, task.tenant, task.group) == ("webhook", {"a": 1}, "acme", "s")
    assert (task.due_at, task.deadline_at) == (START + HOUR, START + HOUR + 5 * MINUTE)
    assert (task.retry.max_attempts, task.notify) == (2, "https://a.example/")


def test_a_change_of_the_rule_fires_what_is_due_and_begins_its_times_anew(
    app: App, pass_time: Passing, clock: HandClock, ran: list[str]
) -> None:
    add(app)
    clock.advance(HOUR + 3)
    status = app.schedules.change("default", "s", {"rule": {"repeat": Every(10 * MINUTE)}}, if_version=1)
    assert (status.progress.version, status.progress.fired) == (2, 1)
    assert status.upcoming[0].nominal == START + HOUR + 10 * MINUTE
    assert states(status) == [(1, "scheduled", 1)]
    pass_time(0)
    pass_time(9 * MINUTE)
    pass_time(MINUTE)
    assert ran == [*occurrences(1), occurrence_id("s", START + HOUR + 10 * MINUTE)]


@pytest.mark.parametrize(
    ("missed", "expected", "counted"),
    [
        (Missed.LATEST, [(6, 6)], 5),
        (Missed.NONE, [], 6),
        (Missed.ALL, [(5, 1), (6, 1)], 4),
    ],
)
def test_a_change_of_the_rule_after_an_outage_fires_what_its_policy_says(
    app: App, pass_time: Passing, clock: HandClock, missed: Missed, expected: list[tuple[int, int]], counted: int
) -> None:
    add(app, missed=missed, catch_up_ms=100 * MINUTE)
    clock.advance(6 * HOUR + 2 * MINUTE)
    app.schedules.change("default", "s", {"rule": {"repeat": Every(7 * HOUR)}})
    pass_time(0)
    pass_time(1_000)
    status = app.schedules.get("default", "s")
    assert [(hour, count) for hour, state, count in states(status) if state == "done"] == expected
    assert (status.progress.missed, status.progress.fired) == (counted, len(expected))
    assert status.upcoming[0].nominal == START + 8 * HOUR


@pytest.mark.slow
def test_a_change_of_the_rule_fires_many_at_the_pace_that_they_had_and_a_thousand_at_most(
    app: App, ledger: EmbeddedLedger, clock: HandClock
) -> None:
    add(app, rule=Rule(Every(MINUTE), START), missed=Missed.ALL, catch_up_ms=DAY)
    clock.advance(1_099 * MINUTE + 30_000)
    status = app.schedules.change("default", "s", {"rule": {"repeat": Every(HOUR)}})
    due = [task.due_at - clock.at for task in ledger.group("default", "s")]
    assert sorted(due) == [second * 1_000 for second in range(100) for _ in range(10)]
    assert (status.progress.fired, status.progress.missed) == (1_000, 100)
    assert status.upcoming[0].nominal == START + 19 * HOUR
    assert states(status)[-1][1] == "missed"


def test_what_jitter_delays_beyond_a_change_of_the_rule_fires_at_its_time(
    app: App, ledger: EmbeddedLedger, pass_time: Passing, ran: list[str]
) -> None:
    due_at = add(app, jitter_ms=HOUR).upcoming[0].due_at
    pass_time(HOUR)
    app.schedules.change("default", "s", {"rule": {"until": START + 5 * HOUR, "repeat": Every(4 * HOUR)}})
    task = ledger.get("default", *occurrences(1))
    assert task
    assert task.due_at == due_at > START + HOUR
    pass_time(HOUR)
    assert ran == occurrences(1)


@pytest.mark.parametrize("hours", [2, 30 * 24])
def test_what_passed_before_a_change_of_the_rule_of_a_paused_schedule_is_missed(
    app: App, pass_time: Passing, ran: list[str], hours: int
) -> None:
    add(app)
    pass_time(HOUR)
    app.schedules.change("default", "s", {"paused": True})
    pass_time(hours * HOUR)
    app.schedules.change("default", "s", {"rule": {"repeat": Every(1_000 * HOUR)}})
    status = app.schedules.change("default", "s", {"paused": False})
    pass_time(0)
    assert ran == occurrences(1)
    assert (status.progress.fired, status.progress.missed) == (1, hours)
    last = [(hour, "missed", 1) for hour in range(2, hours + 2)]
    assert states(status) == [(1, "done", 1), *last][-10:]
    assert status.upcoming[0].nominal == START + 1_001 * HOUR


@pytest.mark.parametrize("missed", [Missed.LATEST, Missed.NONE])
def test_times_go_on_where_only_their_end_or_what_is_left_out_is_changed(
    app: App, pass_time: Passing, clock: HandClock, ran: list[str], missed: Missed
) -> None:
    hourly = RRule("FREQ=HOURLY")
    add(app, rule=Rule(hourly, START + HOUR), missed=missed)
    pass_time(HOUR)
    app.schedules.change("default", "s", {"paused": True})
    clock.advance(3 * HOUR)
    left_out = RRule("FREQ=HOURLY", (START + 2 * HOUR, START + 5 * HOUR))
    app.schedules.change("default", "s", {"rule": {"repeat": left_out, "until": START + 7 * HOUR}})
    clock.advance(2 * MINUTE)
    resumed = app.schedules.change("default", "s", {"paused": False})
    assert (resumed.progress.missed, resumed.upcoming[0].nominal) == (0, START + 3 * HOUR)
    pass_time(0)
    status = app.schedules.get("default", "s")
    assert ran == occurrences(1, *([4] if missed is Missed.LATEST else []))
    assert status.progress.missed == (1 if missed is Missed.LATEST else 2)
    assert [one.nominal for one in status.upcoming] == [START + hour * HOUR for hour in (6, 7)]
    back = app.schedules.change("default", "s", {"rule": {"repeat": hourly}})
    assert [one.nominal for one in back.upcoming] == [START + hour * HOUR for hour in (5, 6, 7)]


def test_a_change_of_the_rule_that_is_cut_off_leaves_the_series_as_it_goes_on(
    app: App, ledger: EmbeddedLedger, pass_time: Passing, clock: HandClock, ran: list[str]
) -> None:
    class CutOff:
        """The ledger of a process that dies before it writes the schedule."""

        def __getattr__(self, name: str) -> Any:
            if name == "put_schedule":
                raise SystemExit
            return getattr(ledger, name)

    add(app)
    add(app, "paused", paused=True)
    clock.advance(HOUR)
    cut_off: Any = CutOff()
    verbs = Schedules(cut_off, app.calendar, lambda task: task)
    for id in ("s", "paused"):
        with pytest.raises(SystemExit):
            verbs.change("default", id, {"rule": {"repeat": Every(10 * MINUTE)}})
    pass_time(0)
    pass_time(HOUR)
    assert ran == occurrences(1, 2)


def test_what_another_fires_while_the_rule_is_changed_is_not_fired_twice(
    app: App, ledger: EmbeddedLedger, clock: HandClock
) -> None:
    class Beaten:
        """The ledger, in which another process fires first."""

        def __getattr__(self, name: str) -> Any:
            if name == "fire":
                fire_due(ledger, app.fire)
            return getattr(ledger, name)

    beaten: Any = Beaten()
    add(app)
    clock.advance(HOUR)
    verbs = Schedules(beaten, app.calendar, lambda task: task)
    status = verbs.change("default", "s", {"rule": {"repeat": Every(10 * MINUTE)}})
    assert (status.progress.fired, status.progress.version) == (1, 2)
    assert status.upcoming[0].nominal == START + HOUR + 10 * MINUTE


def test_a_change_of_what_is_not_its_rule_keeps_its_times(app: App, pass_time: Passing, ledger: EmbeddedLedger) -> None:
    add(app)
    pass_time(HOUR + MINUTE)
    status = app.schedules.change("default", "s", {"payload": '{"url":"https://b.example/"}'}, if_version=1)
    assert status.upcoming[0].nominal == START + 2 * HOUR
    pass_time(HOUR)
    was, now = (ledger.get("default", id) for id in occurrences(1, 2))
    assert was
    assert now
    assert (was.payload, now.payload) == ({}, {"url": "https://b.example/"})


def test_a_late_writer_loses(app: App) -> None:
    add(app)
    app.schedules.change("default", "s", {"limit": 8}, if_version=1)
    with pytest.raises(errors.VersionConflict):
        app.schedules.change("default", "s", {"limit": 9}, if_version=1)
    status = app.schedules.get("default", "s")
    assert (status.schedule.limit, status.progress.version) == (8, 2)


@pytest.mark.parametrize(
    ("missed", "expected", "counted"),
    [
        (Missed.LATEST, [(1, "done", 1), (6, "done", 5)], 4),
        (Missed.NONE, [(1, "done", 1), *((n, "missed", 1) for n in range(2, 7))], 5),
        (Missed.ALL, [(1, "done", 1), *((n, "missed", 1) for n in range(2, 5)), (5, "done", 1), (6, "done", 1)], 3),
    ],
)
def test_what_passed_while_it_was_paused_is_missed(
    app: App, pass_time: Passing, missed: Missed, expected: list[tuple[int, str, int]], counted: int
) -> None:
    add(app, missed=missed, catch_up_ms=100 * MINUTE)
    pass_time(HOUR)
    paused = app.schedules.change("default", "s", {"paused": True})
    assert (paused.upcoming, paused.progress.next_at) == ((), NEVER)
    pass_time(5 * HOUR + 2 * MINUTE)
    assert states(app.schedules.get("default", "s")) == [(1, "done", 1)]
    resumed = app.schedules.change("default", "s", {"paused": False})
    assert resumed.upcoming[0].nominal == START + 2 * HOUR
    pass_time(0)
    status = app.schedules.get("default", "s")
    assert states(status) == expected
    assert status.progress.missed == counted
    assert status.upcoming[0].nominal == START + 7 * HOUR


def test_it_ends_with_its_limit_and_goes_on_once_that_is_raised(app: App, pass_time: Passing, ran: list[str]) -> None:
    added = add(app, limit=2)
    assert len(added.upcoming) == 2
    for _ in range(4):
        pass_time(HOUR)
    assert ran == occurrences(1, 2)
    over = app.schedules.get("default", "s")
    assert (over.upcoming, over.progress.nominal) == ((), None)
    assert over.why == "It has fired as often as `limit` says."
    raised = app.schedules.change("default", "s", {"limit": 3})
    assert [one.nominal for one in raised.upcoming] == [START + 4 * HOUR]
    pass_time(0)
    pass_time(HOUR)
    assert ran == occurrences(1, 2, 4)
    lowered = app.schedules.change("default", "s", {"limit": 1})
    assert lowered.progress.nominal is None


def test_a_limit_that_is_lowered_and_taken_away_again_loses_no_time_in_between(
    app: App, pass_time: Passing, ran: list[str]
) -> None:
    add(app)
    pass_time(HOUR)
    assert app.schedules.change("default", "s", {"limit": 1}).upcoming == ()
    assert app.schedules.change("default", "s", {"limit": None}).upcoming[0].nominal == START + 2 * HOUR
    pass_time(HOUR)
    assert ran == occurrences(1, 2)


def test_none_comes_after_until(app: App, pass_time: Passing, ran: list[str]) -> None:
    add(app, rule=Rule(Every(HOUR), START, until=START + 2 * HOUR))
    pass_time(0)
    for _ in range(4):
        pass_time(HOUR)
    assert ran == occurrences(0, 1, 2)
    assert app.schedules.get("default", "s").why == "Its rule has no time left."
    later = app.schedules.change("default", "s", {"rule": {"until": None}})
    assert later.upcoming[0].nominal == START + 4 * HOUR
    assert app.schedules.change("default", "s", {"rule": {"until": START + 4 * HOUR - 1}}).upcoming == ()
    field = {"rule": {"until": START - 1}}
    assert problems(lambda: app.schedules.change("default", "s", field)).keys() == {"until"}


def test_a_run_by_hand_stands_beside_the_series(app: App, pass_time: Passing, ran: list[str]) -> None:
    before = add(app, overlap=Overlap.SKIP)
    pass_time(MINUTE)
    id = app.schedules.run("default", "s")
    assert id == occurrence_id("s", START + MINUTE)
    pass_time(0)
    after = app.schedules.get("default", "s")
    assert ran == [id]
    assert after.upcoming == before.upcoming
    assert (after.progress.fired, after.progress.version) == (0, 1)
    assert [(one.id, one.state) for one in after.recent] == [(id, "done")]
    pass_time(59 * MINUTE)
    assert ran == [id, *occurrences(1)]


@pytest.mark.parametrize("changes", [{"paused": True}, {"limit": 1}])
def test_one_that_is_paused_or_over_can_still_be_run(
    app: App, pass_time: Passing, ran: list[str], changes: dict[str, Any]
) -> None:
    add(app)
    pass_time(HOUR)
    app.schedules.change("default", "s", changes)
    pass_time(90 * MINUTE)
    id = app.schedules.run("default", "s")
    pass_time(0)
    assert ran == [*occurrences(1), id]
    assert app.schedules.get("default", "s").upcoming == ()


def test_runs_in_one_millisecond_are_occurrences_of_their_own(app: App, pass_time: Passing, ran: list[str]) -> None:
    add(app, overlap=Overlap.SKIP)
    pass_time(HOUR)
    ids = [app.schedules.run("default", "s") for _ in range(2)]
    assert ids == [occurrence_id("s", START + HOUR + later) for later in (1, 2)]
    pass_time(0)
    assert ran == [*occurrences(1), *ids]


def test_a_backfill_adds_each_time_of_a_span_at_a_pace_and_is_gone_then(
    app: App, pass_time: Passing, ran: list[str]
) -> None:
    add(app, limit=1)
    span = (START - 25 * HOUR, START)
    assert app.schedules.backfill("default", "s", span, None) == 25
    paces = []
    for _ in range(5):
        pass_time(1_000)
        paces.append(len(ran))
    assert paces == [10, 20, 25, 25, 25]
    assert ran == occurrences(*range(-25, 0))
    assert [one.schedule.id for one in app.schedules.page("default", "", 10)[0]] == ["s"]
    status = app.schedules.get("default", "s")
    assert (status.progress.fired, status.upcoming[0].nominal) == (0, START + HOUR)
    assert app.schedules.backfill("default", "s", span, None) == 25
    pass_time(5_000)
    pass_time(5_000)
    assert len(ran) == 25


def test_a_backfill_may_overlap_as_it_asks_and_is_of_its_caller(
    app: App, pass_time: Passing, ledger: EmbeddedLedger
) -> None:
    add(app)
    span = (START - 3 * HOUR, START)
    app.schedules.with_source("cli").backfill("default", "s", span, Overlap.SKIP)
    pass_time(0)
    [added] = ledger.group("default", "s")
    assert (added.id, added.by) == (*occurrences(-3), "cli")
    assert app.schedules.get("default", "s").progress.skipped == 2


def test_a_backfill_adds_nothing_that_fired_before(app: App, pass_time: Passing, ran: list[str]) -> None:
    add(app, missed=Missed.NONE)
    pass_time(HOUR)
    pass_time(3 * HOUR + 2 * MINUTE)
    assert ran == occurrences(1)
    assert app.schedules.backfill("default", "s", (START + 1, START + 4 * HOUR + 1), None) == 4
    pass_time(1_000)
    assert ran == occurrences(1, 2, 3, 4)


@pytest.mark.slow
def test_a_backfill_has_bounds(app: App, pass_time: Passing, ran: list[str]) -> None:
    add(app)
    too_long = (START - (MAX_BACKFILL + 1) * HOUR, START)
    assert problems(lambda: app.schedules.backfill("default", "s", too_long, None)).keys() == {"to"}
    assert app.schedules.backfill("default", "s", (START + 1, START + 2), None) == 0
    assert app.schedules.backfill("default", "s", (START - 20 * HOUR, START), None) == 20
    with pytest.raises(errors.ScheduleExists, match="being added already"):
        app.schedules.backfill("default", "s", (START - 20 * HOUR, START - HOUR), None)
    longest = (START - (MAX_BACKFILL + 100) * HOUR, START - 100 * HOUR)
    assert app.schedules.backfill("default", "s", longest, None) == MAX_BACKFILL
    for _ in range(MAX_BACKFILL // 10 + 3):
        pass_time(1_000)
    assert len(ran) == MAX_BACKFILL + 20 == len(set(ran))


def test_a_backfill_of_times_to_come_is_rejected_whatever_the_end_of_its_span(
    app: App, pass_time: Passing, ran: list[str]
) -> None:
    add(app, paused=True)
    to_come = problems(lambda: app.schedules.backfill("default", "s", (START - HOUR, START + HOUR + 1), None))
    assert to_come == {"to": "the span has occurrences that are yet to come: choose now, or an earlier time"}
    assert app.schedules.backfill("default", "s", (START - HOUR, START + HOUR), None) == 2
    pass_time(2 * HOUR)
    assert ran == occurrences(-1, 0)


@pytest.mark.slow
def test_a_backfill_that_queues_runs_all_one_after_another_and_those_of_its_series_between(
    ledger: EmbeddedLedger, clock: HandClock
) -> None:
    under_way, most, ended = set[str](), 0, []

    def work(task: Task) -> Done | Again:
        nonlocal most
        under_way.add(task.id)
        most = max(most, len(under_way))
        if task.run == 1:
            return Again(after="PT20M")
        under_way.remove(task.id)
        ended.append(task.id)
        return Done()

    app = App(Settings(), Parts(ledger=ledger, kinds={"webhook": work}, wrapping=LOCAL_KEY))
    add(app, overlap=Overlap.QUEUE)
    assert app.schedules.backfill("default", "s", (START - 10 * HOUR, START), None) == 10
    while len(ended) < 15:
        clock.advance(MINUTE)
        app.drainer.drain([SHARD], ample)
    app.close()
    wanted = occurrences(*range(-10, 0), *range(1, 6))
    assert (sorted(ended), most) == (sorted(wanted), 1)
    assert ended.index(wanted[10]) < 5
    progress = app.schedules.get("default", "s").progress
    assert (progress.fired, progress.skipped) == (5, 0)


def test_a_backfill_of_a_paused_schedule_goes_on_as_it_began_and_ends_with_the_schedule(
    app: App, ledger: EmbeddedLedger, pass_time: Passing, ran: list[str]
) -> None:
    add(app, paused=True)
    assert app.schedules.backfill("default", "s", (START - 25 * HOUR, START), None) == 25
    pass_time(1_000)
    assert len(ran) == 10
    app.schedules.change("default", "s", {"payload": '{"url":"https://example.org"}', "rule": {"repeat": Every(DAY)}})
    pass_time(1_000)
    assert ran == occurrences(*range(-25, -5))
    assert {task.payload_json for task in ledger.group("default", "s")} == {"{}"}
    app.schedules.delete("default", "s")
    pass_time(5_000)
    assert len(ran) == 20


@pytest.mark.parametrize("overlap", [Overlap.ALLOW, Overlap.QUEUE])
def test_spans_that_overlap_have_one_occurrence_of_each_time(
    app: App, pass_time: Passing, ran: list[str], overlap: Overlap
) -> None:
    add(app)
    for first in (-12, -8):
        app.schedules.backfill("default", "s", (START + first * HOUR, START), overlap)
    for _ in range(24):
        pass_time(1_000)
    assert sorted(ran) == occurrences(*range(-12, 0))
    assert app.schedules.get("default", "s").progress.skipped == 0


def test_a_recurrence_rule_has_no_times_before_its_start(app: App) -> None:
    add(app, rule=Rule(RRule("FREQ=HOURLY"), START))
    assert app.schedules.backfill("default", "s", (START - DAY, START), None) == 0
    add(app, "cron", rule=Rule(Cron("0 * * * *"), START))
    assert app.schedules.backfill("default", "cron", (START - DAY, START), None) == 24


def test_a_preview_shows_times_marks_changes_of_the_clock_and_stores_nothing(app: App, ledger: EmbeddedLedger) -> None:
    since = parse_instant("2026-10-24T00:00:00Z")
    rule = Rule(Cron("30 2 * * *"), since, "Europe/Vienna")
    times = app.schedules.preview(Preview(rule, since, 3))
    assert [(one.local, one.clock_change) for one in times] == [
        ("2026-10-24T02:30:00+02:00", False),
        ("2026-10-25T02:30:00+02:00", False),
        ("2026-10-26T02:30:00+01:00", True),
    ]
    assert len(app.schedules.preview(Preview(Rule(Every(MINUTE), since), since, 1_000))) == 1_000
    assert app.schedules.preview(Preview(rule, parse_instant("2027-01-01T00:00:00Z"), 1))[0].nominal > since + 60 * DAY
    assert ledger.shards() == []
    wrong = Rule(Cron("0 0 30 2 *"), since, "Europe/Wien")
    assert problems(lambda: app.schedules.preview(Preview(wrong, since, 1))).keys() == {"time_zone"}


@pytest.mark.parametrize("time_zone", ["Europe/Vienna", "Pacific/Kiritimati", "America/Adak", "UTC"])
def test_a_preview_from_the_last_or_the_first_instant_has_the_times_that_there_are(app: App, time_zone: str) -> None:
    for repeat in (Cron("30 2 * * *"), RRule("FREQ=DAILY"), Every(MINUTE)):
        rule = Rule(repeat, START, time_zone)
        assert app.schedules.preview(Preview(rule, MAX_INSTANT, 3)) == []
        assert len(app.schedules.preview(Preview(replace(rule, starts_at=0), 0, 3))) == 3


def test_it_says_why_it_fires_when_it_does(app: App, clock: HandClock) -> None:
    def why() -> str:
        return app.schedules.get("default", "s").why

    add(app)
    assert why() == f"Its next occurrence is due in 1 hour, at {format_instant(START + HOUR)}."
    clock.advance(HOUR + 5_000)
    assert why() == "Its next occurrence has been due for 5 seconds, and waits for a ring or the next tick."
    app.schedules.change("default", "s", {"missed": Missed.NONE})
    clock.advance(MINUTE)
    passed = f"Its time of {format_instant(START + HOUR)} has passed, and `missed` is none"
    assert why() == f"{passed}: nothing fires for it. A ring or the next tick moves it on."
    app.schedules.change("default", "s", {"paused": True})
    assert why() == "It is paused: nothing fires until it is resumed."


def test_it_names_the_version_of_the_time_zones_but_for_elapsed_time(app: App) -> None:
    add(app, rule=Rule(Cron("0 9 * * *"), START, "Europe/Vienna"))
    next_at = app.schedules.get("default", "s").progress.next_at
    [listed], _ = app.schedules.page("default", "", 10)
    for status in (app.schedules.get("default", "s"), listed):
        assert status.why.endswith(f"at {format_instant(next_at)}, by time zones {app.calendar.version}.")


def test_it_names_a_queue_that_is_paused(app: App, clock: HandClock) -> None:
    def why() -> list[str]:
        [listed], _ = app.schedules.page("slow", "", 10)
        return [app.schedules.get("slow", "s").why, listed.why]

    app.schedules.add(hourly(queue="slow"))
    app.queues.configure("slow", {"paused": True})
    held = "Its queue slow is paused: nothing fires or runs until it is resumed."
    assert why()[0] == f"Its next occurrence is due in 1 hour, at {format_instant(START + HOUR)}. {held}"
    clock.advance(HOUR + 4_840)
    assert why() == 2 * [f"Its next occurrence has been due for 4.84 seconds. {held}"]


# Settings of a queue in which one task runs, and what is said of an occurrence that waits in it.
LIMITS: list[tuple[dict[str, Any], str]] = [
    ({"max_running": 1}, "its queue slow runs as many tasks as max_running allows."),
    ({"rate": Rate(1, DAY)}, "its queue slow has claimed as many tasks as its rate allows, until 2"),
]


@pytest.mark.parametrize(("settings", "said"), LIMITS, ids=["full", "limited"])
def test_it_names_a_limit_by_which_an_occurrence_waits(
    ledger: EmbeddedLedger, app: App, clock: HandClock, settings: dict[str, Any], said: str
) -> None:
    app.queues.configure("slow", settings, create=True)
    shard = Shard("slow")
    ledger.add([NewTask("first", "webhook", queue="slow")])
    assert [one.id for one in ledger.claim(shard, 1, lease_ms=2 * HOUR).tasks] == ["first"]
    app.schedules.add(hourly(queue="slow"))
    clock.advance(HOUR + 2_500)
    fire_due(ledger, app.fire, shard)
    why = app.schedules.get("slow", "s").why
    id = occurrence_id("s", START + HOUR)
    assert f"Its occurrence {id} waits. It has been due for 2.5 seconds; {said}" in why


def test_it_says_of_an_occurrence_that_nobody_claims_that_it_waits(
    ledger: EmbeddedLedger, app: App, clock: HandClock
) -> None:
    app.schedules.add(hourly())
    clock.advance(HOUR)
    fire_due(ledger, app.fire)
    assert "waits" not in app.schedules.get("default", "s").why, "it is due this moment"
    clock.advance(5_000)
    text = "It has been due for 5 seconds, and waits for a claim, by a ring or by the next tick."
    assert app.schedules.get("default", "s").why.endswith(f"waits. {text}")


def test_it_names_a_kind_that_nothing_runs(ledger: EmbeddedLedger, app: App) -> None:
    put(ledger, rule=Rule(Every(HOUR), START))
    said = "Nothing is known that runs its kind work: name a target, or start a worker."
    assert said in app.schedules.get("default", "s").why


def test_it_says_that_a_quota_skipped_the_last_occurrence(app: App, pass_time: Passing) -> None:
    app.queues.configure("default", {"tenant_max_pending": 1}, create=True)
    app.schedules.add(hourly(tenant="acme"))
    app.tasks.add(NewTask("first", "webhook", '{"url":"https://a.example/"}', tenant="acme", delay_ms=DAY))
    pass_time(HOUR)
    said = "Its last occurrence was skipped: tenant acme is over a quota of default."
    assert said in app.schedules.get("default", "s", "acme").why


@pytest.mark.parametrize(
    ("kind", "payload", "notify"),
    [
        ("webhook", {"url": "https://a.example/", "headers": {"Authorization": "Bearer abcdefghijklmnop"}}, ""),
        ("webhook", {"url": "https://user:passw0rd@a.example/"}, ""),
        ("webhook", {"url": "https://a.example/", "password": "correct horse"}, ""),
        ("webhook", {"url": "https://b.example/"}, "https://user:passw0rd@a.example/"),
    ],
)
def test_credentials_are_rejected(app: App, kind: str, payload: Any, notify: str) -> None:
    found = problems(lambda: add(app, kind=kind, payload=dump_json(payload), notify=notify))
    assert found.keys() == {"notify_done.url" if notify else "payload"}
    assert "keeps no credentials" in next(iter(found.values()))
    add(app, kind=kind, payload=dump_json({"url": "https://a.example/"}))
    changes = {"notify": notify} if notify else {"payload": dump_json(payload)}
    named = problems(lambda: app.schedules.change("default", "s", changes))
    assert {field.partition(".")[0] for field in named} == {next(iter(found)).partition(".")[0]}


def test_a_poll_has_its_usual_deadline(app: App) -> None:
    status = add(app, kind="poll", payload=dump_json({**POLL, "interval": 30_000}))
    assert status.schedule.deadline_ms == DAY
    assert app.schedules.add(hourly(kind="poll", payload=dump_json({**POLL, "interval": 30_000})))[1] is False


def test_one_whose_kind_is_gone_can_be_paused_and_its_rule_changed(app: App, ledger: EmbeddedLedger) -> None:
    ledger.put_schedule(hourly(kind="gone"), Progress(nominal=START + HOUR, next_at=START + HOUR))
    for changes in ({"paused": True}, {"rule": {"repeat": Every(DAY)}}, {"paused": False, "limit": 5}):
        app.schedules.change("default", "s", changes)
    assert problems(lambda: app.schedules.change("default", "s", {"payload": "{}"})).keys() == {"kind"}
    assert problems(lambda: app.schedules.change("default", "s", {"rule": {"repeat": Cron("x")}})).keys() == {
        "repeat.cron"
    }


def test_what_is_not_there_is_not_found(app: App) -> None:
    add(app, tenant="acme")
    verbs = app.schedules
    for verb in (
        lambda: verbs.get("default", "s"),
        lambda: verbs.change("default", "s", {"paused": True}),
        lambda: verbs.delete("default", "s"),
        lambda: verbs.run("default", "s"),
        lambda: verbs.backfill("default", "s", (1, 2), None),
    ):
        with pytest.raises(errors.TaskNotFound, match="schedule"):
            verb()
    assert verbs.page("default", "", 10) == ([], "")


def test_a_list_goes_by_id_a_page_at_a_time_with_one_time_of_each(app: App) -> None:
    for id in "cab":
        add(app, id)
    first, after = app.schedules.page("default", "", 2)
    assert ([one.schedule.id for one in first], after) == (["a", "b"], "b")
    assert {len(one.upcoming) for one in first} == {1}
    rest, after = app.schedules.page("default", "b", 2)
    assert ([one.schedule.id for one in rest], after) == (["c"], "")


def test_a_list_counts_no_times_of_a_rule(app: App) -> None:
    add(app, rule=Rule(RRule("FREQ=WEEKLY;COUNT=10000"), DAY))
    rrule_times.cache_clear()  # as in a process of its own
    [status], _ = within(3_000, lambda: app.schedules.page("default", "", 20))
    assert [one.nominal for one in status.upcoming] == [status.progress.nominal]


@pytest.mark.slow
@pytest.mark.parametrize("missed", Missed)
def test_a_jitter_far_above_its_interval_loses_doubles_and_misses_no_time(
    app: App, ledger: EmbeddedLedger, clock: HandClock, missed: Missed
) -> None:
    rule = Rule(Every(MINUTE), START, until=START + 2 * HOUR)
    status = add(app, rule=rule, jitter_ms=HOUR, missed=missed, catch_up_ms=0)
    assert all(isinstance(one, Upcoming) and 0 <= one.due_at - one.nominal <= HOUR for one in status.upcoming)
    for second in range(3 * 3600 + 10):
        one = kept(ledger)
        if one.progress.next_at <= clock.at:
            app.fire(SHARD, [one], clock.at)
        if second == HOUR // 1_000:  # a change of what is not its rule, while some wait
            app.schedules.change("default", "s", {"jitter_ms": 50 * MINUTE})
        clock.advance(1_000)
    progress = app.schedules.get("default", "s").progress
    assert (progress.fired, progress.missed, progress.nominal) == (121, 0, None)
    tasks = ledger.group("default", "s")
    assert {task.id for task in tasks} == {occurrence_id("s", START + n * MINUTE) for n in range(121)}
    assert all(0 <= task.due_at - parse_instant(task.id[2:]) <= HOUR + 20_000 for task in tasks)


def test_all_that_was_missed_within_its_time_fires_however_long_nothing_ran(
    app: App, pass_time: Passing, ran: list[str]
) -> None:
    add(app, rule=Rule(Every(MINUTE), START), missed=Missed.ALL)
    pass_time(0)
    pass_time(3 * DAY)
    for _ in range(30):
        pass_time(1_000)
    latest = START + 3 * DAY
    assert ran[1:] == [occurrence_id("s", latest - n * MINUTE) for n in range(60, -1, -1)]
    status = app.schedules.get("default", "s")
    assert status.upcoming[0].nominal == latest + MINUTE


def test_deleted_it_fires_no_more_and_what_runs_goes_on(app: App, ledger: EmbeddedLedger, clock: HandClock) -> None:
    add(app)
    clock.advance(HOUR)
    fire_due(ledger, app.fire)
    [task] = claim(ledger)
    app.schedules.delete("default", "s")
    clock.advance(5 * HOUR)
    assert not fire_due(ledger, app.fire)
    found = ledger.get("default", task.id)
    assert found
    assert found.status is Status.LEASED


class Wordless(Calendar):
    """A calendar that has no words for an instant."""

    def local(self, at: int, time_zone: str) -> str:
        """Fail."""
        raise ValueError(f"{at} in {time_zone}")


def test_times_of_a_new_schedule_are_computed_when_somebody_looks_at_them(ledger: EmbeddedLedger) -> None:
    asked = Schedule("s", "webhook", Rule(Every(HOUR), AT_ADD))
    added, _ = Schedules(ledger, Wordless(), lambda task: task).add(asked)
    assert (added.schedule.id, added.progress.nominal) == ("s", START + HOUR)
    with pytest.raises(ValueError, match=f"{START + HOUR} in UTC"):
        str(added.upcoming)
    verbs = Schedules(ledger, Calendar(), lambda task: task)
    other, _ = verbs.add(replace(asked, id="t"))
    assert other == verbs.get("default", "t") == pickle.loads(pickle.dumps(other))  # noqa: S301 - a value of our own
