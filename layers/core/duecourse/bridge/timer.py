"""The bridge's timer of one primary: it knows when each bell will go, and asks for it a millisecond later.

Redis deletes an expired key when it comes across it, which may be minutes late; a key that is asked for is deleted, and
its event sent, at once. So this is what keeps time; events and heads only tell it what it cannot know.
"""

import heapq
import logging
import threading
import time
from collections.abc import Callable, Sequence
from math import inf

from duecourse.bridge.clock import STEP_MS, ServerClock
from duecourse.bridge.rings import Ring
from duecourse.domain.batches import pieces
from duecourse.domain.history import Trigger
from duecourse.errors import StoreUnavailable
from duecourse.ports.bells import Bells, View, What

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
    """Timer of a primary's bells, which rings for those whose time is over. Any thread may call its verbs.

    `server` is the primary's name, which its rings carry.
    """

    def __init__(
        self, bells: Bells, clock: ServerClock, ring: Callable[[list[Ring]], None], *, server: str = ""
    ) -> None:
        self._bells = bells
        self._server = server
        self._clock = clock
        self._ring_on = ring
        self._changed = threading.Condition()
        self._hung: dict[str, int] = {}
        """When each bell will go, as far as is known."""
        self._asks: list[tuple[float, str, int]] = []
        """When to ask for which bell, and when it was to go: stale where that is another time by now."""
        self._echoes: set[str] = set()
        """Bells that a look found gone, and rang for: it made Redis announce them, which is no second ring."""
        self._moved: set[str] = set()
        """Bells whose head was heard since the last look was asked for: it knows more than that look's answer."""
        self._doubts: dict[str, int] = {}
        """Bells to look at at `_doubts_at`, since their heads may be forged, and when they were to go before."""
        self._doubted: dict[str, int] = {}
        """Those that the present look is about."""
        self._doubts_at = 0.0
        self._stopped = False
        self.latest_ms = 0.0
        """The worst lateness of a ring of this timer's since somebody set this to 0."""

    def move(self, bell: str, at: int) -> None:
        """Its head was heard: the bell goes at `at` from now on, 0 for not at all.

        Where its time had passed already, the re-hang took a bell that nobody had rung for: that is a ring. A head is
        no proof: a bell that it takes away, or to a later time, is looked at soon.
        """
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
        """Have a bell that was to go at `before` looked at soon, with all that are doubted until then."""
        when = min(self._clock.now() + DOUBT_MS, before - NEAR_MS / 2)
        if not self._doubts or when < self._doubts_at:
            self._doubts_at = when
            self._changed.notify()
        self._doubts[bell] = min(before, self._doubts.get(bell, before))

    def went(self, bell: str, what: What) -> None:
        """Its expiry or eviction was heard: a ring, unless it echoes this timer's own look at a bell rung for."""
        with self._changed:
            echo = bell in self._echoes and what is What.EXPIRED
            self._echoes.discard(bell)  # an echo comes once: the next expiry is another bell's end
            passed = self._passed(bell)
            if passed:
                del self._hung[bell]
        if passed or not echo:
            self._ring([bell], what, Trigger.RING)

    def hung(self) -> list[tuple[str, int]]:
        """Every bell that hangs, and when it goes (the server's epoch ms)."""
        with self._changed:
            return list(self._hung.items())

    def forget(self, bells: Sequence[str]) -> None:
        """Ring for these no more: another primary has them, and its timer has looked at them."""
        with self._changed:
            for bell in bells:
                self._hang(bell, 0)
                self._doubts.pop(bell, None)

    def set_clock(self) -> None:
        """Ask the server what time it is, and think again about what is due. Raises StoreUnavailable."""
        for _ in range(CLOCK_SAMPLES):
            self._view([])
        with self._changed:
            self._changed.notify()

    def look(self, bells: Sequence[str], *, ring_missing: bool) -> int:
        """Look at bells and learn when they will go; returns for how many it rang: those that went unheard.

        With `ring_missing` a bell that does not hang counts as one that went. Raises StoreUnavailable.
        """
        rung = 0
        for part in pieces(bells, LOOK):
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
        """Take over what a look saw, unless a newer head has come. Returns True for a ring."""
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
        """Ask for bells as their times pass, until stopped."""
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
                # The believed time moves where the server's clock was stepped or this machine slept: so a wait is for
                # a time, never for a length, and `set_clock` ends it.
                next_at = min(self._asks[0][0] if self._asks else inf, self._doubts_at if self._doubts else inf)
                pause_ms = min(next_at - self._clock.now(), IDLE_S * 1000)
                if pause_ms <= 0:
                    if due := self._pop():
                        return due
                else:
                    self._changed.wait(pause_ms / 1000)
        return {}

    def _pop(self) -> dict[str, int]:
        """The bells to ask for now, with the times they were to go at."""
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

    def _answer(self, due: dict[str, int], view: View | None) -> None:
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
        """Take over what was seen of a bell that was to go `at`; True for a ring."""
        is_early = at == 0 or self._clock.now() < at  # it was doubted
        if seen is None:
            self._echoes.add(bell)
        self._hang(bell, seen or 0)
        if not is_early:
            self.latest_ms = max(self.latest_ms, self._clock.now() - at)
        return not is_early or seen is None

    def _ask_again(self, bell: str, at: int) -> None:
        """Ask once the bell's time is over; if it is already, in a millisecond, and ever less often while it stays."""
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
        """Keep the earlier one of a look's time and a newer head's: too early costs a look, and no more."""
        if seen and seen < self._hung.get(bell, inf):
            self._hang(bell, seen)

    def _passed(self, bell: str) -> bool:
        at = self._hung.get(bell)
        return at is not None and at <= self._clock.now() + SLACK_MS

    def _view(self, bells: Sequence[str]) -> View:
        sent = time.monotonic()
        view = self._bells.look(bells)
        correction = self._clock.observe(sent, time.monotonic(), view.now)
        if abs(correction) > STEP_MS:
            log.warning("the server's clock moved by %+.0f ms against this machine's", correction)
        return view

    def _ring(self, bells: list[str], what: What = What.EXPIRED, trigger: Trigger = Trigger.TIMER) -> None:
        if bells:
            now, channel = int(self._clock.now()), self._bells.channel(what)
            self._ring_on([Ring(bell, channel, now, trigger, self._server) for bell in bells])
