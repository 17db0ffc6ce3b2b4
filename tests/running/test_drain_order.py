"""Draining in order: which queue first, places that come free, and what is asked of the store beside what."""

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from unittest.mock import Mock

import pytest

from duecourse.errors import StoreUnavailable, WrongShards
from duecourse.ledger.embedded.ledger import EmbeddedLedger
from duecourse.ledger.operation_types import Claim, Lease, Settled
from duecourse.ledger.task import Done, Outcome, Retry, RetryPolicy, Settlement, Shard, Task
from tests.support.clock import HandClock
from tests.support.engine import MARGIN_MS, ample, engine
from tests.support.ledger import LEASE_MS, SHARD, new, stored_task
from tests.support.wait import until


def test_the_higher_priority_is_worked_first_while_it_has_work(clock: HandClock) -> None:
    ledger, order = EmbeddedLedger(clock), ["low", "high", "middle"]
    shards = [Shard(queue) for queue in order]
    for queue, priority in zip(order, (1, 9, None), strict=True):
        ledger.configure(queue, {"priority": priority})
        ledger.add([new(f"{queue}{n}", queue=queue) for n in range(10)])
        ledger.configure(queue, {"paused": True})
    begun: list[str] = []
    with engine(ledger, lambda task: begun.append(task.id), size=1) as run:
        run.drainer.drain(shards, ample)  # each claim tells its queue's priority
        for queue in order:
            ledger.configure(queue, {"paused": False})
        run.drainer.drain(shards, ample)
    assert [id.rstrip("0123456789") for id in begun] == ["high"] * 10 + ["middle"] * 10 + ["low"] * 10


def test_a_place_that_was_freed_is_filled_while_others_run(clock: HandClock) -> None:
    ledger = EmbeddedLedger(clock)
    ledger.configure("default", {"max_running": 2})
    ledger.add([new("a-slow"), *(new(f"t-{n}") for n in range(20))])
    gate = threading.Event()
    done = threading.Semaphore(0)

    def work(task: Task) -> None:
        if task.id == "a-slow":
            gate.wait(30)
        done.release()

    with engine(ledger, work) as run, ThreadPoolExecutor(1) as pool:
        drain = pool.submit(run.drainer.drain, [SHARD], ample)
        began = time.monotonic()
        for _ in range(20):
            assert done.acquire(timeout=30)
        took = time.monotonic() - began
        gate.set()
        assert drain.result().done == 21
    assert took < 1.5, "a look each tenth of a second would have taken two"


class Meeting(EmbeddedLedger):
    """A ledger whose first settle ends only once a second claim was asked for."""

    claims = 0
    met = False

    def claim(self, shard: Shard, limit: int, **bounds: Any) -> Claim:  # type: ignore[override]
        self.claims += 1
        return super().claim(shard, limit, **bounds)

    def settle(self, shard: Shard, settlements: Sequence[Settlement]) -> list[Settled]:
        if not self.met:
            until(lambda: self.claims == 2)
            self.met = True
        return super().settle(shard, settlements)


def test_the_next_tasks_are_claimed_while_the_ends_of_the_last_are_written(clock: HandClock) -> None:
    ledger = Meeting(clock)
    ledger.add([new(f"t-{n}") for n in range(3)])
    with engine(ledger, lambda _task: None, size=1) as run:
        assert run.drainer.drain([SHARD], ample).done == 3
    assert ledger.met


def test_what_goes_wrong_beside_a_claim_is_raised(clock: HandClock, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = EmbeddedLedger(clock)
    ledger.add([new(f"t-{n}") for n in range(3)])
    settle = Mock(side_effect=WrongShards)
    monkeypatch.setattr(ledger, "settle", settle)
    with engine(ledger, lambda _task: None, size=1) as run, pytest.raises(WrongShards):
        run.drainer.drain([SHARD], ample)
    settle.assert_called_once()


def test_a_shard_whose_ends_were_written_beside_anothers_claim_is_looked_at_again(clock: HandClock) -> None:
    ledger, shards = EmbeddedLedger(clock), [Shard("a"), Shard("b")]
    ledger.add([new("twice", queue="a"), *(new(f"t-{n}", queue="b") for n in range(3))])

    def work(task: Task) -> Outcome:
        return Retry(0) if task.id == "twice" and task.run == 1 else Done()

    with engine(ledger, work, size=1) as run:
        assert run.drainer.drain(shards, ample)[:4] == (5, 4, 0, 1)


def test_a_place_that_comes_free_in_a_queue_goes_before_the_work_of_a_lower_priority(clock: HandClock) -> None:
    ledger, shards = EmbeddedLedger(clock), [Shard("high"), Shard("low")]
    ledger.configure("high", {"max_running": 1, "priority": 9})
    ledger.configure("low", {"priority": 1})
    ledger.add([new(f"t-{n}", queue=shard.queue) for shard in shards for n in range(10)])
    ran: list[str] = []
    all_high_ran = threading.Event()

    def work(task: Task) -> None:
        ran.append(task.queue)
        if ran.count("high") == 10:
            all_high_ran.set()
        elif task.queue == "low":
            all_high_ran.wait(30)

    with engine(ledger, work, size=2) as run:
        assert run.drainer.drain(shards, ample).done == 20
    assert ran.index("low") <= 1
    assert ran[:11].count("high") == 10


class Watched(EmbeddedLedger):
    """A ledger of which each call is told beforehand, by its verb: it waits for the answer, or is refused by it."""

    before: Callable[[str, Shard | None], None]

    def ping(self) -> None:
        self.before("ping", None)

    def claim(self, shard: Shard, limit: int, **bounds: Any) -> Claim:  # type: ignore[override]
        self.before("claim", shard)
        return super().claim(shard, limit, **bounds)

    def settle(self, shard: Shard, settlements: Sequence[Settlement]) -> list[Settled]:
        self.before("settle", shard)
        return super().settle(shard, settlements)


def test_a_store_that_takes_ends_again_is_there_whatever_the_claim_beside_them_met(clock: HandClock) -> None:
    ledger, asked = Watched(clock), list[str]()
    ledger.add([new(f"t-{n}") for n in range(3)])

    def away_for_the_second_claim(verb: str, _shard: Shard | None) -> None:
        asked.append(verb)
        if verb == "ping" or (verb == "claim" and asked.count("claim") == 2):
            raise StoreUnavailable
        if verb == "settle" and "ping" not in asked:
            until(lambda: "ping" in asked)

    ledger.before = away_for_the_second_claim
    with engine(ledger, lambda _task: None, size=1) as run:
        assert run.drainer.drain([SHARD], ample).done == 3


def test_what_none_has_begun_is_given_back_before_any_end_is_written_once_time_is_short(clock: HandClock) -> None:
    ledger, gate, begun, short = Watched(clock), threading.Event(), list[str](), list[bool]()
    dead, other = Shard("dead"), Shard("other")
    ledger.add([new("t-0", queue="dead"), new("t-1", queue="other"), new("t-2", queue="other")])

    def before(verb: str, shard: Shard | None) -> None:
        if verb == "settle" and shard == dead:
            if not short:
                raise StoreUnavailable
            gate.set()
            tried = threading.Event()
            run.threads.do(tried.set)
            assert tried.wait(30)

    def work(task: Task) -> None:
        begun.append(task.id)
        run.threads.do(lambda: gate.wait(30) and None)

    def left_ms() -> int:
        short.extend([True] * (ledger.stats(other).leased == 2))
        return MARGIN_MS if short else MARGIN_MS + 1

    ledger.before = before
    with engine(ledger, work, size=1) as run:
        assert run.drainer.drain([dead, other], left_ms)[:6] == (3, 1, 0, 0, 0, 2)
    assert begun == ["t-0"]


class Remembering(EmbeddedLedger):
    """A ledger that remembers its claims, and which leases were extended."""

    def __init__(self, clock: HandClock) -> None:
        super().__init__(clock)
        self.claims: list[tuple[int, int]] = []
        self.extended: list[list[str]] = []

    def claim(self, shard: Shard, limit: int, **bounds: Any) -> Claim:  # type: ignore[override]
        self.claims.append((limit, bounds["at_once"]))
        return super().claim(shard, limit, **bounds)

    def extend(self, shard: Shard, leases: Sequence[Lease], *given: int, **options: bool) -> list[int]:  # type: ignore[override]
        self.extended.append([lease.id for lease in leases])
        return super().extend(shard, leases, *given, **options)


def test_a_claim_says_how_many_of_its_tasks_begin_at_once(clock: HandClock) -> None:
    ledger = Remembering(clock)
    ledger.add([new(f"t-{n}") for n in range(8)])
    with engine(ledger, lambda _task: None, size=2) as run:
        assert run.drainer.drain([SHARD], ample).done == 8
    assert ledger.claims[0] == (2, 2)
    assert all(at_once <= 2 for _, at_once in ledger.claims)
    assert any(limit > at_once for limit, at_once in ledger.claims), "none was claimed ahead"
    assert ledger.extended == [], "what ends soon has no other round trip"


def test_a_task_that_was_claimed_ahead_and_runs_for_a_while_is_noted_as_begun(clock: HandClock) -> None:
    ledger, gate = Remembering(clock), threading.Event()
    ledger.add([new(id, retry=RetryPolicy(max_attempts=1)) for id in ("a", "b", "c-slow")])

    def work(task: Task) -> None:
        assert task.id != "c-slow" or gate.wait(30)

    with engine(ledger, work, size=1) as run, ThreadPoolExecutor(1) as pool:
        drain = pool.submit(run.drainer.drain, [SHARD], ample)
        until(lambda: ledger.extended)
        clock.advance(LEASE_MS)
        ledger.sweep(SHARD, retention_ms=LEASE_MS)
        gate.set()
        assert drain.result().stale == 1
    assert ledger.extended == [["c-slow"]]
    assert stored_task(ledger, "c-slow").history[0].outcome == "lapsed"
