"""The bridge's sessions: for each primary of the ledger a clock, a timer and a keeper of their own.

So a primary that is away keeps only its own bells waiting.
"""

import logging
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import NamedTuple

from duecourse.bridge.clock import ServerClock
from duecourse.bridge.ears import OnExpiry
from duecourse.bridge.keeper import Keeper
from duecourse.bridge.pool import daemon
from duecourse.bridge.rings import Ring
from duecourse.bridge.timer import Timer
from duecourse.errors import StoreUnavailable
from duecourse.ports.bells import Bells, BellServers

log = logging.getLogger("duecourse.bridge")

LOOK_S = 0.5
"""Least time between two looks for primaries: one that was lost may have been replaced at any moment."""
JOIN_S = 5.0
"""Time that the threads of a session have to end, which a server that does not answer holds up."""


class Callbacks(NamedTuple):
    """Callbacks of a session: for rings, for watched keys that expired, and for a thread that ends by a fault."""

    ring: Callable[[list[Ring]], None]
    expiry: OnExpiry
    end: Callable[[], None]


class Session:
    """One primary's bells: heard, timed and looked at on threads of their own. For one start and one stop."""

    def __init__(
        self, name: str, bells: Bells, *, beat_s: float, callbacks: Callbacks, on_change: Callable[[], None]
    ) -> None:
        self.bells = bells
        self.clock = ServerClock()
        self.timer = Timer(bells, self.clock, callbacks.ring, server=name)
        self._on_change = on_change
        self._is_over = False
        self._end = callbacks.end
        self.keeper = Keeper(
            bells,
            self.timer,
            beat_s=beat_s,
            on_swept=self._on_swept,
            on_expiry=callbacks.expiry,
            on_lost=self._on_lost,
            server=name,
        )
        self.shards: int | None = None
        """Number of shards of the last sweep, None before the first."""
        self.is_lost = False
        runs = {f"timer{name and '-'}{name}": self.timer.run, f"keeper{name and '-'}{name}": self.keeper.run}
        self._threads = [daemon(thread, run, self._on_end) for thread, run in runs.items()]

    def start(self) -> None:
        """Begin to connect; returns at once."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Let the threads end."""
        self._is_over = True
        self.keeper.stop()
        self.timer.stop()

    def close(self) -> None:
        """Wait for the threads of a session that was stopped, and leave its server."""
        for thread in self._threads:
            thread.join(JOIN_S)
        self.bells.close()

    def _on_swept(self, shards: int) -> None:
        self.shards, self.is_lost = shards, False
        self._on_change()

    def _on_lost(self) -> None:
        self.is_lost = True
        self._on_change()

    def _on_end(self) -> None:
        if not self._is_over:
            self._end()


class Sessions:
    """The sessions of a ledger's primaries, begun and ended as primaries come and go. For one start and one stop.

    `on_ready` is called once each primary that was met at first has been swept, or is away, and one has been swept.
    """

    def __init__(
        self, bells: BellServers, *, beat_s: float, callbacks: Callbacks, on_ready: Callable[[], None]
    ) -> None:
        self._bells = bells
        self._beat_s = beat_s
        self._callbacks = callbacks
        self._on_ready = on_ready
        self._sessions: dict[str, Session] = {}
        """Sessions by the names of their primaries; a new table each time, so that readers need no lock."""
        self._left: list[Session] = []
        self._stopped = threading.Event()
        self._is_away = False
        self._thread = daemon("primaries", self._run, self._on_end)

    def start(self) -> None:
        """Begin to look for primaries; returns at once."""
        self._thread.start()

    def stop(self) -> None:
        """Let every session end: no ring comes any more once it has."""
        self._stopped.set()
        self._bells.changed.set()
        for session in self.every():
            session.stop()

    def close(self) -> None:
        """Wait for the threads, and leave every server."""
        self._thread.join(JOIN_S)
        for session in (*self.every(), *self._left):
            session.stop()
            session.close()
        self._bells.close()

    def every(self) -> list[Session]:
        """The current sessions."""
        return list(self._sessions.values())

    def hung(self) -> list[tuple[str, int]]:
        """Every bell that hangs, and when it goes (its server's epoch ms)."""
        return [one for session in self.every() for one in session.timer.hung()]

    def now(self) -> float:
        """The time of the clock that is ahead of all others (epoch ms); 0 before the first answer."""
        return max((session.clock.now() for session in self.every()), default=0.0)

    @property
    def shards(self) -> int:
        """Number of the shards that were swept."""
        return sum(session.shards or 0 for session in self.every())

    @property
    def events(self) -> bool | None:
        """True if key events of every primary are heard, None before that is known, False if some are not."""
        heard = {session.keeper.events for session in self.every()} or {None}
        return False if False in heard else None if None in heard else True

    @property
    def latest_ms(self) -> float:
        """The worst lateness of a timer since `forget_latest`."""
        return max((session.timer.latest_ms for session in self.every()), default=0.0)

    def forget_latest(self) -> None:
        """Measure lateness afresh."""
        for session in self.every():
            session.timer.latest_ms = 0.0

    def _run(self) -> None:
        while not self._stopped.is_set():
            self._bells.changed.clear()
            try:
                self._meet()
                self._hand_on()
            except StoreUnavailable as error:
                self._lose(error)
            self._wait()

    def _wait(self) -> None:
        """Wait until primaries may be others: at each beat, or soon where one does not answer."""
        if not self._stopped.wait(LOOK_S) and self._sessions and not any(one.is_lost for one in self.every()):
            self._bells.changed.wait(self._beat_s)

    def _meet(self) -> None:
        """Begin a session for each primary that is new, and end those of primaries that have gone."""
        met, now = self._bells.primaries(), self._sessions
        kept = {name: one for name, one in now.items() if met.get(name) is one.bells}
        new = {name: self._session(name, bells) for name, bells in met.items() if name not in kept}
        gone = [one for name, one in now.items() if name not in kept]
        if now and (new or gone):
            log.warning("the store's primaries are others now: %s", ", ".join(sorted(met)))
        self._is_away = False
        self._sessions = kept | new
        for session in gone:
            session.stop()
        for session in new.values():
            session.start()
            if self._stopped.is_set():
                session.stop()
        self._close(gone)

    def _close(self, gone: Iterable[Session]) -> None:
        """Close what has gone: its server may not answer, and others do not wait for that."""
        for session in gone:
            self._left.append(session)
            daemon("leaving", session.close, lambda: None).start()

    def _session(self, name: str, bells: Bells) -> Session:
        return Session(name, bells, beat_s=self._beat_s, callbacks=self._callbacks, on_change=self._on_change)

    def _hand_on(self) -> None:
        """Have the bells whose slot has moved rung for by their new primary's timer, and by no other.

        A head that came while the slot moved may have been heard by neither: so the new one looks, and rings for those
        that are gone.
        """
        sessions = self._sessions
        for name, session in sessions.items():
            moved: dict[str, list[str]] = {}
            for bell, _ in session.timer.hung():
                if (owner := self._bells.owner_of(bell)) != name and owner in sessions:
                    moved.setdefault(owner, []).append(bell)
            for owner, bells in moved.items():
                if sessions[owner].shards is None:
                    continue  # its first sweep looks at them
                with suppress(StoreUnavailable):  # it is away: until its bells are heard again, this one keeps them
                    sessions[owner].timer.look(bells, ring_missing=True)
                    session.timer.forget(bells)

    def _lose(self, error: StoreUnavailable) -> None:
        if not self._is_away:
            log.error("the store's primaries are not known: %s. Trying again", error)
        self._is_away = True

    def _on_change(self) -> None:
        every = self.every()
        if any(one.is_lost for one in every):
            self._bells.changed.set()
        if all(one.shards is not None or one.is_lost for one in every) and any(one.shards is not None for one in every):
            self._on_ready()

    def _on_end(self) -> None:
        if not self._stopped.is_set():
            self._callbacks.end()
