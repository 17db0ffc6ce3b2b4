"""Drain of shards: claim, run, settle, until nothing is due, time is short, or the process ends."""

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from math import inf
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

from duecourse.errors import StoreMisused, StoreUnavailable, WrongShards
from duecourse.ledger.operation_types import MAX_CLAIM, Away, Claim, Lease, Settled
from duecourse.ledger.queue import MAX_PRIORITY
from duecourse.ledger.schedule import StoredSchedule
from duecourse.ledger.task import Settlement, Shard, Trigger
from duecourse.running.batches import LOOK_AGAIN_S, NO_DISPLAY, Finished, LeaseDisplay, WorkBatches
from duecourse.running.hand_over import MAX_TASKS, Targets
from duecourse.running.run import Runner, release
from duecourse.running.threads import Threads

if TYPE_CHECKING:
    from duecourse.ledger.operations.ledger import Ledger

# Claims, settles and extensions of leases with a timeout: a server that is slow does not delay the work of the others.

T = TypeVar("T")

PATIENCE_S = 1.0
"""Timeout of a call: after it the drain turns to other servers."""


class TimeoutLeases:
    """Leases with a timeout: each server is called on threads of its own, so that none delays the others.

    After a timeout, every call of that server raises StoreUnavailable until it has answered. The leases of a late claim
    are the answer to the next claim of its shard. Where all `shards` are on one server, there is no timeout.
    """

    def __init__(self, ledger: "Ledger", shards: Collection[Shard] = ()) -> None:
        self._ledger = ledger
        self._is_alone = len(set(map(ledger.server_of, shards))) == 1
        # A drain claims and settles side by side: of each server, both have a thread.
        self._threads: dict[tuple[str, str], ThreadPoolExecutor] = {}
        self._running: dict[tuple[str, str], Future[Any]] = {}
        self._late: dict[Shard, Future[Claim]] = {}

    def claim(self, shard: Shard, limit: int, **terms: Any) -> Claim:
        """Claim as Ledger.claim does, within the timeout."""
        server = self._server_of(shard)
        if not server:
            return self._ledger.claim(shard, limit, **terms)
        claim = partial(self._ledger.claim, shard, limit, **terms)
        claiming = self._late.get(shard) or self._begin("claim", server, claim)
        self._late.pop(shard, None)
        try:
            return claiming.result(PATIENCE_S)
        except TimeoutError:
            self._late[shard] = claiming
            raise timeout_error(server) from None

    def settle(self, shard: Shard, settlements: Sequence[Settlement]) -> list[Settled]:
        """Settle as Ledger.settle does, within the timeout."""
        server = self._server_of(shard)
        settle = partial(self._ledger.settle, shard, list(settlements))
        return self._done("settle", server, settle) if server else settle()

    def extend(self, shard: Shard, leases: Sequence[Lease], lease_ms: int, *, at_least: bool = False) -> list[int]:
        """Extend as Ledger.extend does, within the timeout."""
        server = self._server_of(shard)
        extend = partial(self._ledger.extend, shard, list(leases), lease_ms, at_least=at_least)
        return self._done("extend", server, extend) if server else extend()

    def ping(self) -> None:
        """Return if the ledger answers."""
        self._ledger.ping()

    def close(self) -> None:
        """Release the leases of late claims once they are answered; does not wait for them."""
        for shard, claiming in self._late.items():
            claiming.add_done_callback(partial(self._give_back, shard))
        for thread in self._threads.values():
            thread.shutdown(wait=False)

    def _server_of(self, shard: Shard) -> str:
        return "" if self._is_alone else self._ledger.server_of(shard)

    def _done(self, what: str, server: str, call: Callable[[], T]) -> T:
        """Answer of a call that may be made again."""
        try:
            return self._begin(what, server, call).result(PATIENCE_S)
        except TimeoutError:
            raise timeout_error(server) from None

    def _begin(self, what: str, server: str, call: Callable[[], T]) -> Future[T]:
        """Begin a call of a server on its thread. Raises StoreUnavailable while the last call runs."""
        running = self._running.get((what, server))
        if running and not running.done():
            raise StoreUnavailable(f"The store at {server} has not answered yet")
        if (what, server) not in self._threads:
            self._threads[what, server] = ThreadPoolExecutor(1, f"duecourse-{what}-{server}")
        begun = self._threads[what, server].submit(call)
        self._running[what, server] = begun
        return begun

    def _give_back(self, shard: Shard, claiming: Future[Claim]) -> None:
        try:
            tasks = claiming.result().tasks
            if tasks:
                self._ledger.settle(shard, [release(task) for task in tasks])
        except (StoreUnavailable, StoreMisused):
            pass  # they lapse


def timeout_error(server: str) -> StoreUnavailable:
    """The error of a server that does not answer in time."""
    return StoreUnavailable(f"The store at {server} does not answer within {PATIENCE_S:g} s")


# State of a drain: claims from shards, settlements of finished tasks, and shards that do not answer.

log = logging.getLogger("duecourse.running")

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


Fire: TypeAlias = Callable[[Shard, Sequence[StoredSchedule], int], None]
"""`Firer.fire` (schedules/firing.py): fires schedules of a shard that a claim found due at its time (epoch ms)."""


class Drained(NamedTuple):
    """Figures of a drain, in tasks; `stale` leases were lost before they were settled.

    `reclaimed` are those whose lease had lapsed. Of these, `lapsed` had been begun: their runs ended without a settle.
    A target had begun `lapsed_at_target` of them.

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
    lapsed: int = 0
    lapsed_at_target: int = 0
    backlog: int = 0
    bell_at: int = 0

    def plus(self, later: "Drained") -> "Drained":
        """Figures of two drains, one after the other: of what is left, those of the later one, if it looked."""
        if later == Drained():
            return self
        sums = Drained(*map(sum, zip(self, later, strict=True)))
        return sums._replace(backlog=later.backlog, bell_at=later.bell_at)


class ShardBackoff(NamedTuple):
    """Pause of a shard after an error: the error, the number of failures in a row, and the end of the pause."""

    error: Away
    tries: int
    until: float


class DrainState:
    """State of one drain: the shards to look at, their tasks in flight, and the settlements still to be stored.

    The drain looks at `triggers`' shards again and again, and at each other shard once a ring. `priorities` and
    `only_handed` outlive it: whether the last claim of a shard brought only tasks for functions.
    """

    def __init__(
        self,
        ledger: "Ledger",
        batches: WorkBatches,
        triggers: Mapping[Shard, Trigger],
        priorities: dict[Shard, int],
        only_handed: dict[Shard, bool],
        fire: Fire,
    ) -> None:
        self._leases = TimeoutLeases(ledger, list(triggers))
        self._batches = batches
        self._fire = fire
        self._shards = self._waiting = list(triggers)
        self._triggers = dict(triggers)
        self._priorities = priorities
        self._only_handed = only_handed
        self._look_s = LOOK_AGAIN_S * max(1, len(self._shards) / LOOKS)
        self._look_at = time.monotonic() + self._look_s
        self._ended: dict[Shard, list[Settlement]] = {}
        self._settled: set[Shard] = set()
        self._away: StoreUnavailable | None = None
        self._left_out: dict[Shard, ShardBackoff] = {}
        self._warned_at: dict[Shard, float] = {}
        self._retry_at = 0.0
        self._retried: Shard | None = None
        self._back: set[Shard] = set()
        self._last: dict[Shard, Claim] = {}
        self._counts = dict.fromkeys(Settled, 0)
        self._claimed = self._died = self._reclaimed = self._lapsed = self._lapsed_at_target = 0
        self._closing = False

    def goes_on(self) -> bool:
        """True if there is more to do."""
        if self._batches.in_flight or (self._ended and not self._closing):
            return True
        return bool(self._waiting and not (self._away or self._closing))

    def ring(self, triggers: Mapping[Shard, Trigger]) -> None:
        """Look at these shards too, and again at a store that was away: a ring shows that it is back."""
        self._away = None
        for shard, trigger in triggers.items():
            left_out = self._left_out.get(shard)
            # A store that rejects commands may ring as before: its pauses go on, and the end of one is near.
            if left_out and (isinstance(left_out.error, StoreUnavailable) or trigger is Trigger.TICK):
                del self._left_out[shard]
        self._triggers.update(triggers)
        self._waiting = list(dict.fromkeys([*self._waiting, *triggers]))

    def retry(self) -> None:
        """Look again at one of the shards that are left out whose pause is over."""
        now = time.monotonic()
        over = [shard for shard, left_out in self._left_out.items() if left_out.until <= now]
        over = [shard for shard in over if shard not in self._ended]  # their ends come first
        self._retried = None
        if over and now >= self._retry_at:
            self._retried = min(over, key=lambda shard: self._left_out[shard].until)
            self._waiting = list(dict.fromkeys([self._retried, *self._waiting]))

    @property
    def patience_s(self) -> float:
        """Time to block for a finished task or a ring before the next look at the shards."""
        if self._batches.in_flight or self._ended:
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
        """Error of the store, or of a shard that is left out; None for none."""
        return self._away or next((left_out.error for left_out in list(self._left_out.values())), None)

    @property
    def left_out(self) -> int:
        """Number of shards that are left out."""
        return len(self._left_out)

    @property
    def is_unsettled(self) -> bool:
        """True while the store has not accepted the settlement of each finished task."""
        return bool(self._ended)

    def gather(self, patience_s: float | None = None) -> None:
        """Collect finished batches, after a short wait for the first, and batches that no thread will begin."""
        if patience_s is None:
            patience_s = LOOK_AGAIN_S if self._batches.in_flight or self._ended else 0.0
        self._take_in(self._batches.gather(patience_s))

    def close(self) -> None:
        """Claim no more, and release tasks that no thread has begun."""
        if not self._closing:
            self._closing = True
            for shard, left_out in list(self._left_out.items()):
                self._left_out[shard] = left_out._replace(until=0.0)  # there may be no other time to settle
        self._take_in(self._batches.take_back())

    def end(self) -> None:
        """Release the leases of late claims; does not wait for a server."""
        self._leases.close()

    def settle_and_claim(self, lease_ms: int, beside: ThreadPoolExecutor) -> None:
        """Settle finished tasks, and claim for the free slots: both at the same time where both are needed."""
        # Where due tasks wait for these settlements, settle first: else tasks of any priority would take the slots.
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
            lapsed=self._lapsed,
            lapsed_at_target=self._lapsed_at_target,
            **self._counts | {Settled.DEAD: self._counts[Settled.DEAD] + self._died},
            backlog=sum(claim.backlog for claim in last) + unseen,
            bell_at=min((claim.bell_at for claim in last if claim.bell_at), default=0),
        )

    def _take_in(self, finished: Finished) -> None:
        for batch, settlements in finished:
            self._ended.setdefault(batch.shard, []).extend(settlements)

    def _claim(self, lease_ms: int) -> None:
        """Claim from the shards that may have work; each of them comes last the next time."""
        if self._closing or self._away:
            return
        if time.monotonic() >= self._look_at:
            self._look_at = time.monotonic() + self._look_s
            self._waiting = list(dict.fromkeys(self._waiting + self._shards))
        skipped, behind = [], []
        # A shard whose priority is unknown goes first: its claim answers the priority.
        for shard in sorted(self._waiting, key=lambda shard: -self._priorities.get(shard, MAX_PRIORITY + 1)):
            if self._away or self._batches.are_enough:
                skipped.append(shard)
            elif (shard not in self._left_out or shard == self._retried) and self._claim_from(shard, lease_ms):
                behind.append(shard)
        self._waiting = skipped + behind

    def _claim_from(self, shard: Shard, lease_ms: int) -> bool:
        """Claim and begin tasks of a shard; returns True if it may have more due tasks at once.

        Occurrences that a claim's schedules added are claimed at once: they wait for no task that runs.
        """
        began = time.monotonic()
        try:
            claim = self._claim_once(shard, lease_ms)
            self._left_out.pop(shard, None)
            if claim.schedules:
                self._fire(shard, claim.schedules, claim.now)  # next: `Firer.fire` (schedules/firing.py)
                if self._batches.are_enough:
                    return True
                claim = self._claim_once(shard, lease_ms)
        except (StoreUnavailable, StoreMisused) as error:
            return self._lose(shard, error, began)
        return bool(claim.schedules or (claim.backlog and (claim.tasks or claim.died or claim.aside)))

    def _claim_once(self, shard: Shard, lease_ms: int) -> Claim:
        """Claim once, and begin the claimed tasks. Raises the errors of the store."""
        self._settled.discard(shard)
        claim = self._leases.claim(
            shard,
            self._limit(shard),
            lease_ms=lease_ms,
            trigger=self._triggers[shard],
            deliveries=self._batches.deliveries,
            kinds=self._batches.kinds,
            at_once=self._batches.idle,
        )
        self._last[shard] = replace(claim, tasks=[], schedules=[])
        self._priorities[shard] = claim.priority
        if claim.tasks:
            self._only_handed[shard] = all(task.target for task in claim.tasks)
        self._claimed += len(claim.tasks)
        self._died += claim.died
        self._reclaimed += claim.reclaimed
        self._lapsed += claim.lapsed
        self._lapsed_at_target += claim.lapsed_at_target
        self._batches.begin(shard, claim.tasks, claim.each, claim.at_once)
        return claim

    def _limit(self, shard: Shard) -> int:
        """Number of tasks to claim: whole events for functions, unless the last claim brought other tasks too."""
        free, only_handed = min(self._batches.free, MAX_CLAIM), self._only_handed.get(shard)
        if only_handed is False or not self._batches.deliveries:
            return free
        # The rest would be an event of its own, and an invocation takes as long for one task as for ten.
        return free - free % MAX_TASKS or (MAX_TASKS if only_handed else free)

    def _look_again(self, ended: Iterable[Shard]) -> None:
        """Look again at shards where tasks waited for a settlement, or one was rejected; at all once nothing runs."""
        self._settled.update(ended)
        throttled = [shard for shard in ended if self._last[shard].throttled]
        everywhere = self._settled.intersection(self._shards) if not self._batches.in_flight else ()
        self._waiting = list(dict.fromkeys([*self._waiting, *throttled, *everywhere, *self._back]))
        self._back.clear()

    def _settle(self) -> None:
        """Settle finished tasks. May run beside a claim, with which it shares only `_away` and `_left_out`."""
        for shard in list(self._ended):
            if not self._away:
                self._settle_in(shard)

    def _note_begun(self) -> None:
        """Record that tasks which were claimed ahead have begun, once they have run for a while."""
        if self._away:
            return
        for shard, tasks in self._batches.take_begun().items():
            if shard in self._left_out:
                continue
            try:
                self._leases.extend(shard, list(map(Lease.of, tasks)), 0, at_least=True)
            except (StoreUnavailable, StoreMisused) as error:
                self._lose(shard, error)

    def _settle_in(self, shard: Shard) -> None:
        """Settle finished tasks of a shard. Rejected settlements stay, and are tried again while leases hold."""
        settlements = self._ended[shard]
        if isinstance(self._error_of(shard), WrongShards):
            settlements.clear()  # nothing here holds a lease: while one is held, no shards are changed
        while settlements and self._may_try(shard):
            # One of many may be the cause: alone, it holds up no other.
            is_rejected = isinstance(self._error_of(shard), StoreMisused)
            some, began = settlements[: 1 if is_rejected else MAX_CLAIM], time.monotonic()
            try:
                answers = self._leases.settle(shard, some)
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
                self._batches.leases.drop(end.token for end in some)
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
            self._leases.ping()  # tells one shard's node from the store as a whole
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
        self._left_out[shard] = ShardBackoff(error, tries, inf if isinstance(error, WrongShards) else now + pause_s)
        self._retry_at = max(self._retry_at, now + rest_s)
        if now - self._warned_at.get(shard, -inf) >= WARN_S:
            self._warned_at[shard] = now
            log.warning("shard %s is left out of this drain, after %d tries: %s", shard, tries, error)
        return False


# A drain of given shards, until nothing is due or time is short.

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
        ledger: "Ledger",
        runner: Runner,
        targets: Targets,
        threads: Threads,
        limits: Limits,
        fire: Fire,
    ) -> None:
        self._ledger = ledger
        self._runner = runner
        self._targets = targets
        self._threads = threads
        self._limits = limits
        self._fire = fire
        self._priorities: dict[Shard, int] = {}
        self._only_handed: dict[Shard, bool] = {}

    def drain(
        self, shards: Sequence[Shard], remaining_ms: Callable[[], int], triggers: Mapping[Shard, Trigger] = NO_TRIGGERS
    ) -> Drained:
        """Work the shards until nothing in them is due, or `remaining_ms` falls to the margin.

        Shards of a higher priority are claimed from first while they have work: each claim answers its queue's
        priority. `triggers` is the trigger of each shard's work.

        If the store goes away meanwhile, finished tasks are settled again and again until time is short. A shard that
        is away delays no other.

        Raises StoreUnavailable if the store or a shard does not come back or was not there at first. Raises
        StoreMisused if a shard's queue has another number of shards than the ledger was given. Both errors are raised
        after all other shards are worked.
        """
        drained, away = self.drain_reachable(shards, remaining_ms, triggers)
        if away:
            raise away
        return drained

    def drain_reachable(
        self, shards: Sequence[Shard], remaining_ms: Callable[[], int], triggers: Mapping[Shard, Trigger] = NO_TRIGGERS
    ) -> DrainResult:
        """Drain the shards that answer; returns the error of one that does not, where `drain` raises it."""
        found = {shard: triggers.get(shard, Trigger.TAKE) for shard in shards}
        batches = WorkBatches(self._runner, self._targets, self._threads)
        state = DrainState(self._ledger, batches, found, self._priorities, self._only_handed, self._fire)
        with ThreadPoolExecutor(1, "duecourse-settle") as beside:  # it starts a thread once there is work for it
            try:
                while state.goes_on():
                    state.gather()
                    if remaining_ms() <= self._limits.margin_ms:
                        state.close()
                    state.settle_and_claim(self._limits.lease_ms, beside)
            finally:
                batches.take_back()  # no thread is to begin more while a settle that goes on is waited for
                state.end()
        return DrainResult(state.drained(), state.away)


# A drain that works the shards of rings until its process ends.


class ContinuousDrain:
    """One drain for all rings of a process, so that a slow task delays no ring: `run` it on a thread of its own.

    While the store is away, or rejects commands, it keeps finished tasks, and settles them once the store accepts them.
    `run` returns only after that, even once stopped.
    """

    def __init__(
        self,
        ledger: "Ledger",
        runner: Runner,
        targets: Targets,
        threads: Threads,
        lease_ms: int,
        fire: Fire,
        leases: LeaseDisplay = NO_DISPLAY,
    ) -> None:
        self._batches = WorkBatches(runner, targets, threads, leases)
        self._state = DrainState(ledger, self._batches, NO_TRIGGERS, {}, {}, fire)
        self._lease_ms = lease_ms
        self._rung: dict[Shard, Trigger] = {}
        self._ringing = threading.Lock()
        self._stopped = False

    def ring(self, triggers: Mapping[Shard, Trigger]) -> None:
        """Have these shards looked at; returns at once. Any thread may call it."""
        with self._ringing:
            self._rung.update(triggers)
        self._batches.wake()

    def drain_reachable(
        self, shards: Sequence[Shard], _remaining_ms: object, triggers: Mapping[Shard, Trigger] = NO_TRIGGERS
    ) -> DrainResult:
        """Have the shards of a sweep looked at; returns at once, without figures."""
        self.ring({shard: triggers.get(shard, Trigger.TICK) for shard in shards})
        return DrainResult(Drained(), None)

    def stop(self) -> None:
        """Claim no more, release tasks that no thread has begun, and let `run` return once the others have finished."""
        self._stopped = True
        self._batches.wake()

    def run(self) -> None:
        """Drain the shards that ring, until stopped."""
        with ThreadPoolExecutor(1, "duecourse-settle") as beside:
            while not self._stopped or self._state.goes_on() or self._state.is_unsettled:
                patience_s = self._state.patience_s
                self._state.gather(patience_s)
                rung = self._take_rings()
                if rung or patience_s == AWAY_S:
                    self._state.ring(rung)
                self._state.retry()
                if self._stopped:
                    self._state.close()
                self._state.settle_and_claim(self._lease_ms, beside)
        self._state.end()

    def drained(self) -> Drained:
        """Figures so far."""
        return self._state.drained()

    @property
    def left_out(self) -> int:
        """Number of shards that are left out, and tried again now and then."""
        return self._state.left_out

    def _take_rings(self) -> dict[Shard, Trigger]:
        with self._ringing:
            taken, self._rung = self._rung, {}
        return taken
