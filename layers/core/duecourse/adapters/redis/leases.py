"""Verbs of workers (ports.leases)."""

import secrets
import time
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

import redis

from duecourse.adapters.redis import arguments
from duecourse.adapters.redis.answers import SETTLED, ClaimAnswer, begun, claimed, readable
from duecourse.adapters.redis.arguments import Argument
from duecourse.adapters.redis.lost_claims import LATEST_S, LostClaim, LostClaims
from duecourse.adapters.redis.record import stored_id
from duecourse.adapters.redis.schedules import RedisSchedules
from duecourse.adapters.redis.verbs import in_steps
from duecourse.domain.history import Trigger
from duecourse.domain.outcomes import Settlement
from duecourse.domain.schedule import TENANT
from duecourse.domain.task import DEFAULT_TENANT, Shard, Task
from duecourse.errors import StoreMisused, StoreUnavailable
from duecourse.ports.leases import MAX_CLAIM, NO_DELIVERIES, Begun, Claim, Deliveries, Lease, Settled
from duecourse.ports.ledger import Away, check_count

SCHEDULES = TENANT.encode()
"""Name that a claim answers where schedules are due whose keys it was not given."""


class RedisLeases(RedisSchedules):
    """Tasks, for their workers, who fire what schedules they find due."""

    def __init__(self, *given: Any, **options: Any) -> None:
        super().__init__(*given, **options)
        self.lost_claims = LostClaims()

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
        at_once: int = MAX_CLAIM,
    ) -> Claim:
        """See LeaseStore. Where a reply is lost, the claim's leases are looked for, at once and in the next claims."""
        check_count(limit, MAX_CLAIM, least=1)
        found = self._regain(shard, deliveries)
        if found.tasks:
            return found
        claim, size, most = Claim(), 0, limit
        terms = (*arguments.deliveries(deliveries), *arguments.kinds(kinds))
        lengths = tuple(dict.fromkeys([lease_ms, *(delivery.lease_ms for delivery in deliveries.values())]))
        while True:
            lost = LostClaim(secrets.token_bytes(8 * most), time.monotonic(), lengths)
            begin = (arguments.trigger(trigger), max(0, at_once - len(claim.tasks)))
            bounds: tuple[Argument, ...] = (most, lease_ms, max_bytes, size, lost.nonces, *begin)
            try:
                answer = self._verbs.run("claim", shard, self._verbs.met(shard), (*self._ending, *bounds, *terms))
            except (StoreUnavailable, StoreMisused) as error:
                return self._saved(claim, shard, lost, deliveries, error)
            got = ClaimAnswer(*answer)
            claim = claimed(claim, got, shard.queue, deliveries, at_once)
            self._verbs.meet(shard, got.want + got.following)
            size += got.size
            goes_on = size < max_bytes and any(tenant != SCHEDULES for tenant in got.want)
            most = limit - len(claim.tasks) if goes_on else 0
            if not most and SCHEDULES not in got.want:
                break
        if claim.tasks:
            self._record.meet(
                shard, beside=True
            )  # no ring and no tick would find the others of a queue whose record is lost
        return replace(claim, schedules=self._due(shard, got.schedules)) if got.schedules else claim

    def _saved(self, claim: Claim, shard: Shard, lost: LostClaim, deliveries: Deliveries, error: Away) -> Claim:
        """Leases of a claim whose newest script failed: of those before it, or its own; the error where it has none."""
        if isinstance(error, StoreUnavailable):
            self.lost_claims.add(shard, [lost])
        if claim.tasks:
            return claim
        # A server that does not answer a claim in time does not answer this either: the next claim looks.
        is_silent = isinstance(error.__cause__, redis.TimeoutError)
        found = Claim() if is_silent or isinstance(error, StoreMisused) else self._regain(shard, deliveries)
        if not found.tasks:
            raise error
        return found

    def _regain(self, shard: Shard, deliveries: Deliveries) -> Claim:
        """Leases of claims whose reply was lost, as a claim that nothing of is known to have begun."""
        lost = self.lost_claims.take(shard)
        if not lost:
            return Claim()
        asked_at = time.monotonic()
        lengths = dict.fromkeys(length for claim in lost for length in claim.lease_ms)
        age_ms = int((asked_at - min(claim.sent_at for claim in lost)) * 1_000)
        every: tuple[Argument, ...] = (b"".join(claim.nonces for claim in lost), age_ms, *lengths)
        try:
            found = claimed(Claim(), ClaimAnswer(*self._verbs.run("regain", shard, (), every)), shard.queue, deliveries)
        except (StoreUnavailable, StoreMisused):
            self.lost_claims.add(shard, lost)
            raise
        at = {bytes.fromhex(task.token)[-8:]: task for task in found.tasks}
        unseen = [claim for claim in lost if not any(nonce in claim.nonces for nonce in at)]
        # One that is still on its way may be done after this look.
        self.lost_claims.add(shard, [claim for claim in unseen if asked_at - claim.sent_at < LATEST_S])
        # In the order of the claim, which gave its nonces out one by one: the longest due first.
        every_nonce = (claim.nonces[place : place + 8] for claim in lost for place in range(0, len(claim.nonces), 8))
        return replace(found, tasks=[at[nonce] for nonce in every_nonce if nonce in at])

    def take(self, queue: str, id: str, tenant: str = DEFAULT_TENANT, *, lease_ms: int, group: str = "") -> Task | None:
        """See LeaseStore."""
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

    def begin(
        self, shard: Shard, deliveries: Sequence[Lease], lease_ms: int, nonces: Sequence[bytes], each: int = 0
    ) -> list[Begun]:
        """See LeaseStore."""
        check_count(len(deliveries), MAX_CLAIM)

        def step(some: Sequence[tuple[Lease, bytes]]) -> list[Begun]:
            tenants = arguments.tenants_of(delivery for delivery, _ in some)
            every = (*self._ending, lease_ms, each, *arguments.beginnings(some))
            return begun(self._verbs.run("work", shard, tenants, every))

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
