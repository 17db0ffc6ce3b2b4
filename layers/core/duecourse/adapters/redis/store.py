"""The ledger on Redis 6.2 or newer, or Valkey: every verb is one Lua script on one shard."""

import secrets
from collections.abc import Sequence
from functools import partial
from typing import Any

from duecourse.adapters.redis import answers, wire
from duecourse.adapters.redis import pages as redis_pages
from duecourse.adapters.redis import queues as redis_queues
from duecourse.adapters.redis import tasks as redis_tasks
from duecourse.adapters.redis.adds import Adds
from duecourse.adapters.redis.answers import AddResult, Changed, Claimed, Worked
from duecourse.adapters.redis.connect import Client
from duecourse.adapters.redis.idempotency import RedisIdempotency
from duecourse.adapters.redis.lost_shards import LostShards
from duecourse.adapters.redis.many import Asked, ask
from duecourse.adapters.redis.outlooks import outlook_of
from duecourse.adapters.redis.record import stored_id
from duecourse.adapters.redis.rounds import RedisRounds
from duecourse.adapters.redis.verbs import Verbs, in_steps
from duecourse.adapters.redis.warmth import RedisWarmth
from duecourse.domain.history import Trigger, cut_by
from duecourse.domain.outcomes import Settlement
from duecourse.domain.pages import Page, Place, Wanted
from duecourse.domain.queues import QueueChanges, QueueSettings, Stats, Throttle
from duecourse.domain.shards import Sharding
from duecourse.domain.task import DEFAULT_TENANT, NewTask, Shard, Task
from duecourse.ports.clock import Clock
from duecourse.ports.leases import MAX_CLAIM, NO_DELIVERIES, Begun, Claim, Deliveries, Lease, Settled
from duecourse.ports.ledger import Away, check_count
from duecourse.ports.queues import FORGET_MS
from duecourse.ports.tasks import AddReply, Alone, Move, Reply
from duecourse.ports.upkeep import Outlook, Swept


class RedisStore:
    """The ledger (ports.store.Store) on one Redis, a Sentinel's primary or a cluster.

    `travel` overrides the server's clock, for tests: its shards are marked so, and hang no bell.
    `wait` is how many replicas must have what a caller is told of before it is answered: adds, moves, cancels, replays,
    settings. What a failover loses of a settle is a run again, as where a lease lapses. `deaths`: of each death too.
    """

    def __init__(
        self,
        client: Client,
        namespace: str = "duecourse",
        *,
        sharding: Sharding | None = None,
        travel: Clock | None = None,
        wait: int = 0,
        deaths: bool = False,
    ) -> None:
        self._client = client
        self._namespace = namespace
        self._sharding = sharding or Sharding()
        self._ending = wire.ending(deaths=deaths)
        self._verbs = Verbs(client, namespace, self._sharding, travel, wait)
        self._adds = Adds(self._verbs)
        self._scripts = self._verbs.scripts
        self._record = self._verbs.record
        self._lost = LostShards(self._scripts, namespace, self._sharding, self._record)

    def idempotency(self) -> RedisIdempotency:
        """What is remembered of requests, on the same servers."""
        return RedisIdempotency(self._scripts, self._namespace, self._verbs.wait)

    def warmth(self) -> RedisWarmth:
        """What comes due soon and which functions were invoked, on the same servers."""
        return RedisWarmth(self._verbs, self._namespace)

    def ping(self) -> None:
        """Return if the store answers; of a cluster, the node that knows what shards there are."""
        self._scripts.call(lambda: self._verbs.first_node().ping(), again=True)

    def now(self) -> int:
        """The store's own time in epoch milliseconds."""
        if self._scripts.travel:
            return self._scripts.travel.now()
        seconds, micros = self._scripts.call(lambda: self._verbs.first_node().time(), again=True)
        return int(seconds) * 1000 + int(micros) // 1000

    def shards(self) -> list[Shard]:
        """Every shard that was ever added to, or whose queue was ever set."""
        self._lost.look()
        return self._record.all()

    def shard_of(self, queue: str, id: str, group: str = "") -> Shard:
        """The shard that a task of this group, or of none, is in."""
        return self._sharding.of(queue, id, group)

    def add(self, tasks: Sequence[NewTask], *, echo: bool = False, alone: Alone | None = None) -> list[AddReply]:
        """Schedule tasks, at most MAX_ADD to a shard, each as its `on_duplicate` says where its id stands already."""
        return self._adds.add(tasks, echo, alone)

    def get(self, queue: str, id: str, tenant: str = DEFAULT_TENANT) -> Task | None:
        """One task as it stands; one that is not in its id's shard is looked for in all others, in one round trip."""
        return redis_tasks.get(self._verbs, queue, id, tenant)

    def group(self, queue: str, group: str, tenant: str = DEFAULT_TENANT) -> list[Task]:
        """The tasks of a group, by id."""
        return redis_tasks.members(self._verbs, queue, group, tenant)

    def claim(
        self,
        shard: Shard,
        limit: int,
        *,
        lease_ms: int,
        max_bytes: int = 4_000_000,
        trigger: Trigger = Trigger.TAKE,
        deliveries: Deliveries = NO_DELIVERIES,
    ) -> Claim:
        """Lease due tasks. A lost reply is not asked for again: those leases lapse."""
        check_count(limit, MAX_CLAIM, least=1)
        claim, taken = Claim(), 0
        while True:
            most = limit - len(claim.tasks)
            terms = (secrets.token_bytes(8 * most), wire.trigger(trigger))
            arguments = (most, lease_ms, max_bytes, taken, *terms, *wire.deliveries(deliveries))
            met = self._verbs.met(shard)
            got = Claimed(*self._verbs.run("claim", shard, met, (*self._ending, *arguments), again=False))
            claim = wire.claimed(claim, got, shard.queue, deliveries)
            self._verbs.meet(shard, got.want + got.following)
            taken += sum(map(len, (*got.flat[1::2], *got.bodies[1::2])))
            if not got.want or len(claim.tasks) >= limit or taken >= max_bytes:
                break
        if claim.tasks:
            self._record.meet(shard)  # no ring and no tick would find the others of a queue whose record is lost
        return claim

    def take(self, queue: str, id: str, tenant: str = DEFAULT_TENANT, *, lease_ms: int, group: str = "") -> Task | None:
        """Lease one scheduled task now, due or not. A lost reply is not asked for again: that lease lapses."""
        shard, sid = self._sharding.of(queue, id, group), stored_id(tenant, id)
        while True:
            tenants = list(dict.fromkeys([tenant, *self._verbs.met(shard)]))
            arguments = (*self._ending, sid, lease_ms, secrets.token_bytes(8), wire.trigger(Trigger.TAKE))
            got = AddResult(*self._verbs.run("take", shard, tenants, arguments, again=False))
            if got.record:
                return wire.readable(queue, sid, got.record, got.now + got.lease_ms, got.body)
            if not got.want:
                return None
            self._verbs.meet(shard, got.want)

    def settle(self, shard: Shard, settlements: Sequence[Settlement]) -> list[Settled]:
        """End leases, at most MAX_CLAIM. The same token and ending again gets the same answer."""
        check_count(len(settlements), MAX_CLAIM)

        def step(ends: Sequence[Settlement]) -> list[Settled]:
            arguments = (*self._ending, *wire.settlements(ends))
            got = Changed(*self._verbs.run("settle", shard, wire.tenants_of(ends), arguments, again=True))
            return [wire.SETTLED[code] for code in got.each]

        return [one for piece in wire.pieces(settlements, wire.result_weight) for one in in_steps(piece, step)]

    def begin(self, shard: Shard, deliveries: Sequence[Lease], lease_ms: int, nonces: Sequence[bytes]) -> list[Begun]:
        """Begin tasks that were handed over: each delivery becomes the lease of its run."""
        check_count(len(deliveries), MAX_CLAIM)

        def step(some: Sequence[tuple[Lease, bytes]]) -> list[Begun]:
            arguments: list[wire.Argument] = [*self._ending, lease_ms]
            for delivery, nonce in some:
                arguments += (*wire.lease(delivery), nonce)
            tenants = wire.tenants_of(delivery for delivery, _ in some)
            return wire.begun(Worked(*self._verbs.run("work", shard, tenants, arguments, again=True)))

        return in_steps(list(zip(deliveries, nonces, strict=True)), step)

    def extend(self, shard: Shard, leases: Sequence[Lease], lease_ms: int, *, at_least: bool = False) -> list[int]:
        """Let leases end `lease_ms` from now; answers each one's new end, 0 where it is lost."""

        def step(some: Sequence[Lease]) -> list[int]:
            arguments = [lease_ms, int(at_least), *(argument for held in some for argument in wire.lease(held))]
            return Changed(*self._verbs.run("extend", shard, wire.tenants_of(some), arguments, again=True)).each

        return in_steps(leases, step)

    def save(self, shard: Shard, lease: Lease, state: str) -> bool:
        """Keep `state` (JSON text) for the task's next run; False where the lease is lost."""
        _, _, kept = self._verbs.run("save", shard, [lease.tenant], (*wire.lease(lease), state), again=True)
        return bool(kept)

    def move(self, queue: str, moves: Sequence[Move], tenant: str = DEFAULT_TENANT, *, group: str = "") -> list[Reply]:
        """Give tasks new due times, those of one shard in one step."""
        nonce = secrets.token_bytes(6)

        def act(shard: Shard, chosen: Sequence[int]) -> list[Reply]:
            one_step = int(bool(group))
            arguments = [
                one_step,
                *(part for i in chosen for part in wire.move(moves[i], tenant, nonce + i.to_bytes(2))),
            ]
            return wire.replies(self._verbs.change("move", shard, [tenant], arguments, again=True))

        return self._verbs.wherever(queue, [move.id for move in moves], tenant, group, act)

    def cancel(
        self,
        queue: str,
        ids: Sequence[str],
        *,
        force: bool = False,
        tenant: str = DEFAULT_TENANT,
        group: str = "",
        by: str = "",
    ) -> list[Reply]:
        """Cancel scheduled tasks and delete dead ones, those of one shard in one step."""

        def act(shard: Shard, chosen: Sequence[int]) -> list[Reply]:
            sids = [stored_id(tenant, ids[i]) for i in chosen]
            arguments: list[wire.Argument] = [int(bool(group)), int(force), cut_by(by), *sids]
            return wire.replies(self._verbs.change("cancel", shard, [tenant], arguments, again=False))

        return self._verbs.wherever(queue, ids, tenant, group, act)

    def replay(
        self,
        queue: str,
        ids: Sequence[str],
        tenant: str = DEFAULT_TENANT,
        *,
        delays_ms: Sequence[int] = (),
        deadlines_ms: Sequence[int] = (),
        by: str = "",
    ) -> list[Reply]:
        """Schedule dead tasks again: a fresh set of attempts, the same generation, a deadline where one is given."""
        none = [0] * len(ids)
        each = [*zip((stored_id(tenant, id) for id in ids), delays_ms or none, deadlines_ms or none, strict=True)]

        def act(shard: Shard, chosen: Sequence[int]) -> list[Reply]:
            arguments = [cut_by(by), *(argument for i in chosen for argument in each[i])]
            return wire.replies(self._verbs.change("replay", shard, [tenant], arguments, again=False))

        return self._verbs.wherever(queue, ids, tenant, "", act)

    def page(self, queue: str, wanted: Wanted, after: Place | None, limit: int, tenant: str = DEFAULT_TENANT) -> Page:
        """At most `limit` of a queue's tasks in their order, those that follow `after`."""
        return redis_pages.page(self._verbs, queue, wanted, after, limit, tenant)

    def configure(self, queue: str, changes: QueueChanges, *, default: bool = False) -> None:
        """Set a queue anew, a step a shard; in a queue of no tasks its shards are put on record first."""
        redis_queues.configure(self._verbs, queue, changes, default)

    def settings_of(self, queues: Sequence[str]) -> list[QueueSettings]:
        """How each of some queues is set, as a whole."""
        return redis_queues.settings_of(self._verbs, queues)

    def rounds(self) -> RedisRounds:
        """When the parts of the shards were last swept, on the same servers."""
        return RedisRounds(self._scripts, self._namespace)

    def outlook_of(self, shards: Sequence[Shard]) -> list[Outlook | Away]:
        """What many shards have to do next, or why one's is not known."""
        return outlook_of(self._verbs, shards)

    def sweep(self, shard: Shard, *, retention_ms: int, dead_retention_ms: int | None = None) -> Swept:
        """Take back lapsed leases, forget what finished over `retention_ms` ago, hang the bell: a bounded step."""
        arguments = self._sweep_arguments(retention_ms, dead_retention_ms)
        return self._swept(shard, self._verbs.run("sweep", shard, self._verbs.met(shard), arguments, again=True))

    def sweep_all(
        self, shards: Sequence[Shard], *, retention_ms: int, dead_retention_ms: int | None = None
    ) -> list[Swept | Away]:
        """Sweep many shards, a bounded step each, in a round trip a node."""
        arguments = self._sweep_arguments(retention_ms, dead_retention_ms)
        alone = partial(self.sweep, retention_ms=retention_ms, dead_retention_ms=dead_retention_ms)

        def prepare(shard: Shard) -> tuple[int, Sequence[wire.Argument]]:
            return self._verbs.prepare(shard, self._verbs.met(shard), arguments)

        return ask(self._verbs, shards, Asked("sweep", prepare, self._swept, alone))

    def _sweep_arguments(self, retention_ms: int, dead_retention_ms: int | None) -> tuple[wire.Argument, ...]:
        return (*self._ending, retention_ms, "" if dead_retention_ms is None else dead_retention_ms)

    def _swept(self, shard: Shard, answer: Any) -> Swept:
        got = answers.Swept(*answer)
        self._verbs.meet(shard, got.want)
        if got.idle_ms >= FORGET_MS:
            self._record.forget(shard, partial(self._leave, shard))
        return Swept(got.reclaimed, got.died, got.pruned, bool(got.more or got.want), got.bell_at, got.now)

    def _leave(self, shard: Shard) -> bool:
        _, _, left = self._verbs.run("leave", shard, (), (FORGET_MS,), again=True)
        return bool(left)

    def stats(self, shard: Shard) -> Stats:
        """The shard in numbers."""
        return redis_queues.stats(self._verbs, shard)

    def stats_of(self, shards: Sequence[Shard]) -> list[Stats | Away]:
        """Many shards in numbers, or why one's are not known."""
        return redis_queues.stats_of(self._verbs, shards)

    def lateness_of(self, shards: Sequence[Shard]) -> list[dict[int, int]]:
        """How late the tasks of the last hour were when they were claimed, a shard each."""
        return redis_queues.lateness_of(self._verbs, shards, self.now())

    def throttle(self, shard: Shard, tenant: str = DEFAULT_TENANT, task: Task | None = None) -> Throttle:
        """What holds a tenant's due tasks in a shard, or this one of them, back from being claimed now."""
        return redis_queues.throttle(self._verbs, shard, tenant, task)
