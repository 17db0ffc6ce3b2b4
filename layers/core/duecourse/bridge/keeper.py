"""The health of one session: it connects, proves that it hears, sweeps, looks again at every beat, and starts over."""

import logging
import random
import threading
import time
from collections.abc import Callable

from duecourse.bridge.ears import Ears, OnExpiry
from duecourse.bridge.timer import Timer
from duecourse.domain.backoff import ceiling_ms
from duecourse.domain.task import RetryPolicy
from duecourse.errors import EventsRejected, StoreUnavailable
from duecourse.ports.bells import Bells

log = logging.getLogger("duecourse.bridge")

PAUSES = RetryPolicy(backoff_ms=100, max_backoff_ms=5_000)


class Keeper:
    """Keeps the subscription to one primary alive and its timer right, on a thread of its own.

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

        Redis announces an event once, to those who listen then. So the sweep comes after the proof: what went before it
        is seen by the sweep, what goes after it is heard, and there is no gap between the two.
        """
        self._bells.check_primary()
        self._timer.set_clock()
        problem = self._enable_events()
        self._ended = threading.Event()
        ears = Ears(self._bells.subscribe(), self._timer, self._on_expiry, self._bells.canary, self._ended)
        ears.start()
        try:
            self._judge(self._hears(ears), problem)
            self._sweep()
            while not self._stopped.is_set() and not self._ended.wait(self._beat_s):
                self._beat(ears)
        finally:
            ears.close()
        if not self._stopped.is_set():
            raise ears.error or StoreUnavailable("the subscription ended")

    def _sweep(self) -> None:
        shards = self._bells.known()
        self._is_swept = shards is not None
        rung = self._timer.look(shards or (), ring_missing=True)
        self._recover(len(shards or ()), rung)
        self._on_swept(len(shards or ()))

    def _beat(self, ears: Ears) -> None:
        """Look for what nobody tells: a failover, a stepped clock, a dead connection, flags turned off, new shards.

        A connection whose other end has gone is silent; so is one on which nothing happens. The canary tells which.
        """
        self._bells.check_primary()
        self._timer.set_clock()
        heard = self._hears(ears)
        if heard is False:
            problem = self._enable_events(were_on=self.events is True)
            self._judge(self._hears(ears), problem)
        else:
            self._judge(heard, "")
        if not self._is_swept:
            self._sweep()  # the record of shards is on another server, which was away
        shards = self._bells.known() or []
        # An idle shard has no bell: one that was never seen is no ring. Bells of no shard, which anybody may publish,
        # are looked at too, and forgotten by that.
        hung = (bell for bell, _ in self._timer.hung())
        self._timer.look(list(dict.fromkeys([*shards, *hung])), ring_missing=False)
        if not ears.covers(shards):
            raise StoreUnavailable("new shards need a new subscription, because this server rejects patterns")

    def _hears(self, ears: Ears) -> bool | None:
        """True if events are heard; None if the server took no canary, so that nothing is proved."""
        hung = self._bells.try_canary()
        return ears.heard_canary() if hung or ears.heard_canary() else None

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
