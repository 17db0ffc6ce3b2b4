"""A drain that stays: it works what rings until its process ends."""

import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from duecourse.domain.history import Trigger
from duecourse.domain.task import Shard
from duecourse.engine.drain import NO_TRIGGERS, DrainResult
from duecourse.engine.flow import AWAY_S, Drained, Fire, Flow
from duecourse.engine.pieces import UNSEEN, Leases, Pieces
from duecourse.engine.run import Runner
from duecourse.engine.targets import Targets
from duecourse.engine.threads import Threads
from duecourse.ports.leases import LeaseStore


class StandingDrain:
    """One drain for all rings of a process, so that a slow task holds up no ring: `run` it on a thread of its own.

    While the store is away, or rejects commands, it keeps what has finished, and settles it once the store accepts it.
    `run` returns only after that, even once stopped.
    """

    def __init__(
        self,
        store: LeaseStore,
        runner: Runner,
        targets: Targets,
        threads: Threads,
        lease_ms: int,
        fire: Fire,
        leases: Leases = UNSEEN,
    ) -> None:
        self._pieces = Pieces(runner, targets, threads, leases)
        self._flow = Flow(store, self._pieces, NO_TRIGGERS, {}, fire)
        self._lease_ms = lease_ms
        self._rung: dict[Shard, Trigger] = {}
        self._ringing = threading.Lock()
        self._stopped = False

    def ring(self, triggers: Mapping[Shard, Trigger]) -> None:
        """Have these shards looked at; any thread may call it, and it returns at once."""
        with self._ringing:
            self._rung.update(triggers)
        self._pieces.wake()

    def drain_what_answers(
        self, shards: Sequence[Shard], _remaining_ms: object, triggers: Mapping[Shard, Trigger] = NO_TRIGGERS
    ) -> DrainResult:
        """Have these shards looked at, as a sweeper asks: what it finds due is worked here, beside all else."""
        self.ring({shard: triggers.get(shard, Trigger.TICK) for shard in shards})
        return DrainResult(Drained(), None)

    def stop(self) -> None:
        """Claim no more, give back what no thread has begun, and let `run` return once the rest has finished."""
        self._stopped = True
        self._pieces.wake()

    def run(self) -> None:
        """Work what rings, until stopped."""
        with ThreadPoolExecutor(1, "duecourse-settle") as beside:
            while not self._stopped or self._flow.goes_on() or self._flow.is_unsettled:
                patience_s = self._flow.patience_s
                self._flow.gather(patience_s)
                rung = self._taken()
                if rung or patience_s == AWAY_S:
                    self._flow.ring(rung)
                self._flow.retry()
                if self._stopped:
                    self._flow.close()
                self._flow.settle_and_claim(self._lease_ms, beside)
        self._flow.end()

    def drained(self) -> Drained:
        """Figures so far."""
        return self._flow.drained()

    @property
    def left_out(self) -> int:
        """Number of shards that are left out, and tried again now and then."""
        return self._flow.left_out

    def _taken(self) -> dict[Shard, Trigger]:
        with self._ringing:
            taken, self._rung = self._rung, {}
        return taken
