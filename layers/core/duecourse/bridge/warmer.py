"""Warming before it rings: the bells that follow an idle spell, found some seconds before they go."""

import logging
import threading
from collections.abc import Callable, Sequence
from math import inf
from typing import Protocol

from duecourse.bridge.clock import Clock
from duecourse.bridge.pool import daemon
from duecourse.bridge.rings import Warming
from duecourse.errors import InvocationRejected, StoreUnavailable

log = logging.getLogger("duecourse.bridge")

LOOK_S = 1.0
"""Shortest time between two looks for bells."""
LEAST_MS = 1_000.0
"""A bell that goes sooner is not warmed for: the ring would meet the warming, and begin a second process."""
TOGETHER = 1.5
"""Bells within so many times the time ahead are warmed for with the first: one event for several."""
BATCH = 100
"""The most bells in one event."""


class Hung(Protocol):
    """Timers that know which bells hang."""

    def hung(self) -> list[tuple[str, int]]:
        """Every bell that hangs, and when it goes (the server's epoch ms)."""


class Warmer:
    """Has functions warmed, on a thread of its own, for bells whose last ring is an idle spell before the next.

    A bell that was never heard to ring counts as idle. Each is warmed for once a spell, whether or not that succeeds.
    `on_end` is called when the thread ends, which before `stop` is a fault.
    """

    def __init__(self, timers: Hung, clock: Clock, warming: Warming, *, on_end: Callable[[], None]) -> None:
        self._timers = timers
        self._clock = clock
        self._warming = warming
        self._last = warming.last
        self._stopped = threading.Event()
        self.thread = daemon("warmer", self._run, on_end)
        self.sent = 0

    def stop(self) -> None:
        """Let the thread end."""
        self._stopped.set()

    def rang(self, bells: Sequence[str]) -> None:
        """Remember that these bells rang; from any thread."""
        self._last.update(dict.fromkeys(bells, self._clock.now()))

    def look(self) -> None:
        """Warm for the bells that go soon after an idle spell, if one does within the time ahead."""
        now = self._clock.now()
        soon = sorted((at, bell) for bell, at in self._timers.hung() if self._is_soon(bell, at, now))
        if now and soon and soon[0][0] <= now + self._warming.ahead_ms:
            self._warm([bell for _, bell in soon[:BATCH]])
        self._forget(now)

    def _is_soon(self, bell: str, at: int, now: float) -> bool:
        is_near = now + LEAST_MS <= at <= now + self._warming.ahead_ms * TOGETHER
        return is_near and self._last.get(bell, -inf) <= at - self._warming.idle_ms

    def _warm(self, bells: list[str]) -> None:
        self.rang(bells)  # so that it is once a spell
        self.sent += 1
        try:
            self._warming.warm(bells)
        except (InvocationRejected, StoreUnavailable) as error:
            log.warning("functions are not warmed before their bells: %s", error)

    def _forget(self, now: float) -> None:
        """Forget bells that rang so long ago that they count as idle anyway."""
        for bell, last in list(self._last.items()):
            if last <= now - self._warming.idle_ms:
                self._last.pop(bell, None)

    def _run(self) -> None:
        while not self._stopped.wait(min(LOOK_S, self._warming.ahead_ms / 4000)):
            self.look()
