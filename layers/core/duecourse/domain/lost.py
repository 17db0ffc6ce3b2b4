"""Signal that a worker has lost the lease of a task that it runs."""

from collections.abc import Callable, Generator
from math import inf
from typing import Any


class Lost:
    """Signal of a lost lease: false while the lease holds, true once it is gone. `await` it, or call `wait`.

    A lease is gone once a caller has taken the task away by force, or another worker may have it. A signal that is true
    stays so.
    """

    __slots__ = ("_is_set", "_listeners", "_until")

    def __init__(self, until: float = inf) -> None:
        self._is_set = False
        self._until = until
        self._listeners: list[Callable[[], object]] = []

    def __bool__(self) -> bool:
        return self._is_set

    def __repr__(self) -> str:
        return f"Lost({self._is_set})"

    def is_set(self) -> bool:
        """True once the lease is gone."""
        return self._is_set

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the lease is gone, at most `timeout` seconds; returns `is_set()`."""
        import threading

        gone = threading.Event()
        with _Listening(self, gone.set):
            if not self._is_set:
                gone.wait(timeout)
        return self._is_set

    def __await__(self) -> Generator[Any, None, None]:
        """Wait in an event loop until the lease is gone."""
        return self._awaited().__await__()

    def set(self) -> None:
        """Note that the lease is gone, and wake all that wait for it."""
        self._is_set = True  # before the calls: a waiter registers itself, then checks this
        for listener in list(self._listeners):
            listener()

    def keep(self, until: float) -> None:
        """Note that the lease holds until an instant (time.monotonic())."""
        self._until = max(self._until, until) if self._until < inf else until

    def lapse(self, now: float) -> None:
        """Set the signal if the lease has lapsed by this process's own clock (time.monotonic())."""
        if now >= self._until:
            self.set()

    async def _awaited(self) -> None:
        import asyncio

        loop, gone = asyncio.get_running_loop(), asyncio.Event()
        with _Listening(self, lambda: loop.call_soon_threadsafe(gone.set)):
            if not self._is_set:
                await gone.wait()


class _Listening:
    """Calls `listener` if the signal is set within the block."""

    def __init__(self, lost: Lost, listener: Callable[[], object]) -> None:
        self._listeners, self._listener = lost._listeners, listener  # noqa: SLF001 - of this module

    def __enter__(self) -> None:
        self._listeners.append(self._listener)

    def __exit__(self, *_: object) -> None:
        self._listeners.remove(self._listener)
