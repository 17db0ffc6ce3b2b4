"""A store's clock that went ahead for some seconds and was put back, in every store: nothing is silent until then."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import pytest

from duecourse.base.times import DAY_MS
from duecourse.ledger.keys import keys_of
from duecourse.ledger.operation_types import Fired, Move, Put
from duecourse.ledger.operations.ledger import Ledger
from duecourse.ledger.schedule import (
    AT_ADD,
    NEVER,
    Cron,
    Every,
    Missed,
    Overlap,
    Repeat,
    RRule,
    Rule,
    Schedule,
    occurrence_id,
)
from duecourse.ledger.task import Ending, Status
from duecourse.schedules.calendar import Calendar
from duecourse.schedules.firing import Firer
from duecourse.schedules.verbs import Schedules
from tests.support.clock import START, HandClock
from tests.support.ledger import LEASE_MS, SHARD, add, claim, claim_one, lease_of, new, settle, stored_task
from tests.support.schedules import MINUTE, fire_due, kept, occurrence, put, waits

SECOND, HOUR = 1_000, 60 * MINUTE
AHEAD_MS = 30 * DAY_MS
RETENTION_MS = DAY_MS


def tick(ledger: Ledger) -> None:
    """Sweep until nothing is left to, as a tick does."""
    while ledger.sweep(SHARD, retention_ms=RETENTION_MS).more:
        pass


def put_back(ledger: Ledger, clock: HandClock, by_ms: int = AHEAD_MS) -> None:
    clock.advance(-by_ms)
    tick(ledger)


def fire_all(ledger: Ledger) -> None:
    while fire_due(ledger, Firer(ledger, Calendar()).fire):
        pass


@pytest.mark.parametrize("lead_ms", [0, 10 * MINUTE])
def test_a_schedule_fires_by_its_rule_again(ledger: Ledger, clock: HandClock, lead_ms: int) -> None:
    put(ledger, rule=Rule(Every(5 * SECOND), START), lead_ms=lead_ms)
    clock.advance(AHEAD_MS + SECOND)
    fire_all(ledger)
    assert kept(ledger).progress.next_at > clock.at
    put_back(ledger, clock)
    fired = kept(ledger).progress.fired
    fire_all(ledger)
    assert kept(ledger).progress.fired == fired, "a look is no occurrence"
    assert clock.at < kept(ledger).progress.next_at <= clock.at + 5 * SECOND
    clock.at = kept(ledger).progress.next_at
    fire_all(ledger)
    assert kept(ledger).progress.fired == fired + 1


def verbs(ledger: Ledger) -> Schedules:
    return Schedules(ledger, Calendar(), lambda task: task)


@pytest.mark.parametrize(
    ("repeat", "lead_ms"),
    [(Every(HOUR), 0), (Every(HOUR), 10 * MINUTE), (Cron("30 * * * *"), 0), (RRule("FREQ=HOURLY"), 0)],
)
def test_a_schedule_that_was_added_by_the_wrong_clock_begins_by_the_right_one(
    ledger: Ledger, clock: HandClock, repeat: Repeat, lead_ms: int
) -> None:
    clock.advance(AHEAD_MS)
    asked = Schedule("s", "work", Rule(repeat, AT_ADD), lead_ms=lead_ms)
    assert verbs(ledger).add(asked)[1]
    clock.advance(SECOND)
    put_back(ledger, clock)
    fire_all(ledger)
    one = kept(ledger)
    assert (one.progress.fired, one.progress.version) == (0, 1)
    assert clock.at - HOUR < one.schedule.rule.starts_at <= clock.at
    assert clock.at < one.progress.next_at <= clock.at + HOUR
    assert not verbs(ledger).add(asked)[1], "it is the same still"
    for fired in (1, 2):
        clock.at = kept(ledger).progress.next_at
        fire_all(ledger)
        assert kept(ledger).progress.fired == fired
        assert clock.at < kept(ledger).progress.next_at <= clock.at + HOUR


@pytest.mark.parametrize(("repeat", "begins"), [(Every(7 * MINUTE), True), (RRule("FREQ=MINUTELY;INTERVAL=7"), False)])
def test_one_that_has_fired_by_the_wrong_clock_keeps_its_times(
    ledger: Ledger, clock: HandClock, repeat: Repeat, begins: bool
) -> None:
    clock.advance(AHEAD_MS)
    added_at = clock.at
    verbs(ledger).add(Schedule("s", "work", Rule(repeat, AT_ADD)))
    clock.advance(7 * MINUTE)
    fire_all(ledger)
    assert kept(ledger).progress.fired == 1
    put_back(ledger, clock)
    fire_all(ledger)
    next_at = kept(ledger).progress.next_at
    assert (next_at - added_at) % (7 * MINUTE) == 0
    assert (next_at <= clock.at + 7 * MINUTE) is begins


def test_a_start_that_was_given_stays(ledger: Ledger, clock: HandClock) -> None:
    clock.advance(AHEAD_MS)
    verbs(ledger).add(Schedule("given", "work", Rule(Every(HOUR), clock.at)))
    verbs(ledger).add(Schedule("changed", "work", Rule(Every(HOUR), AT_ADD)))
    verbs(ledger).change("default", "changed", {"rule": {"starts_at": clock.at}})
    put_back(ledger, clock)
    fire_all(ledger)
    starts = [kept(ledger, id).schedule.rule.starts_at for id in ("given", "changed")]
    assert starts == [clock.at + AHEAD_MS] * 2


def test_a_paused_schedule_that_was_added_by_the_wrong_clock_begins_once_it_is_resumed(
    ledger: Ledger, clock: HandClock
) -> None:
    clock.advance(AHEAD_MS)
    verbs(ledger).add(Schedule("s", "work", Rule(Every(HOUR), AT_ADD), paused=True))
    put_back(ledger, clock)
    fire_all(ledger)
    assert kept(ledger).progress.next_at == NEVER
    clock.advance(90 * MINUTE)
    verbs(ledger).change("default", "s", {"paused": False})
    assert kept(ledger).progress.next_at <= clock.at + HOUR


class Interrupted:
    """A ledger in which something happens once between what a caller read and what it writes."""

    def __init__(self, ledger: Ledger, deed: Callable[[], None]) -> None:
        self._ledger = ledger
        self._deeds = [deed]

    def __getattr__(self, verb: str) -> Any:
        return getattr(self._ledger, verb)

    def put_schedule(self, *given: Any, **named: Any) -> Any:
        if self._deeds:
            self._deeds.pop()()
        return self._ledger.put_schedule(*given, **named)


@pytest.mark.parametrize("verb", ["add", "change", "file", "backfill"])
def test_what_the_wrong_clock_had_computed_is_not_written_once_it_is_right(
    ledger: Ledger, clock: HandClock, verb: str
) -> None:
    asked = Schedule("s", "work", Rule(Every(HOUR), AT_ADD), file=int(verb == "file"))
    if verb in {"change", "backfill"}:
        verbs(ledger).add(asked)
        clock.advance(3 * HOUR)
    right = clock.at
    clock.advance(AHEAD_MS)
    late = verbs(Interrupted(ledger, lambda: put_back(ledger, clock)))  # type: ignore[arg-type]
    if verb == "add":
        assert late.add(asked)[1]
    elif verb == "file":
        assert late.put(asked, lambda: True) is Put.CREATED
    elif verb == "change":
        late.change("default", "s", {"rule": {"repeat": Every(2 * HOUR)}})
    else:
        assert late.backfill("default", "s", (right - 3 * HOUR, right - HOUR), None) == 2
        fire_all(ledger)
        assert stored_task(ledger, occurrence_id("s", right - 2 * HOUR)).status is Status.SCHEDULED
    assert kept(ledger).progress.next_at <= right + 2 * HOUR
    assert kept(ledger).schedule.rule.starts_at <= right


@pytest.mark.parametrize("verb", ["add", "file"])
def test_the_first_time_of_a_new_schedule_is_yet_to_come_where_the_clock_went_on_meanwhile(
    ledger: Ledger, clock: HandClock, verb: str
) -> None:
    late = verbs(Interrupted(ledger, lambda: clock.advance(3 * HOUR)))  # type: ignore[arg-type]
    asked = Schedule("s", "work", Rule(Every(HOUR), AT_ADD), file=int(verb == "file"))
    if verb == "add":
        assert late.add(asked)[1]
    else:
        assert late.put(asked, lambda: True) is Put.CREATED
    assert kept(ledger).schedule.rule.starts_at == clock.at
    assert kept(ledger).progress.next_at == clock.at + HOUR


def change_payload(schedules: Schedules) -> None:
    schedules.change("default", "s", {"payload": '{"v":2}'})


def pause_and_resume(schedules: Schedules) -> None:
    for paused in (True, False):
        schedules.change("default", "s", {"paused": paused})


def run_by_hand(schedules: Schedules) -> None:
    schedules.run("default", "s")


def add_with_wrong_next_time(ledger: Ledger, clock: HandClock, *, fires_first: bool) -> None:
    """Add a schedule that the sweep has made due, for its next time is of the clock that was put back."""
    if not fires_first:
        clock.advance(AHEAD_MS)
    verbs(ledger).add(Schedule("s", "work", Rule(Every(HOUR), AT_ADD)))
    if fires_first:
        clock.advance(AHEAD_MS)
        fire_all(ledger)
    put_back(ledger, clock)
    clock.advance(SECOND)


@pytest.mark.parametrize("fires_first", [True, False], ids=["fired by the wrong clock", "added by it"])
@pytest.mark.parametrize("verb", [change_payload, pause_and_resume, run_by_hand])
def test_a_verb_between_the_sweep_and_the_look_does_not_keep_the_wrong_next_time(
    ledger: Ledger, clock: HandClock, verb: Callable[[Schedules], None], fires_first: bool
) -> None:
    add_with_wrong_next_time(ledger, clock, fires_first=fires_first)
    verb(verbs(ledger))
    fire_all(ledger)
    assert clock.at < kept(ledger).progress.next_at <= clock.at + HOUR


@pytest.mark.parametrize("fires_first", [True, False], ids=["fired by the wrong clock", "added by it"])
@pytest.mark.parametrize("verb", [change_payload, pause_and_resume])
def test_a_look_between_read_and_write_of_a_change_is_not_undone(
    ledger: Ledger, clock: HandClock, verb: Callable[[Schedules], None], fires_first: bool
) -> None:
    add_with_wrong_next_time(ledger, clock, fires_first=fires_first)
    verb(verbs(Interrupted(ledger, lambda: fire_all(ledger))))  # type: ignore[arg-type]
    assert clock.at < kept(ledger).progress.next_at <= clock.at + HOUR


def test_a_time_that_fired_early_does_not_fire_again(ledger: Ledger, clock: HandClock) -> None:
    put(ledger, rule=Rule(Cron("0 9 * * *"), START), at=START + HOUR)
    clock.advance(AHEAD_MS)
    fire_all(ledger)
    early = kept(ledger).progress.recent[-1].nominal
    was = stored_task(ledger, occurrence_id("s", early)).generation
    put_back(ledger, clock)
    fire_all(ledger)
    assert clock.at < (kept(ledger).progress.nominal or 0) <= clock.at + DAY_MS
    clock.at = early
    fire_all(ledger)
    assert kept(ledger).progress.nominal == early + DAY_MS
    assert stored_task(ledger, occurrence_id("s", early)).generation == was


def test_a_schedule_that_the_wrong_clock_ended_goes_on(ledger: Ledger, clock: HandClock) -> None:
    put(ledger, rule=Rule(Every(MINUTE), START, until=START + 10 * DAY_MS))
    put(ledger, "paused", at=NEVER, paused=True)
    clock.advance(AHEAD_MS)
    fire_all(ledger)
    assert kept(ledger).progress.next_at == NEVER
    put_back(ledger, clock)
    fire_all(ledger)
    assert kept(ledger).progress.next_at <= clock.at + MINUTE
    assert kept(ledger, "paused").progress.next_at == NEVER


def test_one_that_is_over_by_its_limit_stays_over_and_what_is_due_far_ahead_stays_there(
    ledger: Ledger, clock: HandClock
) -> None:
    put(ledger, rule=Rule(Every(MINUTE), START), limit=1)
    put(ledger, "yearly", rule=Rule(Every(300 * DAY_MS), START + 300 * DAY_MS), at=START + 300 * DAY_MS)
    add(ledger, "far", due_at=START + 40 * DAY_MS)
    clock.advance(AHEAD_MS)
    fire_all(ledger)
    add(ledger, "later", due_at=clock.at + 10 * DAY_MS)
    before = [stored_task(ledger, id).due_at for id in ("far", "later")]
    put_back(ledger, clock)
    fire_all(ledger)
    assert kept(ledger).progress.next_at == NEVER
    assert kept(ledger, "yearly").progress.next_at == START + 300 * DAY_MS
    assert [stored_task(ledger, id).due_at for id in ("far", "later")] == before


def test_a_lease_of_the_wrong_clock_lapses_at_its_length(ledger: Ledger, clock: HandClock) -> None:
    add(ledger)
    clock.advance(AHEAD_MS)
    assert claim(ledger)
    put_back(ledger, clock)
    ledger.configure("default", {"tenant_max_schedules": 5})
    tick(ledger)  # another pass moves nothing twice
    assert stored_task(ledger).lease_expires_at == clock.at + LEASE_MS
    assert not claim(ledger)
    clock.advance(LEASE_MS)
    assert [task.id for task in claim(ledger)] == ["a"]


def test_a_task_is_due_by_its_delay_and_its_policy(ledger: Ledger, clock: HandClock) -> None:
    add(ledger, "fails")
    clock.advance(AHEAD_MS)
    [failed] = claim(ledger)
    ledger.add([new("now"), new("soon", delay_ms=MINUTE)])
    settle(ledger, failed, Ending.RETRY, detail="why")
    left = stored_task(ledger, "fails").due_at - clock.at
    put_back(ledger, clock)
    tick(ledger)
    assert stored_task(ledger, "now").due_at == clock.at
    assert stored_task(ledger, "soon").due_at == clock.at + MINUTE
    assert stored_task(ledger, "fails").due_at == clock.at + left
    clock.advance(MINUTE + left)
    assert {task.id for task in claim(ledger)} == {"now", "soon", "fails"}


def test_an_occurrence_that_the_wrong_clock_fired_is_due_at_once(ledger: Ledger, clock: HandClock) -> None:
    put(ledger, "late", rule=Rule(Every(10 * MINUTE), START), missed=Missed.ALL, catch_up_ms=HOUR)
    put(ledger, "on-time", rule=Rule(Every(MINUTE), START))
    clock.advance(AHEAD_MS + SECOND)
    claim = ledger.claim(SHARD, 1, lease_ms=1)
    clock.advance(5)  # the process takes a moment from the claim to the firing
    Firer(ledger, Calendar()).fire(SHARD, claim.schedules, claim.now)
    occurrences = [
        occurrence_id(name, one.nominal) for name in ("late", "on-time") for one in kept(ledger, name).progress.recent
    ]
    fired = [id for id in occurrences if ledger.get(SHARD.queue, id)]
    assert len(fired) > 1
    assert all(stored_task(ledger, id).due_at > clock.at - 2 * SECOND for id in fired)
    put_back(ledger, clock)
    assert [stored_task(ledger, id).due_at for id in fired] == [clock.at] * len(fired)
    fire_all(ledger)


def test_an_occurrence_that_waits_for_another_goes_on_waiting(ledger: Ledger, clock: HandClock) -> None:
    put(ledger, overlap=Overlap.QUEUE)
    clock.advance(MINUTE)
    fire_all(ledger)
    clock.advance(MINUTE)
    fire_all(ledger)
    ledger.add([new("draws", delay_ms=1)])
    clock.advance(AHEAD_MS)
    ledger.add([new("draws-ahead", delay_ms=1)])
    put_back(ledger, clock)
    assert waits(ledger, occurrence(2))


def test_what_ended_is_not_forgotten_by_a_clock_that_went_ahead(ledger: Ledger, clock: HandClock) -> None:
    settle(ledger, claim_one(ledger), Ending.DONE)
    tick(ledger)
    clock.advance(AHEAD_MS)
    for _ in range(3):
        tick(ledger)
        clock.advance(MINUTE)
    put_back(ledger, clock)
    assert stored_task(ledger).status is Status.DONE
    clock.advance(RETENTION_MS + MINUTE)
    tick(ledger)
    clock.advance(10 * MINUTE)
    tick(ledger)
    assert ledger.get("default", "a") is None


def test_the_first_look_at_what_ended_is_no_look_of_a_wrong_clock(ledger: Ledger, clock: HandClock) -> None:
    settle(ledger, claim_one(ledger), Ending.DONE)
    clock.advance(AHEAD_MS)
    tick(ledger)
    assert stored_task(ledger).status is Status.DONE


def test_after_a_long_outage_what_ended_long_ago_is_forgotten_ten_minutes_later(
    ledger: Ledger, clock: HandClock
) -> None:
    settle(ledger, claim_one(ledger), Ending.DONE)
    tick(ledger)
    clock.advance(AHEAD_MS)
    tick(ledger)
    clock.advance(10 * MINUTE - 1)
    tick(ledger)
    assert stored_task(ledger).status is Status.DONE
    clock.advance(1)
    tick(ledger)
    assert ledger.get("default", "a") is None


def test_a_retention_of_less_than_a_day_holds_again_once_the_clock_was_put_back(
    ledger: Ledger, clock: HandClock
) -> None:
    settle(ledger, claim_one(ledger), Ending.DONE)
    for by_ms in (0, AHEAD_MS, -AHEAD_MS):
        clock.advance(by_ms)
        ledger.sweep(SHARD, retention_ms=HOUR)
    assert stored_task(ledger).status is Status.DONE
    clock.advance(HOUR)
    ledger.sweep(SHARD, retention_ms=HOUR)
    assert ledger.get("default", "a") is None


def test_a_retry_of_one_that_is_changed_is_no_part_of_it(ledger: Ledger, clock: HandClock) -> None:
    """A schedule that a caller changed while the clock was ahead has the times of the clock that is right."""
    put(ledger, rule=Rule(Every(MINUTE), START))
    one = kept(ledger)
    clock.advance(AHEAD_MS)
    later = replace(one.progress, version=2, nominal=clock.at + MINUTE, next_at=clock.at + MINUTE)
    ledger.put_schedule(replace(one.schedule, kind="other"), later, seen=one)
    put_back(ledger, clock)
    fire_all(ledger)
    assert kept(ledger).progress.next_at <= clock.at + MINUTE


def test_a_lease_that_was_extended_by_the_wrong_clock_lapses_soon(ledger: Ledger, clock: HandClock) -> None:
    task = claim_one(ledger)
    clock.advance(AHEAD_MS)
    ledger.extend(SHARD, [lease_of(task)], LEASE_MS)
    clock.advance(SECOND)
    put_back(ledger, clock)
    assert clock.at < (stored_task(ledger).lease_expires_at or 0) <= clock.at + MINUTE
    clock.advance(MINUTE)
    assert [task.id for task in claim(ledger)] == ["a"]


def test_a_lease_that_lapsed_unattended_by_the_wrong_clock_lapses_soon(ledger: Ledger, clock: HandClock) -> None:
    claim_one(ledger)
    clock.advance(AHEAD_MS)
    tick(ledger)  # it gets some seconds more
    put_back(ledger, clock)
    clock.advance(MINUTE)
    assert [task.id for task in claim(ledger)] == ["a"]


def test_a_lease_that_was_extended_by_a_clock_less_than_a_day_ahead_ends_as_much_later(
    ledger: Ledger, clock: HandClock
) -> None:
    task = claim_one(ledger)
    clock.advance(2 * HOUR)
    ledger.extend(SHARD, [lease_of(task)], LEASE_MS)
    put_back(ledger, clock, 2 * HOUR)
    assert stored_task(ledger).lease_expires_at == clock.at + 2 * HOUR + LEASE_MS


def test_a_longer_delay_stays_with_its_deadline_and_so_does_the_deadline_of_what_runs(
    ledger: Ledger, clock: HandClock
) -> None:
    clock.advance(AHEAD_MS)
    ahead = clock.at
    ledger.add([new("long", delay_ms=2 * HOUR, deadline_ms=HOUR)])
    claim_one(ledger, "runs", deadline_ms=HOUR)
    put_back(ledger, clock)
    assert stored_task(ledger, "runs").deadline_at == ahead + HOUR
    assert (stored_task(ledger, "long").due_at, stored_task(ledger, "long").deadline_at) == (
        ahead + 2 * HOUR,
        ahead + 3 * HOUR,
    )
    ledger.move(SHARD.queue, [Move("long", delay_ms=0)])
    assert [task.id for task in claim(ledger)] == ["long"]


def test_a_deadline_that_the_right_clock_counted_stays_where_its_task_failed_by_the_wrong_one(
    ledger: Ledger, clock: HandClock
) -> None:
    task = claim_one(ledger, deadline_ms=2 * AHEAD_MS)
    clock.advance(AHEAD_MS)
    settle(ledger, task, Ending.RETRY, detail="why", delay_ms=SECOND)
    put_back(ledger, clock)
    assert (stored_task(ledger).due_at, stored_task(ledger).deadline_at) == (START + SECOND, START + 2 * AHEAD_MS)


def test_the_deadline_of_a_task_that_was_added_and_failed_by_the_wrong_clock_moves_along(
    ledger: Ledger, clock: HandClock
) -> None:
    clock.advance(AHEAD_MS)
    task = claim_one(ledger, deadline_ms=HOUR)
    settle(ledger, task, Ending.RETRY, detail="why", delay_ms=SECOND)
    put_back(ledger, clock)
    assert (stored_task(ledger).due_at, stored_task(ledger).deadline_at) == (START + SECOND, START + HOUR)


def test_what_was_past_its_deadline_by_the_wrong_clock_stays_dead(ledger: Ledger, clock: HandClock) -> None:
    add(ledger, delay_ms=MINUTE, deadline_ms=HOUR)
    clock.advance(AHEAD_MS)
    assert claim(ledger) == []
    put_back(ledger, clock)
    assert (stored_task(ledger).status, stored_task(ledger).error) == (Status.DEAD, "past its deadline")


def test_a_long_lease_of_the_right_clock_stays(ledger: Ledger, clock: HandClock) -> None:
    add(ledger)
    assert claim(ledger, lease_ms=DAY_MS)
    ends = stored_task(ledger).lease_expires_at
    clock.advance(2 * HOUR)
    add(ledger, "ahead")
    put_back(ledger, clock, 2 * HOUR)
    assert stored_task(ledger).lease_expires_at == ends


def test_what_lapsed_once_more_by_the_wrong_clock_is_due_now(ledger: Ledger, clock: HandClock) -> None:
    claim_one(ledger)
    clock.advance(AHEAD_MS)
    tick(ledger)
    clock.advance(-AHEAD_MS + 3 * SECOND)  # no tick sees it put back
    clock.advance(AHEAD_MS + 10 * SECOND)
    tick(ledger)
    assert stored_task(ledger).status is Status.SCHEDULED
    put_back(ledger, clock)
    assert [task.id for task in claim(ledger)] == ["a"]


@pytest.mark.parametrize("second_ms", [AHEAD_MS, AHEAD_MS - 10 * DAY_MS, AHEAD_MS + 10 * DAY_MS])
@pytest.mark.parametrize("is_quiet", [True, False])
@pytest.mark.parametrize("is_swept", [False, True])
def test_a_second_step_is_seen_as_the_first(
    ledger: Ledger, clock: HandClock, second_ms: int, is_quiet: bool, is_swept: bool
) -> None:
    clock.advance(AHEAD_MS)
    add(ledger, "first")
    put_back(ledger, clock)
    clock.advance(10 * SECOND)
    tick(ledger)
    [first] = claim(ledger)
    clock.advance(second_ms)
    if not is_quiet:
        add(ledger, "second", delay_ms=HOUR)
    for _ in range(2 * is_swept):
        tick(ledger)
    settle(ledger, first, Ending.RETRY, detail="why", delay_ms=SECOND)
    put_back(ledger, clock, second_ms)
    clock.advance(SECOND)
    assert [task.id for task in claim(ledger)] == ["first"]
    if not is_quiet:
        assert stored_task(ledger, "second").due_at <= clock.at + HOUR


def test_a_step_in_which_no_fence_is_drawn_is_seen(ledger: Ledger, clock: HandClock) -> None:
    task = claim_one(ledger)
    clock.advance(AHEAD_MS)
    settle(ledger, task, Ending.RETRY, detail="why", delay_ms=SECOND)
    put_back(ledger, clock)
    clock.advance(SECOND)
    assert [task.id for task in claim(ledger)] == ["a"]


def test_a_replay_by_the_wrong_clock_is_due_by_the_right_one(ledger: Ledger, clock: HandClock) -> None:
    settle(ledger, claim_one(ledger, "dead"), Ending.DROP, detail="why")
    clock.advance(AHEAD_MS)
    ledger.replay(SHARD.queue, ["dead"])
    put_back(ledger, clock)
    assert [task.id for task in claim(ledger)] == ["dead"]


def test_what_ended_by_the_wrong_clock_is_forgotten_by_the_right_one(ledger: Ledger, clock: HandClock) -> None:
    task = claim_one(ledger)
    clock.advance(AHEAD_MS)
    settle(ledger, task, Ending.DONE)
    put_back(ledger, clock)
    clock.advance(RETENTION_MS + MINUTE)
    tick(ledger)
    clock.advance(10 * MINUTE)
    tick(ledger)
    assert ledger.get("default", "a") is None


def test_passes_end_where_the_clock_stays_behind_the_fences(ledger: Ledger, clock: HandClock) -> None:
    clock.advance(AHEAD_MS)
    add(ledger)
    put_back(ledger, clock)
    for _ in range(3):
        clock.advance(MINUTE)
        assert not ledger.sweep(SHARD, retention_ms=RETENTION_MS).more


def test_no_mark_is_left_once_the_clock_has_caught_up_with_the_fences(ledger: Ledger, clock: HandClock) -> None:
    def mark() -> bytes | None:
        return cast(Ledger, ledger)._scripts.command("HGET", keys_of("duecourse", SHARD).meta, "put_back")

    clock.advance(HOUR)
    add(ledger)
    put_back(ledger, clock, HOUR)
    assert mark()
    for _ in range(26):  # the newest fence is a day ahead of what the clock had been
        clock.advance(HOUR)
        tick(ledger)
    assert mark() is None


def test_a_firing_that_was_computed_by_the_wrong_clock_is_none(ledger: Ledger, clock: HandClock) -> None:
    put(ledger, rule=Rule(Every(5 * SECOND), START))
    clock.advance(AHEAD_MS)
    late = [Firer(ledger, Calendar()).step(kept(ledger), clock.at)._replace(at=clock.at)]
    clock.advance(-AHEAD_MS + MINUTE)
    assert ledger.fire(SHARD, late) == [Fired.STALE]
    fire_all(ledger)
    assert clock.at < kept(ledger).progress.next_at <= clock.at + 5 * SECOND
