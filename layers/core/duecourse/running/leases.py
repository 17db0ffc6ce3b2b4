"""Leases: ended and extended by an outside worker, kept while handlers run, given back for the dead."""

import logging
import random
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import Enum, IntEnum, auto
from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING, NamedTuple

from duecourse.base.batches import grouped
from duecourse.errors import LeaseLost, SealBroken, StoreMisused, StoreUnavailable, TaskDamaged
from duecourse.guard.seals import strip_secrets
from duecourse.ledger import task as backoff
from duecourse.ledger.operation_types import KeyedTry, Lease, Settled
from duecourse.ledger.task import (
    STEP_MS,
    STEPS,
    Again,
    Done,
    Drop,
    Ending,
    Outcome,
    Retry,
    Run,
    Settlement,
    Shard,
    Status,
    Task,
    begin_nonce,
    cut_detail,
    was_begun_by,
)
from duecourse.running.event_loop import LOOP
from duecourse.running.run import DIED, UNSETTLED, Runner, credential_words, interrupted, killed, release
from duecourse.running.task_event import Failure
from duecourse.tasks.verbs import stored

if TYPE_CHECKING:
    from duecourse.ledger.operations.ledger import Ledger

# Operations of an outside worker on its lease: begin, settle, extend, save a checkpoint.

UNCLEARED = "its error is not kept: the seal of its credentials, which may be in it, cannot be opened"
ENDINGS: dict[type, Ending] = {Done: Ending.DONE, Again: Ending.AGAIN, Retry: Ending.RETRY, Drop: Ending.DROP}


class Leases:
    """Operations of an outside worker on leases, each by its token.

    Each raises TaskNotFound for an id that is not in the queue, and LeaseLost for a token that is not its lease's, or
    no longer. Each raises StoreUnavailable.
    """

    def __init__(
        self, ledger: "Ledger", runner: Runner, lease_ms: int, opened: Callable[[Task], Task] = lambda task: task
    ) -> None:
        self._opened = opened
        self._ledger = ledger
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
        [begun] = self._ledger.begin(self._shard(task), [delivery], lease_ms or self._lease_ms, [nonce])
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
        [settled] = self._ledger.settle(self._shard(task), [end._replace(detail=self._cleared(task, end.detail))])
        if settled is Settled.STALE:
            raise LeaseLost
        return settled

    def extend(self, queue: str, lease: Lease, lease_ms: int, keyed: KeyedTry | None = None) -> int:
        """Let the lease end `lease_ms` from now; answers that instant.

        A repeat gives no more time than the first try did, and shortens no lease that ends later by now.
        """
        shard, is_repeat = self._shard(self._task(queue, lease)), False
        if keyed:
            until: int = keyed.first_saw(lambda: self._ledger.now() + lease_ms)
            is_repeat = keyed.is_repeat
            lease_ms = max(1, until - self._ledger.now()) if is_repeat else lease_ms
        [end] = self._ledger.extend(shard, [lease], lease_ms, at_least=is_repeat)
        if not end:
            raise LeaseLost
        return end

    def save(self, queue: str, lease: Lease, state: str, keyed: KeyedTry | None = None) -> None:
        """Keep a checkpoint (JSON text) for the task's next run. A repeat leaves a newer one as it is."""
        task = self._task(queue, lease)
        saw: str = keyed.first_saw(lambda: task.state_json) if keyed else ""
        instead_of = saw if keyed and keyed.is_repeat else None
        if not self._ledger.save(self._shard(task), lease, state, instead_of=instead_of):
            raise LeaseLost

    def _cleared(self, task: Task, detail: str) -> str:
        """A worker's error without the credentials of its task, which the worker had in clear."""
        if not detail:
            return detail
        try:
            return strip_secrets(detail, credential_words(self._opened(task), task))
        except (SealBroken, StoreUnavailable, StoreMisused, TaskDamaged):
            return UNCLEARED

    def _task(self, queue: str, lease: Lease) -> Task:
        return stored(self._ledger, queue, lease.id, lease.tenant)

    def _shard(self, task: Task) -> Shard:
        return self._ledger.shard_of(task.queue, task.id, task.group)


# Leases of tasks that run in a worker, extended while their handlers run.

log = logging.getLogger("duecourse.running")

AGAIN_S = 1.0
"""Pause after an extension that failed: a store that is back spares lapsed leases for some seconds only."""


class LeaseState(IntEnum):
    """State of a task whose lease a worker's process has."""

    WAITS = 0
    """It was claimed, and has not begun."""
    RUNS = 1
    ISOLATED = 2
    """It runs in a process of its own (worker/isolated.py)."""
    ENDED = 3
    """Its outcome is not settled."""


class LeaseExtender:
    """Extends the leases of running tasks by `step_ms`, several times in that time: `run` it on a thread of its own.

    `mark` shows the state of the task with a token, for a parent that outlives this process.
    """

    def __init__(
        self,
        ledger: "Ledger",
        step_ms: int = STEP_MS,
        mark: Callable[[str, LeaseState], object] = lambda _token, _state: None,
    ) -> None:
        self._ledger = ledger
        self._step_ms = step_ms
        self._mark = mark
        self._running: dict[str, Task] = {}
        self._stopped = threading.Event()

    def while_running(self, task: Task, state: LeaseState = LeaseState.RUNS) -> "Extending":
        """Extend the task's lease meanwhile; at once, if its queue gives a shorter one than `step_ms`."""
        return Extending(self, task, state)

    def begin(self, task: Task, state: LeaseState) -> None:
        """Extend the task's lease from now on."""
        self._running[task.token] = task
        if self._is_short(task):
            self._extend([task])
        self._mark(task.token, state)

    async def begin_async(self, task: Task, state: LeaseState) -> None:
        """Extend the task's lease from now on; a call of the store does not block the event loop."""
        self._running[task.token] = task
        if self._is_short(task):
            await LOOP.on_thread(self._extend, [task])
        self._mark(task.token, state)

    def _is_short(self, task: Task) -> bool:
        return task.lease_expires_at - task.claimed_at < self._step_ms

    def end(self, task: Task) -> None:
        """Extend the task's lease no longer."""
        self._mark(task.token, LeaseState.ENDED)
        self._running.pop(task.token, None)

    def run(self) -> None:
        """Extend leases until stopped."""
        pause_s = step_s = self._step_ms / STEPS / 1_000
        while not self._stopped.wait(pause_s):
            pause_s = step_s if self.extend() else min(AGAIN_S, step_s)

    def stop(self) -> None:
        """Let `run` return."""
        self._stopped.set()

    def extend(self) -> bool:
        """Extend the lease of each task that runs now; False where a shard did not answer."""
        return self._extend(list(self._running.values()))

    def _extend(self, running: Sequence[Task]) -> bool:
        shards = self._by_shard([task for task in running if not task.lost])
        answered = [extend_leases(self._ledger, shard, tasks, self._step_ms) for shard, tasks in shards]
        return all(answered)

    def give_up(self, why: str) -> int:
        """End the run of each task that runs still, for this reason: it is due again at once. Answers how many.

        A worker that ends calls it last: the process is to end before another worker has claimed them.
        """
        count = 0
        for shard, tasks in self._by_shard(list(self._running.values())):
            ends = [interrupted(task, why) for task in tasks]
            try:
                count += len(self._ledger.settle(shard, ends))
            except (StoreUnavailable, StoreMisused) as error:
                log.warning("%d leases in shard %s will lapse: %s", len(tasks), shard, error)
        return count

    def _by_shard(self, tasks: Sequence[Task]) -> Iterable[tuple[Shard, list[Task]]]:
        return grouped(tasks, lambda task: self._ledger.shard_of(task.queue, task.id, task.group)).items()


class Extending:
    """Context in which a lease is extended. Each run has one: a generator would cost three times as much."""

    __slots__ = ("_extender", "_state", "_task")

    def __init__(self, extender: LeaseExtender, task: Task, state: LeaseState) -> None:
        self._extender = extender
        self._task = task
        self._state = state

    def __enter__(self) -> None:
        self._extender.begin(self._task, self._state)

    def __exit__(self, *_raised: object) -> None:
        self._extender.end(self._task)

    async def __aenter__(self) -> None:
        await self._extender.begin_async(self._task, self._state)

    async def __aexit__(self, *_raised: object) -> None:
        self._extender.end(self._task)


def extend_leases(ledger: "Ledger", shard: Shard, tasks: Sequence[Task], lease_ms: int) -> bool:
    """Extend the leases of tasks of one shard; `task.lost` of those that have lost theirs is set.

    An extension that the store does not take is logged, and tried again with the next step. A lease that has lapsed
    meanwhile is lost too, for another worker may have it. Returns False where the shard did not answer.
    """
    began = time.monotonic()
    try:
        ends = ledger.extend(shard, list(map(Lease.of, tasks)), lease_ms, at_least=True)
    except (StoreUnavailable, StoreMisused) as error:
        log.warning("%d leases in shard %s were not extended and will be tried again: %s", len(tasks), shard, error)
        for task in tasks:
            task.lost.lapse(time.monotonic())
        return False
    for task, end in zip(tasks, ends, strict=True):
        if end:
            task.lost.keep(began + lease_ms / 1_000)
        else:
            log.warning("task %s has lost its lease while it ran", task.id)
            task.lost.set()
    return True


# Leases of a worker's process that has died, which its parent returns at once.

worker_log = logging.getLogger("duecourse.worker")

PATIENCE_S = 25.0
"""Time for which a store that is away is asked again: a lease that is not extended lapses soon after."""
PAUSE_S = 1.0


class ProcessLease(NamedTuple):
    """Lease that a worker's process has."""

    queue: str
    id: str
    tenant: str
    group: str
    token: str
    state: LeaseState


class LeaseReturner:
    """Returns the leases of a process that has died; opens the store for the first of them."""

    def __init__(self, open_ledger: Callable[[], "Ledger"]) -> None:
        self._open_ledger = open_ledger
        self._ledger: Ledger | None = None
        self._rng = random.Random()

    def give_back(self, held: Sequence[ProcessLease], how: str) -> None:
        """End the leases. An attempt is spent if one alone may have ended the process: then that one has.

        A task that ran beside others is due again at once, in a process of its own until it has ended. So is a task
        that had not begun, or whose outcome was lost, but in any process.
        """
        suspects = [one for one in held if one.state is LeaseState.RUNS]
        for one in held:
            self._try(one, how if suspects == [one] else "")

    def release(self, held: Sequence[ProcessLease], why: str) -> None:
        """End the leases of a process that its worker's stop has ended: no attempt is spent."""
        for one in held:
            reason = UNSETTLED if one.state is LeaseState.ENDED else why
            self._end(one, release if one.state is LeaseState.WAITS else partial(interrupted, why=reason))

    def _try(self, one: ProcessLease, how: str) -> None:
        ends_at = time.monotonic() + PATIENCE_S
        while True:
            try:
                return self._end(one, lambda task: self._ended(task, one, how))
            except (StoreUnavailable, StoreMisused) as error:
                if time.monotonic() >= ends_at:
                    worker_log.warning("the lease of task %s will lapse: %s", one.id, error)
                    return None
            time.sleep(PAUSE_S)

    def _ended(self, task: Task, one: ProcessLease, how: str) -> Settlement:
        if one.state is LeaseState.WAITS:
            return release(task)
        if one.state is LeaseState.ENDED:
            return interrupted(task, UNSETTLED)
        return killed(task, how, self._rng) if how else interrupted(task, DIED)

    def _end(self, one: ProcessLease, end_of: Callable[[Task], Settlement]) -> None:
        self._ledger = self._ledger or self._open_ledger()
        try:
            task = self._ledger.get(one.queue, one.id, one.tenant)
        except TaskDamaged:
            return
        if task and task.status is Status.LEASED and task.token == one.token:
            end = end_of(task)
            worker_log.warning("task %s is given back: %s", one.id, end.detail or "it had not begun")
            self._ledger.settle(self._ledger.shard_of(one.queue, one.id, one.group), [end])


# Tasks of a failed invocation: Lambda's record is the error of their attempt.

WORKED = frozenset({Ending.DONE, Ending.AGAIN, Ending.DROP})
"""Endings that only a run of the handler has."""


class DeliveryState(Enum):
    """State of one delivery of a failed invocation."""

    NONE = auto()
    """Nobody has begun the delivery."""
    RUNNING = auto()
    """The failed invocation has begun the delivery, and the lease holds."""
    ENDED = auto()
    """The run has ended, and no other invocation is known to have begun it."""
    ANOTHER = auto()
    """Another invocation with the same event has begun the delivery."""


def settle_failure(ledger: "Ledger", failure: Failure) -> dict[str, int]:
    """Retry each task that the invocation began and did not settle, by the task's backoff; return counts by effect.

    A task that it had not begun spends no attempt, unless it began none: then the function may be unable to start.
    If the event never reached the function, no task spends an attempt. If this invocation began none and another one
    did, the record is of a further delivery of the event and changes nothing. Keys are the values of Settled; `stale`
    had been settled before. Raises StoreUnavailable.
    """
    counts = dict.fromkeys(map(str, Settled), 0)
    ends = list(_ends(ledger, failure))
    counts[Settled.STALE] = len(failure.tasks) - len(ends)
    for shard, some in grouped(ends, lambda end: ledger.shard_of(end[0].queue, end[0].id, end[0].group)).items():
        for settled in ledger.settle(shard, [end for _, end in some]):
            counts[settled] += 1
    return counts


def _ends(ledger: "Ledger", failure: Failure) -> Iterator[tuple[Task, Settlement]]:
    """Ends of the leases that the failure ends, each beside its task."""
    found = [(task, *_delivery_state(ledger, failure.invocation, task)) for task in failure.tasks]
    seen = {state for _, state, _ in found}
    began, rng = bool(seen & {DeliveryState.RUNNING, DeliveryState.ENDED}), random.Random()
    if DeliveryState.ANOTHER in seen and not began:
        return  # that invocation begins the others too, or its own record ends them
    for task, state, token in found:
        if state is DeliveryState.NONE and (began or not failure.arrived):
            left = f"{failure.error}; the function had not begun this task" if failure.arrived else failure.error
            yield task, _undelivered(task, left)
        elif state is DeliveryState.NONE or (state is DeliveryState.RUNNING and failure.arrived):
            # The token that was read, and no other: what another invocation begins meanwhile is that one's.
            yield task, _failed(task, failure.error, rng)._replace(token=token)


def _delivery_state(ledger: "Ledger", invocation: str, delivered: Task) -> tuple[DeliveryState, str]:
    """State of this delivery, and the token under which its lease can be ended."""
    try:
        task = ledger.get(delivered.queue, delivered.id, delivered.tenant)
    except TaskDamaged:
        return DeliveryState.NONE, delivered.token
    if task is None:
        return DeliveryState.NONE, delivered.token
    runs = [one for one in task.log if isinstance(one, Run) and one.run == delivered.run and _is_of(one, delivered)]
    running = task.delivery == delivered.token
    if not running and not runs:
        return DeliveryState.NONE, delivered.token
    # Of a run that is over, the token is known while the task has no later lease.
    known = running or (runs[-1].fence == task.fence and task.token != delivered.token)
    if known and not was_begun_by(task.token, delivered.token, invocation):
        return DeliveryState.ANOTHER, ""
    return (DeliveryState.RUNNING, task.token) if running else (DeliveryState.ENDED, "")


def _is_of(run: Run, delivered: Task) -> bool:
    """True if the delivery became this run: a begin draws a higher fence, a settle without a begin keeps it."""
    if run.outcome in WORKED:
        return run.fence >= delivered.fence
    return run.outcome in {Ending.RETRY, "lapsed"} and run.fence > delivered.fence


def _failed(task: Task, error: str, rng: random.Random) -> Settlement:
    delay_ms = backoff.delay_ms(task.retry, task.attempt, rng)
    return Settlement.of(task, Ending.RETRY, delay_ms=delay_ms, detail=cut_detail(error))


def _undelivered(task: Task, error: str) -> Settlement:
    return Settlement.of(task, Ending.UNDELIVERED, detail=cut_detail(error))
