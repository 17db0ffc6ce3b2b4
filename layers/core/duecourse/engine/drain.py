"""Draining shards: claim, run, settle, until nothing is due or time is short."""

import time
from collections.abc import Callable, Sequence
from functools import partial
from queue import Empty, SimpleQueue
from typing import NamedTuple

from duecourse.domain.outcomes import Settlement
from duecourse.domain.task import Shard, Task
from duecourse.engine.crew import Crew
from duecourse.engine.run import Runner, release
from duecourse.engine.targets import Targets
from duecourse.ports.store import MAX_CLAIM, Claim, Settled, Store

LOOK_AGAIN_S = 0.1
"""How often a drain that waits for slow tasks looks whether others have come due."""
QUICK_S = 0.02
"""Where tasks take less than this they are claimed ahead, two to a slot, so that no slot waits for a claim."""


class Drained(NamedTuple):
    """What a drain did, in tasks; `stale` leases were lost before they were settled."""

    claimed: int = 0
    done: int = 0
    again: int = 0
    retried: int = 0
    dead: int = 0
    released: int = 0
    stale: int = 0
    backlog: int = 0
    bell_at: int = 0


class Limits(NamedTuple):
    """How long a lease lasts, and how much time a drain leaves its function to finish what runs."""

    lease_ms: int
    margin_ms: int


class Drainer:
    """Works what is due, as many tasks at a time as its crew has threads."""

    def __init__(self, store: Store, runner: Runner, targets: Targets, crew: Crew, limits: Limits) -> None:
        self._store = store
        self._runner = runner
        self._targets = targets
        self._crew = crew
        self._limits = limits

    def drain(self, shards: Sequence[Shard], remaining_ms: Callable[[], int]) -> Drained:
        """Work the shards until nothing in them is due, or `remaining_ms` falls to the margin."""
        flow = _Flow(self._store, self._runner, self._targets, self._crew)
        flow.look_at(shards)
        try:
            while flow.in_flight or (flow.waiting and not flow.closing):
                flow.closing = remaining_ms() <= self._limits.margin_ms
                if not flow.closing:
                    flow.claim(self._limits.lease_ms)
                if flow.in_flight:
                    flow.settle(flow.finished_by(LOOK_AGAIN_S))
        finally:
            flow.closing = True
        return flow.drained()


class _Flow:
    """One drain under way: the shards to look at, and the tasks between claim and settle."""

    def __init__(self, store: Store, runner: Runner, targets: Targets, crew: Crew) -> None:
        self._store, self._runner, self._targets, self._crew = store, runner, targets, crew
        self._outbox: SimpleQueue[tuple[Shard, int, list[Settlement]]] = SimpleQueue()
        self._shards: list[Shard] = []
        self._settled: set[Shard] = set()
        self._last: dict[Shard, Claim] = {}
        self._counts = dict.fromkeys(Settled, 0)
        self._claimed = self._died = 0
        self._look_at = 0.0
        self._quick = False
        self.waiting: list[Shard] = []
        self.in_flight = 0
        self.closing = False

    def look_at(self, shards: Sequence[Shard]) -> None:
        """Claim from these shards next."""
        self._shards = self.waiting = list(shards)
        self._look_at = time.monotonic() + LOOK_AGAIN_S

    def claim(self, lease_ms: int) -> None:
        """Fill the free slots from the shards that may have work: a task to a slot, two while they are quick."""
        if time.monotonic() >= self._look_at:
            self.look_at(self._shards)
        slots, least = (2 * self._crew.size, self._crew.size) if self._quick else (self._crew.size, 1)
        left: list[Shard] = []
        for shard in self.waiting:
            room = min(slots - self.in_flight, MAX_CLAIM)
            if room < least:
                left.append(shard)
                continue
            self._settled.discard(shard)
            claim = self._store.claim(shard, room, lease_ms=lease_ms)
            self._start(shard, claim)
            if claim.backlog and (claim.tasks or claim.died):
                left.append(shard)
        self.waiting = left

    def finished_by(self, timeout_s: float) -> dict[Shard, list[Settlement]]:
        """What has finished, by shard; waits for the first up to the timeout."""
        finished: dict[Shard, list[Settlement]] = {}
        try:
            item = self._outbox.get(timeout=timeout_s)
            while True:
                shard, count, settlements = item
                self.in_flight -= count
                finished.setdefault(shard, []).extend(settlements)
                item = self._outbox.get_nowait()
        except Empty:
            return finished

    def settle(self, finished: dict[Shard, list[Settlement]]) -> None:
        """End the leases of what has finished; with the last of them, look whether more has come due meanwhile."""
        self._settled.update(finished)
        if not self.in_flight:
            self.waiting = [shard for shard in self._shards if shard in self._settled]
        for shard, settlements in finished.items():
            for start in range(0, len(settlements), MAX_CLAIM):
                for settled in self._store.settle(shard, settlements[start : start + MAX_CLAIM]):
                    self._counts[settled] += 1

    def drained(self) -> Drained:
        """What the drain did."""
        counts, last = self._counts, self._last.values()
        return Drained(
            claimed=self._claimed,
            done=counts[Settled.DONE],
            again=counts[Settled.AGAIN],
            retried=counts[Settled.RETRIED],
            dead=counts[Settled.DEAD] + self._died,
            released=counts[Settled.RELEASED],
            stale=counts[Settled.STALE],
            backlog=sum(claim.backlog for claim in last),
            bell_at=min((claim.bell_at for claim in last if claim.bell_at), default=0),
        )

    def _start(self, shard: Shard, claim: Claim) -> None:
        self._last[shard] = claim._replace(tasks=[])
        self._claimed += len(claim.tasks)
        self._died += claim.died
        self.in_flight += len(claim.tasks)
        elsewhere = []
        for task in claim.tasks:
            if self._targets.function_of(task):
                elsewhere.append(task)
            else:
                self._crew.do(partial(self._run, shard, task))
        for function, batch in self._targets.batches(elsewhere):
            self._crew.do(partial(self._hand_over, shard, function, batch))

    def _run(self, shard: Shard, task: Task) -> None:
        began = time.monotonic()
        settlement = release(task) if self.closing else self._runner.run(task)
        self._quick = time.monotonic() - began < QUICK_S
        self._outbox.put((shard, 1, [settlement]))

    def _hand_over(self, shard: Shard, function: str, batch: list[Task]) -> None:
        self._outbox.put((shard, len(batch), self._targets.hand_over(function, batch)))
