"""The bridge put together: bells in, rings served."""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple, Self

from duecourse.bridge.lanes import Rules
from duecourse.bridge.pool import Pool
from duecourse.bridge.relay import Relay
from duecourse.bridge.rings import Ring, Server, Warming
from duecourse.bridge.sessions import Callbacks, Sessions
from duecourse.bridge.warmer import Warmer
from duecourse.domain.task import Json
from duecourse.metrics import BridgeLine
from duecourse.ports.bells import BellServers, Expiry, What

log = logging.getLogger("duecourse.bridge")

BEAT_S = 10.0
PATIENCE_S = 5.0
SWITCH_S = 0.0005
"""Time for which a busy thread may keep the timer from the interpreter: Python's own 5 ms would show as lateness."""

BATCH = 100
"""The most rings in one invocation."""
PER_BELL = 2
"""The most invocations under way for one bell."""
JOIN_S = 0.02
"""Time for which the first invocation has the bell for itself: after that its work may be slow, and the ring late."""


class Stats(NamedTuple):
    """Figures of a bridge since its start: rings heard, invocations begun, those rejected; and its timer's lateness.

    `latest_ms` is the timer's worst lateness since the last report. `events` is True if key events are heard. `keys`
    counts the watched keys heard to expire, `lost` those of them that added no task, `warmed` the events that warmed
    functions.
    """

    rings: int
    invocations: int
    rejected: int
    latest_ms: float
    events: bool | None
    keys: int = 0
    lost: int = 0
    warmed: int = 0

    def since(self, before: Self) -> BridgeLine:
        """Metrics of the time between two looks at one bridge."""
        return BridgeLine(
            Rings=self.rings - before.rings,
            Invocations=self.invocations - before.invocations,
            Refused=self.rejected - before.rejected,
            RingLateness=round(self.latest_ms, 1),
            Keys=self.keys - before.keys,
            KeysLost=self.lost - before.lost,
            Warmed=self.warmed - before.warmed,
        )


class Bridge:
    """Hands rings to `server`, `in_flight` calls at a time, and watched keys beside them; for one start and one stop.

    With `warming`, functions are warmed before bells that follow an idle spell.
    """

    def __init__(
        self,
        bells: BellServers,
        server: Server,
        *,
        in_flight: int = 4,
        beat_s: float = BEAT_S,
        warming: Warming | None = None,
    ) -> None:
        self._bells = bells
        self._dispatcher = dispatcher(server.drain, in_flight=in_flight, on_end=self._end)
        callbacks = Callbacks(self._ring, self._hear, self._end)
        self._sessions = Sessions(bells, beat_s=beat_s, callbacks=callbacks, on_ready=self._on_ready)
        self._relay = Relay(server.note, self._sessions, bells.channel(What.EXPIRED), on_end=self._end)
        self._warmer = Warmer(self._sessions, self._sessions, warming, on_end=self._end) if warming else None
        self._ready = threading.Event()
        self._ended = threading.Event()
        self._reported = Stats(0, 0, 0, 0.0, None)

    def start(self) -> None:
        """Begin to connect; returns at once."""
        self._dispatcher.start()
        self._relay.pool.start()
        if self._warmer:
            self._warmer.thread.start()
        self._sessions.start()

    @property
    def shards(self) -> int:
        """Number of the shards that were swept."""
        return self._sessions.shards

    def wait_ready(self, timeout: float | None = None) -> bool:
        """Wait until each primary that is there has been swept for the first time.

        False after `timeout` seconds or a fault.
        """
        return self._ready.wait(timeout) and not self._ended.is_set()

    def wait_ended(self, timeout: float | None = None) -> bool:
        """Wait for one of the bridge's threads to end, which before `stop` is a fault."""
        return self._ended.wait(timeout)

    def stop(self, patience_s: float = PATIENCE_S) -> bool:
        """Listen no more, finish the calls under way; False where some took longer than `patience_s`.

        Watched keys that were heard are handed over first: nobody will hear them again.
        """
        end = time.monotonic() + patience_s
        # First what hears, then what hands over: nothing new comes while the calls under way are waited for. Rings that
        # wait are dropped, since the ledger has their tasks; keys that wait are nowhere else, and are handed over.
        self._sessions.stop()
        if self._warmer:
            self._warmer.stop()
        finished = self._dispatcher.stop(patience_s)
        self._sessions.close()
        finished &= self._relay.stop(max(0.0, end - time.monotonic()))
        if self._warmer:
            self._warmer.thread.join(max(0.0, end - time.monotonic()))
            finished &= not self._warmer.thread.is_alive()
        return finished

    def stats(self) -> Stats:
        """Figures so far."""
        pools = self._dispatcher, self._relay.pool
        return Stats(
            rings=self._dispatcher.put_in,
            invocations=sum(pool.invocations for pool in pools),
            rejected=sum(pool.rejected for pool in pools),
            latest_ms=self._sessions.latest_ms,
            events=self._sessions.events,
            keys=self._relay.heard,
            lost=self._relay.lost,
            warmed=self._warmer.sent if self._warmer else 0,
        )

    def report(self) -> BridgeLine:
        """Log `stats`; answer those since the last report, and measure the lateness afresh."""
        stats, before = self.stats(), self._reported
        self._reported = stats
        self._sessions.forget_latest()
        log.info("%d rings, %d invocations, %d rejected; timer at most %.1f ms late", *stats[:4])
        if self._bells.watches:
            log.info("%d watched keys heard to expire, %d of them lost", stats.keys, stats.lost)
        return stats.since(before)

    def _ring(self, rings: Sequence[Ring]) -> None:
        self._dispatcher.put(rings)
        if self._warmer:
            self._warmer.rang([ring.key for ring in rings])

    def _hear(self, expiry: Expiry) -> None:
        self._relay.hear(expiry)

    def _on_ready(self) -> None:
        self._ready.set()

    def _end(self) -> None:
        self._ended.set()
        self._ready.set()


def dispatcher(serve: Callable[[list[Ring]], Json], *, in_flight: int, on_end: Callable[[], None]) -> Pool[Ring]:
    """A pool that has the shards of rings drained by `serve`, which answers what `on_expired` does.

    One ring of a bell counts for all that wait: a drain takes whatever is due. Each call is for the bells of one
    primary: one that is away has its own rejected.
    """

    def drain(rings: list[Ring]) -> Sequence[Ring]:
        return rings if _is_behind(serve(rings)) else ()

    rules = Rules(threads=in_flight, batch=BATCH, calls=PER_BELL, join_s=JOIN_S, folds=True)
    return Pool("rings", drain, rules, key=lambda ring: ring.key, group=lambda ring: ring.server, on_end=on_end)


def _is_behind(answer: Json) -> bool:
    """True if there is more to do at once. A backlog of which nothing could be claimed waits for the bell's deadman."""
    return isinstance(answer, dict) and bool(answer.get("backlog")) and bool(answer.get("claimed"))
