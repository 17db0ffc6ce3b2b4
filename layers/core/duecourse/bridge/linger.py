"""A tick that stays: the bridge within a function, its rings drained in this very process until the time is over."""

import logging
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Self

from duecourse.bridge.bridge import SWITCH_S, Bridge, Stats
from duecourse.bridge.rings import Ring, Warming
from duecourse.domain.history import Trigger
from duecourse.domain.task import Json
from duecourse.domain.watch import Expired
from duecourse.errors import InvocationRefused, StoreUnavailable
from duecourse.ports.bells import Bells

log = logging.getLogger("duecourse.bridge")

Remaining = Callable[[], int]
"""Milliseconds that this invocation still has."""
Drain = Callable[[Mapping[str, Trigger], Remaining], Json]
"""Works the shards of these bells, each with the trigger of its ring, and answers what `on_expired` does.

What it raises holds the rings back.
"""

Note = Callable[[Sequence[Expired]], int]
"""Makes tasks of these keys, and answers how many. What it raises has them tried again."""

COUNTED = ("claimed", "done", "again", "retried", "dead", "released", "stale")
LOOK_S = 1.0
"""Time between two looks at the time left, which may have jumped while the process was suspended."""
RETURN_MS = 1_000
"""Time kept for the way out."""
SHORT_MS = 3_000
"""Shortfall that is not logged: the cost of a slow start."""
SHORTENED = (
    "DUECOURSE_TICK_LINGER is %.0f s, but the function's time less DUECOURSE_MARGIN is %.0f s: the tick lingers no "
    "longer, and nothing rings until the next tick. Raise the function's timeout, or lower one of the two settings"
)


class Linger:
    """Serves rings while its block runs, and when the block has ended, until `linger_ms` after the start are over.

    It never serves into the invocation's last `margin_ms`: those are for finishing what is under way. What was claimed
    and not begun by then is released. When the block has been left, every thread and every connection is closed. Where
    the block raises, it stops at once, unless it was that the store is away: it may be back in a second, the next tick
    in a minute. For one invocation.
    """

    def __init__(
        self,
        bells: Bells,
        drain: Drain,
        note: Note,
        remaining_ms: Remaining,
        *,
        linger_ms: int,
        margin_ms: int,
        in_flight: int,
        warming: Warming | None = None,
    ) -> None:
        self._drain = drain
        self._note = note
        self._remaining_ms = remaining_ms
        self._margin_ms = margin_ms
        left_ms = remaining_ms()
        self._end_ms = max(left_ms - linger_ms, margin_ms)
        self._until = time.monotonic() + linger_ms / 1000
        if left_ms - margin_ms + SHORT_MS < linger_ms:
            log.warning(SHORTENED, linger_ms / 1000, max(0, left_ms - margin_ms) / 1000)
        self._over = threading.Event()
        self._bridge = Bridge(bells, self._serve, in_flight=in_flight, warming=warming)
        self._counting = threading.Lock()
        self.counts: Counter[str] = Counter()
        """Numbers of tasks by what all drains did with them, and those `added` for watched keys."""

    def __enter__(self) -> Self:
        self._switch_s = sys.getswitchinterval()
        sys.setswitchinterval(SWITCH_S)
        self._bridge.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None) -> None:
        try:
            if kind is None or issubclass(kind, StoreUnavailable):
                self._stay()
        finally:
            self._leave()

    def stats(self) -> Stats:
        """Figures of the bridge within."""
        return self._bridge.stats()

    def _stay(self) -> None:
        while (left_ms := self._left_ms()) > 0:
            if self._bridge.wait_ended(min(left_ms / 1000, LOOK_S)):
                log.error("a lingering tick's thread ended before its time: rings wait for the next tick")
                return

    def _leave(self) -> None:
        self._over.set()
        patience_s = max(0, self._remaining_ms() - RETURN_MS) / 1000
        if not self._bridge.stop(patience_s):
            log.error(
                "a lingering tick ended before its work did, after %.1f s: the leases of that work will lapse",
                patience_s,
            )
        sys.setswitchinterval(self._switch_s)

    def _left_ms(self) -> int:
        """By Lambda's word, and no longer than was asked for: its word goes by a clock that can be set back."""
        asked_ms = int((self._until - time.monotonic()) * 1000)
        return 0 if self._over.is_set() else min(self._remaining_ms() - self._end_ms, asked_ms)

    def _serve(self, rings: Sequence[Ring], expired: Sequence[Expired]) -> Json:
        try:
            if expired:
                return self._count(added=self._note(expired))
            answer = self._drain({ring.key: ring.trigger for ring in rings}, lambda: self._left_ms() + self._margin_ms)
        except Exception as error:
            raise InvocationRefused(f"the drain failed: {error!r}") from error
        self._count(**{name: answer[name] for name in COUNTED})
        return answer

    def _count(self, **done: int) -> Json:
        with self._counting:
            self.counts.update(done)
        return done
