"""A tick that lingers: the bridge within a function, its rings drained in this process until the time is over."""

import logging
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from duecourse.base.json_text import Json
from duecourse.base.metrics import LingerLine
from duecourse.errors import InvocationRejected
from duecourse.ledger.watched_keys import ExpiredKey
from duecourse.ringing.bridge import SWITCH_S, Bridge, Stats
from duecourse.ringing.bridge_event import Ring, shards_of

if TYPE_CHECKING:
    from duecourse.app import App

log = logging.getLogger("duecourse.bridge")

Remaining = Callable[[], int]
"""Milliseconds that this invocation still has."""

COUNTED = (
    "claimed", "done", "again", "retried", "reclaimed", "lapsed", "lapsed_at_target", "dead", "released", "stale",
)  # fmt: skip
LOOK_S = 1.0
"""Time between two looks at the time left, which may have jumped while the process was suspended."""
RETURN_MS = 1_000
"""Time kept for the way out."""
SHORT_MS = 3_000
"""Shortfall that is not logged: the cost of a slow start."""
SHORTENED = (
    "DUECOURSE_TICK_LINGER is %.0f s, but the function's time less DUECOURSE_MARGIN is %.0f s: the tick lingers no "
    "longer, and nothing rings until the next tick. Raise the function's timeout, or lower one of the two settings"
)


class LingerTime:
    """Time that a tick lingers: `linger_ms` from now on, without the invocation's last `margin_ms`."""

    def __init__(self, remaining_ms: Remaining, *, linger_ms: int, margin_ms: int) -> None:
        self._remaining_ms = remaining_ms
        left_ms = remaining_ms()
        self._end_ms = max(left_ms - linger_ms, margin_ms)
        self._until = time.monotonic() + linger_ms / 1000
        if left_ms - margin_ms + SHORT_MS < linger_ms:
            log.warning(SHORTENED, linger_ms / 1000, max(0, left_ms - margin_ms) / 1000)

    def left_ms(self) -> int:
        """Milliseconds until its end; 0 or less after it."""
        # Lambda's remaining time counts, because the process may have been suspended. Lambda's clock can be set back,
        # so the monotonic clock bounds it.
        return min(self._remaining_ms() - self._end_ms, int((self._until - time.monotonic()) * 1000))


class Linger:
    """Serves an App's rings in this process: `start`, `stay_until_over`, and `stop` in any case. For one invocation.

    The invocation's last DUECOURSE_MARGIN is for finishing the tasks that run. Tasks claimed and not begun by then are
    released. Raises InvalidSettings where the ledger has no bells.
    """

    def __init__(self, app: "App", remaining_ms: Remaining) -> None:
        given = app.settings
        self._app = app
        self._remaining_ms = remaining_ms
        self._time = LingerTime(remaining_ms, linger_ms=given.tick_linger_ms, margin_ms=given.margin_ms)
        self._stopped = False
        self._bridge = Bridge(app.open_bells(), self, in_flight=given.bridge_in_flight, warming=app.warming)
        self._switch_s = sys.getswitchinterval()
        self._counting = threading.Lock()
        self.counts: Counter[str] = Counter()
        """Numbers of tasks by what all drains did with them, and those `added` for watched keys."""

    def start(self) -> None:
        """Serve rings from now on, on threads of its own."""
        sys.setswitchinterval(SWITCH_S)  # as a bridge's process does; this one serves other events afterwards
        self._bridge.start()

    def stay_until_over(self) -> None:
        """Return when the time is over, or before that if one of the threads ends by a fault."""
        while (left_ms := self._time.left_ms()) > 0:
            if self._bridge.wait_ended(min(left_ms / 1000, LOOK_S)):
                log.error("a lingering tick's thread ended before its time: rings wait for the next tick")
                return

    def stop(self) -> None:
        """Begin nothing more, finish the work in progress, and close every thread and every connection."""
        self._stopped = True  # drains under way see no time left: they finish what runs, and give the rest back
        patience_s = max(0, self._remaining_ms() - RETURN_MS) / 1000
        if not self._bridge.stop(patience_s):
            log.error(
                "a lingering tick ended before its work did, after %.1f s: the leases of that work will lapse",
                patience_s,
            )
        sys.setswitchinterval(self._switch_s)

    def drain(self, rings: Sequence[Ring]) -> Json:
        """See RingHandler."""
        bells = {ring.key: ring.trigger for ring in rings}
        resolved = shards_of(bells, self._app.settings.namespace)
        with _rejected():
            drained = self._app.drainer.drain(resolved.shards, self._left_for_drain_ms, resolved.triggers)
        answer = drained._asdict()
        self._count(**{name: answer[name] for name in COUNTED})
        return answer

    def note(self, expired: Sequence[ExpiredKey]) -> None:
        """See RingHandler."""
        with _rejected():
            noted = self._app.watches.note(expired)
        self._count(added=noted.added)

    def stats(self) -> Stats:
        """Figures of the bridge within."""
        return self._bridge.stats()

    def line(self) -> LingerLine:
        """Metrics of the whole tick."""
        figures, did = self.stats(), self.counts
        return LingerLine(
            Rings=figures.rings,
            RingLateness=figures.latest_ms,
            Keys=figures.keys,
            KeysLost=figures.lost,
            Claimed=did["claimed"],
            Done=did["done"],
            Retried=did["retried"],
            Reclaimed=did["reclaimed"],
            Lapsed=did["lapsed"],
            LapsedAtTarget=did["lapsed_at_target"],
            Dead=did["dead"],
            Added=did["added"],
        )

    def _left_for_drain_ms(self) -> int:
        """Remaining milliseconds for a drain, which subtracts the margin itself."""
        return self._app.settings.margin_ms + (0 if self._stopped else self._time.left_ms())

    def _count(self, **done: int) -> None:
        with self._counting:
            self.counts.update(done)


@contextmanager
def _rejected() -> Iterator[None]:
    """Raise a drain's failure as a rejected invocation, so that one fault does not end the bridge."""
    try:
        yield
    except Exception as error:
        raise InvocationRejected(f"the drain failed: {error!r}") from error
