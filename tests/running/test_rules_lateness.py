"""Lateness of a queue: from a task's due time to the first line of its handler, counted once for each run."""

import pytest

from duecourse.ledger.operation_types import Delivery, Settled
from duecourse.ledger.operations.ledger import Ledger
from duecourse.ledger.task import Ending, Task
from tests.support.clock import HandClock
from tests.support.lateness import bucket_of
from tests.support.ledger import LATER_MS, LEASE_MS, SHARD, claim, claim_one, ending, lease_of, new, settle, stored_task

ENDS = {
    "done": (Ending.DONE, ""),
    "done with a result": (Ending.DONE, '{"rows":3}'),
    "again": (Ending.AGAIN, ""),
    "retry": (Ending.RETRY, ""),
    "drop": (Ending.DROP, ""),
}


def counted(ledger: Ledger) -> dict[int, int]:
    return ledger.lateness_of([SHARD])[0]


def end(ledger: Ledger, task: Task, how: Ending, waited_ms: int, result: str = "") -> Settled:
    """The end of a run that began so long after its claim."""
    settled = ledger.settle(SHARD, [ending(task, how, result=result, delay_ms=LATER_MS).with_lateness(task, waited_ms)])
    return settled[0]


@pytest.mark.parametrize("how", ENDS)
@pytest.mark.parametrize("waited_ms", [0, 700])
def test_a_run_is_as_late_as_its_handler_began(ledger: Ledger, clock: HandClock, how: str, waited_ms: int) -> None:
    ledger.add([new("a")])
    clock.advance(300)
    [task] = claim(ledger)
    assert counted(ledger) == {}
    clock.advance(5_000)
    kind, result = ENDS[how]
    end(ledger, task, kind, waited_ms, result)
    assert counted(ledger) == {bucket_of(300 + waited_ms): 1}
    [run] = stored_task(ledger).history
    assert (run.late_ms, run.claimed_at) == (300 + waited_ms, task.claimed_at + waited_ms)
    assert stored_task(ledger).result == ({"rows": 3} if result else None)


def test_a_settle_that_is_sent_again_counts_once(ledger: Ledger) -> None:
    task = claim_one(ledger)
    for _ in range(3):
        assert end(ledger, task, Ending.DONE, 40) is Settled.DONE
    assert counted(ledger) == {bucket_of(40): 1}


def test_neither_a_claim_nor_what_is_given_back_or_lapses_is_counted(ledger: Ledger, clock: HandClock) -> None:
    ledger.add([new("a"), new("b")])
    first, _ = claim(ledger)
    end(ledger, first, Ending.RELEASE, 40)
    clock.advance(LEASE_MS)
    ledger.sweep(SHARD, retention_ms=LATER_MS)
    assert counted(ledger) == {}


def test_a_stale_settle_counts_nothing(ledger: Ledger, clock: HandClock) -> None:
    task = claim_one(ledger)
    clock.advance(LEASE_MS)
    ledger.sweep(SHARD, retention_ms=LATER_MS)
    assert end(ledger, task, Ending.DONE, 40) is Settled.STALE
    assert counted(ledger) == {}


def test_what_a_function_works_is_late_until_it_begins(ledger: Ledger, clock: HandClock) -> None:
    ledger.add([new(id, kind="report") for id in ("a", "b")])
    clock.advance(103)
    handed = {"report": Delivery("lambda:report", 100, LATER_MS)}
    tasks = ledger.claim(SHARD, 2, lease_ms=LEASE_MS, deliveries=handed).tasks
    assert counted(ledger) == {}
    clock.advance(2_145)
    [begun] = ledger.begin(SHARD, [lease_of(tasks[0])], LEASE_MS, [bytes(8)])
    assert begun.late_ms == 2_248
    assert settle(ledger, begun.under(tasks[0]), Ending.DONE) is Settled.DONE
    assert stored_task(ledger, tasks[0].id).history[0].late_ms == 2_248
    assert counted(ledger) == {bucket_of(2_248): 1}
