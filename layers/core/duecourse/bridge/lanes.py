"""Items to be handed over: a lane for each key, and the rules by which rejected ones come again.

Nothing here has a thread or a lock, or looks at a clock: `now` is time.monotonic(), as the pool read it.
"""

import heapq
import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from math import inf
from typing import Generic, NamedTuple, TypeVar

from duecourse.domain.backoff import delay_ms
from duecourse.domain.task import RetryPolicy

T = TypeVar("T")

PAUSES = RetryPolicy(backoff_ms=200, max_backoff_ms=5_000)
"""Full jitter, as for tasks: bridges and shards that were rejected together do not come back together."""


class Rules(NamedTuple):
    """Bounds on the calls at a time, and on the items that may wait."""

    threads: int
    batch: int
    """The most items in one call."""
    calls: int
    """The most calls under way for one key."""
    join_s: float = 0.0
    """Time for which the first call has a key for itself: what comes next waits for its end, but no longer."""
    folds: bool = False
    """True if one item of a key counts for all that wait."""
    bound: float = inf
    """The most items that are kept, those under way among them."""


@dataclass(slots=True)
class _Lane(Generic[T]):
    """State of one key: items that wait, calls in progress, rejections since the last call that was accepted."""

    waiting: list[T]
    calls: int = 0
    rejections: int = 0
    not_before: float = 0.0


class Lanes(Generic[T]):
    """Items by key, in the order in which they may go.

    A key that was rejected waits, longer each time, while others go on. Where more keys than there are threads were
    rejected, and nothing was accepted since, it is not theirs but the function's doing: then all wait.
    """

    def __init__(self, rules: Rules, key: Callable[[T], str]) -> None:
        self._rules = rules
        self._key = key
        self._random = random.Random()
        self._lanes: dict[str, _Lane[T]] = {}
        self._ready: dict[str, _Lane[T]] = {}
        self._later: list[tuple[float, str]] = []
        self._rejected: set[str] = set()
        self._in_a_row = 0
        self._not_before = 0.0
        self.waiting = self.under_way = 0
        """Numbers of items."""

    def add(self, items: Iterable[T], now: float) -> int:
        """Line items up; returns how many there was no room for."""
        lanes, ready, key_of, folds = self._lanes, self._ready, self._key, self._rules.folds
        room = self._rules.bound - self.waiting - self.under_way
        added = beyond = 0
        for item in items:
            key = key_of(item)
            lane = lanes.get(key)
            if lane and lane.waiting and folds:
                continue
            if added >= room:
                beyond += 1
                continue
            added += 1
            if lane:
                self._join(key, lane, item, now)
            else:
                lanes[key] = ready[key] = _Lane([item])
        self.waiting += added
        return beyond

    def take(self, now: float) -> dict[str, list[T]]:
        """The next batch, by key, as one call under way; empty where nothing may go yet."""
        while self._later and self._later[0][0] <= now:
            _, key = heapq.heappop(self._later)
            if key in self._lanes:
                self._line_up(key, self._lanes[key], now)
        return self._batch() if self._not_before <= now else {}

    def next_at(self) -> float:
        """The earliest time at which something may go that may not go now, unless something happens before; or inf."""
        if self._ready:
            return self._not_before
        return self._later[0][0] if self._later else inf

    def accepted(self, taken: dict[str, list[T]], now: float) -> bool:
        """A batch was accepted; returns whether calls before it were rejected."""
        recovered = self._in_a_row > 0
        self._in_a_row, self._not_before = 0, 0.0
        self._rejected.clear()
        for key, lane in self._back(taken):
            lane.rejections, lane.not_before = 0, 0.0
            if lane.waiting:
                self._line_up(key, lane, now)
            elif not lane.calls:
                del self._lanes[key]
        return recovered

    def rejected(self, taken: dict[str, list[T]], now: float) -> bool:
        """A batch was rejected: it waits again, before all others of its keys. Returns whether it is the first one."""
        self._in_a_row += 1
        for key, lane in self._back(taken):
            if not (self._rules.folds and lane.waiting):
                lane.waiting[:0] = taken[key]
                self.waiting += len(taken[key])
            lane.rejections += 1
            self._delay(key, lane, now + self._pause_s(lane.rejections))
        self._rejected.update(taken)
        if len(self._rejected) > self._rules.threads:
            self._not_before = now + self._pause_s(self._in_a_row)
        return self._in_a_row == 1

    def _join(self, key: str, lane: _Lane[T], item: T, now: float) -> None:
        lane.waiting.append(item)
        if lane.calls and self._rules.join_s:
            self._delay(key, lane, now + self._rules.join_s)
        self._line_up(key, lane, now)

    def _back(self, taken: dict[str, list[T]]) -> Iterator[tuple[str, _Lane[T]]]:
        """The lanes of a call that ended."""
        self.under_way -= sum(map(len, taken.values()))
        for key in taken:
            lane = self._lanes[key]
            lane.calls -= 1
            yield key, lane

    def _delay(self, key: str, lane: _Lane[T], until: float) -> None:
        self._ready.pop(key, None)
        lane.not_before = max(lane.not_before, until)
        # Earlier entries of the key stay in the heap: `_line_up` finds that their lane may not go yet.
        heapq.heappush(self._later, (lane.not_before, key))

    def _line_up(self, key: str, lane: _Lane[T], now: float) -> None:
        if lane.waiting and lane.calls < self._rules.calls and lane.not_before <= now:
            self._ready[key] = lane

    def _batch(self) -> dict[str, list[T]]:
        room, taken = self._rules.batch, dict[str, list[T]]()
        for key, lane in list(islice(self._ready.items(), room)):
            items = taken[key] = lane.waiting[:room]
            lane.waiting = lane.waiting[room:]
            room -= len(items)
            lane.calls += 1
            if not lane.waiting or lane.calls == self._rules.calls:
                del self._ready[key]
            if not room:
                break
        count = self._rules.batch - room
        self.waiting, self.under_way = self.waiting - count, self.under_way + count
        return taken

    def _pause_s(self, rejections: int) -> float:
        return delay_ms(PAUSES, rejections, self._random) / 1000
