"""Sessions of the bridge, one with each primary of the ledger, which come and go with them."""

import logging
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING

from duecourse.errors import StoreUnavailable
from duecourse.ledger.bells import Bells, BellServers
from duecourse.ringing.dispatch import daemon
from duecourse.ringing.listener import ListenerSupervisor
from duecourse.ringing.timer import ServerClock, Timer

if TYPE_CHECKING:
    from duecourse.ringing.bridge import Bridge

# Each session has a clock, a timer and a listener of its own.
#
# So a primary that is away keeps only its own bells waiting.

log = logging.getLogger("duecourse.bridge")

LOOK_S = 0.5
"""Least time between two looks for primaries: one that was lost may have been replaced at any moment."""
SESSION_JOIN_S = 5.0
"""Time that the threads of a session have to end, which a server that does not answer holds up."""


class Session:
    """Session with one primary: a listener and a timer, each on a thread. For one start and one stop.

    `bridge` takes its rings, and the watched keys that expired.
    """

    def __init__(
        self, name: str, bells: Bells, bridge: "Bridge", *, beat_s: float, on_change: Callable[[], None]
    ) -> None:
        self.bells = bells
        self.clock = ServerClock()
        self.timer = Timer(bells, self.clock, bridge.on_rings, server=name)
        self._bridge = bridge
        self._on_change = on_change
        self._is_over = False
        self.supervisor = ListenerSupervisor(
            bells,
            self.timer,
            beat_s=beat_s,
            on_swept=self._on_swept,
            on_expiry=bridge.on_expiry,
            on_lost=self._on_lost,
            server=name,
        )
        self.shards: int | None = None
        """Number of shards of the last sweep, None before the first."""
        self.is_lost = False
        runs = {f"timer{name and '-'}{name}": self.timer.run, f"listener{name and '-'}{name}": self.supervisor.run}
        self._threads = [daemon(thread, run, self._on_end) for thread, run in runs.items()]

    def start(self) -> None:
        """Begin to connect; returns at once."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Let the threads end."""
        self._is_over = True
        self.supervisor.stop()
        self.timer.stop()

    def close(self) -> None:
        """Wait for the threads of a session that was stopped, and leave its server."""
        for thread in self._threads:
            thread.join(SESSION_JOIN_S)
        self.bells.close()

    def _on_swept(self, shards: int) -> None:
        self.shards, self.is_lost = shards, False
        self._on_change()

    def _on_lost(self) -> None:
        self.is_lost = True
        self._on_change()

    def _on_end(self) -> None:
        if not self._is_over:
            self._bridge.on_fault()


class Sessions:
    """Sessions with the primaries of a ledger, begun and ended as primaries come and go. For one start and one stop.

    `bridge` takes their rings and keys. The bridge is ready once each primary is swept or away, and one is swept.
    """

    def __init__(self, bells: BellServers, bridge: "Bridge", *, beat_s: float) -> None:
        self._bells = bells
        self._bridge = bridge
        self._beat_s = beat_s
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
        self._thread.join(SESSION_JOIN_S)
        for session in (*self.every(), *self._left):
            session.stop()
            session.close()
        self._bells.close()

    def every(self) -> list[Session]:
        """The current sessions."""
        return list(self._sessions.values())

    def pending_bells(self) -> list[tuple[str, int]]:
        """Every pending bell, with its time (its server's epoch ms)."""
        return [one for session in self.every() for one in session.timer.pending_bells()]

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
        heard = {session.supervisor.events for session in self.every()} or {None}
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
                self._update_sessions()
                self._move_bells()
            except StoreUnavailable as error:
                self._lose(error)
            self._wait()

    def _wait(self) -> None:
        """Wait for the next look for primaries: a beat, or shorter while one does not answer."""
        if not self._stopped.wait(LOOK_S) and self._sessions and not any(one.is_lost for one in self.every()):
            self._bells.changed.wait(self._beat_s)

    def _update_sessions(self) -> None:
        """Begin a session with each new primary, and end those with primaries that have gone."""
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
        """Close sessions, each on a thread, for its server may not answer."""
        for session in gone:
            self._left.append(session)
            daemon("leaving", session.close, lambda: None).start()

    def _session(self, name: str, bells: Bells) -> Session:
        return Session(name, bells, self._bridge, beat_s=self._beat_s, on_change=self._on_change)

    def _move_bells(self) -> None:
        """Move each bell whose slot has moved to the timer of its new primary."""
        # A head that came while the slot moved may have been heard by neither session. So the new timer looks, and
        # rings for bells that are gone.
        sessions = self._sessions
        for name, session in sessions.items():
            moved: dict[str, list[str]] = {}
            for bell, _ in session.timer.pending_bells():
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
            self._bridge.on_ready()

    def _on_end(self) -> None:
        if not self._stopped.is_set():
            self._bridge.on_fault()
