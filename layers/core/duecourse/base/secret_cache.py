"""Cache of secrets and tokens: one thread reads each value while others wait; kept until it expires."""

import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, NamedTuple, Protocol, TypeVar

from duecourse.errors import CallTimedOut, DuecourseError

K = TypeVar("K", bound=Hashable)
V = TypeVar("V", bound=Hashable)

MOST = 1_000
"""Maximum number of values that are kept. Over it, who has the most loses the one that it did not use for longest."""
AGAIN_S = 5.0
"""Time for which an error is kept, and a value that was rejected: neither must become a load."""


class FetchedValue(NamedTuple, Generic[V]):
    """A fetched value, and the time for which it may be kept."""

    value: V
    kept_s: float


class _Entry(Generic[V]):
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.value: V | None = None
        self.error: DuecourseError | None = None
        self.read_at = 0.0
        self.until = 0.0


class ExpiringCache(Generic[K, V]):
    """Values by key; safe for threads and forks. An `owner` with many keys pushes out only its own values.

    The clock is the wall's: between events a function's process is frozen, and its monotonic clock with it.
    """

    def __init__(
        self, now: Callable[[], float] = time.time, owner: Callable[[K], Hashable] = lambda _key: None
    ) -> None:
        self._now = now
        self._owner = owner
        self._begin()

    def _begin(self) -> None:
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._count = 0
        self._entries: dict[Hashable, OrderedDict[K, _Entry[V]]] = {}

    def get(self, key: K, read: Callable[[], FetchedValue[V]], within_s: float, rejected: V | None = None) -> V:
        """The value, read where none is kept, or where the kept one was `rejected` and is not quite new.

        Raises what `read` raises, and CallTimedOut where another thread still reads after so many seconds.
        """
        entry = self._entry(key)
        if not entry.lock.acquire(timeout=max(within_s, 0.0)):
            raise CallTimedOut("another call still waits for the same credential")
        try:
            if not self._is_good(entry, rejected):
                self._read(entry, read)
            if entry.error:
                raise entry.error.with_traceback(None)
            assert entry.value is not None  # noqa: S101 - for the type: without an error there is one
            return entry.value
        finally:
            entry.lock.release()

    def _entry(self, key: K) -> _Entry[V]:
        if self._process != os.getpid():
            self._begin()  # in a forked child, the threads that held its parent's locks are not there
        with self._lock:
            own = self._entries.setdefault(self._owner(key), OrderedDict())
            entry = own.get(key)
            if entry is None:
                entry = own[key] = _Entry()
                self._count += 1
                self._make_room()
            own.move_to_end(key)
            return entry

    def _make_room(self) -> None:
        if self._count > MOST:
            most = max(self._entries, key=lambda owner: len(self._entries[owner]))
            self._entries[most].popitem(last=False)
            self._count -= 1
            if not self._entries[most]:
                del self._entries[most]

    def _is_good(self, entry: _Entry[V], rejected: V | None) -> bool:
        is_new = self._now() - entry.read_at < AGAIN_S
        return self._is_in_time(entry) and (rejected is None or entry.value != rejected or is_new)

    def _is_in_time(self, entry: _Entry[V]) -> bool:
        return entry.read_at <= self._now() < entry.until

    def _read(self, entry: _Entry[V], read: Callable[[], FetchedValue[V]]) -> None:
        try:
            found = read()
        except CallTimedOut:  # of a call that had little time: the next one may have more
            raise
        except DuecourseError as error:
            if entry.value is not None and self._is_in_time(entry):
                entry.read_at = self._now()  # the rejected one stays: it may be right for another destination
                raise
            entry.value, entry.error, kept_s = None, error, AGAIN_S
        else:
            entry.value, entry.error, kept_s = found.value, None, found.kept_s
        entry.read_at = self._now()
        entry.until = entry.read_at + kept_s


# A secret that is kept elsewhere: its value, and a newer one once that was rejected.


class Secret(Protocol):
    """One secret; safe for threads."""

    def value(self) -> str:
        """The value, read at the first call and kept.

        Raises InvalidSettings, naming the setting, for a secret that is absent, closed to us or wrong, and
        StoreUnavailable where its service does not answer.
        """

    def renewed(self, rejected: str) -> str | None:
        """Another value than the `rejected` one, read again for it; None where there is none, or none can be read."""
