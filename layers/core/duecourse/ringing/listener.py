"""Subscription to one primary: a thread that listens, and its supervisor, which connects it again after a failure."""

import logging
import queue
import random
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

from duecourse.errors import EventsRejected, StoreUnavailable
from duecourse.ledger.bells import BellEvent, BellMessage, Bells, KeyExpiry, Subscription
from duecourse.ledger.task import RetryPolicy, ceiling_ms
from duecourse.ringing.timer import Timer

# One thread passes the bells of a subscription to the timer, and watched keys that expired to `on_expiry`.

log = logging.getLogger("duecourse.bridge")

OnExpiry = Callable[[KeyExpiry], None]

HEAR_S = 0.2
CANARY_S = 2.0


class Listener:
    """Listens until the subscription dies or is closed; `ended` is set then."""

    def __init__(
        self, subscription: Subscription, timer: Timer, on_expiry: OnExpiry, canary: str, ended: threading.Event
    ) -> None:
        self._subscription = subscription
        self._timer = timer
        self._on_expiry = on_expiry
        self._canary = canary
        self._closing = False
        self._canary_went = False
        self._canaries: queue.SimpleQueue[bool | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="subscription", daemon=True)
        self.ended = ended
        self.error: StoreUnavailable | None = None
        """The error that ended it, if one did."""

    def covers(self, bells: Sequence[str]) -> bool:
        """True if the heads of all these bells can be heard."""
        return self._subscription.covers(bells)

    def start(self) -> None:
        """Begin to listen."""
        self._thread.start()

    def close(self) -> None:
        """Stop listening, within HEAR_S."""
        self._closing = True
        self._thread.join()

    def heard_canary(self) -> bool:
        """True if the canary's event was heard before its head. Raises StoreUnavailable if neither was heard.

        Both come over the subscription, in this order: a head alone proves that it lives and that events are off.
        """
        with suppress(queue.Empty):
            heard = self._canaries.get(timeout=CANARY_S)
            if heard is not None:
                return heard
        raise self.error or StoreUnavailable(f"the subscription was silent for {CANARY_S:g} s: it is dead")

    def _run(self) -> None:
        try:
            while not self._closing:
                sound = self._subscription.hear(HEAR_S)
                if sound:
                    self._pass_on(sound)
        except StoreUnavailable as error:
            self.error = error
        except Exception as error:
            # Nobody waits for this thread: an error that it kept to itself would leave the bridge deaf until a beat.
            log.exception("the subscription ended by a fault of the bridge: it is made again")
            self.error = StoreUnavailable(f"the subscription ended by a fault: {error!r}")
        finally:
            self._canaries.put(None)
            self.ended.set()
            self._subscription.close()

    def _pass_on(self, sound: BellMessage | KeyExpiry) -> None:
        if isinstance(sound, KeyExpiry):
            self._on_expiry(sound)
        elif sound.bell == self._canary:
            self._on_canary(sound.what)
        elif sound.what is BellEvent.HEAD:
            self._timer.move(sound.bell, sound.at)
        else:
            self._timer.went(sound.bell, sound.what)

    def _on_canary(self, what: BellEvent) -> None:
        """Its head ends one trial, and says whether the event came before it.

        The server sends both over this connection, in order: so no clock decides how long an event may take.
        """
        if what is BellEvent.HEAD:
            self._canaries.put(self._canary_went)
        self._canary_went = what is not BellEvent.HEAD


# A supervised subscription connects, proves that it hears, sweeps, looks again at every beat, and starts over.

PAUSES = RetryPolicy(backoff_ms=100, max_backoff_ms=5_000)


class ListenerSupervisor:
    """Connects the listener of one primary again after each failure, and keeps its timer right: `run` it on a thread.

    `on_expiry` is called with each watched key that is heard to expire. `on_swept` is called with the number of shards
    after each sweep that follows a connect. `on_lost` is called each time that the server does not answer, or is no
    primary. `server` is its name, "" for the only one.
    """

    def __init__(
        self,
        bells: Bells,
        timer: Timer,
        *,
        beat_s: float,
        on_swept: Callable[[int], None],
        on_expiry: OnExpiry,
        on_lost: Callable[[], None],
        server: str = "",
    ) -> None:
        self._bells = bells
        self._timer = timer
        self._on_expiry = on_expiry
        self._beat_s = beat_s
        self._on_swept = on_swept
        self._on_lost = on_lost
        self._store = f"the store's primary {server}" if server else "the store"
        self._is_swept = False
        self._stopped = threading.Event()
        self._ended = threading.Event()
        self._lost_at: float | None = None
        self._lost_why = ""
        self._failures = 0
        self.events: bool | None = None if bells.events else False
        """True while key events are heard; None before that is known, False if they are not wanted."""

    def run(self) -> None:
        """Keep sessions going until stopped."""
        while not self._stopped.is_set():
            try:
                self._session()
            except StoreUnavailable as error:
                self._lose(error)
                self._stopped.wait(self._pause_s())

    def stop(self) -> None:
        """Let `run` return."""
        self._stopped.set()
        self._ended.set()  # ends the wait for the next beat; a session that only begins looks at `_stopped` first

    def _session(self) -> None:
        """One connection's life: prove that it hears, then sweep, then look again at every beat.

        Redis announces an event once, to those who listen then. So the sweep comes after the proof: it sees what went
        before, and what goes after is heard. There is no gap between the two.
        """
        self._bells.check_primary()
        self._timer.set_clock()
        problem = self._enable_events()
        self._ended = threading.Event()
        listener = Listener(self._bells.subscribe(), self._timer, self._on_expiry, self._bells.canary, self._ended)
        listener.start()
        try:
            self._judge(self._hears(listener), problem)
            self._sweep()
            while not self._stopped.is_set() and not self._ended.wait(self._beat_s):
                self._beat(listener)
        finally:
            listener.close()
        if not self._stopped.is_set():
            raise listener.error or StoreUnavailable("the subscription ended")

    def _sweep(self) -> None:
        shards = self._bells.known()
        self._is_swept = shards is not None
        rung = self._timer.look(shards or (), ring_missing=True)
        self._recover(len(shards or ()), rung)
        self._on_swept(len(shards or ()))

    def _beat(self, listener: Listener) -> None:
        """Look for what nobody tells: a failover, a stepped clock, a dead connection, flags turned off, new shards.

        A connection whose other end has gone is silent; so is one on which nothing happens. The canary tells which.
        """
        self._bells.check_primary()
        self._timer.set_clock()
        heard = self._hears(listener)
        if heard is False:
            problem = self._enable_events(were_on=self.events is True)
            self._judge(self._hears(listener), problem)
        else:
            self._judge(heard, "")
        if not self._is_swept:
            self._sweep()  # the record of shards is on another server, which was away
        shards = self._bells.known() or []
        # An idle shard has no bell: one that was never seen is no ring. Bells of no shard, which anybody may publish,
        # are looked at too, and forgotten by that.
        pending = (bell for bell, _ in self._timer.pending_bells())
        self._timer.look(list(dict.fromkeys([*shards, *pending])), ring_missing=False)
        if not listener.covers(shards):
            raise StoreUnavailable("new shards need a new subscription, because this server rejects patterns")

    def _hears(self, listener: Listener) -> bool | None:
        """True if events are heard; None if the server took no canary, so that nothing is proved."""
        pending = self._bells.try_canary()
        return listener.heard_canary() if pending or listener.heard_canary() else None

    def _enable_events(self, *, were_on: bool = False) -> str:
        """Turn on the missing notification flags; returns the reason of a rejection, or ""."""
        if not self._bells.events:
            return ""
        try:
            added = self._bells.enable_events()
        except EventsRejected as error:
            return str(error)
        if added and were_on:
            log.warning("key event notifications were turned off: %r was missing and is set again", added)
        elif added:
            log.info("key event notifications: added %r to the server's flags", added)
        return ""

    def _judge(self, heard: bool | None, problem: str) -> None:
        if heard is None or heard == self.events:
            return
        if not heard:
            log.warning(
                "EVENTS OFF: no key events are heard (%s). The bridge's own timer still rings to the millisecond; "
                "only a bell that another program deletes waits for the next check (%g s). To turn key events on, set "
                "notify-keyspace-events to Exe at the server.",
                problem or "the flags are set, but the test key's event did not arrive",
                self._beat_s,
            )
            if self._bells.watches:
                log.error("WATCHED KEYS ARE NOT HEARD: without key events, their expiry adds no task")
        elif self.events is False:
            log.warning("events on: key events are heard again")
        self.events = heard

    def _lose(self, error: StoreUnavailable) -> None:
        self._failures += 1
        if self._lost_at is None:
            self._lost_at = time.monotonic()
        why = str(error)
        if why != self._lost_why:
            log.error("LOST %s: %s. Rings may wait until it is back; trying again", self._store, why)
        self._lost_why = why
        self._on_lost()

    def _recover(self, shards: int, rung: int) -> None:
        if self._lost_at is not None:
            away = time.monotonic() - self._lost_at
            log.warning("%s is back after %.1f s: swept %d shards, rang for %d", self._store, away, shards, rung)
            if self._bells.watches:
                log.warning("watched keys that expired in those %.1f s were not heard here", away)
        self._lost_at, self._lost_why, self._failures = None, "", 0

    def _pause_s(self) -> float:
        """Half of it is jitter, so that bridges which lost one server do not come back to it together."""
        longest_s = ceiling_ms(PAUSES, self._failures) / 1000
        return random.uniform(longest_s / 2, longest_s)
