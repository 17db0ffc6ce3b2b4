"""Operations of workers: claim, begin, settle, extend, save; and claims whose reply was lost."""

import secrets
import threading
import time
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

import redis

from duecourse.base.batches import in_steps
from duecourse.errors import StoreMisused, StoreUnavailable
from duecourse.ledger import script_codec
from duecourse.ledger.operation_types import (
    MAX_CLAIM,
    NO_DELIVERIES,
    Away,
    Begun,
    Claim,
    Deliveries,
    Lease,
    Settled,
    check_count,
)
from duecourse.ledger.operations.base import LedgerBase, ScriptRunner
from duecourse.ledger.operations.schedules import read_due
from duecourse.ledger.record import stored_id
from duecourse.ledger.schedule import TENANT
from duecourse.ledger.script_codec import SETTLED, Argument, ClaimAnswer, merge_claim, unpack_begins, unpack_or_log
from duecourse.ledger.task import DEFAULT_TENANT, Settlement, Shard, Task, Trigger

# Claims whose reply was lost, by the nonces of the leases that they may have made.

LATEST_S = 5.0
"""Time after which a claim that was lost on its way is done no more: the connection that it went by is closed."""
MOST = 8
"""Most lost claims of a shard that are kept; the leases of earlier ones lapse."""


class LostClaim(NamedTuple):
    """One claim: its nonces, the time at which it was sent (time.monotonic()), lengths of its leases (ms)."""

    nonces: bytes
    sent_at: float
    lease_ms: tuple[int, ...]


class LostClaims:
    """Lost claims of one process by shard; a caller that takes a claim looks for its leases."""

    def __init__(self) -> None:
        self._claims: dict[Shard, list[LostClaim]] = {}
        self._changing = threading.Lock()

    def add(self, shard: Shard, claims: Iterable[LostClaim]) -> None:
        """Remember lost claims, whose leases a later claim looks for."""
        with self._changing:
            kept = [*self._claims.get(shard, ()), *claims][-MOST:]
            if kept:
                self._claims[shard] = kept

    def take(self, shard: Shard) -> list[LostClaim]:
        """Take out the lost claims of a shard."""
        if shard not in self._claims:  # looked at without the lock: most claims get their answers
            return []
        with self._changing:
            return self._claims.pop(shard, [])


# Operations of workers on leases.

SCHEDULES = TENANT.encode()
"""Name that a claim answers where schedules are due whose keys it was not given."""


class LeaseOperations(LedgerBase):
    """Operations of workers."""

    def __init__(self, runner: ScriptRunner, *, deaths: bool) -> None:
        super().__init__(runner, deaths=deaths)
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
        """Lease at most `limit` due tasks as the queue's limits allow, and no more than `max_bytes` after the first.

        Leases that have lapsed are taken back first, each at the cost of an attempt. Tenants take turns. A queue's own
        `lease_ms` goes before the one given. `trigger` is that of the claim.

        The caller begins the first `at_once` tasks at once, and the others are claimed ahead. If a lease of theirs
        lapses, no attempt is spent and the task keeps its due time. An extension of the lease, or a checkpoint, says
        that the task has begun. From the second such lapse in a row on, the task is due later each time; it is dead
        after 20.

        If a reply is lost, the leases of that claim are looked for, at once and by the next claims of this process in
        the shard. A claim that finds them answers them alone. An error after the first lease leaves the caller what it
        has leased.

        A task of a kind in `deliveries` gets the lease of a delivery, and `target`; limits count it as running. Its
        token begins it (`begin`), or settles it directly. A delivery that lapses first spends no attempt: the task is
        due again, later each time. It is dead after 20 deliveries of one run that its target was free to begin. The
        target of a delivery was busy if it has begun or run another task of the shard since: it has fewer places then.
        A task whose target has no room is put aside until there is room, and delays no other task.

        With `kinds`, those alone and the kinds in `deliveries` are claimed. A task of any other kind is put aside for
        30 s, and delays no other task. A claim that names its kind gets it at once.
        """
        check_count(limit, MAX_CLAIM, least=1)
        claim = self._regain(shard, deliveries)
        if not claim.tasks:
            terms = (*script_codec.pack_deliveries(deliveries), *script_codec.pack_kinds(kinds))
            claim = self._claim(shard, limit, lease_ms, max_bytes, trigger, deliveries, terms, at_once)
        if self._log:
            self._log.claimed(shard, claim)
        return claim

    def _claim(
        self,
        shard: Shard,
        limit: int,
        lease_ms: int,
        max_bytes: int,
        trigger: Trigger,
        deliveries: Deliveries,
        terms: Sequence[Argument],
        at_once: int,
    ) -> Claim:
        """Claim of due tasks, in as many scripts as it takes to declare the keys of all tenants that have some."""
        claim, size, most = Claim(), 0, limit
        lengths = tuple(dict.fromkeys([lease_ms, *(delivery.lease_ms for delivery in deliveries.values())]))
        while True:
            lost = LostClaim(secrets.token_bytes(8 * most), time.monotonic(), lengths)
            begin = (script_codec.pack_trigger(trigger), max(0, at_once - len(claim.tasks)))
            bounds: tuple[Argument, ...] = (most, lease_ms, max_bytes, size, lost.nonces, *begin)
            try:
                answer = self._runner.run(
                    "claim", shard, self._runner.tenants_of(shard), (*self._ending, *bounds, *terms)
                )
            except (StoreUnavailable, StoreMisused) as error:
                return self._saved(claim, shard, lost, deliveries, error)
            got = ClaimAnswer(*answer)
            claim = merge_claim(claim, got, shard.queue, deliveries, at_once)
            self._runner.note_tenants(shard, got.want + got.following)
            size += got.size
            goes_on = size < max_bytes and any(tenant != SCHEDULES for tenant in got.want)
            most = limit - len(claim.tasks) if goes_on else 0  # with 0, the next script reads the due schedules alone
            if not most and SCHEDULES not in got.want:
                break
        if claim.tasks:
            # No ring and no tick would find the others of a queue whose record is lost.
            self._registry.meet(shard, beside=True)
        return replace(claim, schedules=read_due(self._runner, shard, got.schedules)) if got.schedules else claim

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
            found = merge_claim(
                Claim(), ClaimAnswer(*self._runner.run("regain", shard, (), every)), shard.queue, deliveries
            )
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
        """Lease one scheduled task now, due or not; None where it is not scheduled, or a limit does not allow it.

        Lapsed leases are taken back first and a queue's own `lease_ms` goes before, as in a claim. Without its `group`,
        a task is found in its id's shard only. The task's log has the trigger Trigger.TAKE.
        """
        task = self._take(self._sharding.of(queue, id, group), stored_id(tenant, id), tenant, lease_ms)
        if self._log:
            self._log.taken(task)
        return task

    def _take(self, shard: Shard, sid: str, tenant: str, lease_ms: int) -> Task | None:
        while True:
            tenants = dict.fromkeys([tenant, *self._runner.tenants_of(shard)])
            terms = (sid, lease_ms, secrets.token_bytes(8), script_codec.pack_trigger(Trigger.TAKE))
            answer = self._runner.run("take", shard, tenants, (*self._ending, *terms))
            now, _, want, record, length_ms, body = answer
            if record:
                return unpack_or_log(shard.queue, sid, record, now + length_ms, body)
            if not want:
                return None
            self._runner.note_tenants(shard, want)

    def settle(self, shard: Shard, settlements: Sequence[Settlement]) -> list[Settled]:
        """End leases, at most MAX_CLAIM. The same token and ending again gets the same answer."""
        check_count(len(settlements), MAX_CLAIM)

        def step(ends: Sequence[Settlement]) -> list[Settled]:
            every = (*self._ending, *script_codec.pack_settlements(ends))
            _, _, codes = self._runner.run("settle", shard, script_codec.tenants_of(ends), every)
            return [SETTLED[code] for code in codes]

        batches = script_codec.size_batches(settlements, script_codec.settlement_size)
        answers = [one for batch in batches for one in in_steps(batch, step)]
        if self._log:
            self._log.settled(shard, settlements, answers)
        return answers

    def begin(
        self, shard: Shard, deliveries: Sequence[Lease], lease_ms: int, nonces: Sequence[bytes], each: int = 0
    ) -> list[Begun]:
        """Begin tasks that were handed over, at most MAX_CLAIM: each delivery becomes the lease of its run.

        The new token ends in the delivery's nonce (8 bytes each). The same delivery and nonce again get the same
        answer; another worker does not. A task past its deadline is dead instead. `each` is the number of tasks that
        one invocation of the target has time for, 0 where that is not known: later claims answer it.
        """
        check_count(len(deliveries), MAX_CLAIM)

        def step(some: Sequence[tuple[Lease, bytes]]) -> list[Begun]:
            tenants = script_codec.tenants_of(delivery for delivery, _ in some)
            every = (*self._ending, lease_ms, each, *script_codec.pack_begins(some))
            return unpack_begins(self._runner.run("begin", shard, tenants, every))

        answers = in_steps(list(zip(deliveries, nonces, strict=True)), step)
        if self._log:
            self._log.begun(shard, deliveries, answers)
        return answers

    def extend(self, shard: Shard, leases: Sequence[Lease], lease_ms: int, *, at_least: bool = False) -> list[int]:
        """Let leases end `lease_ms` from now; answers the new end of each, 0 for a lost lease.

        A lease that ends later stays so with `at_least`. A task that was claimed ahead counts as begun. A delivery that
        is not begun may be extended too, and may save a state.
        """

        def step(some: Sequence[Lease]) -> list[int]:
            every = (lease_ms, int(at_least), *(part for lease in some for part in script_codec.pack_lease(lease)))
            _, _, ends = self._runner.run("extend", shard, script_codec.tenants_of(some), every)
            return list(ends)

        return in_steps(leases, step)

    def save(self, shard: Shard, lease: Lease, state: str, *, instead_of: str | None = None) -> bool:
        """Keep `state` (JSON text) for the task's next run; False where the lease is lost.

        With `instead_of`, a state that is another by now stays.
        """
        condition = () if instead_of is None else (instead_of,)
        _, _, kept = self._runner.run(
            "save", shard, [lease.tenant], (*script_codec.pack_lease(lease), state, *condition)
        )
        return bool(kept)
