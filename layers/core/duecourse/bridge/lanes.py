"""Items to be handed over: a lane for each key, and the rules by which rejected ones come again.

Keys belong to groups: those on one server, say. A batch has items of one group, so that none is rejected for another's.

Nothing here has a thread or a lock, or looks at a clock: `now` is time.monotonic(), as the pool read it.
"""

import heapq
import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
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
    group: "_Group"
    calls: int = 0
    rejections: int = 0
    not_before: float = 0.0


@dataclass(slots=True)
class _Group:
    """State of a group: its calls in progress, and what was rejected since one of its calls was accepted."""

    calls: int = 0
    rejected: set[str] = field(default_factory=set)
    in_a_row: int = 0
    not_before: float = 0.0


class Lanes(Generic[T]):
    """Items by key, in the order in which they may go.

    A key that was rejected waits, longer each time, while others go on. A whole group waits where more of its keys than
    there are threads were rejected, and none was accepted since: then it is the group's doing. Beside other groups, a
    group that was rejected has one call at a time, so that it does not hold all threads.
    """

    def __init__(self, rules: Rules, key: Callable[[T], str], group: Callable[[T], str] = lambda _: "") -> None:
        self._rules = rules
        self._key = key
        self._group = group
        self._groups: dict[str, _Group] = {}
        self._random = random.Random()
        self._lanes: dict[str, _Lane[T]] = {}
        self._ready: dict[str, _Lane[T]] = {}
        self._later: list[tuple[float, str]] = []
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
                lanes[key] = ready[key] = _Lane([item], self._groups.setdefault(self._group(item), _Group()))
        self.waiting += added
        return beyond

    def take(self, now: float) -> dict[str, list[T]]:
        """The next batch, by key, as one call under way; empty where nothing may go yet."""
        while self._later and self._later[0][0] <= now:
            _, key = heapq.heappop(self._later)
            if key in self._lanes:
                self._line_up(key, self._lanes[key], now)
        group = next((lane.group for lane in self._ready.values() if self._may_go(lane.group, now)), None)
        return self._batch(group) if group else {}

    def next_at(self) -> float:
        """The earliest time at which something may go that may not go now, unless something happens before; or inf."""
        later = self._later[0][0] if self._later else inf
        ready = [lane.group.not_before for lane in self._ready.values() if self._has_room(lane.group)]
        if ready and len(self._groups) == 1:
            return ready[0]  # before that, what is later may not go either
        return min([later, *ready])

    def accepted(self, taken: dict[str, list[T]], now: float) -> bool:
        """A batch was accepted; returns whether calls before it were rejected."""
        group = self._end(taken)
        recovered = group.in_a_row > 0
        group.in_a_row, group.not_before = 0, 0.0
        group.rejected.clear()
        for key, lane in self._back(taken):
            lane.rejections, lane.not_before = 0, 0.0
            if lane.waiting:
                self._line_up(key, lane, now)
            elif not lane.calls:
                del self._lanes[key]
        return recovered

    def rejected(self, taken: dict[str, list[T]], now: float) -> bool:
        """A batch was rejected: it waits again, before all others of its keys. Returns whether it is the first one."""
        group = self._end(taken)
        group.in_a_row += 1
        for key, lane in self._back(taken):
            if not (self._rules.folds and lane.waiting):
                lane.waiting[:0] = taken[key]
                self.waiting += len(taken[key])
            lane.rejections += 1
            self._delay(key, lane, now + self._pause_s(lane.rejections))
        group.rejected.update(taken)
        if len(group.rejected) > self._rules.threads:
            group.not_before = now + self._pause_s(group.in_a_row)
        return group.in_a_row == 1

    def _may_go(self, group: _Group, now: float) -> bool:
        return group.not_before <= now and self._has_room(group)

    def _has_room(self, group: _Group) -> bool:
        """False for a group of several that was rejected and is tried again at this moment."""
        return not (group.in_a_row and group.calls and len(self._groups) > 1)

    def _end(self, taken: dict[str, list[T]]) -> _Group:
        """Count a call of a group as ended."""
        group = self._lanes[next(iter(taken))].group
        group.calls -= 1
        return group

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

    def _batch(self, group: _Group) -> dict[str, list[T]]:
        room, taken = self._rules.batch, dict[str, list[T]]()
        group.calls += 1
        mine = ((key, lane) for key, lane in self._ready.items() if lane.group is group)
        for key, lane in list(islice(mine, room)):
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
