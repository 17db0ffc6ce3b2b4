"""Verbs of workers (ports.leases)."""

import secrets
from collections.abc import Collection, Sequence
from dataclasses import replace

from duecourse.adapters.redis import arguments
from duecourse.adapters.redis.answers import SETTLED, ClaimAnswer, begun, claimed, readable
from duecourse.adapters.redis.record import stored_id
from duecourse.adapters.redis.schedules import RedisSchedules
from duecourse.adapters.redis.verbs import in_steps
from duecourse.domain.history import Trigger
from duecourse.domain.outcomes import Settlement
from duecourse.domain.schedule import TENANT
from duecourse.domain.task import DEFAULT_TENANT, Shard, Task
from duecourse.ports.leases import MAX_CLAIM, NO_DELIVERIES, Begun, Claim, Deliveries, Lease, Settled
from duecourse.ports.ledger import check_count

SCHEDULES = TENANT.encode()
"""Name that a claim answers where schedules are due whose keys it was not given."""


class RedisLeases(RedisSchedules):
    """Tasks, for their workers, who fire what schedules they find due."""

    def claim(
        self,
        shard: Shard,
        limit: int,
        *,
        lease_ms: int,
        max_bytes: int = 4_000_000,
        trigger: Trigger = Trigger.TAKE,
        deliveries: Deliveries = NO_DELIVERIES,
        kinds: Collection[str] = (),
    ) -> Claim:
        """See LeaseStore. Leases whose reply is lost lapse; the claim is not sent again."""
        check_count(limit, MAX_CLAIM, least=1)
        claim, size, most = Claim(), 0, limit
        terms = (arguments.trigger(trigger), *arguments.deliveries(deliveries), *arguments.kinds(kinds))
        while True:
            bounds = (most, lease_ms, max_bytes, size, secrets.token_bytes(8 * most))
            answer = self._verbs.run("claim", shard, self._verbs.met(shard), (*self._ending, *bounds, *terms))
            got = ClaimAnswer(*answer)
            claim = claimed(claim, got, shard.queue, deliveries)
            self._verbs.meet(shard, got.want + got.following)
            size += got.size
            goes_on = size < max_bytes and any(tenant != SCHEDULES for tenant in got.want)
            most = limit - len(claim.tasks) if goes_on else 0
            if not most and SCHEDULES not in got.want:
                break
        if claim.tasks:
            self._record.meet(shard)  # no ring and no tick would find the others of a queue whose record is lost
        return replace(claim, schedules=self._due(shard, got.schedules)) if got.schedules else claim

    def take(self, queue: str, id: str, tenant: str = DEFAULT_TENANT, *, lease_ms: int, group: str = "") -> Task | None:
        """See LeaseStore. A lease whose reply is lost lapses; the verb is not sent again."""
        shard, sid = self._sharding.of(queue, id, group), stored_id(tenant, id)
        while True:
            tenants = dict.fromkeys([tenant, *self._verbs.met(shard)])
            terms = (sid, lease_ms, secrets.token_bytes(8), arguments.trigger(Trigger.TAKE))
            answer = self._verbs.run("take", shard, tenants, (*self._ending, *terms))
            now, _, want, record, length_ms, body = answer
            if record:
                return readable(queue, sid, record, now + length_ms, body)
            if not want:
                return None
            self._verbs.meet(shard, want)

    def settle(self, shard: Shard, settlements: Sequence[Settlement]) -> list[Settled]:
        """See LeaseStore."""
        check_count(len(settlements), MAX_CLAIM)

        def step(ends: Sequence[Settlement]) -> list[Settled]:
            every = (*self._ending, *arguments.settlements(ends))
            _, _, codes = self._verbs.run("settle", shard, arguments.tenants_of(ends), every)
            return [SETTLED[code] for code in codes]

        pieces = arguments.pieces(settlements, arguments.result_weight)
        return [one for piece in pieces for one in in_steps(piece, step)]

    def begin(self, shard: Shard, deliveries: Sequence[Lease], lease_ms: int, nonces: Sequence[bytes]) -> list[Begun]:
        """See LeaseStore."""
        check_count(len(deliveries), MAX_CLAIM)

        def step(some: Sequence[tuple[Lease, bytes]]) -> list[Begun]:
            tenants = arguments.tenants_of(delivery for delivery, _ in some)
            parts = (part for delivery, nonce in some for part in (*arguments.lease(delivery), nonce))
            return begun(self._verbs.run("work", shard, tenants, (*self._ending, lease_ms, *parts)))

        return in_steps(list(zip(deliveries, nonces, strict=True)), step)

    def extend(self, shard: Shard, leases: Sequence[Lease], lease_ms: int, *, at_least: bool = False) -> list[int]:
        """See LeaseStore."""

        def step(some: Sequence[Lease]) -> list[int]:
            every = (lease_ms, int(at_least), *(part for lease in some for part in arguments.lease(lease)))
            _, _, ends = self._verbs.run("extend", shard, arguments.tenants_of(some), every)
            return list(ends)

        return in_steps(leases, step)

    def save(self, shard: Shard, lease: Lease, state: str, *, instead_of: str | None = None) -> bool:
        """See LeaseStore."""
        condition = () if instead_of is None else (instead_of,)
        _, _, kept = self._verbs.run("save", shard, [lease.tenant], (*arguments.lease(lease), state, *condition))
        return bool(kept)
