"""Watched keys that expired become invocations: dated, in batches; those without room are lost, and said to be."""

import logging
import time
from collections.abc import Callable, Sequence
from math import inf

from duecourse.bridge.clock import Clock
from duecourse.bridge.lanes import Rules
from duecourse.bridge.pool import Pool
from duecourse.domain.task import Json
from duecourse.domain.watch import MAX_KEY_BYTES, Expired, show
from duecourse.ports.bells import Expiry

log = logging.getLogger("duecourse.bridge")

BATCH = 500
"""The most keys in one invocation."""
BOUND = 20_000
"""The most keys that are kept, those under way among them: some ten megabytes."""
WORKERS = 2
SURE_MS = 300.0
"""Longest time for which a message lies unread while nothing delays its reader."""
LOG_S = 10.0
"""Shortest time between two log lines about lost keys."""


class Relay:
    """Hands expired keys to `note`, which makes tasks of them and may raise InvocationRejected: then they come again.

    Keys have invocations of their own, for one that drains may take a minute. Keys beyond BOUND are lost, with a line
    in the log and a count. `on_end` is called when one of the pool's threads ends, which before `stop` is a fault.
    """

    def __init__(
        self, note: Callable[[list[Expired]], Json], clock: Clock, channel: str, *, on_end: Callable[[], None]
    ) -> None:
        self._note = note
        self._clock = clock
        self._channel = channel
        # Each key is a task of its own, and all are one function's: so they wait in one lane, and none for another.
        rules = Rules(threads=WORKERS, batch=BATCH, calls=WORKERS, bound=BOUND)
        self.pool = Pool("watched keys", self._hand_over, rules, key=lambda _: channel, on_end=on_end)
        self._log_at = -inf
        self.heard = self.lost = 0

    def hear(self, expiry: Expiry) -> None:
        """Have a task made of this expiry; returns at once."""
        self.heard += 1
        if len(expiry.key) > MAX_KEY_BYTES:
            self._lose(1, f"its name is over {MAX_KEY_BYTES} bytes: {show(expiry.key[:80])}...")
        elif self.pool.put([self._dated(expiry)]):
            self._lose(1, f"{BOUND} others already wait for the function")

    def stop(self, patience_s: float) -> bool:
        """Hand over what was heard, for so long; False where that was not all, which is lost then."""
        ended = self.pool.stop(patience_s, hand_over=True)
        if left := self.pool.kept:
            self._lose(left, "there was no time left to hand them over")
        return ended and not left

    def _dated(self, expiry: Expiry) -> Expired:
        """An expiry with the server's time; where its reader was held up, also since when it may have happened."""
        heard_at = self._clock.now()
        lain_ms = (time.monotonic() - expiry.unread_since) * 1000
        since = heard_at - lain_ms if lain_ms > SURE_MS else heard_at
        return Expired(expiry.key, self._channel, int(since), int(heard_at))

    def _hand_over(self, keys: list[Expired]) -> Sequence[Expired]:
        self._note(keys)
        return ()

    def _lose(self, count: int, why: str) -> None:
        self.lost += count
        if time.monotonic() >= self._log_at:
            self._log_at = time.monotonic() + LOG_S
            log.error("LOST: %d watched keys expired and add no task, %d so far: %s", count, self.lost, why)
