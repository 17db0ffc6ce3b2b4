"""The bridge put together: bells in, rings served."""

import logging
import threading
from collections.abc import Callable
from typing import NamedTuple

from duecourse.bridge.clock import ServerClock
from duecourse.bridge.dispatcher import Dispatcher
from duecourse.bridge.keeper import Keeper
from duecourse.bridge.rings import Serve
from duecourse.bridge.timer import Timer
from duecourse.ports.bells import Bells

log = logging.getLogger("duecourse.bridge")

BEAT_S = 10.0
PATIENCE_S = 5.0
SWITCH_S = 0.0005
"""How long a busy thread may keep the timer from the interpreter: Python's own 5 ms would be seen as lateness."""


class Stats(NamedTuple):
    """What a bridge did since its start: rings heard, invocations begun, those refused; and how late its timer rang.

    `latest_ms` is the timer's worst lateness since the last report. `events` tells whether key events are heard.
    """

    rings: int
    invocations: int
    refused: int
    latest_ms: float
    events: bool | None


class Bridge:
    """Hands rings to `serve` until stopped, `in_flight` calls at a time; for one start and one stop."""

    def __init__(self, bells: Bells, serve: Serve, *, in_flight: int = 4, beat_s: float = BEAT_S) -> None:
        self._bells = bells
        self._dispatcher = Dispatcher(serve, in_flight=in_flight, on_end=self._end)
        self._timer = Timer(bells, ServerClock(), self._dispatcher.ring)
        self._keeper = Keeper(bells, self._timer, beat_s=beat_s, on_swept=self._on_swept)
        self._threads = [self._thread("timer", self._timer.run), self._thread("keeper", self._keeper.run)]
        self._ready = threading.Event()
        self._ended = threading.Event()
        self.shards = 0

    def start(self) -> None:
        """Begin to connect; returns at once."""
        self._dispatcher.start()
        for thread in self._threads:
            thread.start()

    def wait_ready(self, timeout: float | None = None) -> bool:
        """Wait until the first sweep has been dispatched; False after `timeout` seconds or a fault."""
        return self._ready.wait(timeout) and not self._ended.is_set()

    def wait_ended(self, timeout: float | None = None) -> bool:
        """Wait for one of the bridge's threads to end, which none does before `stop` but by a fault."""
        return self._ended.wait(timeout)

    def stop(self, patience_s: float = PATIENCE_S) -> bool:
        """Listen no more, finish the calls under way; False where some took longer than `patience_s`."""
        self._keeper.stop()
        self._timer.stop()
        finished = self._dispatcher.stop(patience_s)
        for thread in self._threads:
            thread.join(PATIENCE_S)
        self._bells.close()
        return finished

    def stats(self) -> Stats:
        """What it did so far."""
        counts = self._dispatcher
        return Stats(counts.rings, counts.invocations, counts.refused, self._timer.latest_ms, self._keeper.events)

    def report(self) -> Stats:
        """Log `stats` and answer them, and measure the lateness afresh."""
        stats = self.stats()
        self._timer.latest_ms = 0.0
        log.info("%d rings, %d invocations, %d refused; timer at most %.1f ms late", *stats[:4])
        return stats

    def _on_swept(self, shards: int) -> None:
        self.shards = shards
        self._ready.set()

    def _end(self) -> None:
        self._ended.set()
        self._ready.set()

    def _thread(self, name: str, run: Callable[[], None]) -> threading.Thread:
        def body() -> None:
            try:
                run()
            finally:
                self._end()

        return threading.Thread(target=body, name=name, daemon=True)
