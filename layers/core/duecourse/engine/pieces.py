"""In-flight work of one drain, split into pieces that a thread pool runs."""

import logging
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import NamedTuple, Protocol

from duecourse.domain.outcomes import Settlement
from duecourse.domain.task import Shard, Task
from duecourse.engine.run import Runner, release
from duecourse.engine.targets import Targets
from duecourse.engine.threads import Threads

log = logging.getLogger("duecourse.drain")

LOOK_AGAIN_S = 0.1
"""Time after which a drain that waits for slow tasks looks for due ones, and gives back those behind the slow."""

GROW_S = 1.0
"""Time after which a drain that gave tasks back tries whether there are threads for twice as many by now."""

SHORT, QUICK = 2, 8
"""Number of slots of a thread while tasks are short, and while more of them finish at once than there are threads."""

HELD = "Other tasks of this tenant hold as many threads as one tenant may, so this task runs a little later."


class Piece(NamedTuple):
    """Tasks of one shard that are worked in one go: handed to `target`, or one of them run here.

    They were claimed at `since` (time.monotonic()), `ahead` where none of them counts as begun until that is noted.
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


Finished = list[tuple[Piece, list[Settlement]]]


class Leases(Protocol):
    """Display of the leases of tasks that this process works, for a parent that outlives it."""

    def hold(self, tasks: Iterable[Task], /) -> None:
        """Show the leases of tasks that were claimed."""

    def drop(self, tokens: Iterable[str], /) -> None:
        """Show the leases with these tokens no longer; others are none of its own."""


class Unseen:
    """Nobody outlives this process."""

    def hold(self, tasks: Iterable[Task], /) -> None:
        """Show nothing."""

    def drop(self, tokens: Iterable[str], /) -> None:
        """Show nothing."""


UNSEEN = Unseen()


class Pieces:
    """The pieces of one drain; there are as many slots as threads, and more while tasks are short.

    `leases` shows what is worked here and not settled.
    """

    def __init__(self, runner: Runner, targets: Targets, threads: Threads, leases: Leases = UNSEEN) -> None:
        self._runner, self._targets, self._threads = runner, targets, threads
        self.leases = leases
        self.deliveries, self.kinds = targets.deliveries, targets.kinds
        self._slots = threads.size
        self._unstarted: deque[Piece] = deque()
        self._outbox: SimpleQueue[tuple[Piece, list[Settlement]] | None] = SimpleQueue()
        self._moved_at = time.monotonic()
        self._grow_at = 0.0
        self._begun: dict[str, tuple[float, Piece]] = {}
        """Pieces that were claimed ahead and run by now, by their tokens: since when, while that is not noted."""
        self.in_flight = 0

    @property
    def free(self) -> int:
        """Number of free slots."""
        return self._slots - self.in_flight

    @property
    def idle(self) -> int:
        """Number of threads that have no piece."""
        return max(0, self._threads.size - self.in_flight)

    @property
    def are_enough(self) -> bool:
        """True if every thread has a piece."""
        return self.in_flight >= min(self._slots, self._threads.size)

    def begin(self, shard: Shard, tasks: Sequence[Task], each: Mapping[str, int], at_once: int) -> None:
        """Have claimed tasks worked; those after the first `at_once` were claimed ahead.

        `each` is how many of them one invocation of a target has time for.
        """
        if not self.in_flight:
            self._moved_at = time.monotonic()
        # A function or a broker may have what is handed over: only its own end of the lease is to be believed.
        self.leases.hold(task for task in tasks if not self._targets.of(task))
        for piece in self._cut(shard, tasks, each, at_once):
            self.in_flight += 1
            self._unstarted.append(piece)
            self._threads.do(self._work)

    def gather(self, patience_s: float) -> Finished:
        """Finished pieces, after so long a wait for the first or for `wake`, and those that nothing here will begin."""
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
        """End a wait for finished pieces, from any thread."""
        self._outbox.put(None)

    def take_begun(self) -> dict[Shard, list[Task]]:
        """Tasks that were claimed ahead and have run for a while, each once; quick ones are settled before that."""
        if not self._begun:
            return {}
        latest, taken = time.monotonic() - LOOK_AGAIN_S, dict[Shard, list[Task]]()
        for token, (began_at, piece) in list(self._begun.items()):
            if began_at <= latest:
                del self._begun[token]
                taken.setdefault(piece.shard, []).extend(piece.tasks)
        return taken

    def take_back(self) -> Finished:
        """Pieces that no thread has begun, and now none will, with their releases."""
        taken = []
        with suppress(IndexError):  # threads take from the same end
            while True:
                piece = self._unstarted.popleft()
                taken.append((piece, [release(task) for task in piece.tasks]))
        self.in_flight -= len(taken)
        return taken

    def _cut(self, shard: Shard, tasks: Sequence[Task], each: Mapping[str, int], at_once: int) -> list[Piece]:
        now = time.monotonic()
        here = [
            Piece(shard, (task,), now, ahead=place >= at_once)
            for place, task in enumerate(tasks)
            if not self._targets.of(task)
        ]
        elsewhere = [task for task in tasks if self._targets.of(task)]
        # A function begins its tasks itself, whenever they were handed over.
        ahead = at_once < len(tasks)
        return here + [
            Piece(shard, batch, now, target, ahead and not batch[0].target)
            for target, batch in self._targets.batches(elsewhere, each)
        ]

    def _work(self) -> None:
        try:
            piece = self._unstarted.popleft()
        except IndexError:
            return  # it was taken back
        began_at = time.monotonic()
        if piece.ahead:
            self._begun[piece.token] = began_at, piece
        waited_ms = int((began_at - piece.since) * 1_000)
        try:
            settlements = self._worked(piece)
        except Exception:
            # A fault of duecourse's own. The thread is all drains', and without an end the piece would keep its slot.
            log.exception("%d tasks of shard %s met a fault: their leases lapse", len(piece.tasks), piece.shard)
            self.leases.drop(task.token for task in piece.tasks)
            settlements = []
        tasks = {task.token: task for task in piece.tasks}
        self._outbox.put((piece, [end.with_lateness(tasks[end.token], waited_ms) for end in settlements]))

    def _worked(self, piece: Piece) -> list[Settlement]:
        return self._targets.hand_over(piece.target, piece.tasks) if piece.target else [self._run(piece.tasks[0])]

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
        for piece, _ in finished:
            if piece.ahead:
                self._begun.pop(piece.token, None)
        self.in_flight -= len(finished)
        return finished

    def _give_way(self) -> Finished:
        """All that runs is slow: what waits behind it may run elsewhere, and no more is claimed than has a slot.

        Where nothing of ours runs, the slots are another drain's, which frees them: ours wait.
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
