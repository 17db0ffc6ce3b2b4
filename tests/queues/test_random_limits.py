"""No claim ever exceeds a limit, and no capacity is left idle while work is due: on memory and Redis."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import pytest
import redis
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from duecourse.base.value_classes import as_dict
from duecourse.ledger.embedded.ledger import EmbeddedLedger
from duecourse.ledger.operation_types import Move
from duecourse.ledger.operations.ledger import Ledger
from duecourse.ledger.queue import QueueSettings, Rate, apply_changes
from duecourse.ledger.task import Ending, OnDuplicate, RetryPolicy, Task
from tests.support import redis_ledger
from tests.support.clock import HandClock
from tests.support.ledger import SHARD, ending, lease_of, new
from tests.support.matrix import LENGTHY, in_turn
from tests.support.redis_server import RedisServer

pytestmark = [LENGTHY, pytest.mark.slow]

EXAMPLES = in_turn(25, 150)
PROFILE = settings(stateful_step_count=50, deadline=None, suppress_health_check=list(HealthCheck), print_blob=True)
QUEUE = SHARD.queue
LEASE_MS = 400
UNATTENDED_MS = 2_000
"""A lease that lapsed longer ago, and was not taken back, gets some seconds more (lua/modules/lapses.lua)."""
RETRY = RetryPolicy(max_attempts=1_000, backoff_ms=30, factor=1, max_backoff_ms=30, jitter=False)
ENDINGS = [how for how in Ending if how is not Ending.UNDELIVERED]
"""Those of a lease; the other is a delivery's."""
tenants = st.sampled_from("abc")
ids = st.integers(0, 9).map(lambda n: f"t{n}")
few = st.sampled_from([None, 1, 2, 3])
rates = st.sampled_from([None, Rate(1, 50), Rate(3, 100), Rate(5, 1_000)])


class LimitMachine(RuleBasedStateMachine):
    """Knows what runs and what was claimed from the answers alone, and what is due from what it did."""

    def __init__(self, ledger: Ledger, clock: HandClock, check: Callable[[], object]) -> None:
        super().__init__()
        self.ledger, self.clock, self.check = ledger, clock, check
        self.settings = QueueSettings()
        self.running: dict[tuple[str, str], Task] = {}
        self.claimed: list[int] = []
        self.due: dict[tuple[str, str], int] = {}
        self.lapsed: set[tuple[str, str]] = set()  # whose last run lapsed

    @rule(tenant=tenants, chosen=st.sets(ids, min_size=1, max_size=8), delay_ms=st.sampled_from([0, 0, 0, 30]))
    def add(self, tenant: str, chosen: set[str], delay_ms: int) -> None:
        free = [id for id in sorted(chosen) if (tenant, id) not in self.running]
        self.ledger.add(
            [new(id, tenant=tenant, delay_ms=delay_ms, retry=RETRY, on_duplicate=OnDuplicate.REPLACE) for id in free]
        )
        self.due |= {(tenant, id): self.clock.at + delay_ms for id in free}
        self.lapsed -= {(tenant, id) for id in free}

    @rule(max_running=few, tenant_max=few, rate=rates, paused=st.sampled_from([False, False, False, True]))
    def set_all(self, max_running: int | None, tenant_max: int | None, rate: Rate | None, paused: bool) -> None:
        self._set(QueueSettings(paused=paused, max_running=max_running, tenant_max_running=tenant_max, rate=rate))

    @rule(max_running=few)
    def set_how_many_run(self, max_running: int | None) -> None:
        self._set(replace(self.settings, max_running=max_running))

    @rule(limit=st.sampled_from([1, 3, 500]))
    def claim(self, limit: int) -> None:
        self._lapse()
        claim = self.ledger.claim(SHARD, limit, lease_ms=LEASE_MS)
        for task in claim.tasks:
            self._begin(task)
        assert bool(claim.backlog) >= bool(self._claimable())
        if len(claim.tasks) < limit:
            assert (claim.backlog, self._claimable()) == (0, [])

    @rule(tenant=tenants, id=ids)
    def take(self, tenant: str, id: str) -> None:
        self._lapse()
        allowed = self._room() and self._tenant_room(tenant)
        task = self.ledger.take(QUEUE, id, tenant, lease_ms=LEASE_MS)
        assert (task is not None) == bool((tenant, id) in self.due and allowed)
        if task:
            self._begin(task)

    @rule(data=st.data(), how=st.sampled_from(ENDINGS), delay_ms=st.sampled_from([0, 20]))
    @precondition(lambda self: self.running)
    def settle(self, data: st.DataObject, how: Ending, delay_ms: int) -> None:
        chosen = data.draw(st.lists(st.sampled_from(sorted(self.running)), min_size=1, max_size=4, unique=True))
        self.ledger.settle(SHARD, [ending(self.running[key], how, delay_ms=delay_ms) for key in chosen])
        for key in chosen:
            del self.running[key]
            self.lapsed.discard(key)
            if how not in (Ending.DONE, Ending.DROP):
                self.due[key] = self.clock.at + delay_ms

    @rule(tenant=tenants, id=ids, move=st.booleans())
    def take_away(self, tenant: str, id: str, move: bool) -> None:
        known = (tenant, id) in self.running or (tenant, id) in self.due
        if move:
            self.ledger.move(QUEUE, [Move(id, delay_ms=20, force=True)], tenant)
        elif known:
            self.ledger.cancel(QUEUE, [id], force=True, tenant=tenant)
        self.running.pop((tenant, id), None)
        self.due.pop((tenant, id), None)
        self.lapsed.discard((tenant, id))
        if move and known:
            self.due[tenant, id] = self.clock.at + 20

    @rule(data=st.data())
    @precondition(lambda self: self.running)
    def extend(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(sorted(self.running)))
        [end] = self.ledger.extend(SHARD, [lease_of(self.running[key])], 2 * LEASE_MS)
        self.running[key] = replace(self.running[key], lease_expires_at=end)

    @rule()
    def sweep(self) -> None:
        self._lapse()
        while self.ledger.sweep(SHARD, retention_ms=50).more:
            pass

    @rule(ms=st.sampled_from([1, 10, 49, 50, 100, 400, 1_000]))
    def time_passes(self, ms: int) -> None:
        lapses = [task.lease_expires_at for task in self.running.values()]
        if min(lapses, default=self.clock.at) < self.clock.at + ms - UNATTENDED_MS:
            self.sweep()
        self.clock.advance(ms)

    @rule()
    @precondition(lambda self: self._bell())
    def the_bell_goes(self) -> None:
        self.clock.at = max(self.clock.at, self._bell())
        self.claim(500)

    @invariant()
    def the_bell_hangs_where_something_could_be_claimed(self) -> None:
        bell, lapses = self._bell(), [task.lease_expires_at for task in self.running.values()]
        if self._claimable() and min(lapses, default=self.clock.at + 1) > self.clock.at:
            assert 0 < bell <= self.clock.at + 1_000
        assert not lapses or 0 < bell <= max(min(lapses), self.clock.at + 1_000)

    @invariant()
    def every_number_is_true(self) -> None:
        stats = self.ledger.stats(SHARD)
        assert (stats.scheduled, stats.leased) == (len(self.due), len(self.running))
        self.check()

    def _bell(self) -> int:
        return self.ledger.stats(SHARD).bell_at

    def _set(self, settings: QueueSettings) -> None:
        if settings.rate != self.settings.rate:
            self.ledger.configure(QUEUE, {"rate": None})  # a rate counts from when it is set
            self.claimed.clear()
        self.settings = apply_changes(settings, {})
        self.ledger.configure(QUEUE, as_dict(settings))  # type: ignore[arg-type]

    def _lapse(self) -> None:
        for key, task in list(self.running.items()):
            if task.lease_expires_at <= self.clock.at:
                del self.running[key]
                again = key in self.lapsed
                self.due[key] = self.clock.at + RETRY.backoff_ms if again else task.lease_expires_at
                self.lapsed.add(key)

    def _begin(self, task: Task) -> None:
        key = (task.tenant, task.id)
        del self.due[key]
        self.running[key] = task
        self.claimed.append(self.clock.at)
        self._check_limits(task.tenant)

    def _check_limits(self, tenant: str) -> None:
        limits = self.settings
        assert not limits.paused
        assert limits.max_running is None or len(self.running) <= limits.max_running
        running = Counter(tenant for tenant, _ in self.running)
        assert limits.tenant_max_running is None or running[tenant] <= limits.tenant_max_running
        if limits.rate:
            for at in self.claimed:
                within = [one for one in self.claimed if at <= one < at + limits.rate.per_ms]
                assert len(within) <= limits.rate.most

    def _room(self) -> bool:
        limits, rate = self.settings, self.settings.rate
        lately = [at for at in self.claimed if rate and at > self.clock.at - rate.per_ms]
        return not (
            limits.paused
            or (limits.max_running is not None and len(self.running) >= limits.max_running)
            or (rate is not None and len(lately) >= rate.most)
        )

    def _tenant_room(self, tenant: str) -> bool:
        most = self.settings.tenant_max_running
        return most is None or sum(whose == tenant for whose, _ in self.running) < most

    def _claimable(self) -> list[tuple[str, str]]:
        """What is due and would be within every limit."""
        ripe = [key for key, at in self.due.items() if at <= self.clock.at]
        return [key for key in ripe if self._room() and self._tenant_room(key[0])]


@pytest.mark.parametrize("examples", EXAMPLES)
def test_in_memory_limits_hold_and_nothing_is_idle(examples: int) -> None:
    def machine() -> LimitMachine:
        clock = HandClock()
        return LimitMachine(EmbeddedLedger(clock), clock, lambda: None)

    run_state_machine_as_test(machine, settings=settings(PROFILE, max_examples=examples))


@pytest.mark.parametrize("examples", EXAMPLES)
def test_on_redis_limits_hold_and_nothing_is_idle(
    examples: int, redis_server: RedisServer, redis_client: redis.Redis
) -> None:
    def machine() -> LimitMachine:
        with redis_server.client() as client:
            client.flushall()
        clock = HandClock()
        return LimitMachine(Ledger(redis_client, travel=clock), clock, lambda: redis_ledger.check(redis_client))

    run_state_machine_as_test(machine, settings=settings(PROFILE, max_examples=examples))
