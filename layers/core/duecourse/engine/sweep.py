"""The tick: upkeep of every shard, and a drain of what the rings missed."""

import logging
import random
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from threading import Event
from typing import NamedTuple, Protocol

from duecourse.domain.history import Trigger
from duecourse.domain.task import Shard
from duecourse.engine import survey
from duecourse.engine.drain import DrainResult
from duecourse.engine.flow import Drained
from duecourse.engine.survey import AT_A_TIME, SOON_MS, Survey, part_of
from duecourse.errors import StoreMisused, StoreUnavailable
from duecourse.ports.idempotency import PRUNE
from duecourse.ports.ledger import Away
from duecourse.ports.upkeep import Swept, Upkeep

log = logging.getLogger("duecourse.sweep")

REST = 3
"""Rest of the upkeep beside a drain, as a multiple of a step's time: Redis is there for the drain first."""


class Ticked(NamedTuple):
    """Figures of a tick; `left_out` shards did not answer, for the reason `away`."""

    shards: int
    oldest_overdue_ms: int
    dead_total: int
    reclaimed: int
    pruned: int
    claimed: int
    done: int
    again: int
    retried: int
    dead: int
    backlog: int
    left_out: int = 0
    away: Away | None = None


class Retention(NamedTuple):
    """Time for which the ledger keeps finished tasks, and dead ones."""

    done_ms: int
    dead_ms: int | None = None


class Drains(Protocol):
    """Drainer of the shards with work, within the call or beside it."""

    def drain_what_answers(
        self, shards: Sequence[Shard], remaining_ms: Callable[[], int], triggers: Mapping[Shard, Trigger]
    ) -> DrainResult:
        """Work the shards; answers the figures of what it did until it returned."""


class Sweeper:
    """Work of a tick: finds due tasks without a ring."""

    def __init__(
        self,
        store: Upkeep,
        drainer: Drains,
        retention: Retention,
        margin_ms: int,
        wait: Callable[[float], object] = time.sleep,
    ) -> None:
        """Make a sweeper; `wait` passes seconds."""
        self._store = store
        self._drainer = drainer
        self._retention = retention
        self._margin_ms = margin_ms
        self._wait = wait

    def survey(self, remaining_ms: Callable[[], int]) -> Survey:
        """See what there is, and change nothing. Raises StoreUnavailable where the whole store is away."""
        return survey.take(self._store, lambda: remaining_ms() > self._margin_ms)

    def tick(self, found: Survey, remaining_ms: Callable[[], int]) -> Ticked:
        """Sweep shards with work and some idle ones, a bounded step each, drain those with work, sweep on meanwhile.

        One that does not answer holds up no other: it is left out. Which comes first differs from tick to tick, so that
        where time is short all have their turn.
        """
        upkeep = _Upkeep(self._store, self._retention, _shuffled(found.busy), _shuffled(found.resting))
        until_ms = self._margin_ms + (remaining_ms() - self._margin_ms) // 2  # the rest is the drain's
        upkeep.go_round(lambda: remaining_ms() > until_ms)
        drained, drain_away = self._drain_beside(upkeep, remaining_ms)
        while upkeep.waiting and remaining_ms() > self._margin_ms:
            upkeep.step()
        drained = drained.plus(self._drain_spared(upkeep, remaining_ms))
        self._note_round(found, upkeep)
        self._forget_requests(remaining_ms)
        self._warn()
        swept = upkeep.swept
        return Ticked(
            shards=len(found.shards),
            oldest_overdue_ms=found.oldest_overdue_ms,
            dead_total=found.dead_total,
            reclaimed=swept.reclaimed + drained.reclaimed,
            pruned=swept.pruned,
            claimed=drained.claimed,
            done=drained.done,
            again=drained.again,
            retried=drained.retried,
            dead=drained.dead + swept.died,
            backlog=drained.backlog,
            left_out=found.left_out + len(upkeep.away),
            away=found.away or next(iter(upkeep.away.values()), None) or drain_away,
        )

    def _drain_beside(self, upkeep: "_Upkeep", remaining_ms: Callable[[], int]) -> DrainResult:
        """Drain the shards with work, while another thread sweeps on: tasks finished there must be forgotten too."""
        shards, stop = upkeep.with_work(), Event()
        with ThreadPoolExecutor(1, "duecourse-sweep") as beside:
            sweeping = beside.submit(upkeep.go_on, stop) if shards and upkeep.waiting else None
            try:
                return self._drainer.drain_what_answers(shards, remaining_ms, dict.fromkeys(shards, Trigger.TICK))
            finally:
                stop.set()
                if sweeping:
                    sweeping.result()

    def _drain_spared(self, upkeep: "_Upkeep", remaining_ms: Callable[[], int]) -> Drained:
        """Drain again what a worker left that died: its leases lapsed while nobody looked, and get some seconds more.

        Without a bridge, the next look would be that of the next tick.
        """
        seconds = max(upkeep.spared.values(), default=0.0) - time.monotonic()
        if not upkeep.spared or remaining_ms() - seconds * 1_000 <= self._margin_ms:
            return Drained()
        self._wait(max(0.0, seconds))
        shards = list(upkeep.spared)
        return self._drainer.drain_what_answers(shards, remaining_ms, dict.fromkeys(shards, Trigger.TICK)).drained

    def _note_round(self, found: Survey, upkeep: "_Upkeep") -> None:
        """Note which parts are swept, for the next tick: what time did not suffice for is its first work."""
        parts = found.parts - {part_of(shard) for shard in set(upkeep.waiting).intersection(found.resting)}
        if parts:
            with suppress(StoreUnavailable, StoreMisused):  # where memory is short, the next tick sweeps them once more
                self._store.rounds().note(parts, found.now)

    def _warn(self) -> None:
        with suppress(StoreUnavailable, StoreMisused):  # a primary that is away is reported already
            for warning in self._store.warnings():
                log.error("%s", warning)

    def _forget_requests(self, remaining_ms: Callable[[], int]) -> None:
        idempotency = self._store.idempotency()
        with suppress(StoreUnavailable):  # the next tick forgets them
            while idempotency.prune() == PRUNE and remaining_ms() > self._margin_ms:
                pass


class _Upkeep:
    """The sweeps of one tick: which shards are to be swept yet, or again, and what was done."""

    def __init__(self, store: Upkeep, retention: Retention, busy: Sequence[Shard], resting: Sequence[Shard]) -> None:
        self._store = store
        self._retention = retention
        self._shards = [*busy, *resting]
        self.waiting = self._shards[:]
        """Shards that are to be swept yet, or again."""
        self._idle = set(resting)
        self.away: dict[Shard, Away] = {}
        self.spared: dict[Shard, float] = {}
        """Shards with leases that get some seconds more, and when those are over (by the monotonic clock)."""
        self.swept = Swept(0, 0, 0, False, 0, 0)

    def go_round(self, has_time: Callable[[], bool]) -> None:
        """Sweep each shard once, as far as there is time; some in any case."""
        for first in range(0, len(self._shards), AT_A_TIME):
            if first and not has_time():
                return
            self.step()

    def go_on(self, stop: Event) -> None:
        """Sweep until nothing is left to, or `stop` is set."""
        while self.waiting and not stop.is_set():
            began = time.monotonic()
            self.step()
            stop.wait(REST * (time.monotonic() - began))

    def step(self) -> None:
        """One bounded step of some shards; those with more to do come again, after the others."""
        some, self.waiting = self.waiting[:AT_A_TIME], self.waiting[AT_A_TIME:]
        answers = self._store.sweep_all(
            some, retention_ms=self._retention.done_ms, dead_retention_ms=self._retention.dead_ms
        )
        for shard, answer in zip(some, answers, strict=True):
            if isinstance(answer, Swept):
                self._note(shard, answer)
            else:
                self.away[shard] = answer
                log.warning("shard %s is left out of this tick: %s", shard, answer)

    def with_work(self) -> list[Shard]:
        """The shards that may have something due before the next tick, busy ones not swept yet among them."""
        return [shard for shard in self._shards if shard not in self._idle and shard not in self.away]

    def _note(self, shard: Shard, step: Swept) -> None:
        if step.more:
            self.waiting.append(shard)
        if step.spared_until:
            self.spared[shard] = time.monotonic() + (step.spared_until - step.now) / 1_000
        if 0 < step.bell_at <= step.now + SOON_MS:
            self._idle.discard(shard)
        else:
            self._idle.add(shard)
        was = self.swept
        self.swept = was._replace(
            reclaimed=was.reclaimed + step.reclaimed, died=was.died + step.died, pruned=was.pruned + step.pruned
        )


def _shuffled(shards: Sequence[Shard]) -> list[Shard]:
    return random.sample(shards, len(shards))
