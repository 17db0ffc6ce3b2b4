"""The pool of threads that invoke, for rings and for watched keys."""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from math import inf
from typing import Generic, TypeVar

from duecourse.bridge.lanes import Lanes, Rules
from duecourse.errors import InvocationRejected

log = logging.getLogger("duecourse.bridge")

T = TypeVar("T")


class Pool(Generic[T]):
    """Hands over what is put, in batches, and tries again what is rejected.

    `call` hands a batch over and returns the items to hand over again at once. Only after InvocationRejected is a batch
    tried again; any other error ends its thread. `on_end` is called when a thread ends, which before `stop` is a fault.
    `what` names the items in the log. Calls have items of one `group` each.

    concurrent.futures has no place for the rules of `Lanes`: a batch is made when a thread is free, not when items are
    submitted. Nor does it let go of a call that does not return, which would keep a process from ending.
    """

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
        self._lanes = Lanes(rules, key, group)
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
            beyond = self._lanes.add(items, time.monotonic())
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
            return self._lanes.waiting + self._lanes.under_way

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
                if taken := self._lanes.take(now):
                    self.invocations += 1
                    if self._lanes.waiting:
                        self._changed.notify()  # while something waits, an idle thread is to know for how long
                    return taken
                pause_s = min(self._lanes.next_at(), self._end) - now
                self._changed.wait(None if pause_s == inf else max(0.0, pause_s))
            self._changed.notify_all()  # there is nothing for the others to wait for either
        return {}

    def _is_over(self) -> bool:
        return self._end < inf and (not self._lanes.waiting or time.monotonic() >= self._end)

    def _on_accepted(self, taken: dict[str, list[T]], again: Sequence[T]) -> None:
        with self._changed:
            now = time.monotonic()
            recovered = self._lanes.accepted(taken, now)
            self._lanes.add(again, now)
        if recovered:
            log.warning("the function accepts %s again", self._what)

    def _on_rejected(self, taken: dict[str, list[T]], error: InvocationRejected) -> None:
        with self._changed:
            self.rejected += 1
            is_first = self._lanes.rejected(taken, time.monotonic())
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
