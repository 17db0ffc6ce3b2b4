"""Work of tasks that an invocation or a message of a broker brought to this function."""

import logging
import secrets
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, TypeAlias

from duecourse.base.batches import grouped
from duecourse.errors import DuecourseError, StoreMisused, StoreUnavailable
from duecourse.ledger.operation_types import Away, Lease, Settled
from duecourse.ledger.task import (
    STEP_MS,
    STEPS,
    Ending,
    Lost,
    NewTask,
    Settlement,
    Shard,
    Task,
    begin_nonce,
    lease_within,
)
from duecourse.running.event_loop import LOOP
from duecourse.running.hand_over import MAX_TASKS
from duecourse.running.leases import AGAIN_S, extend_leases
from duecourse.running.run import Runner, RunTimes, release
from duecourse.running.threads import Threads
from duecourse.tasks.verbs import require

if TYPE_CHECKING:
    from duecourse.ledger.operations.ledger import Ledger

# Pauses while the store is away.

LEAST_MS = 1_000
"""Time that is left to a function when it waits no longer."""
PAUSES_S = 0.1, 2.0
"""Shortest and longest pause; each one is twice as long as the one before."""


def pauses(remaining_ms: Callable[[], int], most_ms: int) -> Iterator[bool]:
    """Pause before each further try, and yield True after it, for `most_ms` or until the function's time is short."""
    ends_at, (pause_s, longest_s) = time.monotonic() + most_ms / 1_000, PAUSES_S
    while remaining_ms() > LEAST_MS + pause_s * 1_000 and time.monotonic() < ends_at:
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, longest_s)
        yield True


# Tasks of broker messages: without lease and settlement.

log = logging.getLogger("duecourse.running")

Seal: TypeAlias = Callable[[Sequence[NewTask]], Sequence[NewTask]]
"""Makes tasks as the ledger keeps them."""


def run_messages(
    tasks: Mapping[str, Task],
    runner: Runner,
    threads: Threads,
    ledger: Callable[[], "Ledger"],
    seal: Seal,
    at_once: int,
) -> dict[str, str]:
    """Run the tasks of messages, `at_once` at the same time.

    Returns those to be delivered again, by their keys, with the reasons. Done and Drop end a message, and so does Again
    once the ledger has the task back. After Retry or an exception the broker delivers it again, when it sees fit.
    `ledger` is asked for only by a task that is to run again, and `seal` seals its credentials.
    """
    outbox: SimpleQueue[tuple[str, str]] = SimpleQueue()

    def end(name: str, task: Task, settlement: Settlement) -> None:
        outbox.put((name, _end(task, settlement, ledger, seal)))

    def work(name: str, task: Task) -> None:
        end(name, task, runner.run(task))

    async def work_async(name: str, task: Task) -> None:
        threads.do(partial(end, name, task, await runner.run_async(task)))

    def begin(most: int) -> None:
        for name, task in islice(waiting, most):
            if runner.awaits(task):
                LOOP.start(partial(work_async, name, task))
            else:
                threads.do(partial(work, name, task))

    ended, waiting = [], iter(tasks.items())
    begin(at_once)
    for _ in tasks:
        ended.append(outbox.get())
        begin(1)
    return {name: problem for name, problem in ended if problem}


def _end(task: Task, settlement: Settlement, ledger: Callable[[], "Ledger"], seal: Seal) -> str:
    """Reason why the message must be delivered again, or ""."""
    match settlement.ending:
        case Ending.DONE:
            return ""
        case Ending.DROP:
            log.error("task %s, delivered by a broker, is dropped: %s", task.id, settlement.detail)
            return ""
        case Ending.AGAIN:
            return _give_back(task, settlement, ledger, seal)
    return settlement.detail or "the result could not be stored"


def _give_back(task: Task, settlement: Settlement, ledger: Callable[[], "Ledger"], seal: Seal) -> str:
    """Add the task to the ledger until it is due again; a task that was added meanwhile under its id stays."""
    try:
        [added] = ledger().add(seal([_anew(task, settlement)]))
        require(added.reply, task.queue, task.id, task.tenant)
    except DuecourseError as error:
        return f"the ledger did not accept it back: {error}"
    return ""


def _anew(task: Task, settlement: Settlement) -> NewTask:
    return NewTask(
        id=task.id,
        kind=task.kind,
        payload=task.payload_json,
        queue=task.queue,
        tenant=task.tenant,
        group=task.group,
        state=task.state_json if settlement.state is None else settlement.state,
        due_at=settlement.due_at,
        delay_ms=settlement.delay_ms,
        deadline_at=task.deadline_at or None,
        retry=task.retry,
        by="broker",
    )


# Tasks of one invocation, with leases.

LOOK_MS = 50
"""Shortest pause between two looks at the time left, while tasks wait."""


class ReceivedTasks:
    """Begins the tasks that one invocation was handed, runs and settles them; their leases are kept alive meanwhile.

    `step_ms` is the length of a lease, which is extended while its task runs. `at_once` tasks run at the same time, by
    default as many as there are threads. `invocation` is Lambda's id of the request, "" where there is none. `times`
    are what this process knows of the lengths of runs.
    """

    def __init__(
        self,
        ledger: "Ledger",
        runner: Runner,
        threads: Threads,
        remaining_ms: Callable[[], int],
        step_ms: int = STEP_MS,
        at_once: int | None = None,
        invocation: str = "",
        times: RunTimes | None = None,
    ) -> None:
        self._ledger, self._runner, self._threads = ledger, runner, threads
        self._remaining_ms, self._step_ms = remaining_ms, step_ms
        self._at_once = at_once or threads.size
        self._waiting: deque[Task] = deque()
        self._running: dict[str, Task] = {}
        self._outbox: SimpleQueue[tuple[Shard, Settlement]] = SimpleQueue()
        self._unsettled: list[tuple[Shard, Settlement]] = []
        self._away: Away | None = None
        self._counts = dict.fromkeys(map(str, Settled), 0)
        # Kept, for an answer may be lost: the same nonce again begins what it began before.
        self._own: defaultdict[str, bytes] = defaultdict(partial(secrets.token_bytes, 4))
        self._invocation = invocation
        self._times = times or RunTimes()
        self._begun_with: dict[str, int] = {}  # token of what runs -> milliseconds that were left
        self._began = False
        self._tries: Iterator[bool] | None = None
        self._extend_at = self._next_step()
        self._full_ms = remaining_ms()

    def work(self, tasks: Sequence[Task]) -> dict[str, int]:
        """Run the tasks, `at_once` at the same time; returns the number of tasks for each value of Settled.

        A task is begun when a thread is free for it, and settled when it finishes. `stale` tasks were not run, because
        another worker had begun or settled them, or lost their lease. `released` ones went back, because the time left
        is less than a run of their kind takes.

        If the store begins nothing, or does not take a settlement, it is asked again for the length of a lease, while
        there is time. Raises StoreUnavailable or StoreMisused where it began nothing at all. Raises them when all have
        run, if it did not take a settlement.
        """
        self._waiting.extend(tasks)
        while self._waiting or self._running:
            self._give_back()
            self._begin_more()
            if self._running:
                self._take_in()
        self._settle_at_last()
        if self._unsettled and self._away:
            raise self._away
        return self._counts

    def _begin_more(self) -> None:
        """Begin as many tasks as may run. Raises the store's error where none runs and there is no time to wait."""
        free = self._at_once - len(self._running)
        if not self._waiting or free <= 0:
            return
        chosen = [self._waiting.popleft() for _ in range(min(free, len(self._waiting)))]
        try:
            for shard, tasks in grouped(chosen, self._shard_of).items():
                for task in self._begin(shard, tasks):
                    self._running[task.token] = task
                    self._begun_with[task.token] = self._remaining_ms()
                    self._start(task)
                chosen = [task for task in chosen if task not in tasks]
        except (StoreUnavailable, StoreMisused):
            # They keep their places, and their nonces: what the store began before its answer was lost is begun again.
            self._waiting.extendleft(reversed(chosen))
            if not self._running:
                # A delivery that nobody begins waits for its lapse, minutes; a store is mostly back in seconds.
                self._tries = self._tries or pauses(self._remaining_ms, self._step_ms)
                if not next(self._tries, False):
                    raise
                return
        self._began, self._tries = True, None

    def _begin(self, shard: Shard, tasks: Sequence[Task]) -> list[Task]:
        """Begin tasks; returns those that this invocation runs. A second delivery of its event finds them begun."""
        lease_ms = self._lease_ms()
        until = time.monotonic() + lease_ms / 1_000
        handed, leased = [task for task in tasks if task.target], [task for task in tasks if not task.target]
        mine: list[Task] = []
        if leased:  # by an engine that does not hand over for delivery alone
            ends = self._ledger.extend(shard, list(map(Lease.of, leased)), lease_ms)
            mine += [replace(task, lease_expires_at=end) for task, end in zip(leased, ends, strict=True) if end]
        if handed:
            nonces = [begin_nonce(task.token, self._invocation, self._own[task.token]) for task in handed]
            begun = self._ledger.begin(shard, list(map(Lease.of, handed)), lease_ms, nonces, self._fitting())
            mine += [one.under(task) for task, one in zip(handed, begun, strict=True) if one.token]
        self._counts[Settled.STALE] += len(tasks) - len(mine)
        return [replace(task, left_ms=self._remaining_ms, signal=Lost(until)) for task in mine]

    def _fitting(self) -> int:
        """Number of tasks that one invocation has time for, at most those of an event; 0 where nothing is known."""
        usual_ms = self._times.longest
        if usual_ms is None:
            return 0
        in_turn = int((self._full_ms - LEAST_MS) / max(usual_ms, 1))
        return min(MAX_TASKS, self._at_once * max(in_turn, 1))

    def _start(self, task: Task) -> None:
        if self._runner.awaits(task):
            LOOP.start(partial(self._run_async, task))
        else:
            self._threads.do(partial(self._run, task))

    def _run(self, task: Task) -> None:
        self._outbox.put((self._shard_of(task), self._runner.run(task)))

    async def _run_async(self, task: Task) -> None:
        self._outbox.put((self._shard_of(task), await self._runner.run_async(task)))

    def _give_back(self) -> None:
        """Release tasks that there is no time left to begin."""
        # The first ones are begun however little time there is: a function whose timeout is a second does its work too.
        if not self._began or not self._waiting:
            return
        waiting = list(self._waiting)
        self._waiting.clear()
        for task in waiting:
            if self._spare_ms(task) > 0:
                self._waiting.append(task)
            else:
                self._unsettled.append((self._shard_of(task), release(task)))
        if len(self._waiting) < len(waiting):
            self._settle()

    def _spare_ms(self, task: Task) -> float:
        """Time for which this task can still wait, by the lengths of runs before and of runs in progress."""
        left = self._remaining_ms()
        ages = [self._begun_with[one.token] - left for one in self._running.values() if one.kind == task.kind]
        return left - LEAST_MS - max(self._times.of(task.kind), *ages, 0)

    def _take_in(self) -> None:
        """Settle the task that finishes next; extend the leases of running tasks until then."""
        wait_s = self._extend_at - time.monotonic()
        if self._waiting:  # halved, for with each moment there is less time left, and the oldest run is longer
            wait_s = min(wait_s, max(min(map(self._spare_ms, self._waiting)) / 2, LOOK_MS) / 1_000)
        try:
            ended = self._outbox.get(timeout=max(0.0, wait_s))
        except Empty:
            if time.monotonic() >= self._extend_at:
                self._keep_alive()
            return
        if task := self._running.pop(ended[1].token, None):
            self._times.note(task.kind, self._begun_with.pop(task.token) - self._remaining_ms())
        self._unsettled.append(ended)
        self._settle()

    def _keep_alive(self) -> None:
        self._extend_at = self._next_step()
        for shard, tasks in grouped([task for task in self._running.values() if not task.lost], self._shard_of).items():
            if not extend_leases(self._ledger, shard, tasks, self._lease_ms()):
                # A store that is back spares lapsed leases for some seconds only.
                self._extend_at = min(self._extend_at, time.monotonic() + AGAIN_S)

    def _settle(self) -> None:
        """Settle finished tasks; a settlement that fails is tried again after the next task finishes."""
        self._away, left = None, list[tuple[Shard, Settlement]]()
        while self._unsettled and not isinstance(self._away, StoreUnavailable):
            shard, settlement = self._unsettled[0]  # it leaves the list once the store has it, and not before
            try:
                self._counts[self._ledger.settle(shard, [settlement])[0]] += 1
            except (StoreUnavailable, StoreMisused) as error:
                self._away = error
                left.append((shard, settlement))
            del self._unsettled[0]
        self._unsettled = left + self._unsettled

    def _settle_at_last(self) -> None:
        """Try failed settlements again, with growing pauses, while leases may hold and there is time."""
        tries = pauses(self._remaining_ms, self._step_ms)
        while self._unsettled and any(tries):
            self._settle()

    def _lease_ms(self) -> int:
        return lease_within(self._step_ms, self._remaining_ms())

    def _next_step(self) -> float:
        return time.monotonic() + self._step_ms / STEPS / 1_000

    def _shard_of(self, task: Task) -> Shard:
        return self._ledger.shard_of(task.queue, task.id, task.group)
