"""Verbs of an outside worker on its lease: settle it, extend it, save a checkpoint under it."""

import secrets
from collections.abc import Callable
from hashlib import sha256

from duecourse.domain.idempotency import KeyedTry
from duecourse.domain.lease import begin_nonce
from duecourse.domain.outcomes import Again, Done, Drop, Ending, Outcome, Retry, Settlement
from duecourse.domain.seals import without
from duecourse.domain.task import Shard, Status, Task
from duecourse.engine.run import Runner, credential_words
from duecourse.engine.tasks import stored
from duecourse.errors import LeaseLost, SealBroken, StoreMisused, StoreUnavailable, TaskDamaged
from duecourse.ports.leases import Lease, LeaseStore, Settled

UNCLEARED = "its error is not kept: the seal of its credentials, which may be in it, cannot be opened"
ENDINGS: dict[type, Ending] = {Done: Ending.DONE, Again: Ending.AGAIN, Retry: Ending.RETRY, Drop: Ending.DROP}


class Leases:
    """The verbs on leases, each under its token.

    Each raises TaskNotFound for an id that is not in the queue, LeaseLost for a token that is not, or no longer, its
    lease's, and StoreUnavailable.
    """

    def __init__(
        self, store: LeaseStore, runner: Runner, lease_ms: int, opened: Callable[[Task], Task] = lambda task: task
    ) -> None:
        self._opened = opened
        self._store = store
        self._runner = runner
        self._lease_ms = lease_ms

    def begin(
        self,
        queue: str,
        delivery: Lease,
        lease_ms: int | None,
        worker: str,
        invocation: str = "",
        keyed: KeyedTry | None = None,
    ) -> Task:
        """Begin a task that was handed over, for `lease_ms`, else as long as any lease; answers it under that lease.

        `worker` is a text of the caller's own, "" for none: the same again is answered as before. So is a request that
        carries a key. `invocation` is the id of a Lambda invocation: the failure record of another one does not end
        this run.
        """
        task = self._task(queue, delivery)
        own = keyed.mark() if keyed else secrets.token_bytes(4)
        if worker:
            own = sha256(f"{delivery.token}\0{worker}".encode()).digest()
        nonce = begin_nonce(delivery.token, invocation, own)
        [begun] = self._store.begin(self._shard(task), [delivery], lease_ms or self._lease_ms, [nonce])
        if not begun.token:
            raise LeaseLost
        return begun.under(task)

    def settle(self, queue: str, lease: Lease, outcome: Outcome) -> Settled:
        """End the lease as a worker of ours ends it; the same again is answered as before.

        RELEASED where the result could not be kept: the task runs again, its attempt unspent.
        """
        task = self._task(queue, lease)
        leased = task.status is Status.LEASED and task.token == lease.token
        # A lease that is over keeps no result: under its fence there may be one that is notified already.
        repeated = Settlement(lease.id, lease.tenant, lease.token, ENDINGS[type(outcome)])
        end = self._runner.settlement(task, outcome) if leased else repeated
        [settled] = self._store.settle(self._shard(task), [end._replace(detail=self._cleared(task, end.detail))])
        if settled is Settled.STALE:
            raise LeaseLost
        return settled

    def extend(self, queue: str, lease: Lease, lease_ms: int, keyed: KeyedTry | None = None) -> int:
        """Let the lease end `lease_ms` from now; answers that instant.

        A repeat gives no more time than the first try did, and shortens no lease that ends later by now.
        """
        shard, is_repeat = self._shard(self._task(queue, lease)), False
        if keyed:
            until: int = keyed.first_saw(lambda: self._store.now() + lease_ms)
            is_repeat = keyed.is_repeat
            lease_ms = max(1, until - self._store.now()) if is_repeat else lease_ms
        [end] = self._store.extend(shard, [lease], lease_ms, at_least=is_repeat)
        if not end:
            raise LeaseLost
        return end

    def save(self, queue: str, lease: Lease, state: str, keyed: KeyedTry | None = None) -> None:
        """Keep a checkpoint (JSON text) for the task's next run. A repeat leaves a newer one as it is."""
        task = self._task(queue, lease)
        saw: str = keyed.first_saw(lambda: task.state_json) if keyed else ""
        instead_of = saw if keyed and keyed.is_repeat else None
        if not self._store.save(self._shard(task), lease, state, instead_of=instead_of):
            raise LeaseLost

    def _cleared(self, task: Task, detail: str) -> str:
        """A worker's error without the credentials of its task, which the worker was given in clear."""
        if not detail:
            return detail
        try:
            return without(detail, credential_words(self._opened(task), task))
        except (SealBroken, StoreUnavailable, StoreMisused, TaskDamaged):
            return UNCLEARED

    def _task(self, queue: str, lease: Lease) -> Task:
        return stored(self._store, queue, lease.id, lease.tenant)

    def _shard(self, task: Task) -> Shard:
        return self._store.shard_of(task.queue, task.id, task.group)
