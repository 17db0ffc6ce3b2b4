"""Short forms of operations on a ledger: add, claim, settle, and a task brought into each state."""

from typing import Any

from duecourse.ledger.operation_types import Delivery, Lease, Settled
from duecourse.ledger.operations.ledger import Ledger
from duecourse.ledger.task import Ending, NewTask, RetryPolicy, Settlement, Shard, Status, Task
from tests.support.clock import HandClock

SHARD = Shard()
LEASE_MS = 30_000
LATER_MS = 60_000
STATES = ["absent", *(status.value for status in Status)]
STEADY = RetryPolicy(max_attempts=3, jitter=False)


def new(id: str = "a", **fields: Any) -> NewTask:
    """A task as asked for, with three attempts."""
    return NewTask(id, **{"kind": "work", "retry": STEADY} | fields)


def add(ledger: Ledger, id: str = "a", **fields: Any) -> Task:
    """Add one task and answer it as it stands."""
    ledger.add([new(id, **fields)])
    return stored_task(ledger, id)


def stored_task(ledger: Ledger, id: str = "a") -> Task:
    """The stored task; fails if there is none."""
    task = ledger.get(SHARD.queue, id)
    assert task is not None
    return task


def bell(ledger: Ledger) -> int:
    """Time of the shard's bell; 0 for none."""
    return ledger.stats(SHARD).bell_at


def claim(ledger: Ledger, limit: int = 100, *, lease_ms: int = LEASE_MS) -> list[Task]:
    """Claim from the one shard."""
    return ledger.claim(SHARD, limit, lease_ms=lease_ms).tasks


def claim_one(ledger: Ledger, id: str = "a", **fields: Any) -> Task:
    """Add one task due now and lease it."""
    ledger.add([new(id, **fields)])
    (task,) = claim(ledger)
    assert task.id == id
    return task


def ending(task: Task, how: Ending, **fields: Any) -> Settlement:
    """The end of a task's lease."""
    return Settlement(task.id, task.tenant, task.token, how, **fields)


def settle(ledger: Ledger, task: Task, how: Ending, **fields: Any) -> Settled:
    """End one lease."""
    return ledger.settle(SHARD, [ending(task, how, **fields)])[0]


def lease_of(task: Task) -> Lease:
    """The right to work a claimed task."""
    return Lease(task.id, task.token, task.tenant)


def returned_without_a_settle(ledger: Ledger, clock: HandClock) -> None:
    """A function begins one task and returns; its lease is over."""
    ledger.add([new("unsettled", kind="report")])
    deliveries = {"report": Delivery("lambda:report", 1, LEASE_MS)}
    [task] = ledger.claim(SHARD, 1, lease_ms=LEASE_MS, deliveries=deliveries).tasks
    [begun] = ledger.begin(SHARD, [lease_of(task)], LEASE_MS, [b"settling"])
    assert begun.token
    clock.advance(LEASE_MS)


def bring(ledger: Ledger, state: str, id: str = "a", **fields: Any) -> Task | None:
    """Bring one task into `state`, on an empty ledger; scheduled means due in a minute."""
    if state == "absent":
        return None
    if state in {Status.SCHEDULED, Status.CANCELLED}:
        ledger.add([new(id, **{"delay_ms": LATER_MS} | fields)])
        if state == Status.CANCELLED:
            ledger.cancel(SHARD.queue, [id])
        return stored_task(ledger, id)
    task = claim_one(ledger, id, **fields)
    if state == Status.DONE:
        settle(ledger, task, Ending.DONE, result='{"ok":true}')
    elif state == Status.DEAD:
        settle(ledger, task, Ending.DROP, detail="no use")
    return task if state == Status.LEASED else stored_task(ledger, id)
