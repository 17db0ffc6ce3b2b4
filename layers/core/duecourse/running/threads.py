"""Pool of threads on which tasks run; no tenant has all of them, where there are tenants."""

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from queue import Empty, SimpleQueue

from duecourse.ledger.task import DEFAULT_TENANT
from duecourse.running.event_loop import ASYNC_PARALLEL

Work = Callable[[], None]
GRANTED = nullcontext(enter_result=True)
KEPT_FREE = 4
"""One place in so many is kept free of any one tenant's tasks, and at least one where there are two."""


def places(threads: int, parallel: int | None, *, are_async: bool) -> int:
    """Number of tasks that run at the same time, on so many threads, or on the event loop where all are async.

    `parallel` is the number that is asked for, None for the default: all threads, or ASYNC_PARALLEL on the loop.
    """
    return parallel or ASYNC_PARALLEL if are_async else min(parallel or threads, threads)


class Threads:
    """Pool of `size` threads that run calls in order; no tenant has all of them, where there are tenants.

    They live as long as the process, so that a warm drain starts none.
    """

    # A tenant whose tasks all wait for a slow service would hold every thread.

    def __init__(self, size: int) -> None:
        self.size = size
        self._most = size - max(size // KEPT_FREE, min(size - 1, 1))
        self._held: Counter[str] = Counter()
        self._counting = threading.Lock()
        self._inbox: SimpleQueue[Work | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._starting = threading.Lock()
        self._is_closing = False

    def do(self, work: Work) -> None:
        """Have `work` done by the next free thread; it must not raise."""
        if len(self._threads) < self.size:  # looked at without the lock: a warm pool takes none for its work
            with self._starting:
                self._start_one()
        self._inbox.put(work)

    def held_by(self, tenant: str) -> AbstractContextManager[bool]:
        """Count one of `size` places as the tenant's meanwhile; False where its tasks hold as many as they may.

        A task has a place on a thread, or on the event loop.
        """
        return GRANTED if tenant == DEFAULT_TENANT else self._held_by(tenant)

    @contextmanager
    def _held_by(self, tenant: str) -> Iterator[bool]:
        with self._counting:
            self._held[tenant] += 1
            granted = self._held[tenant] <= self._most
        try:
            yield granted
        finally:
            with self._counting:
                self._held[tenant] -= 1
                if not self._held[tenant]:
                    del self._held[tenant]

    def close(self) -> None:
        """Let the threads finish what they have, and end; this thread finishes what that work gives them."""
        with self._starting:  # a thread that started meanwhile would take the end of another one
            self._is_closing = True
        # Behind all work: each thread takes one of these, and it is the last that it takes.
        for _ in self._threads:
            self._inbox.put(None)
        for thread in self._threads:
            thread.join()
        self._threads.clear()
        with suppress(Empty):  # work that gave its thread to others
            while True:
                if work := self._inbox.get_nowait():
                    work()
        self._is_closing = False

    def _start_one(self) -> None:
        if self._is_closing or len(self._threads) == self.size:
            return  # or another drain was quicker
        # A daemon: a task that never returns must not keep a process from ending.
        thread = threading.Thread(target=self._serve, name=f"duecourse-{len(self._threads)}", daemon=True)
        self._threads.append(thread)
        thread.start()

    def _serve(self) -> None:
        while (work := self._inbox.get()) is not None:
            work()
