"""A store's clock that went ahead for some seconds and was put back, in every store: nothing is silent until then."""

import pytest

from duecourse.adapters.calendar.calendar import ZonedCalendar
from duecourse.domain.outcomes import Ending
from duecourse.domain.schedule import NEVER, Cron, Every, Overlap, Rule, occurrence_id
from duecourse.domain.task import Status
from duecourse.domain.times import DAY_MS
from duecourse.domain.values import replaced
from duecourse.engine.firing import Firer
from duecourse.ports.schedules import Fired
from duecourse.ports.store import Store
from tests.support.clock import START, HandClock
from tests.support.ledger import LEASE_MS, SHARD, add, claim, claim_one, lease_of, new, settle, standing
from tests.support.schedules import MINUTE, fire_due, kept, occurrence, put, waits

SECOND, HOUR = 1_000, 60 * MINUTE
AHEAD_MS = 30 * DAY_MS
RETENTION_MS = DAY_MS


def tick(store: Store) -> None:
    """Sweep until nothing is left to, as a tick does."""
    while store.sweep(SHARD, retention_ms=RETENTION_MS).more:
        pass


def put_back(store: Store, clock: HandClock, by_ms: int = AHEAD_MS) -> None:
    clock.advance(-by_ms)
    tick(store)


def fire_all(store: Store) -> None:
    while fire_due(store, Firer(store, ZonedCalendar()).fire):
        pass


@pytest.mark.parametrize("lead_ms", [0, 10 * MINUTE])
def test_a_schedule_fires_by_its_rule_again(store: Store, clock: HandClock, lead_ms: int) -> None:
    put(store, rule=Rule(Every(5 * SECOND), START), lead_ms=lead_ms)
    clock.advance(AHEAD_MS + SECOND)
    fire_all(store)
    assert kept(store).progress.next_at > clock.at
    put_back(store, clock)
    fired = kept(store).progress.fired
    fire_all(store)
    assert kept(store).progress.fired == fired, "a look is no occurrence"
    assert clock.at < kept(store).progress.next_at <= clock.at + 5 * SECOND
    clock.at = kept(store).progress.next_at
    fire_all(store)
    assert kept(store).progress.fired == fired + 1


def test_a_time_that_fired_early_does_not_fire_again(store: Store, clock: HandClock) -> None:
    put(store, rule=Rule(Cron("0 9 * * *"), START), at=START + HOUR)
    clock.advance(AHEAD_MS)
    fire_all(store)
    early = kept(store).progress.recent[-1].nominal
    was = standing(store, occurrence_id("s", early)).generation
    put_back(store, clock)
    fire_all(store)
    assert clock.at < (kept(store).progress.nominal or 0) <= clock.at + DAY_MS
    clock.at = early
    fire_all(store)
    assert kept(store).progress.nominal == early + DAY_MS
    assert standing(store, occurrence_id("s", early)).generation == was


def test_a_schedule_that_the_wrong_clock_ended_goes_on(store: Store, clock: HandClock) -> None:
    put(store, rule=Rule(Every(MINUTE), START, until=START + 10 * DAY_MS))
    put(store, "paused", at=NEVER, paused=True)
    clock.advance(AHEAD_MS)
    fire_all(store)
    assert kept(store).progress.next_at == NEVER
    put_back(store, clock)
    fire_all(store)
    assert kept(store).progress.next_at <= clock.at + MINUTE
    assert kept(store, "paused").progress.next_at == NEVER


def test_one_that_is_over_by_its_limit_stays_over_and_what_is_due_far_ahead_stays_there(
    store: Store, clock: HandClock
) -> None:
    put(store, rule=Rule(Every(MINUTE), START), limit=1)
    put(store, "yearly", rule=Rule(Every(300 * DAY_MS), START + 300 * DAY_MS), at=START + 300 * DAY_MS)
    add(store, "far", due_at=START + 40 * DAY_MS)
    clock.advance(AHEAD_MS)
    fire_all(store)
    add(store, "later", due_at=clock.at + 10 * DAY_MS)
    before = [standing(store, id).due_at for id in ("far", "later")]
    put_back(store, clock)
    fire_all(store)
    assert kept(store).progress.next_at == NEVER
    assert kept(store, "yearly").progress.next_at == START + 300 * DAY_MS
    assert [standing(store, id).due_at for id in ("far", "later")] == before


def test_a_lease_of_the_wrong_clock_lapses_at_its_length(store: Store, clock: HandClock) -> None:
    add(store)
    clock.advance(AHEAD_MS)
    assert claim(store)
    put_back(store, clock)
    store.configure("default", {"tenant_max_schedules": 5})
    tick(store)  # another pass moves nothing twice
    assert standing(store).lease_expires_at == clock.at + LEASE_MS
    assert not claim(store)
    clock.advance(LEASE_MS)
    assert [task.id for task in claim(store)] == ["a"]


def test_a_task_is_due_by_its_delay_and_its_policy(store: Store, clock: HandClock) -> None:
    add(store, "fails")
    clock.advance(AHEAD_MS)
    [failed] = claim(store)
    store.add([new("now"), new("soon", delay_ms=MINUTE)])
    settle(store, failed, Ending.RETRY, detail="why")
    left = standing(store, "fails").due_at - clock.at
    put_back(store, clock)
    tick(store)
    assert standing(store, "now").due_at == clock.at
    assert standing(store, "soon").due_at == clock.at + MINUTE
    assert standing(store, "fails").due_at == clock.at + left
    clock.advance(MINUTE + left)
    assert {task.id for task in claim(store)} == {"now", "soon", "fails"}


def test_an_occurrence_that_waits_for_another_goes_on_waiting(store: Store, clock: HandClock) -> None:
    put(store, overlap=Overlap.QUEUE)
    clock.advance(MINUTE)
    fire_all(store)
    clock.advance(MINUTE)
    fire_all(store)
    store.add([new("draws", delay_ms=1)])
    clock.advance(AHEAD_MS)
    store.add([new("draws-ahead", delay_ms=1)])
    put_back(store, clock)
    assert waits(store, occurrence(2))


def test_what_ended_is_not_forgotten_by_a_clock_that_went_ahead(store: Store, clock: HandClock) -> None:
    settle(store, claim_one(store), Ending.DONE)
    tick(store)
    clock.advance(AHEAD_MS)
    for _ in range(3):
        tick(store)
        clock.advance(MINUTE)
    put_back(store, clock)
    assert standing(store).status is Status.DONE
    clock.advance(RETENTION_MS + MINUTE)
    tick(store)
    clock.advance(10 * MINUTE)
    tick(store)
    assert store.get("default", "a") is None


def test_the_first_look_at_what_ended_is_no_look_of_a_wrong_clock(store: Store, clock: HandClock) -> None:
    settle(store, claim_one(store), Ending.DONE)
    clock.advance(AHEAD_MS)
    tick(store)
    assert standing(store).status is Status.DONE


def test_after_a_long_outage_what_ended_long_ago_is_forgotten_ten_minutes_later(store: Store, clock: HandClock) -> None:
    settle(store, claim_one(store), Ending.DONE)
    tick(store)
    clock.advance(AHEAD_MS)
    tick(store)
    clock.advance(10 * MINUTE - 1)
    tick(store)
    assert standing(store).status is Status.DONE
    clock.advance(1)
    tick(store)
    assert store.get("default", "a") is None


def test_a_retry_of_one_that_is_changed_is_no_part_of_it(store: Store, clock: HandClock) -> None:
    """A schedule that a caller changed while the clock was ahead has the times of the clock that is right."""
    put(store, rule=Rule(Every(MINUTE), START))
    one = kept(store)
    clock.advance(AHEAD_MS)
    later = replaced(one.progress, version=2, nominal=clock.at + MINUTE, next_at=clock.at + MINUTE)
    store.put_schedule(replaced(one.schedule, kind="other"), later, if_version=1)
    put_back(store, clock)
    fire_all(store)
    assert kept(store).progress.next_at <= clock.at + MINUTE


def test_a_lease_that_was_extended_by_the_wrong_clock_lapses_soon(store: Store, clock: HandClock) -> None:
    task = claim_one(store)
    clock.advance(AHEAD_MS)
    store.extend(SHARD, [lease_of(task)], LEASE_MS)
    clock.advance(SECOND)
    put_back(store, clock)
    assert clock.at < (standing(store).lease_expires_at or 0) <= clock.at + MINUTE
    clock.advance(MINUTE)
    assert [task.id for task in claim(store)] == ["a"]


def test_a_lease_that_lapsed_unattended_by_the_wrong_clock_lapses_soon(store: Store, clock: HandClock) -> None:
    claim_one(store)
    clock.advance(AHEAD_MS)
    tick(store)  # it gets some seconds more
    put_back(store, clock)
    clock.advance(MINUTE)
    assert [task.id for task in claim(store)] == ["a"]


def test_a_long_lease_of_the_right_clock_stays(store: Store, clock: HandClock) -> None:
    add(store)
    assert claim(store, lease_ms=DAY_MS)
    ends = standing(store).lease_expires_at
    clock.advance(2 * HOUR)
    add(store, "ahead")
    put_back(store, clock, 2 * HOUR)
    assert standing(store).lease_expires_at == ends


def test_what_lapsed_once_more_by_the_wrong_clock_is_due_now(store: Store, clock: HandClock) -> None:
    claim_one(store)
    clock.advance(AHEAD_MS)
    tick(store)
    clock.advance(-AHEAD_MS + 3 * SECOND)  # no tick sees it put back
    clock.advance(AHEAD_MS + 10 * SECOND)
    tick(store)
    assert standing(store).status is Status.SCHEDULED
    put_back(store, clock)
    assert [task.id for task in claim(store)] == ["a"]


@pytest.mark.parametrize("second_ms", [AHEAD_MS, AHEAD_MS - 10 * DAY_MS, AHEAD_MS + 10 * DAY_MS])
@pytest.mark.parametrize("is_quiet", [True, False])
def test_a_second_step_is_seen_as_the_first(store: Store, clock: HandClock, second_ms: int, is_quiet: bool) -> None:
    clock.advance(AHEAD_MS)
    add(store, "first")
    put_back(store, clock)
    clock.advance(10 * SECOND)
    tick(store)
    [first] = claim(store)
    clock.advance(second_ms)
    if not is_quiet:
        add(store, "second", delay_ms=HOUR)
    settle(store, first, Ending.RETRY, detail="why", delay_ms=SECOND)
    put_back(store, clock, second_ms)
    clock.advance(SECOND)
    assert [task.id for task in claim(store)] == ["first"]
    if not is_quiet:
        assert standing(store, "second").due_at <= clock.at + HOUR


def test_a_step_in_which_no_fence_is_drawn_is_seen(store: Store, clock: HandClock) -> None:
    task = claim_one(store)
    clock.advance(AHEAD_MS)
    settle(store, task, Ending.RETRY, detail="why", delay_ms=SECOND)
    put_back(store, clock)
    clock.advance(SECOND)
    assert [task.id for task in claim(store)] == ["a"]


def test_a_replay_by_the_wrong_clock_is_due_by_the_right_one(store: Store, clock: HandClock) -> None:
    settle(store, claim_one(store, "dead"), Ending.DROP, detail="why")
    clock.advance(AHEAD_MS)
    store.replay(SHARD.queue, ["dead"])
    put_back(store, clock)
    assert [task.id for task in claim(store)] == ["dead"]


def test_what_ended_by_the_wrong_clock_is_forgotten_by_the_right_one(store: Store, clock: HandClock) -> None:
    task = claim_one(store)
    clock.advance(AHEAD_MS)
    settle(store, task, Ending.DONE)
    put_back(store, clock)
    clock.advance(RETENTION_MS + MINUTE)
    tick(store)
    clock.advance(10 * MINUTE)
    tick(store)
    assert store.get("default", "a") is None


def test_passes_end_where_the_clock_stays_behind_the_fences(store: Store, clock: HandClock) -> None:
    clock.advance(AHEAD_MS)
    add(store)
    put_back(store, clock)
    for _ in range(3):
        clock.advance(MINUTE)
        assert not store.sweep(SHARD, retention_ms=RETENTION_MS).more


def test_a_firing_that_was_computed_by_the_wrong_clock_is_none(store: Store, clock: HandClock) -> None:
    put(store, rule=Rule(Every(5 * SECOND), START))
    clock.advance(AHEAD_MS)
    late = [Firer(store, ZonedCalendar()).step(kept(store), clock.at)._replace(at=clock.at)]
    clock.advance(-AHEAD_MS + MINUTE)
    assert store.fire(SHARD, late) == [Fired.STALE]
    fire_all(store)
    assert clock.at < kept(store).progress.next_at <= clock.at + 5 * SECOND
