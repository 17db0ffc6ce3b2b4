"""A drain that stays: what rings is worked at once, whatever else runs, until it is stopped."""

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise

import pytest

from duecourse.errors import DuecourseError, StoreMisused, StoreUnavailable, WrongShards
from duecourse.ledger.embedded.ledger import EmbeddedLedger
from duecourse.ledger.operation_types import Settled
from duecourse.ledger.task import Done, Settlement, Shard, Status, Task, Trigger
from duecourse.running import drain as flow
from duecourse.running.batches import NO_DISPLAY, LeaseDisplay, NoDisplay
from duecourse.running.drain import REST, ContinuousDrain, DrainState
from duecourse.running.run import Kind, Runner
from duecourse.running.threads import Threads
from tests.support.clock import HandClock
from tests.support.engine import fire_nothing, targets_of
from tests.support.ledger import SHARD, new, stored_task
from tests.support.wait import until


@contextmanager
def serving(
    ledger: EmbeddedLedger, kind: Kind, size: int = 2, leases: LeaseDisplay = NO_DISPLAY
) -> Iterator[ContinuousDrain]:
    """A drain that runs on a thread of its own, stopped at the end."""
    threads = Threads(size)
    runner = Runner(lambda _name: kind, None, ledger.now, random.Random(7))
    drain = ContinuousDrain(ledger, runner, targets_of({}), threads, 30_000, fire_nothing, leases)
    thread = threading.Thread(target=drain.run)
    thread.start()
    try:
        yield drain
    finally:
        drain.stop()
        thread.join(30)
        assert not thread.is_alive()
        threads.close()


def ring(drain: ContinuousDrain, shard: Shard = SHARD) -> None:
    drain.ring({shard: Trigger.RING})


def status(ledger: EmbeddedLedger, *ids: str) -> Callable[[], bool]:
    return lambda: all(stored_task(ledger, id).status == Status.DONE for id in ids)


class Gate:
    """A kind whose tasks named `slow…` wait until the gate opens."""

    def __init__(self) -> None:
        self.begun, self.opened = threading.Event(), threading.Event()

    def __call__(self, task: Task) -> Done:
        if task.id.startswith("slow"):
            self.begun.set()
            assert self.opened.wait(60)
        return Done()


def test_a_slow_task_holds_up_no_ring(ledger: EmbeddedLedger) -> None:
    gate = Gate()
    with serving(ledger, gate) as drain:
        ledger.add([new("slow")])
        ring(drain)
        assert gate.begun.wait(30)
        ledger.add([new("quick")])
        ring(drain)
        until(status(ledger, "quick"))
        assert stored_task(ledger, "slow").status == Status.LEASED
        gate.opened.set()
        until(status(ledger, "slow"))


def test_a_lease_is_shown_from_its_claim_until_its_end_is_settled(ledger: EmbeddedLedger) -> None:
    gate, shown = Gate(), set[str]()

    class Shown(NoDisplay):
        def hold(self, tasks: Iterable[Task]) -> None:
            shown.update(task.token for task in tasks)

        def drop(self, tokens: Iterable[str]) -> None:
            shown.difference_update(tokens)

    with serving(ledger, gate, leases=Shown()) as drain:
        ledger.add([new("slow"), new("quick")])
        ring(drain)
        assert gate.begun.wait(30)
        until(lambda: shown == {stored_task(ledger, "slow").token})
        gate.opened.set()
        until(lambda: not shown)
        assert status(ledger, "slow", "quick")()


def test_what_no_thread_is_free_for_is_worked_once_one_is(ledger: EmbeddedLedger) -> None:
    gate = Gate()
    with serving(ledger, gate, size=1) as drain:
        ledger.add([new("slow")])
        ring(drain)
        assert gate.begun.wait(30)
        ledger.add([new("next")])
        ring(drain)
        gate.opened.set()
        until(status(ledger, "slow", "next"))


def test_a_stop_gives_back_what_has_not_begun_and_waits_for_what_runs(ledger: EmbeddedLedger) -> None:
    gate = Gate()
    threads = Threads(1)
    runner = Runner(lambda _name: gate, None, ledger.now, random.Random(7))
    drain = ContinuousDrain(ledger, runner, targets_of({}), threads, 30_000, fire_nothing)
    thread = threading.Thread(target=drain.run)
    ledger.add([new("slow")])
    ring(drain)
    thread.start()
    assert gate.begun.wait(30)
    drain.stop()
    ledger.add([new("late")])
    ring(drain)
    assert thread.is_alive()
    gate.opened.set()
    thread.join(30)
    threads.close()
    assert (stored_task(ledger, "slow").status, stored_task(ledger, "late").status) == (Status.DONE, Status.SCHEDULED)
    assert stored_task(ledger, "late").run == 0


def test_a_stop_gives_back_what_was_claimed_ahead_while_another_runs(ledger: EmbeddedLedger) -> None:
    gate = Gate()

    def kind(task: Task) -> Done:
        if task.id == "slow":
            drain.stop()  # by now `then` is claimed, in the same step, and no thread is free for it
        return gate(task)

    with serving(ledger, kind, size=1) as drain:
        ledger.add([new("quick")])
        ring(drain)
        until(status(ledger, "quick"))  # tasks are short: it claims more than there are threads for
        ledger.add([new("slow"), new("then")])
        ring(drain)
        assert gate.begun.wait(30)
        try:
            until(lambda: stored_task(ledger, "then").log, seconds=10)
            states = {id: stored_task(ledger, id).status for id in ("slow", "then")}
        finally:
            gate.opened.set()
    assert states == {"slow": Status.LEASED, "then": Status.SCHEDULED}
    assert (stored_task(ledger, "slow").status, stored_task(ledger, "then").attempt) == (Status.DONE, 1)


def test_rings_of_a_queue_that_is_full_are_not_lost(ledger: EmbeddedLedger) -> None:
    ledger.configure("default", {"max_running": 1})
    with serving(ledger, lambda _task: Done()) as drain:
        ledger.add([new(f"t{n}") for n in range(20)])
        ring(drain)
        until(status(ledger, *(f"t{n}" for n in range(20))))


class Away(EmbeddedLedger):
    """A ledger that can be away."""

    def __init__(self, clock: HandClock) -> None:
        super().__init__(clock)
        self.away = False

    def ping(self) -> None:
        if self.away:
            raise StoreUnavailable

    def claim(self, *given: object, **named: object):  # type: ignore[no-untyped-def,override]
        self.ping()
        return super().claim(*given, **named)  # type: ignore[arg-type]

    def settle(self, shard: Shard, settlements: list[Settlement]) -> list[Settled]:  # type: ignore[override]
        self.ping()
        return super().settle(shard, settlements)


@pytest.mark.parametrize("rings", [True, False])
def test_what_finished_while_the_store_was_away_is_settled_and_what_waited_is_claimed(
    clock: HandClock, rings: bool
) -> None:
    ledger, gate = Away(clock), Gate()
    with serving(ledger, gate) as drain:
        ledger.add([new("slow"), new("next", queue="other")])
        ring(drain)
        assert gate.begun.wait(30)
        ledger.away = True
        ring(drain, Shard("other"))
        gate.opened.set()
        ledger.away = False
        if rings:
            ring(drain, Shard("other"))
        until(status(ledger, "slow"))
        until(lambda: (task := ledger.get("other", "next")) and task.status == Status.DONE)


class Rejecting(EmbeddedLedger):
    """A ledger that raises `error` at the verbs in `rejects`; `rejected` counts that, by verb."""

    def __init__(self, clock: HandClock) -> None:
        super().__init__(clock)
        self.rejects: set[str] = set()
        self.poison = ""
        self.error: DuecourseError = StoreMisused("no permission to run evalsha")
        self.rejected: Counter[str] = Counter()
        self.takes_s = 0.0
        self.tries: list[tuple[float, float]] = []
        """When each rejected call began and ended."""

    def _answer(self, verb: str) -> None:
        if verb in self.rejects:
            began = time.monotonic()
            time.sleep(self.takes_s)
            self.rejected[verb] += 1
            self.tries.append((began, time.monotonic()))
            raise self.error

    def ping(self) -> None:
        self._answer("ping")

    def claim(self, *given: object, **named: object):  # type: ignore[no-untyped-def,override]
        self._answer("claim")
        return super().claim(*given, **named)  # type: ignore[arg-type]

    def settle(self, shard: Shard, settlements: Sequence[Settlement]) -> list[Settled]:
        self._answer("settle")
        if any(one.id == self.poison for one in settlements):
            raise StoreMisused("a script that cannot read one record")
        return super().settle(shard, settlements)


@pytest.fixture
def rejecting(clock: HandClock) -> Rejecting:
    return Rejecting(clock)


@pytest.mark.slow
@pytest.mark.parametrize("rejects", [{"claim"}, {"claim", "ping"}])
def test_a_shard_whose_claim_was_rejected_is_tried_again_without_a_ring(
    rejecting: Rejecting, rejects: set[str], caplog: pytest.LogCaptureFixture
) -> None:
    ledger = rejecting
    with serving(ledger, lambda _task: Done()) as drain:
        ledger.add([new("a")])
        ledger.rejects = rejects
        ring(drain)
        until(lambda: ledger.rejected["claim"] >= 3)
        assert drain.left_out == 1
        ledger.rejects = set()
        until(status(ledger, "a"))
        until(lambda: drain.left_out == 0)
    assert [record.levelname for record in caplog.records] == ["WARNING"], "a line a minute"


def test_the_pauses_between_two_tries_grow(rejecting: Rejecting, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger, pauses = rejecting, list[float]()

    def lose(self: DrainState, shard: Shard, *rest: object) -> bool:
        lost = lost_before(self, shard, *rest)  # type: ignore[arg-type]
        left_out = self._left_out[shard]
        pauses.append(left_out.until - time.monotonic())
        self._left_out[shard] = left_out._replace(until=0.0)
        self._retry_at = 0.0
        return lost

    lost_before = DrainState._lose
    monkeypatch.setattr(DrainState, "_lose", lose)
    with serving(ledger, lambda _task: Done()) as drain:
        ledger.add([new("a")])
        ledger.rejects = {"claim"}
        ring(drain)
        until(lambda: len(pauses) >= 9)
        ledger.rejects = set()
        until(status(ledger, "a"))
    assert pauses[0] <= 1, "from 0.1 s"
    assert pauses[7] > 4, "to 5 s"


@pytest.mark.slow
def test_tries_of_shards_that_answer_late_leave_most_of_the_time_to_others(
    rejecting: Rejecting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flow, "PAUSES_S", (0.0, 0.0))
    ledger, shards = rejecting, [Shard(f"q{number}") for number in range(4)]
    with serving(ledger, lambda _task: Done()) as drain:
        ledger.rejects, ledger.takes_s = {"claim"}, 0.02
        drain.ring(dict.fromkeys(shards, Trigger.RING))
        until(lambda: len(ledger.tries) >= 12)
        again = ledger.tries[len(shards) :]
        assert min(later[0] - former[1] for former, later in pairwise(again)) >= REST * ledger.takes_s
        ledger.rejects = set()


def test_an_outcome_that_was_rejected_is_settled_once_the_store_takes_it(rejecting: Rejecting) -> None:
    ledger, gate = rejecting, Gate()
    once = replace(new("slow").retry, max_attempts=1)
    with serving(ledger, gate) as drain:
        ledger.add([new("slow", retry=once)])
        ring(drain)
        assert gate.begun.wait(30)
        ledger.rejects = {"settle"}
        gate.opened.set()
        until(lambda: ledger.rejected["settle"] >= 2)
        assert stored_task(ledger, "slow").status == Status.LEASED
        ledger.rejects = set()
        until(status(ledger, "slow"))


def test_no_more_is_claimed_from_a_shard_that_rejects_the_ends_of_its_tasks(rejecting: Rejecting) -> None:
    ledger = rejecting
    with serving(ledger, lambda _task: Done()) as drain:
        ledger.add([new("a")])
        ledger.rejects = {"settle"}
        ring(drain)
        until(lambda: ledger.rejected["settle"] >= 1)
        ledger.add([new("b")])
        ring(drain)
        tries = ledger.rejected["settle"]
        until(lambda: ledger.rejected["settle"] > tries)
        assert stored_task(ledger, "b").status == Status.SCHEDULED
        ledger.rejects = set()
        until(status(ledger, "a", "b"))


def test_an_end_that_is_rejected_holds_up_no_other_of_its_shard(rejecting: Rejecting) -> None:
    ledger, met = rejecting, threading.Barrier(4)
    ledger.poison = "t1"

    def kind(_task: Task) -> Done:
        met.wait(30)
        return Done()

    with serving(ledger, kind, size=4) as drain:
        ledger.add([new(f"t{n}") for n in range(4)])
        ring(drain)
        until(status(ledger, "t0", "t2", "t3"))
        assert stored_task(ledger, "t1").status == Status.LEASED
        ledger.poison = ""
        until(status(ledger, "t1"))


def test_a_queue_of_another_number_of_shards_is_looked_at_again_by_a_tick_alone(
    rejecting: Rejecting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        flow, "PAUSES_S", (0.0, 0.0)
    )  # no pause: what is tried again is, before another queue's task ends
    ledger, error = rejecting, WrongShards("default has 4 shards")
    with serving(ledger, lambda _task: Done()) as drain:
        ledger.add([new("a"), new("b", queue="other")])
        ledger.rejects, ledger.error = {"claim"}, error
        ring(drain)
        until(lambda: ledger.rejected["claim"] == 1)
        until(lambda: drain.left_out == 1)
        ledger.rejects = set()
        ring(drain)
        ring(drain, Shard("other"))
        until(lambda: (task := ledger.get("other", "b")) and task.status == Status.DONE)
        assert (stored_task(ledger, "a").status, ledger.rejected["claim"]) == (Status.SCHEDULED, 1)
        drain.drain_reachable([SHARD], None)
        until(status(ledger, "a"))


@pytest.mark.slow
def test_a_stop_waits_for_the_store_to_take_what_has_finished(rejecting: Rejecting) -> None:
    ledger, gate = rejecting, Gate()
    with serving(ledger, gate) as drain:
        ledger.add([new("slow")])
        ring(drain)
        assert gate.begun.wait(30)
        ledger.rejects = {"settle"}
        gate.opened.set()
        until(lambda: ledger.rejected["settle"] >= 1)
        drain.stop()
        tries = ledger.rejected["settle"]
        until(lambda: ledger.rejected["settle"] > tries + 1)
        ledger.rejects = set()
    assert stored_task(ledger, "slow").status == Status.DONE
