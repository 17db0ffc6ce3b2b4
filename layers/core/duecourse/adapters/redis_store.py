"""The ledger on Redis 6.2 or newer, or Valkey: every verb is one Lua script on one shard."""

import secrets
from collections.abc import Sequence

from duecourse.adapters import redis_pages, redis_queues, redis_tasks
from duecourse.adapters import redis_wire as wire
from duecourse.adapters.record import stored_id
from duecourse.adapters.redis_connect import Client
from duecourse.adapters.redis_repeats import RedisRepeats
from duecourse.adapters.redis_scripts import NOT_ALONE
from duecourse.adapters.redis_verbs import Verbs
from duecourse.domain.history import Door, cut_by
from duecourse.domain.outcomes import Settlement
from duecourse.domain.pages import Page, Place, Wanted
from duecourse.domain.queues import DEFAULT_PRIORITY, HeldBack, QueueChanges, QueueSettings, Stats
from duecourse.domain.shards import Sharding, scatter
from duecourse.domain.task import DEFAULT_TENANT, NewTask, Shard, Task
from duecourse.ports.clock import Clock
from duecourse.ports.store import (
    MAX_ADD,
    MAX_CLAIM,
    Added,
    Alone,
    Claim,
    Lease,
    Move,
    Reply,
    Settled,
    Swept,
    check_count,
)


class RedisStore:
    """The ledger (ports.store.Store) on one Redis, a Sentinel's primary or a cluster.

    `travel` overrides the server's clock, for tests: its shards are marked so, and hang no bell.
    `wait` is how many replicas must have an add before it is answered, `deaths` whether each death is told of.
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
        self._wait = wait
        self._ending = wire.ending(deaths=deaths)
        self._verbs = Verbs(client, namespace, self._sharding, travel)
        self._scripts = self._verbs.scripts
        self._record = self._verbs.record

    def repeats(self) -> RedisRepeats:
        """What is remembered of requests, on the same servers."""
        return RedisRepeats(self._scripts, self._namespace)

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
        return self._record.all()

    def shard_of(self, queue: str, id: str, group: str = "") -> Shard:
        """The shard that a task of this group, or of none, is in."""
        return self._sharding.of(queue, id, group)

    def add(self, tasks: Sequence[NewTask], *, echo: bool = False, alone: Alone | None = None) -> list[Added]:
        """Schedule tasks, at most MAX_ADD to a shard, each as its `on_duplicate` says where its id stands already."""
        shards = [self._sharding.of(task.queue, task.id, task.group) for task in tasks]
        if alone and tasks:
            check_count(len(tasks), MAX_ADD)
            return self._add(shards[0], tasks, echo, alone)

        def act(shard: Shard, chosen: list[int]) -> list[Added]:
            check_count(len(chosen), MAX_ADD)
            return [one for piece in wire.pieces(chosen) for one in self._add(shard, [tasks[i] for i in piece], echo)]

        return scatter(shards, act)

    def get(self, queue: str, id: str, tenant: str = DEFAULT_TENANT) -> Task | None:
        """One task as it stands; one that is not in its id's shard is looked for in all others, in one round trip."""
        return redis_tasks.get(self._verbs, queue, id, tenant)

    def group(self, queue: str, group: str, tenant: str = DEFAULT_TENANT) -> list[Task]:
        """The tasks of a group, by id."""
        return redis_tasks.members(self._verbs, queue, group, tenant)

    def claim(
        self, shard: Shard, limit: int, *, lease_ms: int, max_bytes: int = 4_000_000, door: Door = Door.TAKE
    ) -> Claim:
        """Lease due tasks. A lost reply is not asked for again: those leases lapse."""
        check_count(limit, MAX_CLAIM, least=1)
        claim, taken, terms = Claim([], 0, 0, 0, 0), 0, (secrets.token_bytes(8), wire.door(door))
        while True:
            arguments = (limit - len(claim.tasks), lease_ms, max_bytes, taken, *terms)
            met = self._verbs.met(shard)
            answer = self._verbs.run("claim", shard, met, (*self._ending, *arguments), again=False)
            now, bell_at, died, backlog, want, flat, own_ms, priority, held, following = answer
            tasks = claim.tasks + wire.leased(shard.queue, flat, now + own_ms)
            priority = DEFAULT_PRIORITY if priority < 0 else priority
            claim = Claim(tasks, claim.died + died, backlog, bell_at, now, bool(held), priority)
            self._verbs.meet(shard, want + following)
            taken += sum(map(len, flat[1::2]))
            if not want or len(tasks) >= limit or taken >= max_bytes:
                return claim

    def take(self, queue: str, id: str, tenant: str = DEFAULT_TENANT, *, lease_ms: int, group: str = "") -> Task | None:
        """Lease one scheduled task now, due or not. A lost reply is not asked for again: that lease lapses."""
        shard, sid = self._sharding.of(queue, id, group), stored_id(tenant, id)
        while True:
            tenants = list(dict.fromkeys([tenant, *self._verbs.met(shard)]))
            arguments = (*self._ending, sid, lease_ms, secrets.token_bytes(8), wire.door(Door.TAKE))
            now, _, want, data, own_ms = self._verbs.run("take", shard, tenants, arguments, again=False)
            if data:
                return wire.readable(queue, sid, data, now + own_ms)
            if not want:
                return None
            self._verbs.meet(shard, want)

    def settle(self, shard: Shard, settlements: Sequence[Settlement]) -> list[Settled]:
        """End leases, at most MAX_CLAIM. The same token and ending again gets the same answer."""
        check_count(len(settlements), MAX_CLAIM)
        arguments = (*self._ending, *wire.settlements(settlements))
        answer = self._verbs.run("settle", shard, wire.tenants_of(settlements), arguments, again=True)
        return [wire.SETTLED[code] for code in answer[2]]

    def extend(self, shard: Shard, leases: Sequence[Lease], lease_ms: int) -> list[int]:
        """Let leases end `lease_ms` from now; answers each one's new end, 0 where it is lost."""
        arguments = [lease_ms, *(argument for held in leases for argument in wire.lease(held))]
        return list(self._verbs.run("extend", shard, wire.tenants_of(leases), arguments, again=True)[2])

    def save(self, shard: Shard, lease: Lease, state: str) -> bool:
        """Keep `state` (JSON text) for the task's next run; False where the lease is lost."""
        return bool(self._verbs.run("save", shard, [lease.tenant], (*wire.lease(lease), state), again=True)[2])

    def move(self, queue: str, moves: Sequence[Move], tenant: str = DEFAULT_TENANT, *, group: str = "") -> list[Reply]:
        """Give tasks new due times, those of one shard in one step."""

        def act(shard: Shard, chosen: list[int]) -> list[Reply]:
            arguments = [argument for i in chosen for argument in wire.move(moves[i], tenant)]
            return wire.replies(self._verbs.run("move", shard, [tenant], arguments, again=True))

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

        def act(shard: Shard, chosen: list[int]) -> list[Reply]:
            sids = [stored_id(tenant, ids[i]) for i in chosen]
            arguments: list[wire.Argument] = [int(force), cut_by(by), *sids]
            return wire.replies(self._verbs.run("cancel", shard, [tenant], arguments, again=False))

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

        def act(shard: Shard, chosen: list[int]) -> list[Reply]:
            arguments = [cut_by(by), *(argument for i in chosen for argument in each[i])]
            return wire.replies(self._verbs.run("replay", shard, [tenant], arguments, again=False))

        return self._verbs.wherever(queue, ids, tenant, "", act)

    def page(self, queue: str, wanted: Wanted, after: Place | None, limit: int, tenant: str = DEFAULT_TENANT) -> Page:
        """At most `limit` of a queue's tasks in their order, those that follow `after`."""
        return redis_pages.page(self._verbs, queue, wanted, after, limit, tenant)

    def configure(self, queue: str, changes: QueueChanges) -> None:
        """Set a queue anew, a step a shard; in a queue of no tasks its shards are put on record first."""
        redis_queues.configure(self._verbs, queue, changes)

    def settings(self, queue: str) -> QueueSettings:
        """How a queue is set, as a whole."""
        return redis_queues.settings(self._verbs, queue)

    def sweep(self, shard: Shard, *, retention_ms: int) -> Swept:
        """Take back lapsed leases, forget what finished over `retention_ms` ago, hang the bell: a bounded step."""
        answer = self._verbs.run("sweep", shard, self._verbs.met(shard), (*self._ending, retention_ms), again=True)
        now, bell_at, reclaimed, died, pruned, more, want = answer
        self._verbs.meet(shard, want)
        return Swept(reclaimed, died, pruned, bool(more or want), bell_at, now)

    def stats(self, shard: Shard) -> Stats:
        """The shard in numbers."""
        return redis_queues.stats(self._verbs, shard)

    def lateness(self, shard: Shard) -> dict[int, int]:
        """How late the tasks of the last hour were when they were claimed."""
        return redis_queues.lateness(self._verbs, shard, self.now())

    def held_back(self, shard: Shard, tenant: str = DEFAULT_TENANT) -> HeldBack:
        """What holds a tenant's due tasks in a shard back from being claimed now."""
        return redis_queues.held_back(self._verbs, shard, tenant)

    def _add(self, shard: Shard, tasks: Sequence[NewTask], echo: bool, alone: Alone | None = None) -> list[Added]:
        nonce = secrets.token_bytes(6)
        arguments: list[wire.Argument] = [0, int(echo), *wire.alone(tasks[0].tenant, alone)]
        for index, task in enumerate(tasks):
            arguments += wire.new_task(task, nonce + index.to_bytes(2))
        answer = self._verbs.add(shard, wire.tenants_of(tasks), arguments, self._wait)
        return [] if answer == NOT_ALONE else wire.added(tasks, answer)
