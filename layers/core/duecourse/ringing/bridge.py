"""The bridge: hands rings of its sessions to a handler, and watched keys that expired."""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from math import inf
from typing import NamedTuple, Protocol, Self

from duecourse.base.json_text import Json
from duecourse.base.metrics import BridgeLine
from duecourse.ledger.bells import BellEvent, BellServers, KeyExpiry
from duecourse.ledger.watched_keys import MAX_KEY_BYTES, ExpiredKey, show
from duecourse.ringing.bridge_event import Ring, event, warm_event
from duecourse.ringing.dispatch import Dispatcher, Rules
from duecourse.ringing.sessions import Sessions
from duecourse.ringing.warming import BridgeWarmer, Warming
from duecourse.running.task_event import Invoker


class RingHandler(Protocol):
    """Handler of rings and watched keys: a function, or a drain in this process (`Linger`, `WorkerProcess`).

    Methods raise InvocationRejected.
    """

    def drain(self, rings: Sequence[Ring]) -> Json:
        """Have the shards of these bells drained; answers what `on_expired` does."""

    def note(self, expired: Sequence[ExpiredKey]) -> Json:
        """Have tasks made of these keys."""


class LambdaRingHandler:
    """Handler that invokes the function `on_expired`, and waits for its answer."""

    def __init__(self, invoker: Invoker, function: str) -> None:
        self._invoker = invoker
        self._function = function

    def drain(self, rings: Sequence[Ring]) -> Json:
        """See RingHandler."""
        return self._invoker.invoke(self._function, event(rings))  # next: functions/on_expired/app.py

    def note(self, expired: Sequence[ExpiredKey]) -> Json:
        """See RingHandler."""
        return self._invoker.invoke(self._function, event([], expired))

    def warm(self, bells: Sequence[str]) -> Json:
        """Have `on_expired` warm the functions that it knows; the invocation warms `on_expired` too."""
        return self._invoker.invoke(self._function, warm_event(bells))


log = logging.getLogger("duecourse.bridge")

# Watched keys that expired become tasks, in batches. Keys beyond a bound are lost, with a log line.

RELAY_BATCH = 500
"""The most keys in one invocation."""
BOUND = 20_000
"""The most keys that are kept, those under way among them: some ten megabytes."""
WORKERS = 2
SURE_MS = 300.0
"""Longest time for which a message lies unread while nothing delays its reader."""
LOG_S = 10.0
"""Shortest time between two log lines about lost keys."""


class ExpiryRelay:
    """Hands expired keys to `note`, which makes tasks of them; tries again after InvocationRejected.

    Keys beyond BOUND are lost, with a line in the log and a count. `now` is the server's time (epoch ms). `on_end` is
    called when a thread of the dispatcher ends, which before `stop` is a fault.
    """

    def __init__(
        self,
        note: Callable[[list[ExpiredKey]], Json],
        now: Callable[[], float],
        channel: str,
        *,
        on_end: Callable[[], None],
    ) -> None:
        self._note = note
        self._now = now
        self._channel = channel
        # Invocations of its own, for one that drains rings may take a minute. All keys of other programs have one key
        # here: each becomes a task, and none of them waits for another.
        rules = Rules(threads=WORKERS, batch=RELAY_BATCH, calls=WORKERS, bound=BOUND)
        self.dispatcher = Dispatcher("watched keys", self._hand_over, rules, key=lambda _: channel, on_end=on_end)
        self._log_at = -inf
        self.heard = self.lost = 0

    def hear(self, expiry: KeyExpiry) -> None:
        """Queue an expired key, for a task; returns at once."""
        self.heard += 1
        if len(expiry.key) > MAX_KEY_BYTES:
            self._lose(1, f"its name is over {MAX_KEY_BYTES} bytes: {show(expiry.key[:80])}...")
        elif self.dispatcher.put([self._dated(expiry)]):
            self._lose(1, f"{BOUND} others already wait for the function")

    def stop(self, patience_s: float) -> bool:
        """Hand over the queued keys within `patience_s`; False if some are lost."""
        ended = self.dispatcher.stop(patience_s, hand_over=True)
        if left := self.dispatcher.kept:
            self._lose(left, "there was no time left to hand them over")
        return ended and not left

    def _dated(self, expiry: KeyExpiry) -> ExpiredKey:
        """An expired key with the server's time; after a delay of its reader, also the earliest time of its expiry."""
        heard_at = self._now()
        lain_ms = (time.monotonic() - expiry.unread_since) * 1000
        since = heard_at - lain_ms if lain_ms > SURE_MS else heard_at
        return ExpiredKey(expiry.key, self._channel, int(since), int(heard_at))

    def _hand_over(self, keys: list[ExpiredKey]) -> Sequence[ExpiredKey]:
        self._note(keys)
        return ()

    def _lose(self, count: int, why: str) -> None:
        self.lost += count
        if time.monotonic() >= self._log_at:
            self._log_at = time.monotonic() + LOG_S
            log.error("LOST: %d watched keys expired and add no task, %d so far: %s", count, self.lost, why)


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
    """Hands rings to `handler`, `in_flight` calls at a time, and watched keys beside them; for one start and one stop.

    With `warming`, functions are warmed before bells that follow an idle spell.
    """

    def __init__(
        self,
        bells: BellServers,
        handler: RingHandler,
        *,
        in_flight: int = 4,
        beat_s: float = BEAT_S,
        warming: Warming | None = None,
    ) -> None:
        self._bells = bells
        self._dispatcher = ring_dispatcher(handler.drain, in_flight=in_flight, on_end=self.on_fault)
        self._sessions = Sessions(bells, self, beat_s=beat_s)
        channel = bells.channel(BellEvent.EXPIRED)
        self._relay = ExpiryRelay(handler.note, self._sessions.now, channel, on_end=self.on_fault)
        self._warmer = BridgeWarmer(self._sessions, warming, on_end=self.on_fault) if warming else None
        self._ready = threading.Event()
        self._ended = threading.Event()
        self._reported = Stats(0, 0, 0, 0.0, None)

    def start(self) -> None:
        """Begin to connect; returns at once."""
        self._dispatcher.start()
        self._relay.dispatcher.start()
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
        """Stop listening, and finish the calls under way; False where some took longer than `patience_s`.

        Watched keys that were heard are handed over first: no other process hears them again.
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
        dispatchers = self._dispatcher, self._relay.dispatcher
        return Stats(
            rings=self._dispatcher.put_in,
            invocations=sum(dispatcher.invocations for dispatcher in dispatchers),
            rejected=sum(dispatcher.rejected for dispatcher in dispatchers),
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

    # Events of its sessions and threads.

    def on_rings(self, rings: Sequence[Ring]) -> None:
        """Queue rings of a timer for the handler; returns at once."""
        self._dispatcher.put(rings)  # next: `handler.drain` on one of its threads, by `ring_dispatcher`
        if self._warmer:
            self._warmer.rang([ring.key for ring in rings])

    def on_expiry(self, expiry: KeyExpiry) -> None:
        """Queue a watched key that expired; returns at once."""
        self._relay.hear(expiry)

    def on_ready(self) -> None:
        """Let `wait_ready` return: the first sweep is done."""
        self._ready.set()

    def on_fault(self) -> None:
        """Let `wait_ended` return: a thread has ended."""
        self._ended.set()
        self._ready.set()


def ring_dispatcher(
    drain: Callable[[list[Ring]], Json], *, in_flight: int, on_end: Callable[[], None]
) -> Dispatcher[Ring]:
    """A dispatcher that has the shards of rings drained by `drain`, which answers what `on_expired` does.

    One ring of a bell counts for all that wait: a drain takes whatever is due. Each call is for the bells of one
    primary: one that is away has its own rejected.
    """

    def drain_some(rings: list[Ring]) -> Sequence[Ring]:
        return rings if _is_behind(drain(rings)) else ()

    rules = Rules(threads=in_flight, batch=BATCH, calls=PER_BELL, join_s=JOIN_S, folds=True)
    return Dispatcher(
        "rings", drain_some, rules, key=lambda ring: ring.key, group=lambda ring: ring.server, on_end=on_end
    )


def _is_behind(answer: Json) -> bool:
    """True if there is more to do at once. A backlog of which nothing could be claimed waits for the bell's deadman."""
    return isinstance(answer, dict) and bool(answer.get("backlog")) and bool(answer.get("claimed"))
