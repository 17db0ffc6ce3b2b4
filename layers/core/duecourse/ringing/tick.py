"""The tick: a survey of shards, upkeep of each, and a drain of tasks that the rings missed."""

import logging
import random
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from threading import Event
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar
from zlib import crc32

from duecourse.base.batches import batched
from duecourse.errors import StoreMisused, StoreUnavailable
from duecourse.ledger.operation_types import PRUNE, Away, Outlook, Swept
from duecourse.ledger.task import Shard, Trigger
from duecourse.running.drain import Drained, DrainResult

if TYPE_CHECKING:
    from duecourse.ledger.operations.ledger import Ledger

# Survey of a tick: the shards with work, and the idle shards to sweep this time.

T = TypeVar("T")
HasTime = Callable[[], bool]

AT_A_TIME = 50
"""Number of shards read or swept at once; the time left is checked in between."""
OUTLOOKS_AT_A_TIME = 500
"""The same for an outlook, which costs the server a tenth of that."""
SOON_MS = 60_000
"""A tick works shards with something to do within this time: until the next tick."""
PARTS = 4
"""Number of parts of the shards: a tick sweeps the idle ones of one part, so that each is swept in four minutes."""
ROUND_STEP_MS = 60_000
"""Time from tick to tick."""
ROUND_MS = PARTS * ROUND_STEP_MS
"""Age of a part's last sweep from which it is swept whatever the others' ages are: the next tick would be too late."""


class Survey(NamedTuple):
    """State of the ledger at the start of a tick; `oldest_overdue_ms` is the lateness of the longest waiting task.

    `shards` are those that answer. `busy` ones among them have, or may have, something to do before the next tick.
    `resting` are idle and to be swept this time, which completes the sweep of `parts` as of `now`.
    `left_out` shards are not among `shards`, and `away` is the reason. Either a cluster's primary has gone, or a queue
    has another number of shards than the settings say.
    """

    shards: list[Shard]
    busy: list[Shard]
    resting: list[Shard]
    parts: frozenset[int]
    now: int
    oldest_overdue_ms: int
    dead_total: int
    away: Away | None
    left_out: int


def survey_shards(ledger: "Ledger", has_time: HasTime) -> Survey:
    """Read the state of all shards; change nothing. Raises StoreUnavailable where the whole store is away.

    Shards that time does not suffice to look at are among the busy ones.
    """
    every = ledger.shards()
    outlooks, away = _answers_of(ledger.outlook_of, every, OUTLOOKS_AT_A_TIME, has_time)
    idle = [shard for shard, outlook in outlooks.items() if not has_work(outlook)]
    stats, lost = _answers_of(ledger.stats_of, _without(every, away, idle), AT_A_TIME, has_time)
    away |= lost
    if any(isinstance(error, StoreUnavailable) for error in away.values()):
        ledger.ping()
    now = max((outlook.now for outlook in outlooks.values()), default=0)
    parts = _due_parts(ledger, now) if len(idle) > AT_A_TIME else frozenset[int]()
    return Survey(
        shards=_without(every, away),
        busy=_without(every, away, idle),
        resting=[shard for shard in idle if part_of(shard) in parts] if parts else idle,
        parts=parts,
        now=now,
        oldest_overdue_ms=max((one.overdue_ms for one in stats.values() if not one.settings.paused), default=0),
        dead_total=sum(outlook.dead for outlook in outlooks.values()),
        away=next(iter(away.values()), None),
        left_out=len(away),
    )


def has_work(outlook: Outlook) -> bool:
    """True if a shard has something to do before the next tick."""
    return 0 < outlook.next_at <= outlook.now + SOON_MS


def part_of(shard: Shard) -> int:
    """The part that a shard belongs to."""
    return crc32(str(shard).encode()) % PARTS


def _due_parts(ledger: "Ledger", now: int) -> frozenset[int]:
    """The part that was swept longest ago, and every part that the next tick would sweep too late."""
    try:
        swept_at = ledger.rounds().swept_at()
    except StoreUnavailable:  # the record is on a server that is away, and the shards are not: they take turns
        return frozenset({now // ROUND_STEP_MS % PARTS})
    ages = {part: now - swept_at.get(part, 0) for part in range(PARTS)}
    oldest = max(ages, key=ages.__getitem__)
    # An age below 0: the server's clock was set back, and would keep this part waiting.
    return frozenset({oldest} | {part for part, age in ages.items() if not 0 <= age < ROUND_MS})


def _answers_of(
    ask: Callable[[Sequence[Shard]], list[T | Away]], shards: Sequence[Shard], size: int, has_time: HasTime
) -> tuple[dict[Shard, T], dict[Shard, Away]]:
    """Answers of those shards that answer while there is time, and the errors of the others."""
    answers: dict[Shard, T] = {}
    away: dict[Shard, Away] = {}
    for some in batched(shards, size):
        if has_time():
            for shard, answer in zip(some, ask(some), strict=True):
                if isinstance(answer, Away):
                    away[shard] = answer
                else:
                    answers[shard] = answer
    return answers, away


def _without(shards: Sequence[Shard], *others: Mapping[Shard, object] | Sequence[Shard]) -> list[Shard]:
    gone = set[Shard]().union(*others)
    return [shard for shard in shards if shard not in gone]


# Tick: upkeep of shards, and a drain of those with work.

log = logging.getLogger("duecourse.ringing")

REST = 3
"""Rest of the upkeep beside a drain, as a multiple of a step's time: Redis is there for the drain first."""


class TickResult(NamedTuple):
    """Figures of a tick; `left_out` shards did not answer, for the reason `away`."""

    shards: int
    oldest_overdue_ms: int
    dead_total: int
    reclaimed: int
    lapsed: int
    lapsed_at_target: int
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


class ShardDrainer(Protocol):
    """Drainer of shards, within the call or on another thread."""

    def drain_reachable(
        self, shards: Sequence[Shard], remaining_ms: Callable[[], int], triggers: Mapping[Shard, Trigger]
    ) -> DrainResult:
        """Drain the shards; returns the figures so far."""


class Sweeper:
    """Work of a tick: finds due tasks without a ring."""

    def __init__(
        self,
        ledger: "Ledger",
        drainer: ShardDrainer,
        retention: Retention,
        margin_ms: int,
        wait: Callable[[float], object] = time.sleep,
    ) -> None:
        """Make a sweeper; `wait` passes seconds."""
        self._ledger = ledger
        self._drainer = drainer
        self._retention = retention
        self._margin_ms = margin_ms
        self._wait = wait

    def survey(self, remaining_ms: Callable[[], int]) -> Survey:
        """Read the state of all shards; change nothing. Raises StoreUnavailable where the whole store is away."""
        return survey_shards(self._ledger, lambda: remaining_ms() > self._margin_ms)

    def tick(self, found: Survey, remaining_ms: Callable[[], int]) -> TickResult:
        """Sweep shards with work and some idle ones, a bounded step each; drain those with work meanwhile.

        A shard that does not answer is left out.
        """
        # The order differs from tick to tick, so that every shard has its turn where time is short.
        upkeep = _Upkeep(self._ledger, self._retention, _shuffled(found.busy), _shuffled(found.resting))
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
        return TickResult(
            shards=len(found.shards),
            oldest_overdue_ms=found.oldest_overdue_ms,
            dead_total=found.dead_total,
            reclaimed=swept.reclaimed + drained.reclaimed,
            lapsed=swept.lapsed + drained.lapsed,
            lapsed_at_target=swept.lapsed_at_target + drained.lapsed_at_target,
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
        """Drain the shards with work, while another thread sweeps on and deletes finished tasks."""
        shards, stop = upkeep.with_work(), Event()
        with ThreadPoolExecutor(1, "duecourse-sweep") as beside:
            sweeping = beside.submit(upkeep.go_on, stop) if shards and upkeep.waiting else None
            try:
                return self._drainer.drain_reachable(shards, remaining_ms, dict.fromkeys(shards, Trigger.TICK))
            finally:
                stop.set()
                if sweeping:
                    sweeping.result()

    def _drain_spared(self, upkeep: "_Upkeep", remaining_ms: Callable[[], int]) -> Drained:
        """Wait for spared leases to lapse, and drain their shards again.

        Without a bridge, these tasks would wait for the next tick.
        """
        seconds = max(upkeep.spared.values(), default=0.0) - time.monotonic()
        if not upkeep.spared or remaining_ms() - seconds * 1_000 <= self._margin_ms:
            return Drained()
        self._wait(max(0.0, seconds))
        shards = list(upkeep.spared)
        return self._drainer.drain_reachable(shards, remaining_ms, dict.fromkeys(shards, Trigger.TICK)).drained

    def _note_round(self, found: Survey, upkeep: "_Upkeep") -> None:
        """Record the parts that are swept; the next tick begins with the others."""
        parts = found.parts - {part_of(shard) for shard in set(upkeep.waiting).intersection(found.resting)}
        if parts:
            with suppress(StoreUnavailable, StoreMisused):  # where memory is short, the next tick sweeps them once more
                self._ledger.rounds().note(parts, found.now)

    def _warn(self) -> None:
        with suppress(StoreUnavailable, StoreMisused):  # a primary that is away is reported already
            for warning in self._ledger.warnings():
                log.error("%s", warning)

    def _forget_requests(self, remaining_ms: Callable[[], int]) -> None:
        idempotency = self._ledger.idempotency()
        with suppress(StoreUnavailable):  # the next tick forgets them
            while idempotency.prune() == PRUNE and remaining_ms() > self._margin_ms:
                pass


class _Upkeep:
    """The sweeps of one tick: the shards still to be swept, and the figures."""

    def __init__(self, ledger: "Ledger", retention: Retention, busy: Sequence[Shard], resting: Sequence[Shard]) -> None:
        self._ledger = ledger
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
        """Sweep until no shard waits, or `stop` is set."""
        while self.waiting and not stop.is_set():
            began = time.monotonic()
            self.step()
            stop.wait(REST * (time.monotonic() - began))

    def step(self) -> None:
        """Sweep some shards by one bounded step; shards with more to do come again, after the others."""
        some, self.waiting = self.waiting[:AT_A_TIME], self.waiting[AT_A_TIME:]
        answers = self._ledger.sweep_all(
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
            reclaimed=was.reclaimed + step.reclaimed,
            lapsed=was.lapsed + step.lapsed,
            lapsed_at_target=was.lapsed_at_target + step.lapsed_at_target,
            died=was.died + step.died,
            pruned=was.pruned + step.pruned,
        )


def _shuffled(shards: Sequence[Shard]) -> list[Shard]:
    return random.sample(shards, len(shards))
