"""Threads on which tasks run, and a drain's work in flight, split into batches for them."""

import logging
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from queue import Empty, SimpleQueue
from typing import NamedTuple, Protocol

from duecourse.ledger.task import DEFAULT_TENANT, Settlement, Shard, Task
from duecourse.running.run import Runner, release
from duecourse.running.targets import Targets

# Threads on which tasks run. They live as long as the process, so that a warm drain starts none.

Work = Callable[[], None]
KEPT_FREE = 4
"""One thread in so many is kept free of any one tenant's tasks, and at least one where there are two."""


class Threads:
    """Pool of `size` threads that run calls in order; no tenant has all of them, where there are tenants."""

    # A tenant whose tasks all wait for a slow service would hold every thread.

    def __init__(self, size: int) -> None:
        self.size = size
        self._most = size - max(size // KEPT_FREE, min(size - 1, 1))
        self._held: Counter[str] = Counter()
        self._counting = threading.Lock()
        self._inbox: SimpleQueue[Work | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._starting = threading.Lock()

    def do(self, work: Work) -> None:
        """Have `work` done by the next free thread; it must not raise."""
        if len(self._threads) < self.size:  # looked at without the lock: a warm pool takes none for its work
            with self._starting:
                self._start_one()
        self._inbox.put(work)

    @contextmanager
    def held_by(self, tenant: str) -> Iterator[bool]:
        """Count the thread that runs this as the tenant's; False where its tasks hold as many as they may."""
        with self._counting:
            self._held[tenant] += 1
            granted = tenant == DEFAULT_TENANT or self._held[tenant] <= self._most
        try:
            yield granted
        finally:
            with self._counting:
                self._held[tenant] -= 1
                if not self._held[tenant]:
                    del self._held[tenant]

    def close(self) -> None:
        """Let the threads finish what they have, and end."""
        # Behind all work: each thread takes one of these, and it is the last that it takes.
        for _ in self._threads:
            self._inbox.put(None)
        for thread in self._threads:
            thread.join()
        self._threads.clear()

    def _start_one(self) -> None:
        if len(self._threads) == self.size:
            return  # another drain was quicker
        # A daemon: a task that never returns must not keep a process from ending.
        thread = threading.Thread(target=self._serve, name=f"duecourse-{len(self._threads)}", daemon=True)
        self._threads.append(thread)
        thread.start()

    def _serve(self) -> None:
        while (work := self._inbox.get()) is not None:
            work()


# In-flight work of one drain, split into batches that a thread pool runs.

log = logging.getLogger("duecourse.running")

LOOK_AGAIN_S = 0.1
"""Time after which a drain that waits for slow tasks looks for due ones, and gives back those behind the slow."""

GROW_S = 1.0
"""Time after which a drain that gave tasks back tries whether there are threads for twice as many by now."""

SHORT, QUICK = 2, 8
"""Number of slots of a thread while tasks are short, and while more of them finish at once than there are threads."""

HELD = "Other tasks of this tenant hold as many threads as one tenant may, so this task runs a little later."


class WorkBatch(NamedTuple):
    """Tasks of one shard that one thread works: all handed to `target`, or a single one run here.

    They were claimed at `since` (time.monotonic()). With `ahead`, they count as begun only once that is noted.
    """

    shard: Shard
    tasks: Sequence[Task]
    since: float
    target: str = ""
    ahead: bool = False

    @property
    def token(self) -> str:
        """Token that names it."""
        return self.tasks[0].token


Finished = list[tuple[WorkBatch, list[Settlement]]]


class LeaseDisplay(Protocol):
    """Display of the leases of tasks that this process works, for a parent that outlives it."""

    def hold(self, tasks: Iterable[Task], /) -> None:
        """Show the leases of tasks that were claimed."""

    def drop(self, tokens: Iterable[str], /) -> None:
        """Show the leases with these tokens no longer; ignores tokens that it does not show."""


class NoDisplay:
    """Display for a process without a parent that outlives it: shows nothing."""

    def hold(self, tasks: Iterable[Task], /) -> None:
        """Show nothing."""

    def drop(self, tokens: Iterable[str], /) -> None:
        """Show nothing."""


NO_DISPLAY = NoDisplay()


class WorkBatches:
    """The batches of one drain; there are as many slots as threads, and more while tasks are short.

    `leases` shows the leases that are worked here and not settled.
    """

    def __init__(self, runner: Runner, targets: Targets, threads: Threads, leases: LeaseDisplay = NO_DISPLAY) -> None:
        self._runner, self._targets, self._threads = runner, targets, threads
        self.leases = leases
        self.deliveries, self.kinds = targets.deliveries, targets.kinds
        self._slots = threads.size
        self._unstarted: deque[WorkBatch] = deque()
        self._outbox: SimpleQueue[tuple[WorkBatch, list[Settlement]] | None] = SimpleQueue()
        self._moved_at = time.monotonic()
        self._grow_at = 0.0
        self._begun: dict[str, tuple[float, WorkBatch]] = {}
        """Batches that were claimed ahead and run by now, by their tokens: since when, while that is not noted."""
        self.in_flight = 0

    @property
    def free(self) -> int:
        """Number of free slots."""
        return self._slots - self.in_flight

    @property
    def idle(self) -> int:
        """Number of threads that have no batch."""
        return max(0, self._threads.size - self.in_flight)

    @property
    def are_enough(self) -> bool:
        """True if every thread has a batch."""
        return self.in_flight >= min(self._slots, self._threads.size)

    def begin(self, shard: Shard, tasks: Sequence[Task], each: Mapping[str, int], at_once: int) -> None:
        """Queue claimed tasks for the threads; tasks after the first `at_once` were claimed ahead.

        `each` is the number of tasks for which one invocation of a target has time.
        """
        if not self.in_flight:
            self._moved_at = time.monotonic()
        # A task for a broker is not shown: it may have been published, so a parent must not give it back. A task for a
        # function is: once it is given back, the function cannot begin it.
        self.leases.hold(task for task in tasks if task.target or not self._targets.of(task))
        for batch in self._cut(shard, tasks, each, at_once):
            self.in_flight += 1
            self._unstarted.append(batch)
            self._threads.do(self._work)

    def gather(self, patience_s: float) -> Finished:
        """Finished batches, after so long a wait for the first or for `wake`, and batches that no thread will begin."""
        finished = self._finished(patience_s)
        if finished:
            self._moved_at = time.monotonic()
            # What finishes faster than it is claimed is claimed in greater batches: a claim costs as much for few.
            each = QUICK if len(finished) > self._threads.size else SHORT
            self._slots = min(self._slots + len(finished), each * self._threads.size)
        elif self.in_flight and time.monotonic() - self._moved_at >= LOOK_AGAIN_S:
            finished = self._give_way()
        return finished

    def wake(self) -> None:
        """End a wait for finished batches, from any thread."""
        self._outbox.put(None)

    def take_begun(self) -> dict[Shard, list[Task]]:
        """Tasks that were claimed ahead and have run for a while, each once."""
        if not self._begun:
            return {}
        latest, taken = time.monotonic() - LOOK_AGAIN_S, dict[Shard, list[Task]]()
        for token, (began_at, batch) in list(self._begun.items()):
            if began_at <= latest:
                del self._begun[token]
                taken.setdefault(batch.shard, []).extend(batch.tasks)
        return taken

    def take_back(self) -> Finished:
        """Take back the batches that no thread has begun; returns them with their releases."""
        taken = []
        with suppress(IndexError):  # threads take from the same end
            while True:
                batch = self._unstarted.popleft()
                taken.append((batch, [release(task) for task in batch.tasks]))
        self.in_flight -= len(taken)
        return taken

    def _cut(self, shard: Shard, tasks: Sequence[Task], each: Mapping[str, int], at_once: int) -> list[WorkBatch]:
        now = time.monotonic()
        here = [
            WorkBatch(shard, (task,), now, ahead=place >= at_once)
            for place, task in enumerate(tasks)
            if not self._targets.of(task)
        ]
        elsewhere = [task for task in tasks if self._targets.of(task)]
        # A function begins its tasks itself, whenever they were handed over.
        ahead = at_once < len(tasks)
        return here + [
            WorkBatch(shard, batch, now, target, ahead and not batch[0].target)
            for target, batch in self._targets.batches(elsewhere, each)
        ]

    def _work(self) -> None:
        try:
            batch = self._unstarted.popleft()
        except IndexError:
            return  # it was taken back
        began_at = time.monotonic()
        if batch.ahead:
            self._begun[batch.token] = began_at, batch
        waited_ms = int((began_at - batch.since) * 1_000)
        try:
            settlements = self._worked(batch, waited_ms)
        except Exception:
            # A fault of duecourse's own. The thread is all drains', and without an end the batch would keep its slot.
            log.exception("%d tasks of shard %s met a fault: their leases lapse", len(batch.tasks), batch.shard)
            self.leases.drop(task.token for task in batch.tasks)
            settlements = []
        tasks = {task.token: task for task in batch.tasks}
        # Next: `DrainState.gather`, which settles.
        self._outbox.put((batch, [end.with_lateness(tasks[end.token], waited_ms) for end in settlements]))

    def _worked(self, batch: WorkBatch, waited_ms: int) -> list[Settlement]:
        if batch.target:
            return self._targets.hand_over(batch.target, batch.tasks)
        [task] = batch.tasks
        # This process stood still since the claim: another may have the task by now.
        has_lapsed = 0 < task.lease_expires_at <= task.claimed_at + waited_ms
        return [release(task) if has_lapsed else self._run(task)]

    def _run(self, task: Task) -> Settlement:
        with self._threads.held_by(task.tenant) as granted:
            return self._runner.run(task) if granted else self._runner.later(task, HELD)

    def _finished(self, patience_s: float) -> Finished:
        taken = []
        with suppress(Empty):
            taken.append(self._outbox.get(timeout=patience_s) if patience_s else self._outbox.get_nowait())
            while True:
                taken.append(self._outbox.get_nowait())
        finished = [one for one in taken if one]
        for batch, settlements in finished:
            if batch.ahead:
                self._begun.pop(batch.token, None)
            if batch.target:  # its function has those that nothing is settled of
                self.leases.drop({task.token for task in batch.tasks} - {end.token for end in settlements})
        self.in_flight -= len(finished)
        return finished

    def _give_way(self) -> Finished:
        """Release the batches that wait behind slow ones, so that other processes may run them; reduce the slots.

        Where no batch of this drain runs, another drain has the threads: batches wait for them.
        """
        now, waiting = time.monotonic(), list(self._unstarted)
        running = self.in_flight - len(waiting)
        if waiting and running and now - waiting[0].since < LOOK_AGAIN_S:
            return []  # they have just been claimed: threads of a busy machine begin late
        if waiting and running:
            self._slots, self._grow_at = running, now + GROW_S
        elif now >= self._grow_at:
            self._slots, self._grow_at = min(2 * self._slots, self._threads.size), now + GROW_S
        else:
            self._slots = min(self._slots, self._threads.size)
        return self.take_back() if running else []
