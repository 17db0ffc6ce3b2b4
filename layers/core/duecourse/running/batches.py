"""Batches of a drain's tasks in flight: which are worked next, on threads and on the event loop, and how many."""

import logging
import threading
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue
from typing import NamedTuple, Protocol

from duecourse.ledger.task import Ending, Settlement, Shard, Task
from duecourse.running.event_loop import LOOP
from duecourse.running.hand_over import Targets
from duecourse.running.run import SLOWLY, Runner, RunTimes, release
from duecourse.running.threads import Threads

log = logging.getLogger("duecourse.running")

LOOK_AGAIN_S = 0.1
"""Time after which a drain that waits for slow tasks looks for due ones, and gives back those behind the slow."""

GROW_S = 1.0
"""Time after which a drain that gave tasks back tries whether there are threads for twice as many by now."""

SHORT, QUICK = 2, 8
"""Number of slots of a thread while tasks are short, and while more of them finish at once than there are threads."""

INSTANT_MS = 0.2
"""Time of a run below which one thread works all: to hand a task to another one takes as long."""
RESCUE_S = 0.002
"""Time after which tasks that wait behind one that should have been instant get twice as many threads."""
TURN_S = 0.005
"""Time after which a thread that works instant tasks lets other drains have it."""
SETTLED_TOGETHER = 64
"""The most instant tasks that are worked before their ends are settled."""

HELD = "Other tasks of this tenant hold as many places as one tenant may, so this task runs a little later."


class WorkBatch(NamedTuple):
    """Tasks of one shard that one thread works: all handed to `target`, or a single one run here.

    With `is_async`, that one runs on the event loop. They were claimed at `since` (time.monotonic()). With `ahead`,
    they count as begun only once that is noted.
    """

    shard: Shard
    tasks: Sequence[Task]
    since: float
    target: str = ""
    ahead: bool = False
    is_async: bool = False

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

    At most as many batches are worked at the same time as there are threads. A batch is worked at a place: a thread
    that takes part, or an async task on the event loop, which needs no thread. A task that ends gives its place to the
    next batch.

    `leases` shows the leases that are worked here and not settled.
    """

    def __init__(self, runner: Runner, targets: Targets, threads: Threads, leases: LeaseDisplay = NO_DISPLAY) -> None:
        self._runner, self._targets, self._threads = runner, targets, threads
        self.leases = leases
        self.deliveries, self.kinds = targets.deliveries, targets.kinds
        self._slots = threads.size
        self._unstarted: deque[WorkBatch] = deque()
        self._outbox: deque[tuple[WorkBatch, list[Settlement]]] = deque()
        self._news: SimpleQueue[None] = SimpleQueue()
        """Signals to look at the outbox."""
        self._counting = threading.Lock()
        self._called = 0
        """Number of places in use: of threads that take part, or will, until no batch is left, and of async tasks."""
        self._lasting = 0
        """Number of these that async tasks have, and threads in a run that is not instant."""
        self._times = RunTimes(rise=SLOWLY)
        """Usual times of runs of kinds that are worked here."""
        self._head: tuple[WorkBatch | None, float] = (None, 0.0)
        """The batch that is begun next, and since when it is that one."""
        self._moved_at = time.monotonic()
        self._grow_at = 0.0
        self._begun: dict[str, tuple[float, WorkBatch]] = {}
        """Batches that were claimed ahead and run by now, by their tokens: since when, while that is not noted."""
        self._are_instant = False
        """True if the batches begun last were all instant."""
        self.in_flight = 0

    @property
    def free(self) -> int:
        """Number of free slots."""
        return self._slots - self.in_flight

    @property
    def idle(self) -> int:
        """Number of tasks that would begin at once."""
        return max(0, (1 if self._are_instant else self._threads.size) - self.in_flight)

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
        batches = self._cut(shard, tasks, each, at_once)
        self.in_flight += len(batches)
        lasting = sum(not self._is_instant(batch) for batch in batches)
        self._are_instant = not lasting and bool(batches)
        with self._counting:
            self._unstarted.extend(batches)
            # Instant batches need one thread that no other run has.
            is_free = self._called > self._lasting
            wanted = self._called + lasting + (lasting < len(batches) and not is_free)
        self._call(wanted)

    def _call(self, wanted: int) -> None:
        """Have so many places in use."""
        with self._counting:
            missing = min(wanted, self._threads.size) - self._called
            self._called += max(0, missing)
        for _ in range(missing):
            self._give_place()

    def _give_place(self) -> None:
        """Let the next batch have a place that is counted as in use; where there is none, count it no longer."""
        batch = self._take()
        if not batch:
            return
        if batch.is_async:
            self._await(batch)
        else:
            self._unstarted.appendleft(batch)
            self._threads.do(self._work)

    def _is_instant(self, batch: WorkBatch) -> bool:
        """True if one thread works such batches faster than several do."""
        if batch.target or batch.is_async:
            return False
        return self._times.of(batch.tasks[0].kind, INSTANT_MS) < INSTANT_MS

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
        self._news.put(None)

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
        now, of, awaits = time.monotonic(), self._targets.of, self._runner.awaits
        here = [
            WorkBatch(shard, (task,), now, "", place >= at_once, awaits(task))
            for place, task in enumerate(tasks)
            if not of(task)
        ]
        if len(here) == len(tasks):
            return here
        elsewhere = [task for task in tasks if of(task)]
        # A function begins its tasks itself, whenever they were handed over.
        ahead = at_once < len(tasks)
        return here + [
            WorkBatch(shard, batch, now, target, ahead and not batch[0].target)
            for target, batch in self._targets.batches(elsewhere, each)
        ]

    def _work(self) -> None:
        """Work batches on this thread, until none is left or its turn is over."""
        now = time.monotonic()
        turn_ends_at = now + TURN_S
        unsaid = 0
        while batch := self._next(is_turn_over=now > turn_ends_at):
            is_instant = self._is_instant(batch)
            if unsaid and not (is_instant and self._unstarted):
                self.wake()  # what has ended does not wait for this one
                unsaid = 0
            if batch.is_async:
                return self._await(batch)
            if not is_instant:
                self._begin_lasting()
            began_at, now = now, self._work_one(batch, now)
            if not is_instant:
                self._end_lasting()
            unsaid += 1
            if not is_instant or unsaid == SETTLED_TOGETHER or now - began_at > RESCUE_S:
                self.wake()
                unsaid = 0
        if unsaid:
            self.wake()
        return None

    def _next(self, *, is_turn_over: bool) -> WorkBatch | None:
        """The next batch for a thread that takes part; None if it no longer does."""
        if is_turn_over and self._unstarted:
            with self._counting:
                first = self._first()
                is_spare = self._called - self._lasting > 1 and first is not None and self._is_instant(first)
                self._called -= is_spare
            if not is_spare:
                self._threads.do(self._work)
            return None
        return self._take()

    def _take(self) -> WorkBatch | None:
        """The next batch for a place in use; where there is none, the place is counted no longer."""
        while True:
            try:
                return self._unstarted.popleft()
            except IndexError:
                with self._counting:
                    if not self._unstarted:
                        self._called -= 1
                        return None

    def _await(self, batch: WorkBatch) -> None:
        """Work an async batch on the event loop; its end gives its place to the next batch."""
        self._begin_lasting()
        LOOP.start(partial(self._work_async, batch))

    def _begin_lasting(self) -> None:
        """Count a place that a run has for a while; another one serves the instant batches that wait."""
        with self._counting:
            self._lasting += 1
        if self._unstarted:
            self._call(self._lasting + 1)

    def _end_lasting(self) -> None:
        with self._counting:
            self._lasting -= 1

    def _work_one(self, batch: WorkBatch, began_at: float) -> float:
        """Work a batch that begins at this instant; returns that of its end."""
        waited_ms = self._note_began(batch, began_at)
        try:
            ends = self._hand_over(batch, waited_ms) if batch.target else [self._run(batch.tasks[0], waited_ms)]
        except Exception:  # noqa: BLE001 a fault of duecourse's own: logged there
            ends = self._meet_fault(batch)
        self._outbox.append((batch, ends))  # next: `DrainState.gather`, which settles
        ended_at = time.monotonic()
        # A task that was given back says nothing of its kind.
        if not batch.target and ends and ends[0].ending is not Ending.RELEASE:
            # A long run counts as five instant ones: one in twenty may have waited for the interpreter.
            self._times.note(batch.tasks[0].kind, min(1_000 * (ended_at - began_at), 5 * INSTANT_MS))
        return ended_at

    def _hand_over(self, batch: WorkBatch, waited_ms: int) -> list[Settlement]:
        tasks = {task.token: task for task in batch.tasks}
        ends = self._targets.hand_over(batch.target, batch.tasks)
        return [end.with_lateness(tasks[end.token], waited_ms) for end in ends]

    def _run(self, task: Task, waited_ms: int) -> Settlement:
        if _has_lapsed(task, waited_ms):
            return release(task)
        with self._threads.held_by(task.tenant) as granted:
            end = self._runner.run(task) if granted else self._runner.later(task, HELD)
        return end.with_lateness(task, waited_ms)

    async def _work_async(self, batch: WorkBatch) -> None:
        # `_work_one` with an `await`: a context for both would be longer than what they share.
        waited_ms = self._note_began(batch, time.monotonic())
        try:
            ends = [await self._run_async(batch.tasks[0], waited_ms)]
        except Exception:  # noqa: BLE001 a fault of duecourse's own: logged there
            ends = self._meet_fault(batch)
        self._outbox.append((batch, ends))
        self.wake()
        self._end_lasting()
        self._give_place()

    async def _run_async(self, task: Task, waited_ms: int) -> Settlement:
        if _has_lapsed(task, waited_ms):
            return release(task)
        with self._threads.held_by(task.tenant) as granted:
            end = await self._runner.run_async(task) if granted else self._runner.later(task, HELD)
        return end.with_lateness(task, waited_ms)

    def _note_began(self, batch: WorkBatch, began_at: float) -> int:
        """Note that a batch begins; returns the milliseconds for which it waited."""
        if batch.ahead:
            self._begun[batch.token] = began_at, batch
        # A thread reads the time once for the end of a run and the begin of the next, which may be claimed in between.
        return max(0, int((began_at - batch.since) * 1_000))

    def _meet_fault(self, batch: WorkBatch) -> list[Settlement]:
        """Log a fault of duecourse's own; answers no settlements."""
        # Threads and the loop are all drains', and without an end the batch would keep its slot.
        log.exception("%d tasks of shard %s met a fault: their leases lapse", len(batch.tasks), batch.shard)
        self.leases.drop(task.token for task in batch.tasks)
        return []

    def _finished(self, patience_s: float) -> Finished:
        if not self._outbox:
            self._wait(patience_s)
        with suppress(Empty):
            while True:
                self._news.get_nowait()
        finished = []
        with suppress(IndexError):  # threads add to the other end
            while True:
                finished.append(self._outbox.popleft())
        for batch, settlements in finished:
            if batch.ahead:
                self._begun.pop(batch.token, None)
            if batch.target:  # its function has those that nothing is settled of
                self.leases.drop({task.token for task in batch.tasks} - {end.token for end in settlements})
        self.in_flight -= len(finished)
        return finished

    def _wait(self, patience_s: float) -> None:
        """Wait for finished batches or `wake`; tasks that wait for one that should be instant get threads meanwhile."""
        ends_at = time.monotonic() + patience_s
        while (left_s := ends_at - time.monotonic()) > 0:
            try:
                self._news.get(timeout=min(left_s, self._rescue() or left_s))
            except Empty:
                if self._outbox:
                    return
            else:
                return

    def _rescue(self) -> float:
        """Give more threads to batches that wait too long; returns seconds until the next look, 0 if none is needed."""
        first = self._first() if self._called < self._threads.size else None
        if first is None:
            return 0
        now = time.monotonic()
        if first is not self._head[0]:
            self._head = first, now
        elif now - self._head[1] >= RESCUE_S:
            self._call(2 * self._called)
            self._head = first, now
        return self._head[1] + RESCUE_S - now

    def _first(self) -> WorkBatch | None:
        """The batch that a thread begins next, None for none."""
        try:
            return self._unstarted[0]
        except IndexError:
            return None

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


def _has_lapsed(task: Task, waited_ms: int) -> bool:
    """True if the lease has lapsed since the claim: then this process was suspended."""
    return 0 < task.lease_expires_at <= task.claimed_at + waited_ms
