"""Flow of a drain: claims from shards, settlements of what has finished, and shards that do not answer."""

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from math import inf
from typing import NamedTuple, TypeAlias

from duecourse.domain.history import Trigger
from duecourse.domain.outcomes import Settlement
from duecourse.domain.queues import MAX_PRIORITY
from duecourse.domain.schedule import Kept
from duecourse.domain.task import Shard
from duecourse.engine.patient import Patient
from duecourse.engine.pieces import LOOK_AGAIN_S, Finished, Pieces
from duecourse.errors import StoreMisused, StoreUnavailable, WrongShards
from duecourse.ports.leases import MAX_CLAIM, Claim, Lease, LeaseStore, Settled
from duecourse.ports.ledger import Away

log = logging.getLogger("duecourse.drain")

LOOKS = 10
"""Average number of shards of one look: with more of them, a drain looks less often."""
AWAY_S = 1.0
"""Pause between two attempts to reach a store that is away, while no task runs."""
IDLE_S = 60.0
PAUSES_S = 0.1, 5.0
"""Shortest and longest pause before a shard that is left out is tried again; each failure in a row doubles it."""
REST = 3
"""Least pause, as a multiple of the time that the failed try took: one that hangs must not hold up other shards."""
WARN_S = 60.0
"""Time between two log lines about one shard that is left out."""


Fire: TypeAlias = Callable[[Shard, Sequence[Kept], int], None]
"""Fires schedules of a shard that a claim found due, at the claim's time (epoch ms)."""


class Drained(NamedTuple):
    """Figures of a drain, in tasks; `stale` leases were lost before they were settled.

    `reclaimed` are those whose lease had lapsed: their worker died, or returned without a settle.

    `backlog` is what is due still, at least; a shard that time did not suffice to look at counts as one.
    """

    claimed: int = 0
    done: int = 0
    again: int = 0
    retried: int = 0
    dead: int = 0
    released: int = 0
    stale: int = 0
    reclaimed: int = 0
    backlog: int = 0
    bell_at: int = 0

    def plus(self, later: "Drained") -> "Drained":
        """Figures of two drains, one after the other: of what is left, those of the later one, if it looked."""
        if later == Drained():
            return self
        sums = Drained(*map(sum, zip(self, later, strict=True)))
        return sums._replace(backlog=later.backlog, bell_at=later.bell_at)


class LeftOut(NamedTuple):
    """A shard that a drain leaves out: the error, the number of failures in a row, and the end of the pause."""

    error: Away
    tries: int
    until: float


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
        self._left_out: dict[Shard, LeftOut] = {}
        self._warned_at: dict[Shard, float] = {}
        self._retry_at = 0.0
        self._retried: Shard | None = None
        self._back: set[Shard] = set()
        self._last: dict[Shard, Claim] = {}
        self._counts = dict.fromkeys(Settled, 0)
        self._claimed = self._died = self._reclaimed = 0
        self._closing = False

    def goes_on(self) -> bool:
        """True if there is more to do."""
        if self._pieces.in_flight or (self._ended and not self._closing):
            return True
        return bool(self._waiting and not (self._away or self._closing))

    def ring(self, triggers: Mapping[Shard, Trigger]) -> None:
        """Look at these shards too, and again at a store that was away: a ring comes from one that is there."""
        self._away = None
        for shard, trigger in triggers.items():
            left_out = self._left_out.get(shard)
            # A store that rejects commands may ring as before: its pauses go on, and the end of one is near.
            if left_out and (isinstance(left_out.error, StoreUnavailable) or trigger is Trigger.TICK):
                del self._left_out[shard]
        self._triggers.update(triggers)
        self._waiting = list(dict.fromkeys([*self._waiting, *triggers]))

    def retry(self) -> None:
        """Look again at one shard whose pause is over, of those that are left out."""
        now = time.monotonic()
        over = [shard for shard, left_out in self._left_out.items() if left_out.until <= now]
        over = [shard for shard in over if shard not in self._ended]  # their ends come first
        self._retried = None
        if over and now >= self._retry_at:
            self._retried = min(over, key=lambda shard: self._left_out[shard].until)
            self._waiting = list(dict.fromkeys([self._retried, *self._waiting]))

    @property
    def patience_s(self) -> float:
        """Time to wait for what finishes or rings, before there is more to do without either."""
        if self._pieces.in_flight or self._ended:
            return LOOK_AGAIN_S
        if self._closing:
            return IDLE_S
        if self._away:
            return AWAY_S
        if self._waiting:
            return 0.0
        until = min((left_out.until for left_out in self._left_out.values()), default=inf)
        return min(IDLE_S, max(0.0, max(until, self._retry_at) - time.monotonic()))

    @property
    def away(self) -> Away | None:
        """Error because of which the store, or a shard, is left out."""
        return self._away or next((left_out.error for left_out in list(self._left_out.values())), None)

    @property
    def left_out(self) -> int:
        """Number of shards that are left out."""
        return len(self._left_out)

    @property
    def is_unsettled(self) -> bool:
        """True if the store has not taken the end of every task that has finished."""
        return bool(self._ended)

    def gather(self, patience_s: float | None = None) -> None:
        """Take in what has finished, waiting a little for the first of it, and what nothing here will begin."""
        if patience_s is None:
            patience_s = LOOK_AGAIN_S if self._pieces.in_flight or self._ended else 0.0
        self._take_in(self._pieces.gather(patience_s))

    def close(self) -> None:
        """Claim no more, and give back what no thread has begun."""
        if not self._closing:
            self._closing = True
            for shard, left_out in list(self._left_out.items()):
                self._left_out[shard] = left_out._replace(until=0.0)  # there may be no other time to settle
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
            reclaimed=self._reclaimed,
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
            elif (shard not in self._left_out or shard == self._retried) and self._claim_from(shard, lease_ms):
                behind.append(shard)
        self._waiting = skipped + behind

    def _claim_from(self, shard: Shard, lease_ms: int) -> bool:
        """Answers whether the shard is worth another look at once.

        Occurrences that a claim's schedules added are claimed at once: they wait for no task that runs.
        """
        began = time.monotonic()
        try:
            claim = self._claim_once(shard, lease_ms)
            self._left_out.pop(shard, None)
            if claim.schedules:
                self._fire(shard, claim.schedules, claim.now)
                if self._pieces.are_enough:
                    return True
                claim = self._claim_once(shard, lease_ms)
        except (StoreUnavailable, StoreMisused) as error:
            return self._lose(shard, error, began)
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
        self._reclaimed += claim.reclaimed
        self._pieces.begin(shard, claim.tasks, claim.each, claim.at_once)
        return claim

    def _look_again(self, ended: Iterable[Shard]) -> None:
        """Look again where tasks waited for an end or ends were rejected, and everywhere once nothing runs."""
        self._settled.update(ended)
        throttled = [shard for shard in ended if self._last[shard].throttled]
        everywhere = self._settled.intersection(self._shards) if not self._pieces.in_flight else ()
        self._waiting = list(dict.fromkeys([*self._waiting, *throttled, *everywhere, *self._back]))
        self._back.clear()

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
        """Settle what has ended in a shard. What is rejected stays, and is tried again: its lease may hold still."""
        settlements = self._ended[shard]
        if isinstance(self._error_of(shard), WrongShards):
            settlements.clear()  # nothing here holds a lease: while one is held, no shards are changed
        while settlements and self._may_try(shard):
            # One of many may be the cause: alone, it holds up no other.
            is_rejected = isinstance(self._error_of(shard), StoreMisused)
            some, began = settlements[: 1 if is_rejected else MAX_CLAIM], time.monotonic()
            try:
                answers = self._store.settle(shard, some)
            except WrongShards as error:
                settlements.clear()
                self._lose(shard, error, began)
            except (StoreUnavailable, StoreMisused) as error:
                settlements[: len(some)] = []
                settlements.extend(some)
                if self._lose(shard, error, began):
                    return
            else:
                del settlements[: len(some)]
                self._pieces.leases.drop(end.token for end in some)
                if self._left_out.pop(shard, None):
                    self._back.add(shard)  # its rings were left out too
                for settled in answers:
                    self._counts[settled] += 1
        if not settlements:
            del self._ended[shard]

    def _error_of(self, shard: Shard) -> Away | None:
        left_out = self._left_out.get(shard)
        return left_out.error if left_out else None

    def _may_try(self, shard: Shard) -> bool:
        left_out = self._left_out.get(shard)
        return not left_out or left_out.until <= time.monotonic()

    def _lose(self, shard: Shard, error: Away, began: float | None = None) -> bool:
        """Leave a shard out until it answers again; wait for a store that does not answer at all.

        Returns True if the whole store is unreachable. `began` is when the failed try began.
        """
        try:
            self._store.ping()  # tells one shard's node from the store as a whole
        except StoreUnavailable as away:
            self._away = away
            return True
        except StoreMisused:
            pass  # it answers
        now = time.monotonic()
        before = self._left_out.get(shard)
        tries = before.tries + 1 if before else 1
        shortest, longest = PAUSES_S
        rest_s = 0.0 if began is None else REST * (now - began)
        pause_s = max(min(shortest * 2 ** min(tries - 1, 16), longest), rest_s)
        # Only a tick looks again where the settings have another number of shards: the tasks are in others.
        self._left_out[shard] = LeftOut(error, tries, inf if isinstance(error, WrongShards) else now + pause_s)
        self._retry_at = max(self._retry_at, now + rest_s)
        if now - self._warned_at.get(shard, -inf) >= WARN_S:
            self._warned_at[shard] = now
            log.warning("shard %s is left out of this drain, after %d tries: %s", shard, tries, error)
        return False
