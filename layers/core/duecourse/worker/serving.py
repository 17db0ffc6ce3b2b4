"""One process of a worker: the bridge, the tick, and a drain that stays and runs the handlers."""

import logging
import random
import sys
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from functools import partial
from importlib.util import find_spec
from math import inf

from duecourse.bridge.bridge import SWITCH_S, Bridge
from duecourse.bridge.pool import daemon
from duecourse.bridge.rings import Ring
from duecourse.domain.history import Trigger
from duecourse.domain.lease import STEP_MS
from duecourse.domain.lost import Lost
from duecourse.domain.outcomes import Outcome, Settlement
from duecourse.domain.reminder import KIND as REMINDER
from duecourse.domain.task import Json, Shard, Task
from duecourse.domain.values import replaced
from duecourse.domain.watch import Expired
from duecourse.engine.alive import KeptAlive
from duecourse.engine.drain import DrainResult
from duecourse.engine.interrupted import STOPPED, is_suspect
from duecourse.engine.run import Kind
from duecourse.engine.standing import StandingDrain
from duecourse.engine.threads import Threads
from duecourse.errors import DuecourseError, InvocationRejected, StoreMisused, StoreUnavailable
from duecourse.handler import TaskHandler
from duecourse.ledgers import open_bells
from duecourse.wire.events.rings import shards_of
from duecourse.wiring import App
from duecourse.worker.board import Board

log = logging.getLogger("duecourse.worker")

TICK_S = 60.0


class Serving:
    """Serves the rings of a ledger in this process, from `start` to `stop`. `queues`, if there are any, are all it has.

    Its leases are shown on the `board`. `apart` runs a task whose process has died before.
    Raises InvalidSettings where the ledger has no bells, and StoreUnavailable where a cluster does not answer.
    """

    def __init__(
        self,
        app: App,
        handlers: Mapping[str, TaskHandler],
        queues: Collection[str],
        board: Board,
        apart: Callable[[Task], Settlement],
    ) -> None:
        self._app = app
        self._board = board
        self._apart = apart
        self._queues = frozenset(queues)
        self._own = frozenset(handlers)
        self._ends_at = inf
        self._alive = KeptAlive(app.store)
        self._threads = Threads(size_of(app, handlers))
        kinds: dict[str, Kind] = _built_in(app)
        kinds.update({kind: partial(handler.run, app) for kind, handler in handlers.items()})
        kept = {kind: self._kept(run) for kind, run in kinds.items()}
        # A kind of its own is never handed over, whatever the settings say.
        runner = app.runner(kept.get, app.seals.opened, self._run_apart)
        targets = app.targets_with(kept, own=handlers)
        self._drain = StandingDrain(app.store, runner, targets, self._threads, STEP_MS, app.fire, board)
        self._bridge = Bridge(open_bells(app.settings, app.place), self, in_flight=1)
        self._stopped = threading.Event()
        self._faulty = threading.Event()
        parts = {"drain": self._drain.run, "leases": self._alive.run, "tick": self._tick}
        self._parts = {name: daemon(name, run, self._end) for name, run in parts.items()}

    def start(self) -> None:
        """Begin to connect and to work; returns at once."""
        sys.setswitchinterval(SWITCH_S)
        for part in self._parts.values():
            part.start()
        self._bridge.start()

    def warm(self) -> None:
        """Load what the first task would wait for, and write down the kinds; where the store is away, a tick does."""
        self._app.load_calendar()
        with suppress(StoreUnavailable, StoreMisused):
            self._app.store.warmth().get_ready()
            self._app.write_deployed(self._own)

    def wait_ready(self, timeout: float) -> bool:
        """Wait until rings are heard; False after `timeout` seconds."""
        return self._bridge.wait_ready(timeout)

    def show(self) -> None:
        """Show on the board how many shards are left out."""
        self._board.left_out = self._drain.left_out

    @property
    def is_faulty(self) -> bool:
        """True if one of its threads has ended by a fault."""
        return self._faulty.is_set() or self._bridge.wait_ended(0)

    def stop(self, grace_s: float) -> bool:
        """Hear and claim nothing more, give back what has not begun, and finish what runs; False if not all did.

        What runs still after `grace_s` is given back, due again at once: the process is to end then.
        """
        self._ends_at = time.monotonic() + grace_s
        self._stopped.set()
        self._drain.stop()
        self._bridge.stop(grace_s)
        self._parts["drain"].join(max(0.0, self._ends_at - time.monotonic()))
        finished = not self._parts["drain"].is_alive()
        if not finished:
            count = self._alive.give_up(STOPPED)
            log.error("%d tasks run still after %g s: each runs again elsewhere", count, grace_s)
        self._alive.stop()
        return finished

    def drain(self, rings: Sequence[Ring]) -> Json:
        """See rings.Server. The drain looks at the shards; this call does not wait for it."""
        heard = shards_of({ring.key: ring.trigger for ring in rings}, self._app.settings.namespace)
        self._look({shard: heard.triggers[shard] for shard in heard.shards})
        return {}

    def note(self, expired: Sequence[Expired]) -> Json:
        """See rings.Server."""
        try:
            return self._app.watches.note(expired)._asdict()
        except DuecourseError as error:
            raise InvocationRejected(f"no tasks were made of watched keys: {error}") from error

    def drain_what_answers(
        self, shards: Sequence[Shard], remaining_ms: object, triggers: Mapping[Shard, Trigger]
    ) -> DrainResult:
        """See sweep.Drains."""
        return self._drain.drain_what_answers([one for one in shards if self._has(one)], remaining_ms, triggers)

    def _look(self, triggers: Mapping[Shard, Trigger]) -> None:
        self._drain.ring({shard: trigger for shard, trigger in triggers.items() if self._has(shard)})

    def _has(self, shard: Shard) -> bool:
        return not self._queues or shard.queue in self._queues

    def _kept(self, kind: Kind) -> Kind:
        def run(task: Task) -> Outcome | None:
            watched = self._watched(task)
            with self._alive.while_running(watched), self._board.running(watched):
                return kind(watched)

        return run

    def _run_apart(self, task: Task) -> Settlement | None:
        if task.kind not in self._own or not is_suspect(task):
            return None
        watched = self._watched(task)
        with self._alive.while_running(watched), self._board.running(watched, apart=True):
            return self._apart(watched)

    def _watched(self, task: Task) -> Task:
        """The task as its handler gets it, with its time left and the signal that its lease is gone."""
        until = time.monotonic() + (task.lease_expires_at - task.claimed_at) / 1_000
        return replaced(task, left_ms=self._left_ms, signal=Lost(until))

    def _left_ms(self) -> float:
        return (self._ends_at - time.monotonic()) * 1_000

    def _tick(self) -> None:
        """Sweep every shard each minute, at a time of its own: a worker needs no other tick, and may have one."""
        sweeper, pause_s = self._app.sweeper_with(self), 0.0
        while not self._stopped.wait(pause_s):
            ends_at = time.monotonic() + TICK_S
            try:
                with suppress(StoreUnavailable):  # one server's, while others have work
                    self._app.write_deployed(self._own)
                found = sweeper.survey(partial(self._tick_left_ms, ends_at))
                sweeper.tick(found, partial(self._tick_left_ms, ends_at))
            except (StoreUnavailable, StoreMisused) as error:
                log.warning("a tick is left out: %s", error)
            pause_s = random.uniform(0.5, 1.5) * TICK_S

    def _tick_left_ms(self, ends_at: float) -> int:
        return 0 if self._stopped.is_set() else int((ends_at - time.monotonic()) * 1_000)

    def _end(self) -> None:
        if not self._stopped.is_set():
            self._faulty.set()


def size_of(app: App, handlers: Mapping[str, TaskHandler]) -> int:
    """Number of tasks that a process runs at the same time: no more than any of its handlers allows."""
    return min([app.settings.parallel, *(handler.parallel for handler in handlers.values() if handler.parallel)])


def _built_in(app: App) -> dict[str, Kind]:
    """The kinds that need no handler; without boto3, nothing here sends reminders."""
    return {kind: run for kind, run in app.kinds.items() if kind != REMINDER or find_spec("boto3")}
