"""Draining shards: claim, run, settle, until nothing is due or time is short."""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import MappingProxyType
from typing import NamedTuple

from duecourse.domain.history import Trigger
from duecourse.domain.task import Shard
from duecourse.engine.flow import Drained, Fire, Flow
from duecourse.engine.pieces import Pieces
from duecourse.engine.run import Runner
from duecourse.engine.targets import Targets
from duecourse.engine.threads import Threads
from duecourse.ports.leases import LeaseStore
from duecourse.ports.ledger import Away

NO_TRIGGERS: Mapping[Shard, Trigger] = MappingProxyType({})


class DrainResult(NamedTuple):
    """Figures of a drain, and why the store or a shard was left out of it; None where none was."""

    drained: Drained
    away: Away | None


class Limits(NamedTuple):
    """Length of a lease, and the time that a drain leaves its function to finish running tasks."""

    lease_ms: int
    margin_ms: int


class Drainer:
    """Works due tasks, as many at a time as it has threads; `fire` adds the occurrences of due schedules."""

    def __init__(
        self,
        store: LeaseStore,
        runner: Runner,
        targets: Targets,
        threads: Threads,
        limits: Limits,
        fire: Fire,
    ) -> None:
        self._store = store
        self._runner = runner
        self._targets = targets
        self._threads = threads
        self._limits = limits
        self._fire = fire
        self._priorities: dict[Shard, int] = {}

    def drain(
        self, shards: Sequence[Shard], remaining_ms: Callable[[], int], triggers: Mapping[Shard, Trigger] = NO_TRIGGERS
    ) -> Drained:
        """Work the shards until nothing in them is due, or `remaining_ms` falls to the margin.

        Shards of a higher priority are claimed from first while they have work: each claim answers its queue's
        priority. `triggers` is the trigger of each shard's work.

        If the store goes away meanwhile, finished tasks are settled again and again until time is short. A shard that
        is away delays no other.

        Raises StoreUnavailable if the store or a shard does not come back or was not there at first. Raises
        StoreMisused if a shard's queue has another number of shards than the store was given. Either comes after all
        other shards are worked.
        """
        drained, away = self.drain_what_answers(shards, remaining_ms, triggers)
        if away:
            raise away
        return drained

    def drain_what_answers(
        self, shards: Sequence[Shard], remaining_ms: Callable[[], int], triggers: Mapping[Shard, Trigger] = NO_TRIGGERS
    ) -> DrainResult:
        """Do what `drain` does, but return what was left out in place of raising it."""
        found = {shard: triggers.get(shard, Trigger.TAKE) for shard in shards}
        pieces = Pieces(self._runner, self._targets, self._threads)
        flow = Flow(self._store, pieces, found, self._priorities, self._fire)
        with ThreadPoolExecutor(1, "duecourse-settle") as beside:  # it starts a thread once there is work for it
            try:
                while flow.goes_on():
                    flow.gather()
                    if remaining_ms() <= self._limits.margin_ms:
                        flow.close()
                    flow.settle_and_claim(self._limits.lease_ms, beside)
            finally:
                pieces.take_back()  # no thread is to begin more while a settle that goes on is waited for
                flow.end()
        return DrainResult(flow.drained(), flow.away)
