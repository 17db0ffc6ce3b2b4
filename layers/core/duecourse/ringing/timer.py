"""Timer of one primary: looks at each bell a millisecond after its time, by the server's clock."""

import heapq
import logging
import threading
import time
from collections.abc import Callable, Sequence
from math import inf

from duecourse.base.batches import batched
from duecourse.errors import StoreUnavailable
from duecourse.ledger.bells import BellEvent, Bells, BellTimes
from duecourse.ledger.task import Trigger
from duecourse.ringing.bridge_event import Ring

# The server's time, by this machine's monotonic clock.

STEP_MS = 50.0
"""Correction above which the log has a line: the server's clock was stepped, or this machine slept."""


class ServerClock:
    """Estimate of the server's time, from its answers."""

    def __init__(self) -> None:
        self._ahead: float | None = None

    def now(self) -> float:
        """Epoch milliseconds with their fraction; 0 before the first answer."""
        return 0.0 if self._ahead is None else time.monotonic() * 1000 + self._ahead

    def observe(self, sent: float, received: float, answered: float) -> float:
        """Correct the estimate by an answer with the time `answered` (epoch ms); returns the correction, in ms.

        `sent` and `received` are the times of the request and the answer (time.monotonic()).
        """
        # The server read its clock at some time between the two. The estimate moves only as far as into that span, so
        # that the quickest answers decide.
        least, most = answered - received * 1000, answered - sent * 1000
        believed = (least + most) / 2 if self._ahead is None else self._ahead
        corrected = min(max(believed, least), most)
        correction = 0.0 if self._ahead is None else corrected - believed
        self._ahead = corrected
        return correction


# Redis deletes an expired key when it comes across it, which may be minutes late. It deletes a key that is read, and
# publishes its event, at once. So the timer reads each bell on time; events and heads tell it of changes.

log = logging.getLogger("duecourse.bridge")

AFTER_MS = 1.0
"""Delay after a deadline, since at its own millisecond a key still exists."""
SLACK_MS = 0.5
"""Longest lag of the believed time behind the server's."""
LOOK = 200
"""The most bells looked at in one round trip."""
LONGEST_ASK_MS = 100.0
DOUBT_MS = 100
"""Time after which a bell whose head took it away, or to a later time, is looked at: a head may be forged."""
NEAR_MS = 10
"""Time before its end from which a bell is not taken away by a head: there is none left to look at it."""
IDLE_S = 60.0
CLOCK_SAMPLES = 5
"""The quickest of several answers tells the time best."""


class Timer:
    """Timer of a primary's bells: rings for each bell whose time has passed. Any thread may call its methods.

    `on_rings` takes the rings. `server` is the primary's name, which its rings carry.
    """

    def __init__(
        self, bells: Bells, clock: ServerClock, on_rings: Callable[[list[Ring]], None], *, server: str = ""
    ) -> None:
        self._bells = bells
        self._server = server
        self._clock = clock
        self._on_rings = on_rings
        self._changed = threading.Condition()
        self._hung: dict[str, int] = {}
        """Time of each bell (the server's epoch ms), as far as is known."""
        self._asks: list[tuple[float, str, int]] = []
        """Heap of looks: when, at which bell, and the bell's time; stale if the bell has another time by now."""
        self._echoes: set[str] = set()
        """Bells that a look found gone, and rang for: it made Redis announce them, which is no second ring."""
        self._moved: set[str] = set()
        """Bells whose head was heard since the last look was asked for: it knows more than that look's answer."""
        self._doubts: dict[str, int] = {}
        """Bells to look at at `_doubts_at`, since their heads may be forged, with their former times."""
        self._doubted: dict[str, int] = {}
        """Doubted bells that the present look reads, with their former times."""
        self._doubts_at = 0.0
        self._stopped = False
        self.latest_ms = 0.0
        """The worst lateness of a ring of this timer's since somebody set this to 0."""

    def move(self, bell: str, at: int) -> None:
        """Set the time of a bell whose head was heard; 0 removes the bell.

        Rings if the bell's former time had passed.
        """
        # A head may be forged: a bell that it removes, or moves to a later time, is looked at soon.
        with self._changed:
            self._moved.add(bell)
            self._echoes.discard(bell)
            passed = self._passed(bell)
            before = self._hung.get(bell, at)
            later = not passed and before != at and (not at or at > before)
            far = before > self._clock.now() + NEAR_MS
            if later and far:
                self._doubt(bell, before)
            if far or not later:
                self._hang(bell, at)
        if passed:
            self._ring([bell])

    def _doubt(self, bell: str, before: int) -> None:
        """Re-check this bell shortly before `before`, in one request with all other suspects."""
        when = min(self._clock.now() + DOUBT_MS, before - NEAR_MS / 2)
        if not self._doubts or when < self._doubts_at:
            self._doubts_at = when
            self._changed.notify()
        self._doubts[bell] = min(before, self._doubts.get(bell, before))

    def went(self, bell: str, what: BellEvent) -> None:
        """Ring for a bell whose expiry or eviction was heard, unless this timer's own look caused the event."""
        with self._changed:
            echo = bell in self._echoes and what is BellEvent.EXPIRED
            self._echoes.discard(bell)  # an echo comes once: the next expiry is another bell's end
            passed = self._passed(bell)
            if passed:
                del self._hung[bell]
        if passed or not echo:
            self._ring([bell], what, Trigger.RING)

    def pending_bells(self) -> list[tuple[str, int]]:
        """Every pending bell, with its time (the server's epoch ms)."""
        with self._changed:
            return list(self._hung.items())

    def forget(self, bells: Sequence[str]) -> None:
        """Remove bells that another primary has; its timer has looked at them."""
        with self._changed:
            for bell in bells:
                self._hang(bell, 0)
                self._doubts.pop(bell, None)

    def set_clock(self) -> None:
        """Read the server's clock, and wake the timer. Raises StoreUnavailable."""
        for _ in range(CLOCK_SAMPLES):
            self._view([])
        with self._changed:
            self._changed.notify()

    def look(self, bells: Sequence[str], *, ring_missing: bool) -> int:
        """Read the times of bells, and ring for each that expired unheard; returns their number.

        With `ring_missing`, a bell that does not exist counts as expired. Raises StoreUnavailable.
        """
        rung = 0
        for part in batched(bells, LOOK):
            with self._changed:
                self._moved.clear()
            view = self._view(part)
            with self._changed:
                gone = [bell for bell, at in zip(part, view.hung, strict=True) if self._learn(bell, at, ring_missing)]
                self._changed.notify()
            self._ring(gone)
            rung += len(gone)
        return rung

    def _learn(self, bell: str, at: int | None, ring_missing: bool) -> bool:
        """Store the time that a look read, unless a newer head has come. Returns True for a ring."""
        if bell in self._moved:
            self._hang_earlier(bell, at)
            return False
        expected = self._hung.get(bell)
        if at is not None:
            ring = at != expected and self._passed(bell)
            self._hang(bell, at)
            return ring
        ring = ring_missing or expected is not None
        if ring:
            self._echoes.add(bell)
        self._hang(bell, 0)
        return ring

    def run(self) -> None:
        """Read each bell after its time, until stopped."""
        while due := self._wait():
            try:
                view = self._view(list(due))
            except StoreUnavailable:
                view = None
            self._answer(due, view)

    def stop(self) -> None:
        """Let `run` return."""
        with self._changed:
            self._stopped = True
            self._changed.notify()

    def _wait(self) -> dict[str, int]:
        with self._changed:
            while not self._stopped:
                # The believed time moves if the server's clock was stepped or this machine slept. So a wait is for a
                # time, never for a length, and `set_clock` ends it.
                next_at = min(self._asks[0][0] if self._asks else inf, self._doubts_at if self._doubts else inf)
                pause_ms = min(next_at - self._clock.now(), IDLE_S * 1000)
                if pause_ms <= 0:
                    if due := self._pop():
                        return due
                else:
                    self._changed.wait(pause_ms / 1000)
        return {}

    def _pop(self) -> dict[str, int]:
        """The bells to read now, with their times."""
        now, due = self._clock.now(), dict[str, int]()
        self._doubted = {}
        while self._asks and self._asks[0][0] <= now and len(due) < LOOK:
            _, bell, at = heapq.heappop(self._asks)
            if self._hung.get(bell) == at:
                due[bell] = at
        while self._doubts and self._doubts_at <= now and len(due) < LOOK:
            bell, before = self._doubts.popitem()
            self._doubted[bell] = before
            due.setdefault(bell, self._hung.get(bell, 0))
        return due

    def _answer(self, due: dict[str, int], view: BellTimes | None) -> None:
        gone: list[str] = []
        with self._changed:
            for bell, seen in zip(due, view.hung if view else due.values(), strict=True):
                at = due[bell]
                if view and seen is None and self._doubted.get(bell, inf) <= view.now:
                    gone.append(bell)  # too late to tell a bell that went from one that was taken away
                if self._hung.get(bell, 0) != at:
                    self._hang_earlier(bell, seen)  # a sound was quicker, and rang
                elif (seen or 0) == at:  # it hangs still, by a clock that is behind, or the server did not answer
                    self._ask_again(bell, at)
                elif self._is_gone(bell, at, seen):
                    gone.append(bell)
            for bell, before in () if view else self._doubted.items():
                self._doubt(bell, before)
        self._ring(list(dict.fromkeys(gone)))

    def _is_gone(self, bell: str, at: int, seen: int | None) -> bool:
        """Store the time that was read of a bell with the time `at`; True for a ring."""
        is_early = at == 0 or self._clock.now() < at  # it was doubted
        if seen is None:
            self._echoes.add(bell)
        self._hang(bell, seen or 0)
        if not is_early:
            self.latest_ms = max(self.latest_ms, self._clock.now() - at)
        return not is_early or seen is None

    def _ask_again(self, bell: str, at: int) -> None:
        """Read the bell again after its time; at growing pauses if that has passed."""
        if not at:
            return
        now, when = self._clock.now(), at + AFTER_MS
        if now >= when:
            when = now + min(max(AFTER_MS, (now - at) / 4), LONGEST_ASK_MS)
        heapq.heappush(self._asks, (when, bell, at))

    def _hang(self, bell: str, at: int) -> None:
        if at == self._hung.get(bell, 0):
            return
        if not at:
            del self._hung[bell]
            return
        self._hung[bell] = at
        ask = (at + AFTER_MS, bell, at)
        heapq.heappush(self._asks, ask)
        if self._asks[0] is ask:
            self._changed.notify()
        if len(self._asks) > 2 * len(self._hung) + 1000:  # mostly stale: bells that move often leave one each time
            self._asks = [(at + AFTER_MS, bell, at) for bell, at in self._hung.items()]
            heapq.heapify(self._asks)

    def _hang_earlier(self, bell: str, seen: int | None) -> None:
        """Keep the earlier of the times of a look and a newer head: a wrong one costs only a look."""
        if seen and seen < self._hung.get(bell, inf):
            self._hang(bell, seen)

    def _passed(self, bell: str) -> bool:
        at = self._hung.get(bell)
        return at is not None and at <= self._clock.now() + SLACK_MS

    def _view(self, bells: Sequence[str]) -> BellTimes:
        sent = time.monotonic()
        view = self._bells.look(bells)
        correction = self._clock.observe(sent, time.monotonic(), view.now)
        if abs(correction) > STEP_MS:
            log.warning("the server's clock moved by %+.0f ms against this machine's", correction)
        return view

    def _ring(self, bells: list[str], what: BellEvent = BellEvent.EXPIRED, trigger: Trigger = Trigger.TIMER) -> None:
        if bells:
            now, channel = int(self._clock.now()), self._bells.channel(what)
            # Next: `Bridge.on_rings`, which queues them for the handler of rings.
            self._on_rings([Ring(bell, channel, now, trigger, self._server) for bell in bells])
