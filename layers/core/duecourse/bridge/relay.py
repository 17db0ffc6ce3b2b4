"""Watched keys that expired become invocations: in batches, few at a time, tried again where they are refused."""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable

from duecourse.bridge.clock import ServerClock
from duecourse.bridge.dispatcher import hold_s
from duecourse.domain.task import Json
from duecourse.domain.watch import MAX_KEY_BYTES, Expired, show
from duecourse.errors import InvocationRefused
from duecourse.ports.bells import Expiry

log = logging.getLogger("duecourse.bridge")

BATCH = 500
"""The most keys in one invocation."""
BOUND = 20_000
"""The most keys that are kept, those under way among them: some ten megabytes."""
WORKERS = 2
SURE_MS = 300.0
"""Longest time for which a message lies unread while nothing delays its reader."""
TELL_S = 10.0
"""Shortest time between two log lines about lost keys."""


class Relay:
    """Hands expired keys to `note`, which makes tasks of them and may raise InvocationRefused: then they come again.

    An invocation of their own is theirs, for one that drains may take a minute. What is beyond BOUND is lost, told and
    counted. `on_end` is called when one of the threads ends, which before `stop` is a fault.
    """

    def __init__(
        self, note: Callable[[list[Expired]], Json], clock: ServerClock, channel: str, *, on_end: Callable[[], None]
    ) -> None:
        self._note = note
        self._clock = clock
        self._channel = channel
        self._on_end = on_end
        self._changed = threading.Condition()
        self._waiting: deque[Expired] = deque()
        self._under_way = 0
        self._in_a_row = 0
        self._not_before = 0.0
        self._tell_at = 0.0
        self._end: float | None = None
        self._workers = [threading.Thread(target=self._work, name=f"relay-{n}", daemon=True) for n in range(WORKERS)]
        self.heard = self.lost = self.invocations = self.refused = 0

    def start(self) -> None:
        """Begin to hand over."""
        for worker in self._workers:
            worker.start()

    def hear(self, expiry: Expiry) -> None:
        """Have a task made of this expiry; returns at once."""
        heard_at = self._clock.now()
        lain_ms = (time.monotonic() - expiry.unread_since) * 1000
        since = heard_at - lain_ms if lain_ms > SURE_MS else heard_at
        with self._changed:
            self.heard += 1
            if len(expiry.key) > MAX_KEY_BYTES:
                self._lose(1, f"its name is over {MAX_KEY_BYTES} bytes: {show(expiry.key[:80])}...")
            elif len(self._waiting) + self._under_way >= BOUND:
                self._lose(1, f"{BOUND} others already wait for the function")
            else:
                self._waiting.append(Expired(expiry.key, self._channel, int(since), int(heard_at)))
                self._changed.notify()

    def stop(self, patience_s: float) -> bool:
        """Hand over what was heard, for so long; False where that was not all, which is lost then."""
        with self._changed:
            self._end = time.monotonic() + patience_s
            self._changed.notify_all()
        for worker in self._workers:
            worker.join(max(0.0, self._end - time.monotonic()))
        with self._changed:
            left = len(self._waiting) + self._under_way
            if left:
                self._lose(left, "there was no time left to hand them over")
        return not left and not any(worker.is_alive() for worker in self._workers)

    def _work(self) -> None:
        try:
            while keys := self._take():
                self._hand_over(keys)
        finally:
            self._on_end()

    def _hand_over(self, keys: list[Expired]) -> None:
        try:
            self._note(keys)
        except InvocationRefused as error:
            self._on_refusal(keys, error)
        else:
            with self._changed:
                self._under_way -= len(keys)
                recovered, self._in_a_row, self._not_before = self._in_a_row > 0, 0, 0.0
            if recovered:
                log.warning("the function accepts watched keys again")

    def _take(self) -> list[Expired]:
        with self._changed:
            while not self._is_over():
                now = time.monotonic()
                if self._waiting and self._not_before <= now:
                    return self._batch()
                self._changed.wait(self._pause_s(now))
        return []

    def _is_over(self) -> bool:
        return self._end is not None and (not self._waiting or time.monotonic() >= self._end)

    def _pause_s(self, now: float) -> float | None:
        """Seconds until the next scheduled work, or None to wait until notified."""
        until = self._not_before if self._waiting else None
        ends = [instant for instant in (until, self._end) if instant is not None]
        return max(0.0, min(ends) - now) if ends else None

    def _batch(self) -> list[Expired]:
        keys = [self._waiting.popleft() for _ in range(min(BATCH, len(self._waiting)))]
        self._under_way += len(keys)
        self.invocations += 1
        if self._waiting:
            self._changed.notify()
        return keys

    def _on_refusal(self, keys: list[Expired], error: InvocationRefused) -> None:
        with self._changed:
            self.refused += 1
            self._in_a_row += 1
            self._not_before = time.monotonic() + hold_s(self._in_a_row)
            self._under_way -= len(keys)
            self._waiting.extendleft(reversed(keys))
            first = self._in_a_row == 1
            self._changed.notify_all()
        if first:
            log.error("the function rejects watched keys; they wait and are tried again: %s", error)

    def _lose(self, count: int, why: str) -> None:
        self.lost += count
        if time.monotonic() >= self._tell_at:
            self._tell_at = time.monotonic() + TELL_S
            log.error("LOST: %d watched keys expired and add no task, %d so far: %s", count, self.lost, why)
