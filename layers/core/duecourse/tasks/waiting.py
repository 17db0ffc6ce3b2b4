"""Waiting for ends of tasks: one thread and one connection serve all waiters of a process."""

import logging
import os
import threading
import time
from collections.abc import Awaitable, Callable, Iterable
from concurrent.futures import Future
from contextlib import closing
from functools import partial
from math import inf
from typing import TYPE_CHECKING
from weakref import WeakSet

from duecourse.base.batches import grouped
from duecourse.errors import DuecourseError, StoreMisused, StoreUnavailable, WaitTimedOut
from duecourse.ledger.operation_types import EndListener, Waited
from duecourse.ledger.task import DEFAULT_TENANT, Shard, Task

if TYPE_CHECKING:
    from duecourse.ledger.operations.ledger import Ledger

log = logging.getLogger("duecourse.tasks")

LOOK_S = 20.0
"""Time between two looks at all tasks that are waited for: only they find an end that nobody published."""
PUBLISHED_MS = 60_000
"""Time for which a shard publishes ends after a look; it outlives a look that fails."""
QUIET_S = 5.0
"""Silence after which a listener is tried before it is trusted again: a process may have been frozen."""
AGAIN_S = 0.5
"""Pause before a lost store is asked again."""
STAYS_S = 30.0
"""Time for which the thread stays after its last waiter."""

Ended = Future[None]


class CompletionWatcher:
    """Futures that are done once their tasks may have ended; the owner looks, and takes another future if not."""

    def __init__(self, ledger: Callable[[], "Ledger"]) -> None:
        self._ledger = ledger
        self._renew()
        _every.add(self)

    def _renew(self) -> None:
        """Begin without waiters, thread and held lock: a forked child has no thread of its parent."""
        self._lock = threading.Lock()
        self._shards: dict[Waited, Shard] = {}
        self._waiting: dict[Waited, set[Ended]] = {}
        self._new: list[Waited] = []
        self._missed: list[Waited] = []
        self._hearing: EndListener | None = None
        self._thread: threading.Thread | None = None
        self._closed = False
        self._is_away = False

    def end_of(self, task: Task, shard: Shard) -> Ended:
        """A future that is done with the task, at once if the task has ended; cancel it to stop waiting.

        It raises StoreMisused where the queue's shards are others by now.
        """
        waited, ended = Waited(task.queue, task.tenant, task.id), Ended()
        with self._lock:
            if self._closed:
                raise StoreUnavailable("this client is closed")
            self._shards[waited] = shard
            self._waiting.setdefault(waited, set()).add(ended)
            self._new.append(waited)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="waits", daemon=True)
                self._thread.start()
            elif self._hearing:
                self._hearing.wake()
        ended.add_done_callback(lambda _: self._drop(waited, ended))
        return ended

    def close(self) -> None:
        """End the thread; remaining waiters get StoreUnavailable."""
        with self._lock:
            self._closed = True
            thread, hearing = self._thread, self._hearing
        if hearing:
            hearing.wake()
        if thread and thread is not threading.current_thread():
            thread.join()

    def count(self) -> int:
        """Number of tasks that are waited for."""
        with self._lock:
            return len(self._waiting)

    def _drop(self, waited: Waited, ended: Ended) -> None:
        with self._lock:
            waiters = self._waiting.get(waited, set())
            waiters.discard(ended)
            if not waiters:
                self._waiting.pop(waited, None)
                self._shards.pop(waited, None)

    def _run(self) -> None:
        try:
            while not self._ended():
                try:
                    with closing(self._ledger().end_listener()) as hearing:
                        self._listen(hearing)
                except StoreMisused as error:
                    self._fail(list(self._waiting), error)
                except StoreUnavailable as error:
                    self._on_outage(error)
        finally:
            self._give_up(StoreUnavailable("nobody listens for ends any more"))

    def _on_outage(self, error: StoreUnavailable) -> None:
        """Pause; waiters keep waiting until their own time is over."""
        if not self._is_away:
            log.warning("the store is away, so ends of tasks are told later: %s", error)
        self._is_away = True
        time.sleep(AGAIN_S)

    def _listen(self, hearing: EndListener) -> None:
        """Serve until nobody has waited for STAYS_S. Raises StoreUnavailable."""
        with self._lock:
            self._hearing, self._new = hearing, []
            every = list(self._waiting)
        self._look(every)
        self._is_away = False
        looked_at, used_at, heard_at = time.monotonic(), time.monotonic(), time.time()
        while not self._closed and time.monotonic() - used_at < STAYS_S:
            next_at = time.monotonic() + AGAIN_S if self._missed else looked_at + LOOK_S
            for waited in hearing.hear(min(next_at, used_at + STAYS_S) - time.monotonic()):
                heard_at = time.time()
                self._tell(waited)
            now = time.monotonic()
            wanted = self._wanted(is_time=now - looked_at >= LOOK_S)
            # By the wall's clock: while a process is frozen, the monotonic one may stand still.
            if wanted and abs(time.time() - heard_at) > QUIET_S:
                hearing.prove()
                heard_at = time.time()
            self._look(wanted)
            looked_at = now if now - looked_at >= LOOK_S else looked_at
            used_at = now if self._waiting else used_at

    def _wanted(self, *, is_time: bool) -> list[Waited]:
        """The tasks to look at: all of them when it is time, else new ones."""
        with self._lock:
            new, self._new, self._missed = [*self._new, *self._missed], [], []
            return list(self._waiting) if is_time else new

    def _look(self, tasks: Iterable[Waited]) -> None:
        """Ask the shards to publish the ends of these tasks; finish the futures of tasks that have ended.

        Tasks of shards that are away are looked at again soon. Raises StoreUnavailable where all are.
        """
        with self._lock:
            shards = {one: self._shards[one] for one in tasks if one in self._shards}
        by_shard = grouped(list(shards), shards.__getitem__)
        away: dict[Shard, StoreUnavailable] = {}
        for shard, some in by_shard.items():
            try:
                found = self._ledger().await_ends(shard, some, PUBLISHED_MS)
            except StoreMisused as error:
                self._fail(some, error)
                continue
            except StoreUnavailable as error:
                away[shard] = error
                continue
            for waited, ended in zip(some, found, strict=True):
                if ended:
                    self._tell(waited)
        if len(away) == len(by_shard):
            for unavailable in away.values():
                raise unavailable
        with self._lock:
            self._missed = [waited for shard in away for waited in by_shard[shard]]

    def _take(self, waited: Waited) -> set[Ended]:
        """Remove and return the futures of a task: each is ended once."""
        with self._lock:
            self._shards.pop(waited, None)
            return self._waiting.pop(waited, set())

    def _tell(self, waited: Waited) -> None:
        for ended in self._take(waited):
            if ended.set_running_or_notify_cancel():
                ended.set_result(None)

    def _fail(self, tasks: Iterable[Waited], error: DuecourseError) -> None:
        for waited in tasks:
            for ended in self._take(waited):
                if ended.set_running_or_notify_cancel():
                    ended.set_exception(error)

    def _ended(self) -> bool:
        """True if the thread has nobody to serve; then the next waiter starts another."""
        with self._lock:
            self._hearing = None
            is_over = self._closed or not self._waiting
            if is_over:
                self._thread = None
            return is_over

    def _give_up(self, error: DuecourseError) -> None:
        with self._lock:
            if self._thread not in (None, threading.current_thread()):
                return
            self._thread, tasks = None, list(self._waiting)
        self._fail(tasks, error)


_every: WeakSet[CompletionWatcher] = WeakSet()


def _renew_all() -> None:
    for one in list(_every):
        one._renew()  # noqa: SLF001 - of this module


os.register_at_fork(after_in_child=_renew_all)


# Verb of callers that wait for the completion of a task, on a thread or in an event loop.

Get = Callable[[str, str, str], Task]
"""Reader of one task, by its queue, id and tenant. Raises TaskNotFound and ResultsUnavailable."""

ReadTask = Callable[[], Task]
"""One reading, for a thread."""


class CompletionWaiter:
    """Waits until a task is done, dead or cancelled. `get` reads it.

    The id is followed, not one run or generation. So a replacement is waited for, and a replay that came before the
    dead task could be read. Both verbs raise WaitTimedOut after `timeout_s` (None: never), TaskNotFound for a task that
    is not there or is deleted meanwhile, and ResultsUnavailable. An outage of the store is waited out.
    """

    def __init__(self, get: Get, waits: CompletionWatcher, ledger: Callable[[], "Ledger"]) -> None:
        self._get = get
        self._waits = waits
        self._ledger = ledger

    def wait(self, queue: str, id: str, tenant: str = DEFAULT_TENANT, timeout_s: float | None = None) -> Task:
        """The task once it has ended; this thread waits."""
        end = _end_of(timeout_s)
        while not (task := self._get(queue, id, tenant)).is_over:
            ended = self._ended(task)
            try:
                ended.result(_left(end))
            except TimeoutError:
                return self._last(task, timeout_s)
            finally:
                ended.cancel()
        return task

    async def wait_async(
        self, queue: str, id: str, tenant: str, timeout_s: float | None, run: Callable[[ReadTask], Awaitable[Task]]
    ) -> Task:
        """The task once it has ended; `run` reads it on a thread, and no thread is in use while it is waited for."""
        import asyncio  # which few processes have

        read = partial(self._get, queue, id, tenant)
        end = _end_of(timeout_s)
        while not (task := await run(read)).is_over:
            try:
                await asyncio.wait_for(asyncio.wrap_future(self._ended(task)), _left(end))
            except TimeoutError:
                return await run(partial(self._last, task, timeout_s))
        return task

    def _ended(self, task: Task) -> Ended:
        return self._waits.end_of(task, self._ledger().shard_of(task.queue, task.id, task.group))

    def _last(self, task: Task, timeout_s: float | None) -> Task:
        """The task if it has ended by now, though nobody published it. Raises WaitTimedOut, with its state."""
        found = self._get(task.queue, task.id, task.tenant)
        if found.is_over:
            return found
        raise WaitTimedOut(f"Task {task.id} of queue {task.queue} is still {found.status} after {timeout_s:g} s.")


def _end_of(timeout_s: float | None) -> float:
    return inf if timeout_s is None else time.monotonic() + timeout_s


def _left(end: float) -> float | None:
    """Seconds until then, None for no end."""
    return None if end == inf else max(0.0, end - time.monotonic())
