"""Rings become invocations: folded by shard, few at a time, held back where they are refused."""

import heapq
import logging
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence

from duecourse.bridge.rings import Ring
from duecourse.domain.task import Json
from duecourse.errors import InvocationRefused

log = logging.getLogger("duecourse.bridge")

BATCH = 100
"""The most rings in one invocation."""
PER_BELL = 2
"""The most invocations under way for one bell."""
JOIN_S = 0.02
"""Time for which the first invocation has the bell for itself: after that its work may be slow, and the ring late."""
FIRST_HOLD_S = 0.2
LONGEST_HOLD_S = 5.0


class Dispatcher:
    """Hands rings to `serve`, at most `in_flight` calls at a time and PER_BELL for each bell.

    A ring for a bell that is being served, or is held back after a refusal, waits and takes in those that follow. It
    waits no longer than JOIN_S for a first call to end. Where more bells than there are threads were refused and
    nothing was taken since, it is not theirs but the function's doing: then all wait.
    `serve` returns the function's answer and may raise InvocationRefused. `on_end` is called when one of the threads
    ends, which before `stop` is a fault.
    """

    def __init__(self, serve: Callable[[list[Ring]], Json], *, in_flight: int, on_end: Callable[[], None]) -> None:
        self._serve = serve
        self._on_end = on_end
        self._changed = threading.Condition()
        self._ready: dict[str, Ring] = {}
        self._folded: dict[str, Ring] = {}
        self._busy: Counter[str] = Counter()
        self._held: dict[str, float] = {}
        self._later: list[tuple[float, str]] = []
        self._refusals: dict[str, int] = {}
        self._refused: set[str] = set()
        self._in_a_row = 0
        self._not_before = 0.0
        self._stopped = False
        self._workers = [threading.Thread(target=self._work, name=f"serve-{n}", daemon=True) for n in range(in_flight)]
        self.rings = self.invocations = self.refused = 0

    def ring(self, rings: Sequence[Ring]) -> None:
        """Have these bells' shards drained; returns at once."""
        with self._changed:
            self.rings += len(rings)
            self._add(rings)

    def _add(self, rings: Sequence[Ring]) -> None:
        for ring in rings:
            if ring.key in self._held or self._busy[ring.key]:
                self._fold(ring)
            else:
                self._ready.setdefault(ring.key, ring)
        self._changed.notify()

    def _fold(self, ring: Ring) -> None:
        if ring.key not in self._folded and ring.key not in self._ready:
            self._folded[ring.key] = ring
            heapq.heappush(self._later, (time.monotonic() + JOIN_S, ring.key))

    def start(self) -> None:
        """Begin to serve."""
        for worker in self._workers:
            worker.start()

    def stop(self, patience_s: float) -> bool:
        """Begin no more calls, wait for those under way; False where some are still there after `patience_s`."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
        end = time.monotonic() + patience_s
        for worker in self._workers:
            worker.join(max(0.0, end - time.monotonic()))
        return not any(worker.is_alive() for worker in self._workers)

    def _work(self) -> None:
        try:
            while rings := self._take():
                self._invoke(rings)
        finally:
            self._on_end()

    def _invoke(self, rings: list[Ring]) -> None:
        try:
            answer = self._serve(rings)
        except InvocationRefused as error:
            self._on_refusal(rings, error)
        else:
            self._on_answer(rings, answer)

    def _take(self) -> list[Ring]:
        with self._changed:
            while not self._stopped:
                self._end_waits()
                now = time.monotonic()
                if self._ready and self._not_before <= now:
                    return self._batch()
                self._changed.wait(self._pause_s(now))
        return []

    def _pause_s(self, now: float) -> float | None:
        """Seconds until the next scheduled work, or None to wait until notified."""
        if self._ready:
            return self._not_before - now
        return max(0.0, self._later[0][0] - now) if self._later else None

    def _batch(self) -> list[Ring]:
        rings = [self._ready.pop(key) for key in list(self._ready)[:BATCH]]
        self._busy.update(ring.key for ring in rings)
        self.invocations += 1
        if self._ready:
            self._changed.notify()
        return rings

    def _end_waits(self) -> None:
        now = time.monotonic()
        while self._later and self._later[0][0] <= now:
            when, key = heapq.heappop(self._later)
            if self._held.get(key) == when:
                del self._held[key]
            self._unfold(key)

    def _unfold(self, key: str) -> None:
        if key in self._folded and key not in self._held and self._busy[key] < PER_BELL:
            self._ready[key] = self._folded.pop(key)
            self._changed.notify()

    def _leave(self, key: str) -> None:
        self._busy[key] -= 1
        if not self._busy[key]:
            del self._busy[key]

    def _on_answer(self, rings: list[Ring], answer: Json) -> None:
        with self._changed:
            recovered, self._in_a_row, self._not_before = self._in_a_row > 0, 0, 0.0
            self._refused.clear()
            for ring in rings:
                self._refusals.pop(ring.key, None)
                self._leave(ring.key)
                self._unfold(ring.key)
            if _is_behind(answer):
                self._add(rings)
        if recovered:
            log.warning("the function accepts invocations again")

    def _on_refusal(self, rings: list[Ring], error: InvocationRefused) -> None:
        with self._changed:
            self.refused += 1
            self._in_a_row += 1
            first = self._in_a_row == 1
            for ring in rings:
                self._leave(ring.key)
                self._hold(ring)
            self._hold_all(rings)
        if first:
            log.error("the function rejects invocations; its rings wait and are tried again: %s", error)

    def _hold(self, ring: Ring) -> None:
        """Full jitter, as for tasks: bridges and shards that were refused together do not come back together."""
        refusals = self._refusals[ring.key] = self._refusals.get(ring.key, 0) + 1
        until = time.monotonic() + hold_s(refusals)
        self._held[ring.key] = until
        heapq.heappush(self._later, (until, ring.key))
        self._folded.setdefault(ring.key, self._ready.pop(ring.key, ring))
        self._changed.notify()

    def _hold_all(self, rings: Sequence[Ring]) -> None:
        self._refused.update(ring.key for ring in rings)
        if len(self._refused) > len(self._workers):
            self._not_before = time.monotonic() + hold_s(self._in_a_row)


def hold_s(refusals: int) -> float:
    """Pause after so many rejections in a row."""
    return random.uniform(0, min(FIRST_HOLD_S * 2.0 ** min(refusals - 1, 10), LONGEST_HOLD_S))


def _is_behind(answer: Json) -> bool:
    """True if there is more to do at once. A backlog of which nothing could be claimed waits for the bell's deadman."""
    return isinstance(answer, dict) and bool(answer.get("backlog")) and bool(answer.get("claimed"))
