"""Short words for what tests do to a ledger: add, claim, settle, and a task brought into each state."""

from typing import Any

from duecourse.domain.outcomes import Ending, Settlement
from duecourse.domain.task import NewTask, RetryPolicy, Shard, Status, Task
from duecourse.ports.leases import Lease, Settled
from duecourse.ports.store import Store

SHARD = Shard()
LEASE_MS = 30_000
LATER_MS = 60_000
STATES = ["absent", *(status.value for status in Status)]
STEADY = RetryPolicy(max_attempts=3, jitter=False)


def new(id: str = "a", **fields: Any) -> NewTask:
    """A task as asked for, with three attempts."""
    return NewTask(id, **{"kind": "work", "retry": STEADY} | fields)


def add(store: Store, id: str = "a", **fields: Any) -> Task:
    """Add one task and answer it as it stands."""
    store.add([new(id, **fields)])
    return standing(store, id)


def standing(store: Store, id: str = "a") -> Task:
    """The task as it stands; fails where there is none."""
    task = store.get(SHARD.queue, id)
    assert task is not None
    return task


def bell(store: Store) -> int:
    """When the one shard's bell rings, 0 where none hangs."""
    return store.stats(SHARD).bell_at


def claim(store: Store, limit: int = 100, *, lease_ms: int = LEASE_MS) -> list[Task]:
    """Claim from the one shard."""
    return store.claim(SHARD, limit, lease_ms=lease_ms).tasks


def claim_one(store: Store, id: str = "a", **fields: Any) -> Task:
    """Add one task due now and lease it."""
    store.add([new(id, **fields)])
    (task,) = claim(store)
    assert task.id == id
    return task


def ending(task: Task, how: Ending, **fields: Any) -> Settlement:
    """The end of a task's lease."""
    return Settlement(task.id, task.tenant, task.token, how, **fields)


def settle(store: Store, task: Task, how: Ending, **fields: Any) -> Settled:
    """End one lease."""
    return store.settle(SHARD, [ending(task, how, **fields)])[0]


def lease_of(task: Task) -> Lease:
    """The right to work a claimed task."""
    return Lease(task.id, task.token, task.tenant)


def bring(store: Store, state: str, id: str = "a", **fields: Any) -> Task | None:
    """Bring one task into `state`, on an empty ledger; scheduled means due in a minute."""
    if state == "absent":
        return None
    if state in {Status.SCHEDULED, Status.CANCELLED}:
        store.add([new(id, **{"delay_ms": LATER_MS} | fields)])
        if state == Status.CANCELLED:
            store.cancel(SHARD.queue, [id])
        return standing(store, id)
    task = claim_one(store, id, **fields)
    if state == Status.DONE:
        settle(store, task, Ending.DONE, result='{"ok":true}')
    elif state == Status.DEAD:
        settle(store, task, Ending.DROP, detail="no use")
    return task if state == Status.LEASED else standing(store, id)
