"""Batches by number and size, groups by key, and calls of many threads that are made as one."""

import os
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from copy import copy
from threading import Lock
from typing import Generic, TypeVar

from duecourse.errors import DuecourseError

T = TypeVar("T")
R = TypeVar("R")
K = TypeVar("K", bound=Hashable)


def cut(things: Iterable[T], size_of: Callable[[T], int], *, most: int, max_bytes: int) -> Iterator[list[T]]:
    """Batches in order, each of at most `most` things and `max_bytes` by `size_of`; a larger thing is alone."""
    piece: list[T] = []
    size = 0
    for thing in things:
        length = size_of(thing)
        if piece and (len(piece) == most or size + length > max_bytes):
            yield piece
            piece, size = [], 0
        piece.append(thing)
        size += length
    if piece:
        yield piece


def batched(things: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """The things in order, `size` at a time."""
    return (things[first : first + size] for first in range(0, len(things), size))


def grouped(things: Iterable[T], key: Callable[[T], K]) -> dict[K, list[T]]:
    """Lists of the things by key; keys and things stay in their order."""
    groups: dict[K, list[T]] = {}
    for thing in things:
        groups.setdefault(key(thing), []).append(thing)
    return groups


def in_steps(items: Sequence[T], step: Callable[[Sequence[T]], list[R]]) -> list[R]:
    """Answers of `step` for all items: it does the first, and as many more as its bounds allow."""
    answers: list[R] = []
    while len(answers) < len(items):
        answers += step(items[len(answers) :])
    return answers


# Calls of many threads made as one: a caller that comes while a call is running joins the next one.
#
# A caller that comes alone goes at once, and nobody waits for others to come. The callers that wait for a running call
# go together after it, in the order in which they came.

I = TypeVar("I")  # noqa: E741 - an item
A = TypeVar("A")

PATIENCE_S = 30.0
"""Longest time that a caller waits for its turn: longer than any call takes that is not lost."""


class _Part(Generic[I, A]):
    """One caller's part in a call; `batch` are the parts of its call, its own first, once it leads one."""

    __slots__ = ("answers", "batch", "error", "item", "size", "woken")

    def __init__(self, item: I, size: int) -> None:
        self.item = item
        self.size = size
        self.batch: list[_Part[I, A]] = []
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
        """Answer of `call` for `item` of `size` bytes; the call may have other callers' items too.

        `call` answers for each item; the calls of one key must be alike.
        """
        if self._pid != os.getpid():
            self._start()  # in a forked child the threads that were calling are not there
        with self._lock:
            waiting = self._waiting.get(key)
            if waiting is None:
                self._waiting[key] = deque()
            else:
                part: _Part[I, A] = _Part(item, size)
                waiting.append(part)
        if waiting is None:
            return self._go_alone(key, item, call)
        self._wait(key, part)
        if part.batch:
            self._lead(key, part.batch, call)
        return self._answer(part, call)

    def _go_alone(self, key: Hashable, item: I, call: Callable[[Sequence[I]], Sequence[A]]) -> A:
        try:
            [answer] = call([item])
            return answer
        finally:
            self._pass_on(key)

    def _wait(self, key: Hashable, part: _Part[I, A]) -> None:
        """Wait until another caller has the answer, or this caller leads the next call."""
        try:
            if not part.woken.acquire(timeout=PATIENCE_S):
                self._step_out(key, part)
        except BaseException:
            self._step_out(key, part)
            raise

    def _step_out(self, key: Hashable, part: _Part[I, A]) -> None:
        """Give up waiting. If this caller was to lead the next call, pass the lead on."""
        with self._lock:
            waiting = self._waiting.get(key, deque())
            if part in waiting:
                waiting.remove(part)
            ours, part.batch = part.batch, []
            waiting.extendleft(reversed(ours[1:]))
        if ours:
            self._pass_on(key)

    def _lead(self, key: Hashable, batch: list[_Part[I, A]], call: Callable[[Sequence[I]], Sequence[A]]) -> None:
        try:
            for part, answer in zip(batch, call([part.item for part in batch]), strict=True):
                part.answers = (answer,)
        except DuecourseError as error:
            for part in batch:
                part.error = error
        finally:  # after an interruption too: those who wait must not wait for good
            self._pass_on(key)  # first: the next call goes out while ours take their answers
            for part in batch[1:]:
                part.woken.release()

    def _pass_on(self, key: Hashable) -> None:
        """Let the first waiting caller lead the next call, with as many others as fit; without one, free the key."""
        with self._lock:
            waiting = self._waiting[key]
            if not waiting:
                del self._waiting[key]
                return
            first = waiting.popleft()
            batch, size = [first], first.size
            while waiting and len(batch) < self._most and size + waiting[0].size <= self._most_bytes:
                batch.append(waiting.popleft())
                size += batch[-1].size
            first.batch = batch
        first.woken.release()

    def _answer(self, part: _Part[I, A], call: Callable[[Sequence[I]], Sequence[A]]) -> A:
        if part.answers:
            return part.answers[0]
        if part.error and len(part.batch) == 1:
            raise part.error
        if isinstance(part.error, self._common):
            raise copy(part.error) from part.error
        [answer] = call([part.item])
        return answer
