"""Flow of a drain: claims from shards, settlements of what has finished, and shards that do not answer."""

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import NamedTuple, TypeAlias

from duecourse.domain.history import Trigger
from duecourse.domain.outcomes import Settlement
from duecourse.domain.queues import MAX_PRIORITY
from duecourse.domain.schedule import Kept
from duecourse.domain.task import Shard
from duecourse.engine.patient import Patient
from duecourse.engine.pieces import LOOK_AGAIN_S, Finished, Pieces
from duecourse.errors import StoreMisused, StoreUnavailable
from duecourse.ports.leases import MAX_CLAIM, Claim, Lease, LeaseStore, Settled
from duecourse.ports.ledger import Away

log = logging.getLogger("duecourse.drain")

LOOKS = 10
"""Average number of shards of one look: with more of them, a drain looks less often."""
AWAY_S = 1.0
"""Pause between two attempts to reach a store that is away, while no task runs."""
IDLE_S = 60.0


Fire: TypeAlias = Callable[[Shard, Sequence[Kept], int], None]
"""Fires schedules of a shard that a claim found due, at the claim's time (epoch ms)."""


class Drained(NamedTuple):
    """Figures of a drain, in tasks; `stale` leases were lost before they were settled.

    `backlog` is what is due still, at least; a shard that time did not suffice to look at counts as one.
    """

    claimed: int = 0
    done: int = 0
    again: int = 0
    retried: int = 0
    dead: int = 0
    released: int = 0
    stale: int = 0
    backlog: int = 0
    bell_at: int = 0


class Flow:
    """One drain under way: the shards to look at, what is worked of them, and the ends of it.

    It looks at `triggers`' shards again and again. Those that ring later are looked at once a ring.
    """

    def __init__(
        self,
        store: LeaseStore,
        pieces: Pieces,
        triggers: Mapping[Shard, Trigger],
        priorities: dict[Shard, int],
        fire: Fire,
    ) -> None:
        self._store = Patient(store, list(triggers))
        self._pieces = pieces
        self._fire = fire
        self._shards = self._waiting = list(triggers)
        self._triggers = dict(triggers)
        self._priorities = priorities
        self._look_s = LOOK_AGAIN_S * max(1, len(self._shards) / LOOKS)
        self._look_at = time.monotonic() + self._look_s
        self._ended: dict[Shard, list[Settlement]] = {}
        self._settled: set[Shard] = set()
        self._away: StoreUnavailable | None = None
        self._left_out: dict[Shard, Away] = {}
        self._last: dict[Shard, Claim] = {}
        self._counts = dict.fromkeys(Settled, 0)
        self._claimed = self._died = 0
        self._closing = False

    def goes_on(self) -> bool:
        """True if there is more to do."""
        if self._pieces.in_flight or (self._ended and not self._closing):
            return True
        return bool(self._waiting and not (self._away or self._closing))

    def ring(self, triggers: Mapping[Shard, Trigger]) -> None:
        """Look at these shards too, and again at a store that was away: a ring comes from one that is there."""
        self._away = None
        for shard in triggers:
            if not isinstance(self._left_out.get(shard), StoreMisused):
                self._left_out.pop(shard, None)
        self._triggers.update(triggers)
        self._waiting = list(dict.fromkeys([*self._waiting, *triggers]))

    @property
    def patience_s(self) -> float:
        """Time to wait for what finishes or rings, before there is more to do without either."""
        if self._pieces.in_flight or self._ended:
            return LOOK_AGAIN_S
        if self._closing or not self._waiting:
            return IDLE_S
        return AWAY_S if self._away else 0.0

    @property
    def away(self) -> Away | None:
        """Error because of which the store, or a shard, is left out."""
        return self._away or next(iter(self._left_out.values()), None)

    def gather(self, patience_s: float | None = None) -> None:
        """Take in what has finished, waiting a little for the first of it, and what nothing here will begin."""
        if patience_s is None:
            patience_s = LOOK_AGAIN_S if self._pieces.in_flight or self._ended else 0.0
        self._take_in(self._pieces.gather(patience_s))

    def close(self) -> None:
        """Claim no more, and give back what no thread has begun."""
        self._closing = True
        self._take_in(self._pieces.take_back())

    def end(self) -> None:
        """Wait for no server any more; leases of claims that are answered too late are given back."""
        self._store.close()

    def settle_and_claim(self, lease_ms: int, beside: ThreadPoolExecutor) -> None:
        """End the leases of what has finished, and fill the slots that it freed: at once where there is both to do.

        Where due tasks wait for those ends, they come first: else others would take the slots, of any priority.
        """
        self._note_begun()
        ended = list(self._ended)
        awaited = any(self._last[shard].throttled for shard in ended)
        if ended and self._waiting and not (awaited or self._away or self._closing):
            # Each is a round trip: side by side they cost the time of one, and freed slots are filled that much sooner.
            settling = beside.submit(self._settle)
            self._claim(lease_ms)
            settling.result()
            if not self._ended:
                self._away = None  # it took them: what a claim met beside that is over, or is met again
            self._look_again(ended)
        else:
            if ended:
                self._away = None
                self._settle()
                self._look_again(ended)
            self._claim(lease_ms)

    def drained(self) -> Drained:
        """Figures of the drain."""
        last = self._last.values()
        unseen = len(self._shards) - len(last)
        return Drained(
            claimed=self._claimed,
            **self._counts | {Settled.DEAD: self._counts[Settled.DEAD] + self._died},
            backlog=sum(claim.backlog for claim in last) + unseen,
            bell_at=min((claim.bell_at for claim in last if claim.bell_at), default=0),
        )

    def _take_in(self, finished: Finished) -> None:
        for piece, settlements in finished:
            self._ended.setdefault(piece.shard, []).extend(settlements)

    def _claim(self, lease_ms: int) -> None:
        """Claim from the shards that may have work; those that had their turn come last the next time."""
        if self._closing or self._away:
            return
        if time.monotonic() >= self._look_at:
            self._look_at = time.monotonic() + self._look_s
            self._waiting = list(dict.fromkeys(self._waiting + self._shards))
        skipped, behind = [], []
        # What is not known yet comes before the highest: one claim tells.
        for shard in sorted(self._waiting, key=lambda shard: -self._priorities.get(shard, MAX_PRIORITY + 1)):
            if self._away or self._pieces.are_enough:
                skipped.append(shard)
            elif shard not in self._left_out and self._claim_from(shard, lease_ms):
                behind.append(shard)
        self._waiting = skipped + behind

    def _claim_from(self, shard: Shard, lease_ms: int) -> bool:
        """Answers whether the shard is worth another look at once.

        Occurrences that a claim's schedules added are claimed at once: they wait for no task that runs.
        """
        try:
            claim = self._claim_once(shard, lease_ms)
            if claim.schedules:
                self._fire(shard, claim.schedules, claim.now)
                if self._pieces.are_enough:
                    return True
                claim = self._claim_once(shard, lease_ms)
        except (StoreUnavailable, StoreMisused) as error:
            return self._lose(shard, error)
        return bool(claim.schedules or (claim.backlog and (claim.tasks or claim.died or claim.aside)))

    def _claim_once(self, shard: Shard, lease_ms: int) -> Claim:
        """Begin what one claim hands out. Raises what the store raises."""
        self._settled.discard(shard)
        most, trigger = min(self._pieces.free, MAX_CLAIM), self._triggers[shard]
        claim = self._store.claim(
            shard,
            most,
            lease_ms=lease_ms,
            trigger=trigger,
            deliveries=self._pieces.deliveries,
            kinds=self._pieces.kinds,
            at_once=self._pieces.idle,
        )
        self._last[shard] = replace(claim, tasks=[], schedules=[])
        self._priorities[shard] = claim.priority
        self._claimed += len(claim.tasks)
        self._died += claim.died
        self._pieces.begin(shard, claim.tasks, claim.each, claim.at_once)
        return claim

    def _look_again(self, ended: Iterable[Shard]) -> None:
        """Look again where tasks waited for an end, and everywhere once nothing runs."""
        self._settled.update(ended)
        throttled = [shard for shard in ended if self._last[shard].throttled]
        everywhere = self._settled.intersection(self._shards) if not self._pieces.in_flight else ()
        self._waiting = list(dict.fromkeys([*self._waiting, *throttled, *everywhere]))

    def _settle(self) -> None:
        """Settle what has ended; may run beside a claim: the two share only what they know to be away."""
        for shard in list(self._ended):
            if not self._away:
                self._settle_in(shard)

    def _note_begun(self) -> None:
        """Note that tasks which were claimed ahead have begun, once they have run for a while: one call for all."""
        if self._away:
            return
        for shard, tasks in self._pieces.take_begun().items():
            if shard in self._left_out:
                continue
            try:
                self._store.extend(shard, list(map(Lease.of, tasks)), 0, at_least=True)
            except (StoreUnavailable, StoreMisused) as error:
                self._lose(shard, error)

    def _settle_in(self, shard: Shard) -> None:
        if isinstance(self._left_out.get(shard), StoreMisused):
            del self._ended[shard]  # no settle of these leases can be taken: their tasks are in other shards
            return
        settlements = self._ended[shard]
        try:
            while settlements:
                for settled in self._store.settle(shard, settlements[:MAX_CLAIM]):
                    self._counts[settled] += 1
                del settlements[:MAX_CLAIM]
        except StoreUnavailable as error:
            self._lose(shard, error)
        except StoreMisused as error:
            del self._ended[shard]
            self._lose(shard, error)
        else:
            del self._ended[shard]
            self._left_out.pop(shard, None)

    def _lose(self, shard: Shard, error: Away) -> bool:
        """Leave a shard out until a settle of its own gets through; wait for a store that does not answer at all.

        Answers whether it does not.
        """
        try:
            self._store.ping()  # tells one shard's node from the store as a whole
        except StoreUnavailable as away:
            self._away = away
            return True
        if shard not in self._left_out:
            log.warning("shard %s is left out of this drain: %s", shard, error)
        self._left_out[shard] = error
        return False
