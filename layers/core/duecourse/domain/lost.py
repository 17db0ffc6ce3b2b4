"""Signal that a worker has lost the lease of a task that it runs."""

from collections.abc import Callable, Generator
from math import inf
from typing import Any


class Lost:
    """Signal of a lost lease: false while the lease holds, true once it is gone. `await` it, or call `wait`.

    A lease is gone once a caller has taken the task away by force, or another worker may have it. A signal that is true
    stays so.
    """

    __slots__ = ("_is_set", "_tells", "_until")

    def __init__(self, until: float = inf) -> None:
        self._is_set = False
        self._until = until
        self._tells: list[Callable[[], object]] = []

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

        told = threading.Event()
        with _Telling(self, told.set):
            if not self._is_set:
                told.wait(timeout)
        return self._is_set

    def __await__(self) -> Generator[Any, None, None]:
        """Wait in an event loop until the lease is gone."""
        return self._awaited().__await__()

    def set(self) -> None:
        """Note that the lease is gone, and wake who waits."""
        self._is_set = True  # first: who begins to wait now looks at it afterwards
        for tell in list(self._tells):
            tell()

    def keep(self, until: float) -> None:
        """Note that the lease holds until an instant (time.monotonic())."""
        self._until = max(self._until, until) if self._until < inf else until

    def lapse(self, now: float) -> None:
        """Set the signal if the lease has lapsed by this process's own clock (time.monotonic())."""
        if now >= self._until:
            self.set()

    async def _awaited(self) -> None:
        import asyncio

        loop, told = asyncio.get_running_loop(), asyncio.Event()
        with _Telling(self, lambda: loop.call_soon_threadsafe(told.set)):
            if not self._is_set:
                await told.wait()


class _Telling:
    """Have `tell` called when the signal is set, meanwhile."""

    def __init__(self, lost: Lost, tell: Callable[[], object]) -> None:
        self._tells, self._tell = lost._tells, tell  # noqa: SLF001 - of this module

    def __enter__(self) -> None:
        self._tells.append(self._tell)

    def __exit__(self, *_: object) -> None:
        self._tells.remove(self._tell)
