"""Calls of many threads made as one: a caller that comes while a call is running goes with the next.

A caller that comes alone goes at once, and nobody waits for others to come. The callers that wait for a running call
go together after it, in the order in which they came.
"""

import os
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from copy import copy
from threading import Lock
from typing import Generic, TypeVar

from duecourse.errors import DuecourseError

I = TypeVar("I")  # noqa: E741 - an item
A = TypeVar("A")

PATIENCE_S = 30.0
"""Longest time that a caller waits for its turn: longer than any call takes that is not lost."""


class _Part(Generic[I, A]):
    """One caller's part in a call; `party` are those whom it takes along, itself first, once it is its turn to call."""

    __slots__ = ("answers", "error", "item", "party", "size", "woken")

    def __init__(self, item: I, size: int) -> None:
        self.item = item
        self.size = size
        self.party: list[_Part[I, A]] = []
        self.answers: Sequence[A] = ()
        self.error: DuecourseError | None = None
        self.woken = Lock()
        self.woken.acquire()


class SharedCalls(Generic[I, A]):
    """Calls that may be shared, at most `most` items and `most_bytes` in each; those of different keys stay apart.

    `common` are errors of the call and of no item in it: each of its callers gets one. After any other of this
    product's errors, each of them makes a call of its own.
    """

    def __init__(self, most: int, most_bytes: int, common: type[DuecourseError]) -> None:
        self._most = most
        self._most_bytes = most_bytes
        self._common = common
        self._start()

    def _start(self) -> None:
        self._lock = Lock()
        self._waiting: dict[Hashable, deque[_Part[I, A]]] = {}
        """Callers that wait for the running call, of each key that has one."""
        self._pid = os.getpid()

    def do(self, key: Hashable, item: I, size: int, call: Callable[[Sequence[I]], Sequence[A]]) -> A:
        """Answer of `call` for `item`, of `size` bytes, alone or among others' items.

        `call` answers for each item; the calls of one key must be alike.
        """
        if self._pid != os.getpid():
            self._start()  # in a forked child the threads that were calling are not there
        part: _Part[I, A] = _Part(item, size)
        with self._lock:
            waiting = self._waiting.get(key)
            if waiting is None:
                self._waiting[key], part.party = deque(), [part]
            else:
                waiting.append(part)
        if waiting is not None:
            self._wait(key, part)
        if part.party:
            self._lead(key, part.party, call)
        return self._answer(part, call)

    def _wait(self, key: Hashable, part: _Part[I, A]) -> None:
        """Wait until another has called, or it is this one's turn."""
        try:
            if not part.woken.acquire(timeout=PATIENCE_S):
                self._step_out(key, part)
        except BaseException:
            self._step_out(key, part)
            raise

    def _step_out(self, key: Hashable, part: _Part[I, A]) -> None:
        """Wait no longer; if it is this one's turn by now, the turn is the next one's."""
        with self._lock:
            waiting = self._waiting.get(key, deque())
            if part in waiting:
                waiting.remove(part)
            ours, part.party = part.party, []
            waiting.extendleft(reversed(ours[1:]))
        if ours:
            self._pass_on(key)

    def _lead(self, key: Hashable, party: list[_Part[I, A]], call: Callable[[Sequence[I]], Sequence[A]]) -> None:
        try:
            for part, answer in zip(party, call([part.item for part in party]), strict=True):
                part.answers = (answer,)
        except DuecourseError as error:
            for part in party:
                part.error = error
        finally:  # after an interruption too: those who wait must not wait for good
            self._pass_on(key)  # first: the next call goes out while ours take their answers
            for part in party[1:]:
                part.woken.release()

    def _pass_on(self, key: Hashable) -> None:
        """Have the first of those who wait call, with as many of the others as fit; else the key is free."""
        with self._lock:
            waiting = self._waiting[key]
            if not waiting:
                del self._waiting[key]
                return
            first = waiting.popleft()
            party, size = [first], first.size
            while waiting and len(party) < self._most and size + waiting[0].size <= self._most_bytes:
                party.append(waiting.popleft())
                size += party[-1].size
            first.party = party
        first.woken.release()

    def _answer(self, part: _Part[I, A], call: Callable[[Sequence[I]], Sequence[A]]) -> A:
        if part.answers:
            return part.answers[0]
        if part.error and len(part.party) == 1:
            raise part.error
        if isinstance(part.error, self._common):
            raise copy(part.error) from part.error
        [answer] = call([part.item])
        return answer
