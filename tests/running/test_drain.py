"""Draining: what is worked, what is given back, and what happens where tasks are slow or the store goes away."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from duecourse.errors import InvocationRejected, StoreMisused, StoreUnavailable, WrongShards
from duecourse.ledger.embedded.ledger import EmbeddedLedger
from duecourse.ledger.operation_types import Claim, Lease, Move, Settled
from duecourse.ledger.task import Again, Done, Drop, Outcome, Retry, Settlement, Shard, Status, Task
from duecourse.running.drain import Drained
from duecourse.schedules.firing import Firer
from tests.support.clock import START, HandClock
from tests.support.engine import MARGIN_MS, Engine, Lambda, Table, ample, engine
from tests.support.firing import CALENDAR
from tests.support.ledger import SHARD, add, new, stored_task
from tests.support.schedules import occurrence, put
from tests.support.wait import until


class Works:
    """A kind that keeps which tasks ran; tasks whose id begins with `slow` wait until the gate opens."""

    def __init__(self, outcome: Callable[[Task], Outcome | None] = lambda _task: Done()) -> None:
        self._outcome = outcome
        self.gate = threading.Event()
        self.begun: list[str] = []

    def __call__(self, task: Task) -> Outcome | None:
        self.begun.append(task.id)
        if task.id.startswith("slow"):
            assert self.gate.wait(30)
        return self._outcome(task)


class StoreThatGoesAway(EmbeddedLedger):
    """A ledger in memory that is unavailable while `away` is set, or for one shard; it counts claims and refusals."""

    def __init__(self, clock: HandClock) -> None:
        super().__init__(clock)
        self.away = False
        self.dead: Shard | None = None
        self.why: type[StoreUnavailable | StoreMisused] = StoreUnavailable
        self.refused = 0
        self.claims = self.handed_out = 0
        self.claimed_at: list[float] = []

    def ping(self) -> None:
        if self.away:
            raise StoreUnavailable

    def claim(self, shard: Shard, limit: int, **bounds: Any) -> Claim:  # type: ignore[override]
        self.claims += 1
        self.claimed_at.append(time.monotonic())
        self._answer(shard)
        claim = super().claim(shard, limit, **bounds)
        self.handed_out += len(claim.tasks)
        return claim

    def settle(self, shard: Shard, settlements: Sequence[Settlement]) -> list[Settled]:
        self._answer(shard)
        return super().settle(shard, settlements)

    def _answer(self, shard: Shard) -> None:
        if self.away or shard == self.dead:
            self.refused += 1
            raise StoreUnavailable if self.away else self.why


class Countdown:
    """The time left of an invocation: ample, until it is made short."""

    def __init__(self) -> None:
        self.short = False
        self.looks = 0

    def __call__(self) -> int:
        self.looks += 1
        return MARGIN_MS if self.short else MARGIN_MS + 1


@pytest.fixture
def ledger(clock: HandClock) -> StoreThatGoesAway:
    return StoreThatGoesAway(clock)


def fill(ledger: EmbeddedLedger, *ids: str, **fields: Any) -> None:
    """Tasks that are due now, in the order of their ids."""
    ledger.add([new(id, **fields) for id in ids])


def states(ledger: EmbeddedLedger, *ids: str) -> list[Status]:
    return [stored_task(ledger, id).status for id in ids]


@contextmanager
def draining(run: Engine, remaining_ms: Callable[[], int] = ample, shards: Sequence[Shard] = (SHARD,)) -> Iterator[Any]:
    """A drain that goes on beside the test, as a future."""
    with ThreadPoolExecutor(1) as pool:
        yield pool.submit(run.drainer.drain, shards, remaining_ms)


def test_all_that_is_due_is_worked_once_and_what_is_not_stays(ledger: StoreThatGoesAway) -> None:
    fill(ledger, *(f"t-{n:03}" for n in range(300)))
    add(ledger, "later", delay_ms=5_000)
    works = Works()
    with engine(ledger, works) as run:
        drained = run.drainer.drain([SHARD], ample)
    assert drained == Drained(claimed=300, done=300, bell_at=START + 5_000)
    assert max(Counter(works.begun).values()) == 1


def test_each_outcome_is_counted_as_what_became_of_its_task(ledger: StoreThatGoesAway) -> None:
    outcomes: dict[str, Any] = {
        "again": Again(after=60),
        "done": None,
        "drop": Drop("no"),
        "last": Retry(),
        "retry": Retry(after=9),
    }
    fill(ledger, "again", "done", "drop", "retry")
    fill(ledger, "last", retry=replace(new().retry, max_attempts=1))
    with engine(ledger, lambda task: outcomes[task.id]) as run:
        drained = run.drainer.drain([SHARD], ample)
    assert drained[:7] == (5, 1, 1, 1, 2, 0, 0)


def test_a_task_that_comes_due_while_others_run_is_worked_in_the_same_drain(ledger: StoreThatGoesAway) -> None:
    works = Works(lambda task: Retry(after=0) if task.run < 3 else Done())
    fill(ledger, "a")
    with engine(ledger, works) as run:
        assert run.drainer.drain([SHARD], ample)[:4] == (3, 1, 0, 2)


def test_shards_are_drained_beside_each_other_and_none_waits_for_anothers_backlog(ledger: StoreThatGoesAway) -> None:
    shards = [Shard("big"), Shard("small"), Shard("small")]
    fill(ledger, *(f"big-{n:03}" for n in range(100)), queue="big")
    fill(ledger, "small-0", "small-1", queue="small")
    works = Works()
    with engine(ledger, works) as run:
        assert run.drainer.drain(shards, ample).done == 102
    assert {"small-0", "small-1"} <= set(works.begun[:20])


def test_what_died_on_the_way_is_counted_and_not_run(ledger: StoreThatGoesAway, clock: HandClock) -> None:
    fill(ledger, "a", "b", deadline_ms=1_000)
    clock.advance(1_001)
    works = Works()
    with engine(ledger, works) as run:
        drained = run.drainer.drain([SHARD], ample)
    assert (drained.claimed, drained.dead, works.begun) == (0, 2, [])


def test_a_paused_queue_is_left_alone(ledger: StoreThatGoesAway) -> None:
    fill(ledger, "a")
    ledger.configure("default", {"paused": True})
    with engine(ledger, Works()) as run:
        assert run.drainer.drain([SHARD], ample) == Drained()


def test_a_task_taken_by_force_while_it_ran_is_stale(ledger: StoreThatGoesAway) -> None:
    works = Works()
    fill(ledger, "slow")
    with engine(ledger, works) as run, draining(run) as drain:
        until(lambda: works.begun)
        ledger.move("default", [Move("slow", delay_ms=60_000, force=True)])
        works.gate.set()
        assert drain.result()[:7] == (1, 0, 0, 0, 0, 0, 1)
    assert states(ledger, "slow") == [Status.SCHEDULED]


def test_beside_a_slow_task_the_free_slots_go_on_with_what_comes_due(ledger: StoreThatGoesAway) -> None:
    works = Works()
    fill(ledger, "slow")
    with engine(ledger, works) as run, draining(run) as drain:
        until(lambda: works.begun)
        add(ledger, "new")
        until(lambda: states(ledger, "new") == [Status.DONE])
        assert states(ledger, "slow") == [Status.LEASED]
        works.gate.set()
        assert drain.result().done == 2


def test_an_occurrence_waits_for_no_task_that_runs(ledger: StoreThatGoesAway, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("duecourse.running.drain.LOOK_AGAIN_S", 60)
    works = Works()
    fill(ledger, "slow")
    put(ledger, at=START)
    with engine(ledger, works, fire=Firer(ledger, CALENDAR).fire) as run, draining(run) as drain:
        until(lambda: works.begun == ["slow", occurrence(0)])
        works.gate.set()
        assert drain.result().done == 2


def test_a_drain_of_many_shards_does_not_ask_them_all_ten_times_a_second_while_it_waits(
    ledger: StoreThatGoesAway,
) -> None:
    works = Works()
    fill(ledger, "slow", queue="q0")
    shards = [Shard(f"q{n}") for n in range(50)]
    with engine(ledger, works) as run, draining(run, shards=shards) as drain:
        until(lambda: ledger.claims > len(shards) + 10)
        assert ledger.claimed_at[len(shards) + 10] - ledger.claimed_at[len(shards) - 1] > 0.3
        works.gate.set()
        assert drain.result().done == 1


def test_what_waits_behind_a_slow_task_is_given_back_for_others_to_work(ledger: StoreThatGoesAway) -> None:
    works, other = Works(), Works()
    fill(ledger, "a", "slow", "u")
    with engine(ledger, works, size=1) as run, engine(ledger, other) as second, draining(run) as drain:
        until(lambda: stored_task(ledger, "u").run == 1)  # claimed ahead, for `a` was quick
        until(lambda: states(ledger, "u") == [Status.SCHEDULED])
        assert second.drainer.drain([SHARD], ample).done == 1
        assert stored_task(ledger, "u").attempt == 1
        works.gate.set()
        assert drain.result()[:6] == (3, 2, 0, 0, 0, 1)
    assert (works.begun, other.begun) == (["a", "slow"], ["u"])


def test_no_more_is_claimed_ahead_than_eight_times_what_can_run(ledger: StoreThatGoesAway) -> None:
    ahead: list[int] = []

    def look(_task: Task) -> None:
        ahead.append(ledger.handed_out - len(ahead))
        assert ledger.stats(SHARD).leased <= 24 + 24, "as many again have finished, and their ends are being written"

    fill(ledger, *(f"t-{n:03}" for n in range(200)))
    with engine(ledger, look, size=3) as run:
        assert run.drainer.drain([SHARD], ample).done == 200
    assert 3 < max(ahead) <= 24


class Noting(StoreThatGoesAway):
    """A ledger that keeps whose leases were noted as begun."""

    def __init__(self, clock: HandClock) -> None:
        super().__init__(clock)
        self.begun: list[str] = []

    def extend(self, shard: Shard, leases: Sequence[Lease], lease_ms: int, *, at_least: bool = False) -> list[int]:
        self.begun += [lease.id for lease in leases if at_least and not lease_ms]
        return super().extend(shard, leases, lease_ms, at_least=at_least)


def test_a_task_that_was_claimed_ahead_is_noted_as_begun_while_it_runs(clock: HandClock) -> None:
    ledger, works = Noting(clock), Works()
    fill(ledger, "quick-0", "quick-1", "slow")  # the second claim is of two, of which one waits for the thread
    with engine(ledger, works, size=1) as run, draining(run) as drain:
        until(lambda: ledger.begun)
        works.gate.set()
        assert drain.result().done == 3
    assert ledger.begun == ["slow"]


def test_tasks_that_end_their_thread_do_not_stop_a_drain(ledger: StoreThatGoesAway) -> None:
    def leave(task: Task) -> Done:
        if task.id.startswith("x"):
            raise SystemExit
        return Done()

    fill(ledger, *(f"x-{n}" for n in range(8)), *(f"y-{n}" for n in range(8)))
    with engine(ledger, leave, size=2) as run:
        assert run.drainer.drain([SHARD], ample)[:4] == (16, 8, 0, 8)


def test_when_time_is_short_what_runs_is_finished_and_the_rest_given_back_unspent(ledger: StoreThatGoesAway) -> None:
    left, works = Countdown(), Works()
    quick, slow, rest = [f"a-{n}" for n in range(8)], ["slow-0", "slow-1"], [f"u-{n}" for n in range(3)]
    fill(ledger, *quick, *slow, *rest)
    with engine(ledger, works, size=2) as run, draining(run, left) as drain:
        until(lambda: len(works.begun) == 10)
        left.short = True
        until(lambda: states(ledger, *rest) == 3 * [Status.SCHEDULED])
        assert states(ledger, *slow) == 2 * [Status.LEASED]
        works.gate.set()
        drained = drain.result()
    assert (drained.done, drained.claimed - drained.released) == (10, 10)
    assert [stored_task(ledger, id).attempt for id in rest] == [1, 1, 1]
    assert set(works.begun) == {*quick, *slow}


def test_with_no_time_at_all_nothing_is_claimed_and_the_shards_count_as_backlog(ledger: StoreThatGoesAway) -> None:
    fill(ledger, "a")
    with engine(ledger, Works()) as run:
        assert run.drainer.drain([SHARD, Shard("other")], lambda: MARGIN_MS) == Drained(backlog=2)
    assert stored_task(ledger, "a").run == 0


def test_when_time_is_short_the_backlog_is_told(ledger: StoreThatGoesAway) -> None:
    left, works = Countdown(), Works()
    fill(ledger, *(f"slow-{n:02}" for n in range(20)))
    with engine(ledger, works) as run, draining(run, left) as drain:
        until(lambda: len(works.begun) == 4)
        left.short = True
        works.gate.set()
        assert drain.result().backlog == 16


def test_two_drains_in_one_process_share_the_work(ledger: StoreThatGoesAway) -> None:
    ids = [f"t-{n:03}" for n in range(400)]
    fill(ledger, *ids)
    works = Works()
    with engine(ledger, works) as run, draining(run) as one, draining(run) as two:
        assert one.result().done + two.result().done == 400
    assert sorted(works.begun) == ids


@contextmanager
def behind_another(ledger: StoreThatGoesAway, works: Works, remaining_ms: Callable[[], int]) -> Iterator[Any]:
    """A drain of the queue `other`, with one task in it, while another drain holds every slot of their threads."""
    fill(ledger, "slow-0", "slow-1")
    fill(ledger, "v", queue="other")
    with engine(ledger, works, size=2) as run, draining(run) as first:
        until(lambda: len(works.begun) == 2)
        with draining(run, remaining_ms, [Shard("other")]) as second:
            until(lambda: ledger.stats(Shard("other")).leased)
            yield second
            works.gate.set()
        assert first.result().done == 2


def test_a_drain_whose_slots_are_all_anothers_waits_for_them_and_gives_nothing_back(ledger: StoreThatGoesAway) -> None:
    works = Works()
    with behind_another(ledger, works, ample) as drain:
        works.gate.set()
        assert drain.result()[:6] == (1, 1, 0, 0, 0, 0)


def test_it_gives_back_what_it_claimed_when_its_time_is_short(ledger: StoreThatGoesAway) -> None:
    left, works = Countdown(), Works()
    with behind_another(ledger, works, left) as drain:
        left.short = True
        assert drain.result()[:6] == (1, 0, 0, 0, 0, 1)
    assert "v" not in works.begun


def test_after_a_fault_nothing_more_of_a_drain_begins(ledger: StoreThatGoesAway) -> None:
    works, faulty = Works(), threading.Event()

    def remaining_ms() -> int:
        if faulty.is_set():
            raise RuntimeError("a fault of the caller's")
        return ample()

    with behind_another(ledger, works, remaining_ms) as drain:
        faulty.set()
        with pytest.raises(RuntimeError):
            drain.result()
    assert "v" not in works.begun


def test_tasks_of_a_function_are_handed_over_ten_at_a_time_beside_those_worked_here(ledger: StoreThatGoesAway) -> None:
    function, works = Lambda(), Works()
    fill(ledger, *(f"r-{n:02}" for n in range(25)), kind="report")
    fill(ledger, "here")
    with engine(ledger, {"work": works}, size=32, targets={"report": "lambda:ReportFunction"}, invoker=function) as run:
        drained = run.drainer.drain([SHARD], ample)
    assert drained[:2] == (26, 1)
    assert {name for name, _ in function.sent} == {"ReportFunction"}
    assert sorted(map(len, function.ids())) == [5, 10, 10]
    assert states(ledger, "r-00", "r-24", "here") == [Status.LEASED, Status.LEASED, Status.DONE]


@pytest.mark.parametrize("refusal", [InvocationRejected("429"), OSError("no route")])
def test_what_a_function_does_not_take_is_put_off_and_no_attempt_spent(
    ledger: StoreThatGoesAway, refusal: Exception
) -> None:
    fill(ledger, *(f"r-{n}" for n in range(4)), kind="report")
    with engine(ledger, {}, targets={"report": "lambda:Report"}, invoker=Lambda(refusal)) as run:
        drained = run.drainer.drain([SHARD], lambda: MARGIN_MS + 1 if drained_once(ledger) else MARGIN_MS)
    assert drained.released == drained.claimed > 0
    task = stored_task(ledger, "r-0")
    assert (task.status, task.attempt, task.history) == (Status.SCHEDULED, 1, ())
    assert START <= task.due_at <= START + 1_000


def drained_once(ledger: StoreThatGoesAway) -> bool:
    return stored_task(ledger, "r-3").run == 0


def test_with_the_results_database_away_a_task_is_given_back_and_a_later_run_keeps_its_result(
    ledger: StoreThatGoesAway, clock: HandClock
) -> None:
    table = Table()
    table.away = True
    fill(ledger, *(f"t-{n}" for n in range(3)))
    left = Countdown()
    begun: list[str] = []

    def kind(task: Task) -> Done:
        begun.append(task.id)
        left.short = len(begun) == 3
        return Done({"big": 1})

    with engine(ledger, kind, results=table) as run:
        drained = run.drainer.drain([SHARD], left)
        assert (drained.claimed, drained.released) == (3, 3)
        assert table.results == {}
        table.away, left.short = False, False
        clock.advance(60_000)
        assert run.drainer.drain([SHARD], left).done == 3
    assert {id: kept.value for id, kept in table.results.items()} == {f"t-{n}": '{"big":1}' for n in range(3)}


def test_a_store_that_is_not_there_is_told_at_once(ledger: StoreThatGoesAway) -> None:
    ledger.away = True
    with engine(ledger, Works()) as run, pytest.raises(StoreUnavailable):
        run.drainer.drain([SHARD], ample)


def test_what_was_worked_while_the_store_was_away_is_settled_when_it_is_back(ledger: StoreThatGoesAway) -> None:
    works = Works()
    fill(ledger, "slow-0", "slow-1")
    with engine(ledger, works) as run, draining(run) as drain:
        until(lambda: len(works.begun) == 2)
        ledger.away = True
        works.gate.set()
        until(lambda: ledger.refused > 3)
        add(ledger, "t")
        ledger.away = False
        assert drain.result()[:2] == (3, 3)
    assert (works.begun, states(ledger, "slow-0", "slow-1")) == (["slow-0", "slow-1", "t"], 2 * [Status.DONE])


def test_a_store_that_stays_away_is_told_when_time_is_short(ledger: StoreThatGoesAway) -> None:
    left, works = Countdown(), Works()
    fill(ledger, "slow-0", "slow-1", "t")
    with engine(ledger, works, size=2) as run, draining(run, left) as drain:
        until(lambda: len(works.begun) == 2)
        ledger.away = True
        works.gate.set()
        until(lambda: ledger.refused > 3)
        assert not drain.done()
        left.short = True
        with pytest.raises(StoreUnavailable):
            drain.result()
    assert ledger.claims <= 2, "once the ends were refused, no more is asked for"
    ledger.away = False
    assert states(ledger, "slow-0", "slow-1") == 2 * [Status.LEASED], "they lapse, and run again"


def test_a_store_that_is_away_is_asked_for_no_more_until_it_takes_an_end(ledger: StoreThatGoesAway) -> None:
    left, works = Countdown(), Works()
    fill(ledger, "slow")
    with engine(ledger, works) as run, draining(run, left) as drain:
        until(lambda: works.begun == ["slow"])
        ledger.away = True
        until(lambda: ledger.refused > 0)
        looks = left.looks
        until(lambda: left.looks > looks + 3)
        refused, ledger.away = ledger.refused, False
        works.gate.set()
        assert drain.result().done == 1
    assert refused == 1


@pytest.mark.parametrize("why", [StoreUnavailable, StoreMisused])
def test_a_shard_that_does_not_answer_holds_up_no_other_and_is_told_in_the_end(
    ledger: StoreThatGoesAway, why: type[StoreUnavailable | StoreMisused]
) -> None:
    works, ledger.why = Works(), why
    for queue in ("a", "b", "c"):
        fill(ledger, *(f"{queue}-{n}" for n in range(5)), queue=queue)
    ledger.dead = Shard("b")
    with engine(ledger, works, size=2) as run, pytest.raises(why):
        run.drainer.drain([Shard("b"), Shard("a"), Shard("c")], ample)
    assert sorted(works.begun) == [f"{queue}-{n}" for queue in ("a", "c") for n in range(5)]
    assert [ledger.stats(Shard(queue))[:3] for queue in ("a", "b", "c")] == [(0, 0, 5), (5, 0, 0), (0, 0, 5)]
    assert ledger.refused == 1, "it is asked once"


def test_a_shard_that_is_left_out_is_asked_no_more_however_long_the_others_take(ledger: StoreThatGoesAway) -> None:
    works = Works()
    fill(ledger, "slow", queue="a")
    ledger.dead = Shard("b")
    with engine(ledger, works) as run, draining(run, shards=[Shard("a"), Shard("b")]) as drain:
        until(lambda: ledger.claims > 4)
        works.gate.set()
        with pytest.raises(StoreUnavailable):
            drain.result()
    assert ledger.refused == 1


def test_a_shard_of_another_count_whose_tasks_run_stops_no_other(ledger: StoreThatGoesAway) -> None:
    works = Works()
    fill(ledger, "slow-0", "slow-1", queue="a")
    fill(ledger, *(f"t-{n}" for n in range(9)), queue="b")
    with engine(ledger, works, size=2) as run, draining(run, shards=[Shard("a"), Shard("b")]) as drain:
        until(lambda: len(works.begun) == 2)
        ledger.dead, ledger.why = Shard("a"), WrongShards
        works.gate.set()
        with pytest.raises(WrongShards):
            drain.result()
    assert ledger.stats(Shard("b")).done == 9


@pytest.mark.slow
def test_a_shard_that_goes_while_its_tasks_run_is_offered_their_ends_beside_the_work_of_others(
    ledger: StoreThatGoesAway,
) -> None:
    works = Works()
    fill(ledger, "slow-0", "slow-1", queue="a")
    with engine(ledger, works, size=3) as run, draining(run, shards=[Shard("a"), Shard("b")]) as drain:
        until(lambda: len(works.begun) == 2)
        ledger.dead = Shard("a")
        works.gate.set()
        try:
            until(lambda: ledger.refused > 3)
            fill(ledger, "t", queue="b")
            until(lambda: ledger.stats(Shard("b")).done == 1)
        finally:
            ledger.dead = None  # or the drain would not end
        fill(ledger, "u", queue="a")
        assert drain.result()[:2] == (4, 4)


def test_with_the_whole_store_away_not_every_shard_is_asked(ledger: StoreThatGoesAway) -> None:
    ledger.away = True
    with engine(ledger, Works()) as run, pytest.raises(StoreUnavailable):
        run.drainer.drain([Shard(f"q-{n}") for n in range(9)], ample)
    assert ledger.claims == 1
