"""The tick: upkeep of every shard, then what the rings missed, within the time that there is."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from threading import Event

import pytest

from duecourse.errors import StoreMisused, StoreUnavailable
from duecourse.ledger.embedded.ledger import EmbeddedLedger
from duecourse.ledger.operation_types import KEPT_MS, PRUNE, KeyedRequest, Outlook, Swept
from duecourse.ledger.operations.namespace_records import IdempotencyStore, Rounds
from duecourse.ledger.task import Ending, Shard, Status, Task, Trigger
from duecourse.ringing.tick import AT_A_TIME, PARTS, Retention, Sweeper, TickResult
from duecourse.running.run import Kind
from tests.support.clock import HandClock
from tests.support.engine import MARGIN_MS, ample, engine
from tests.support.failing_ledger import OneByOne, PartlyUnreachable
from tests.support.ledger import LEASE_MS, add, claim, claim_one, new, settle, stored_task
from tests.support.wait import until

RETENTION_MS = 86_400_000
NOTHING = TickResult(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)


def no_wait(_seconds: float) -> None:
    raise AssertionError("there is nothing to wait for")


def tick(
    ledger: EmbeddedLedger,
    kind: Kind = lambda _task: None,
    remaining_ms: Callable[[], int] = ample,
    wait: Callable[[float], None] = no_wait,
) -> TickResult:
    with engine(ledger, kind) as run:
        sweeper = Sweeper(ledger, run.drainer, Retention(RETENTION_MS), MARGIN_MS, wait)
        return sweeper.tick(sweeper.survey(ample), remaining_ms)


def finish(ledger: EmbeddedLedger, count: int) -> None:
    """Tasks that are done."""
    for start in range(0, count, 500):
        ledger.add([new(f"{start}-{n}") for n in range(500)])
        for task in claim(ledger, 500):
            settle(ledger, task, Ending.DONE)


def test_an_empty_ledger_is_quickly_swept(ledger: EmbeddedLedger) -> None:
    assert tick(ledger) == NOTHING


def test_it_works_what_no_ring_told_of_in_every_shard(ledger: EmbeddedLedger, clock: HandClock) -> None:
    ledger.add([new("a", delay_ms=1_000), new("b", queue="other", delay_ms=3_000)])
    clock.advance(4_000)
    ticked = tick(ledger)
    assert (ticked.shards, ticked.claimed, ticked.done, ticked.oldest_overdue_ms) == (2, 2, 2, 3_000)


def test_what_is_ahead_or_paused_is_not_overdue(ledger: EmbeddedLedger, clock: HandClock) -> None:
    ledger.add([new("a"), new("b", queue="other", delay_ms=60_000)])
    ledger.configure("default", {"paused": True})
    clock.advance(5_000)
    ticked = tick(ledger)
    assert (ticked.claimed, ticked.oldest_overdue_ms) == (0, 0)


def test_a_lapsed_lease_is_taken_back_and_worked_in_the_same_tick(ledger: EmbeddedLedger, clock: HandClock) -> None:
    claim_one(ledger)
    clock.advance(LEASE_MS + 1)
    ticked = tick(ledger)
    assert (ticked.reclaimed, ticked.lapsed, ticked.claimed, ticked.done) == (1, 1, 1, 1)
    assert (stored_task(ledger).run, stored_task(ledger).attempt) == (2, 2)


def test_what_lapsed_while_nobody_looked_is_worked_by_the_same_tick_after_some_seconds(
    ledger: EmbeddedLedger, clock: HandClock
) -> None:
    ledger.add([new("a"), new("b", queue="other")])
    claim(ledger)
    clock.advance(LEASE_MS + 10_000)
    waited: list[float] = []

    def wait(seconds: float) -> None:
        waited.append(seconds)
        clock.advance(5_000)

    ticked = tick(ledger, wait=wait)
    assert 4 < waited[0] <= 5
    assert (ticked.claimed, ticked.done, len(waited)) == (2, 2, 1)
    assert stored_task(ledger).attempt == 2


def test_a_tick_that_has_no_time_left_does_not_wait_for_spared_leases(ledger: EmbeddedLedger, clock: HandClock) -> None:
    claim_one(ledger)
    clock.advance(LEASE_MS + 10_000)
    assert tick(ledger, remaining_ms=lambda: MARGIN_MS + 4_000).done == 0


def test_one_that_lapsed_for_the_last_time_counts_among_the_dead(ledger: EmbeddedLedger, clock: HandClock) -> None:
    claim_one(ledger, retry=replace(new().retry, max_attempts=1))
    clock.advance(LEASE_MS + 1)
    assert (tick(ledger).dead, stored_task(ledger).status) == (1, Status.DEAD)
    assert tick(ledger)[:4] == (1, 0, 1, 0), "the second finds it dead"


def test_what_finished_is_forgotten_after_the_retention_in_as_many_steps_as_it_takes(
    ledger: EmbeddedLedger, clock: HandClock
) -> None:
    finish(ledger, 1_500)
    clock.advance(RETENTION_MS - 1)
    assert tick(ledger).pruned == 0
    clock.advance(1)
    assert tick(ledger).pruned == 1_500
    assert ledger.stats(Shard()).done == 0


@pytest.mark.slow
def test_with_little_time_it_forgets_one_step_a_shard_and_works_first(ledger: EmbeddedLedger, clock: HandClock) -> None:
    finish(ledger, 6_000)
    clock.advance(RETENTION_MS)
    add(ledger, "due")
    left = iter([ample(), ample(), ample()])
    ticked = tick(ledger, remaining_ms=lambda: next(left, MARGIN_MS))
    assert ticked.done == 1
    assert 500 <= ticked.pruned < 6_000, "a thread forgets on beside the work, and no longer"


@pytest.mark.parametrize("why", [StoreUnavailable, StoreMisused])
def test_a_shard_that_does_not_answer_is_left_out_and_told(
    clock: HandClock, why: type[StoreUnavailable | StoreMisused]
) -> None:
    ledger = PartlyUnreachable(clock)
    ledger.why = why
    ledger.add([new("a", queue="dead"), new("b"), new("c", queue="other")])
    with engine(ledger, lambda _task: None) as run:
        sweeper = Sweeper(ledger, run.drainer, Retention(RETENTION_MS), MARGIN_MS)
        found = sweeper.survey(ample)
        ticked = sweeper.tick(found, ample)
    assert isinstance(found.away, why)
    assert (ticked.shards, ticked.done) == (2, 2)


@pytest.mark.parametrize("why", [StoreUnavailable, StoreMisused])
def test_a_shard_that_refuses_its_sweep_and_its_claim_stops_no_other(
    clock: HandClock, why: type[StoreUnavailable | StoreMisused]
) -> None:
    ledger = PartlyUnreachable(clock)
    ledger.why, ledger.rejects = why, True
    ledger.add([new("a", queue="dead"), new("b"), new("c", queue="other")])
    ticked = tick(ledger)
    assert isinstance(ticked.away, why)
    assert (ticked.left_out, ticked.done) == (1, 2)


@pytest.mark.slow
def test_what_is_finished_is_forgotten_while_a_drain_is_busy(clock: HandClock) -> None:
    ledger, begun, forgotten = EmbeddedLedger(clock), Event(), Event()
    finish(ledger, 3_000)
    clock.advance(RETENTION_MS)
    add(ledger, "long")

    def long(_task: Task) -> None:
        begun.set()
        assert forgotten.wait(30), "nothing is forgotten while this runs"

    def look() -> None:
        begun.wait(30)
        until(lambda: ledger.stats(Shard()).done == 0)
        forgotten.set()

    with ThreadPoolExecutor(1) as beside:
        looking = beside.submit(look)
        ticked = tick(ledger, long)
        looking.result()
    assert (ticked.pruned, ticked.done) == (3_000, 1)


class Noting(OneByOne):
    """A ledger that notes what is swept."""

    def __init__(self, clock: HandClock) -> None:
        super().__init__(clock)
        self.swept: list[Shard] = []
        self.looked_at: list[Shard] = []

    def outlook(self, shard: Shard) -> Outlook:
        self.looked_at.append(shard)
        return super().outlook(shard)

    def sweep(self, shard: Shard, *, retention_ms: int, dead_retention_ms: int | None = None) -> Swept:
        self.swept.append(shard)
        return super().sweep(shard, retention_ms=retention_ms, dead_retention_ms=dead_retention_ms)


@pytest.mark.slow
def test_a_tick_looks_at_its_time_for_each_few_shards_and_takes_them_in_turn(clock: HandClock) -> None:
    ledger = Noting(clock)
    ledger.add([new(f"t{n}", queue=f"q{n}", delay_ms=90_000) for n in range(4 * AT_A_TIME)])
    clock.advance(30_000)
    with engine(ledger, lambda _task: None) as run:
        sweeper = Sweeper(ledger, run.drainer, Retention(RETENTION_MS), MARGIN_MS)
        assert len(sweeper.survey(lambda: 0).shards) == 4 * AT_A_TIME, "what was not looked at may have work"
        assert ledger.looked_at == []
        found = sweeper.survey(ample)
        for _ in range(50):
            sweeper.tick(found, lambda: MARGIN_MS)
    assert 50 * AT_A_TIME <= len(ledger.swept) < 50 * len(found.shards), "a step in any case, some beside the drain"
    assert set(ledger.swept) == set(found.shards)


@pytest.mark.slow
def test_each_idle_shard_is_swept_within_five_minutes_and_a_part_of_them_in_each_tick(clock: HandClock) -> None:
    ledger = Noting(clock)
    ledger.add([new(queue=f"q{n}", delay_ms=86_400_000) for n in range(4 * AT_A_TIME)])
    tick(ledger)
    assert len(ledger.swept) == 4 * AT_A_TIME, "nobody has swept them before"
    swept_at = dict.fromkeys(ledger.swept, clock.at)
    for n in range(12):
        clock.advance(120_000 if n == 5 else 60_000)  # one tick is missed
        ledger.swept.clear()
        tick(ledger)
        assert 0 < len(ledger.swept) < 3 * AT_A_TIME
        swept_at |= dict.fromkeys(ledger.swept, clock.at)
        assert min(swept_at.values()) > clock.at - 300_000 + 60_000, "the next tick is a minute away"


def test_a_few_idle_shards_are_all_swept_in_each_tick(clock: HandClock) -> None:
    ledger = Noting(clock)
    ledger.add([new(queue=f"q{n}", delay_ms=86_400_000) for n in range(AT_A_TIME)])
    for _ in range(2):
        ledger.swept.clear()
        tick(ledger)
        assert set(ledger.swept) == set(ledger.shards())
        clock.advance(60_000)


def test_a_shard_with_work_is_swept_and_drained_in_each_tick(clock: HandClock) -> None:
    ledger = Noting(clock)
    ledger.add([new(queue=f"q{n}", delay_ms=86_400_000) for n in range(4 * AT_A_TIME)])
    tick(ledger)
    for n in range(8):
        ledger.add([new("late", queue=f"q{n}")])
        clock.advance(60_000)
        ledger.swept.clear()
        assert tick(ledger)[:2] == (4 * AT_A_TIME, 60_000)
        assert Shard(f"q{n}") in ledger.swept
        assert ledger.stats(Shard(f"q{n}")).done == 1


def test_what_a_sweep_finds_in_an_idle_shard_is_drained(clock: HandClock) -> None:
    class Mistaken(Noting):
        """Its outlooks say that there is nothing to do."""

        def outlook(self, shard: Shard) -> Outlook:
            return super().outlook(shard)._replace(next_at=0)

    ledger = Mistaken(clock)
    add(ledger, "a")
    assert tick(ledger).done == 1


def test_a_part_that_time_did_not_suffice_for_is_swept_by_the_next_tick(clock: HandClock) -> None:
    ledger = Noting(clock)
    ledger.add([new(queue=f"q{n}", delay_ms=86_400_000) for n in range(8 * AT_A_TIME)])
    tick(ledger, remaining_ms=lambda: 0)
    assert ledger.rounds().swept_at() == {}
    tick(ledger)
    assert set(ledger.swept) == set(ledger.shards())


def test_a_clock_that_was_set_back_keeps_no_part_waiting(clock: HandClock) -> None:
    ledger = Noting(clock)
    ledger.add([new(queue=f"q{n}", delay_ms=86_400_000) for n in range(2 * AT_A_TIME)])
    ledger.rounds().note(range(PARTS), clock.at + 3_600_000)
    tick(ledger)
    assert set(ledger.swept) == set(ledger.shards())


def test_a_store_that_is_away_is_told_at_once(clock: HandClock) -> None:
    ledger = PartlyUnreachable(clock)
    ledger.add([new()])
    ledger.away = True
    with engine(ledger, lambda _task: None) as run, pytest.raises(StoreUnavailable):
        Sweeper(ledger, run.drainer, Retention(RETENTION_MS), MARGIN_MS).survey(ample)


def test_what_a_tick_found_says_so(ledger: EmbeddedLedger) -> None:
    add(ledger)
    tick(ledger)
    assert [run.trigger for run in stored_task(ledger).history] == [Trigger.TICK]


def test_it_forgets_requests_of_a_day_ago_as_long_as_there_is_time(ledger: EmbeddedLedger, clock: HandClock) -> None:
    idempotency = ledger.idempotency()

    def begin(count: int) -> None:
        for number in range(count):
            idempotency.begin(KeyedRequest("-", str(number), b"f" * 32), b"1" * 8, 1_000)

    begin(PRUNE * 2 + 1)
    clock.advance(KEPT_MS)
    tick(ledger, remaining_ms=lambda: 0)
    assert idempotency.prune() == PRUNE, "one step at the least"
    tick(ledger)
    begin(PRUNE * 2 + 1)
    clock.advance(KEPT_MS)
    tick(ledger)
    assert idempotency.prune() == 0


class WithoutRecords(EmbeddedLedger):
    """A ledger whose records beside the shards are on a server that is away."""

    def rounds(self) -> Rounds:
        raise StoreUnavailable

    def idempotency(self) -> IdempotencyStore:
        return Forgetful(self._scripts, "ns", 0)


class Forgetful(IdempotencyStore):
    def prune(self) -> int:
        raise StoreUnavailable


def test_records_that_are_on_a_server_that_is_away_stop_no_tick(clock: HandClock) -> None:
    ledger = WithoutRecords(clock)
    idle = [f"idle-{n}" for n in range(AT_A_TIME + 1)]
    ledger.add([new("i", queue=queue, delay_ms=86_400_000) for queue in idle])
    swept = set[Shard]()
    with engine(ledger, lambda _task: None) as run:
        sweeper = Sweeper(ledger, run.drainer, Retention(RETENTION_MS), MARGIN_MS)
        for n in range(PARTS):
            ledger.add([new(f"t-{n}")])
            found = sweeper.survey(ample)
            assert sweeper.tick(found, ample).done == 1
            swept |= set(found.resting)
            clock.advance(60_000)
    assert swept >= set(map(Shard, idle)), "each part has its turn"
