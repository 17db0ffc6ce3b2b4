"""Dispatch of items on threads: a queue by key with pauses after rejections, and the threads that take from it."""

import heapq
import logging
import random
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from math import inf
from typing import Generic, NamedTuple, TypeVar

from duecourse.errors import InvocationRejected
from duecourse.ledger.task import RetryPolicy, delay_ms

# A queue of items by key. Keys belong to groups, such as the keys on one server. A batch has items of one group, so
# that no item is rejected because of another group.
#
# The queue has no thread, lock or clock: `now` is time.monotonic(), as the dispatcher read it.

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
class _KeyState(Generic[T]):
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


class KeyedQueue(Generic[T]):
    """Items by key, in the order in which they may go.

    A key that was rejected waits, longer each time, while others go on. If more keys of a group than there are threads
    were rejected, and none was accepted since, the whole group waits: the fault is the group's. Beside other groups, a
    group that was rejected has one call at a time, so that it does not hold all threads.
    """

    def __init__(self, rules: Rules, key: Callable[[T], str], group: Callable[[T], str] = lambda _: "") -> None:
        self._rules = rules
        self._key = key
        self._group = group
        self._groups: dict[str, _Group] = {}
        self._random = random.Random()
        self._states: dict[str, _KeyState[T]] = {}
        self._ready: dict[str, _KeyState[T]] = {}
        self._later: list[tuple[float, str]] = []
        self.waiting = self.under_way = 0
        """Numbers of items."""

    def add(self, items: Iterable[T], now: float) -> int:
        """Line items up; returns how many there was no room for."""
        states, ready, key_of, folds = self._states, self._ready, self._key, self._rules.folds
        room = self._rules.bound - self.waiting - self.under_way
        added = beyond = 0
        for item in items:
            key = key_of(item)
            state = states.get(key)
            if state and state.waiting and folds:
                continue
            if added >= room:
                beyond += 1
                continue
            added += 1
            if state:
                self._join(key, state, item, now)
            else:
                states[key] = ready[key] = _KeyState([item], self._groups.setdefault(self._group(item), _Group()))
        self.waiting += added
        return beyond

    def take(self, now: float) -> dict[str, list[T]]:
        """The next batch, by key, as one call under way; empty where nothing may go yet."""
        while self._later and self._later[0][0] <= now:
            _, key = heapq.heappop(self._later)
            if key in self._states:
                self._line_up(key, self._states[key], now)
        group = next((state.group for state in self._ready.values() if self._may_go(state.group, now)), None)
        return self._batch(group) if group else {}

    def next_at(self) -> float:
        """The earliest time at which something may go that may not go now, unless something happens before; or inf."""
        later = self._later[0][0] if self._later else inf
        ready = [state.group.not_before for state in self._ready.values() if self._has_room(state.group)]
        if ready and len(self._groups) == 1:
            return ready[0]  # before that, what is later may not go either
        return min([later, *ready])

    def accepted(self, taken: dict[str, list[T]], now: float) -> bool:
        """A batch was accepted; returns whether calls before it were rejected."""
        group = self._end(taken)
        recovered = group.in_a_row > 0
        group.in_a_row, group.not_before = 0, 0.0
        group.rejected.clear()
        for key, state in self._back(taken):
            state.rejections, state.not_before = 0, 0.0
            if state.waiting:
                self._line_up(key, state, now)
            elif not state.calls:
                del self._states[key]
        return recovered

    def rejected(self, taken: dict[str, list[T]], now: float) -> bool:
        """A batch was rejected: it waits again, before all others of its keys. Returns whether it is the first one."""
        group = self._end(taken)
        group.in_a_row += 1
        for key, state in self._back(taken):
            if not (self._rules.folds and state.waiting):
                state.waiting[:0] = taken[key]
                self.waiting += len(taken[key])
            state.rejections += 1
            self._delay(key, state, now + self._pause_s(state.rejections))
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
        group = self._states[next(iter(taken))].group
        group.calls -= 1
        return group

    def _join(self, key: str, state: _KeyState[T], item: T, now: float) -> None:
        state.waiting.append(item)
        if state.calls and self._rules.join_s:
            self._delay(key, state, now + self._rules.join_s)
        self._line_up(key, state, now)

    def _back(self, taken: dict[str, list[T]]) -> Iterator[tuple[str, _KeyState[T]]]:
        """The keys of a call that ended, with their states."""
        self.under_way -= sum(map(len, taken.values()))
        for key in taken:
            state = self._states[key]
            state.calls -= 1
            yield key, state

    def _delay(self, key: str, state: _KeyState[T], until: float) -> None:
        self._ready.pop(key, None)
        state.not_before = max(state.not_before, until)
        # Earlier entries of the key stay in the heap: `_line_up` finds that the key may not go yet.
        heapq.heappush(self._later, (state.not_before, key))

    def _line_up(self, key: str, state: _KeyState[T], now: float) -> None:
        if state.waiting and state.calls < self._rules.calls and state.not_before <= now:
            self._ready[key] = state

    def _batch(self, group: _Group) -> dict[str, list[T]]:
        room, taken = self._rules.batch, dict[str, list[T]]()
        group.calls += 1
        mine = ((key, state) for key, state in self._ready.items() if state.group is group)
        for key, state in list(islice(mine, room)):
            items = taken[key] = state.waiting[:room]
            state.waiting = state.waiting[room:]
            room -= len(items)
            state.calls += 1
            if not state.waiting or state.calls == self._rules.calls:
                del self._ready[key]
            if not room:
                break
        count = self._rules.batch - room
        self.waiting, self.under_way = self.waiting - count, self.under_way + count
        return taken

    def _pause_s(self, rejections: int) -> float:
        return delay_ms(PAUSES, rejections, self._random) / 1000


# Threads that invoke, for rings and for watched keys.

log = logging.getLogger("duecourse.bridge")


class Dispatcher(Generic[T]):
    """Hands over what is put, in batches, and tries again what is rejected.

    `call` hands a batch over and returns the items to hand over again at once. Only after InvocationRejected is a batch
    tried again; any other error ends its thread. `on_end` is called when a thread ends, which before `stop` is a fault.
    `what` names the items in the log. Calls have items of one `group` each.
    """

    # concurrent.futures has no place for the rules of `KeyedQueue`: a batch is made when a thread is free, not when
    # items are submitted. Nor does it let go of a call that does not return, which would keep a process from ending.

    def __init__(
        self,
        what: str,
        call: Callable[[list[T]], Sequence[T]],
        rules: Rules,
        *,
        key: Callable[[T], str],
        group: Callable[[T], str] = lambda _: "",
        on_end: Callable[[], None],
    ) -> None:
        self._what = what
        self._call = call
        self._queue = KeyedQueue(rules, key, group)
        self._changed = threading.Condition()
        self._end = inf
        self._threads = [daemon(f"{what}-{n}", self._work, on_end) for n in range(rules.threads)]
        self.put_in = self.invocations = self.rejected = 0

    def start(self) -> None:
        """Begin to hand over."""
        for thread in self._threads:
            thread.start()

    def put(self, items: Sequence[T]) -> int:
        """Have these handed over; returns at once, with the number of those there was no room for."""
        with self._changed:
            self.put_in += len(items)
            beyond = self._queue.add(items, time.monotonic())
            self._changed.notify()
        return beyond

    def stop(self, patience_s: float, *, hand_over: bool = False) -> bool:
        """Begin no more calls, wait for those under way; False where some have not ended after `patience_s` seconds.

        With `hand_over`, calls go on for what waits, for as long.
        """
        end = time.monotonic() + patience_s
        with self._changed:
            self._end = end if hand_over else 0.0
            self._changed.notify_all()
        for thread in self._threads:
            thread.join(max(0.0, end - time.monotonic()))
        return not any(thread.is_alive() for thread in self._threads)

    @property
    def kept(self) -> int:
        """Number of items that wait or are under way."""
        with self._changed:
            return self._queue.waiting + self._queue.under_way

    def _work(self) -> None:
        while taken := self._take():
            try:
                again = self._call([item for items in taken.values() for item in items])
            except InvocationRejected as error:
                self._on_rejected(taken, error)
            else:
                self._on_accepted(taken, again)

    def _take(self) -> dict[str, list[T]]:
        """The next batch, as soon as there is one; empty where there will be none."""
        with self._changed:
            while not self._is_over():
                now = time.monotonic()
                if taken := self._queue.take(now):
                    self.invocations += 1
                    if self._queue.waiting:
                        self._changed.notify()  # while something waits, an idle thread is to know for how long
                    return taken
                pause_s = min(self._queue.next_at(), self._end) - now
                self._changed.wait(None if pause_s == inf else max(0.0, pause_s))
            self._changed.notify_all()  # there is nothing for the others to wait for either
        return {}

    def _is_over(self) -> bool:
        return self._end < inf and (not self._queue.waiting or time.monotonic() >= self._end)

    def _on_accepted(self, taken: dict[str, list[T]], again: Sequence[T]) -> None:
        with self._changed:
            now = time.monotonic()
            recovered = self._queue.accepted(taken, now)
            self._queue.add(again, now)
        if recovered:
            log.warning("the function accepts %s again", self._what)

    def _on_rejected(self, taken: dict[str, list[T]], error: InvocationRejected) -> None:
        with self._changed:
            self.rejected += 1
            is_first = self._queue.rejected(taken, time.monotonic())
        if is_first:
            log.error("the function rejects %s; they wait and are tried again: %s", self._what, error)


def daemon(name: str, run: Callable[[], None], on_end: Callable[[], None]) -> threading.Thread:
    """A thread that calls `run`, and `on_end` however that ends. It keeps no process from ending."""

    def body() -> None:
        try:
            run()
        finally:
            on_end()

    return threading.Thread(target=body, name=name, daemon=True)
