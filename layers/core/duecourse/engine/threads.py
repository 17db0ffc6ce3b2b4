"""The threads on which tasks run: kept while the process lives, so that a warm drain starts none."""

import threading
from collections.abc import Callable
from queue import SimpleQueue

Work = Callable[[], None]


class Threads:
    """`size` threads that do what is handed to them, in order."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._inbox: SimpleQueue[Work | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._starting = threading.Lock()

    def do(self, work: Work) -> None:
        """Have `work` done by the next free thread; it must not raise."""
        if len(self._threads) < self.size:  # looked at without the lock: a warm pool takes none for its work
            with self._starting:
                self._start_one()
        self._inbox.put(work)

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
