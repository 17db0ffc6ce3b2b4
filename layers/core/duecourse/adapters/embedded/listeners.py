"""Listeners to the bells that a store in this process hangs."""

from collections.abc import Callable
from threading import Lock

from duecourse.domain.task import Shard

Heard = Callable[[Shard, int], None]
"""Receiver of a shard and the new time of its bell (0: none); it must not wait, raise or call the store."""


class Listeners:
    """Listeners to one store."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._heard: tuple[Heard, ...] = ()

    def add(self, heard: Heard) -> Callable[[], None]:
        """Call `heard` from now on, until the returned function is called."""
        with self._lock:
            self._heard = (*self._heard, heard)

        def end() -> None:
            with self._lock:
                self._heard = tuple(one for one in self._heard if one is not heard)

        return end

    def tell(self, shard: Shard, bell_at: int) -> None:
        """Call every listener."""
        for heard in self._heard:
            heard(shard, bell_at)
