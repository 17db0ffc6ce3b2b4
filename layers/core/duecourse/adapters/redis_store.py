"""The ledger on Redis 6.2 or newer, or Valkey: every verb is one Lua script on one shard."""

import secrets
from collections.abc import Iterable, Sequence
from functools import partial
from itertools import groupby
from typing import Any

import redis

from duecourse.adapters import redis_wire as wire
from duecourse.adapters.record import unpack
from duecourse.adapters.redis_keys import Keys, keys_of, shards_key
from duecourse.adapters.redis_scripts import NOT_ALONE, UNREGISTERED, Scripts
from duecourse.domain.outcomes import Settlement
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
    Stats,
    Swept,
)

MAX_WANT = 64
"""The most tenants whose keys one claim declares."""


class RedisStore:
    """The ledger (ports.store.Store) on one Redis.

    `travel` overrides the server's clock, for tests: its shards are marked so, and hang no bell.
    `wait` is how many replicas must have an add before it is answered.
    """

    def __init__(
        self, client: redis.Redis, namespace: str = "duecourse", *, travel: Clock | None = None, wait: int = 0
    ) -> None:
        self._client = client
        self._namespace = namespace
        self._wait = wait
        self._scripts = Scripts(client, travel)
        self._travelling: set[Shard] = set()
        self._tenants: dict[Shard, tuple[str, ...]] = {}

    def ping(self) -> None:
        """Return if the store answers."""
        self._scripts.call(self._client.ping, again=True)

    def now(self) -> int:
        """The store's own time in epoch milliseconds."""
        if self._scripts.travel:
            return self._scripts.travel.now()
        seconds, micros = self._scripts.call(self._client.time, again=True)
        return int(seconds) * 1000 + int(micros) // 1000

    def shards(self) -> list[Shard]:
        """Every shard that was ever added to."""
        members: Any = self._scripts.call(lambda: self._client.smembers(shards_key(self._namespace)), again=True)
        return sorted(Shard(queue, int(index)) for queue, index, _ in (m.decode().split("/") for m in members))

    def add(self, tasks: Sequence[NewTask], *, echo: bool = False, alone: Alone | None = None) -> list[Added]:
        """Schedule tasks, at most MAX_ADD to a shard, each as its `on_duplicate` says where its id stands already."""
        if not tasks:
            return []
        if len(queues := {task.queue for task in tasks}) == 1:
            return self._add(Shard(queues.pop()), tasks, echo, alone)
        added: dict[int, Added] = {}
        by_queue = sorted(range(len(tasks)), key=lambda i: tasks[i].queue)
        for queue, indexes in groupby(by_queue, key=lambda i: tasks[i].queue):
            chosen = list(indexes)
            added.update(zip(chosen, self._add(Shard(queue), [tasks[i] for i in chosen], echo), strict=True))
        return [added[i] for i in range(len(tasks))]

    def get(self, queue: str, id: str, tenant: str = DEFAULT_TENANT) -> Task | None:
        """One task as it stands."""
        keys, sid = self._keys(Shard(queue)), f"{tenant}/{id}"
        data, lease_end = self._scripts.read(lambda p: p.hget(keys.tasks, sid), lambda p: p.zscore(keys.leased, sid))
        return unpack(queue, sid, data)._replace(lease_expires_at=int(lease_end or 0)) if data else None

    def group(self, queue: str, group: str, tenant: str = DEFAULT_TENANT) -> list[Task]:
        """The tasks of a group, by id."""
        keys, name = self._keys(Shard(queue)), f"{tenant}/{group}"
        members: Any = self._scripts.call(
            lambda: self._client.zrangebylex(keys.groups, f"[{name}\0", f"({name}\1"), again=True
        )
        if not members:
            return []
        sids = [member.partition(b"\0")[2] for member in members]
        records, ends = self._scripts.read(lambda p: p.hmget(keys.tasks, sids), lambda p: p.zmscore(keys.leased, sids))
        found = zip(sids, records, ends, strict=True)
        return [unpack(queue, sid.decode(), data, int(end or 0)) for sid, data, end in found if data]

    def claim(self, shard: Shard, limit: int, *, lease_ms: int, max_bytes: int = 4_000_000) -> Claim:
        """Lease due tasks. A lost reply is not asked for again: those leases lapse."""
        if limit < 1:
            raise ValueError(f"a claim takes at least 1, not {limit}")
        _bounded(limit, MAX_CLAIM)
        claim = Claim([], 0, 0, 0, 0)
        while True:
            arguments = (limit - len(claim.tasks), lease_ms, max_bytes, secrets.token_bytes(8))
            answer = self._run("claim", shard, self._met(shard), arguments, again=False)
            now, bell_at, died, backlog, want, flat = answer
            tasks = claim.tasks + wire.leased(shard.queue, flat, now + lease_ms)
            claim = Claim(tasks, claim.died + died, backlog, bell_at, now)
            self._meet(shard, want)
            max_bytes -= sum(map(len, flat))
            if not want or len(tasks) >= limit or max_bytes <= 0:
                return claim

    def settle(self, shard: Shard, settlements: Sequence[Settlement]) -> list[Settled]:
        """End leases, at most MAX_CLAIM. The same token and ending again gets the same answer."""
        _bounded(len(settlements), MAX_CLAIM)
        arguments = [argument for end in settlements for argument in wire.settlement(end)]
        answer = self._run("settle", shard, wire.tenants_of(settlements), arguments, again=True)
        return [wire.SETTLED[code] for code in answer[2]]

    def extend(self, shard: Shard, leases: Sequence[Lease], lease_ms: int) -> list[int]:
        """Let leases end `lease_ms` from now; answers each one's new end, 0 where it is lost."""
        arguments = [lease_ms, *(argument for held in leases for argument in wire.lease(held))]
        return list(self._run("extend", shard, wire.tenants_of(leases), arguments, again=True)[2])

    def save(self, shard: Shard, lease: Lease, state: str) -> bool:
        """Keep `state` (JSON text) for the task's next run; False where the lease is lost."""
        return bool(self._run("save", shard, [lease.tenant], (*wire.lease(lease), state), again=True)[2])

    def move(self, queue: str, moves: Sequence[Move], tenant: str = DEFAULT_TENANT) -> list[Reply]:
        """Give tasks of one shard new due times in one step."""
        arguments = [argument for wanted in moves for argument in wire.move(wanted, tenant)]
        return wire.replies(self._run("move", Shard(queue), [tenant], arguments, again=True))

    def cancel(
        self, queue: str, ids: Sequence[str], *, force: bool = False, tenant: str = DEFAULT_TENANT
    ) -> list[Reply]:
        """Cancel scheduled tasks of one shard and delete dead ones, in one step."""
        arguments: list[wire.Argument] = [int(force), *(f"{tenant}/{id}" for id in ids)]
        return wire.replies(self._run("cancel", Shard(queue), [tenant], arguments, again=False))

    def replay(self, queue: str, ids: Sequence[str], tenant: str = DEFAULT_TENANT) -> list[Reply]:
        """Schedule dead tasks of one shard for now: a fresh set of attempts, no deadline, the same generation."""
        arguments = [f"{tenant}/{id}" for id in ids]
        return wire.replies(self._run("replay", Shard(queue), [tenant], arguments, again=False))

    def pause(self, queue: str, paused: bool) -> None:
        """Stop or resume handing out a queue's tasks; what is leased goes on."""
        self._run("pause", Shard(queue), [DEFAULT_TENANT], (int(paused),), again=True)

    def sweep(self, shard: Shard, *, retention_ms: int) -> Swept:
        """Take back lapsed leases, forget what finished over `retention_ms` ago, hang the bell: a bounded step."""
        answer = self._run("sweep", shard, self._met(shard), (retention_ms,), again=True)
        now, bell_at, reclaimed, died, pruned, more, want = answer
        self._meet(shard, want)
        return Swept(reclaimed, died, pruned, bool(more or want), bell_at, now)

    def stats(self, shard: Shard) -> Stats:
        """The shard in numbers."""
        now, keys = self.now(), self._keys(shard)
        leased, done, dead, heads, ring, bell, (paused, travelling) = self._scripts.read(
            lambda p: p.zcard(keys.leased),
            lambda p: p.zcard(keys.done),
            lambda p: p.zcard(keys.dead),
            lambda p: p.zrange(keys.heads, 0, -1),
            lambda p: p.zrange(keys.ring, 0, -1),
            lambda p: p.get(keys.bell),
            lambda p: p.hmget(keys.meta, "paused", "bell_at"),
        )
        scheduled, oldest = self._scheduled(keys, [t.decode() for t in (*heads, *ring)])
        return Stats(scheduled, leased, done, dead, oldest, int(bell or travelling or 0), bool(paused), now)

    def _scheduled(self, keys: Keys, tenants: Sequence[str]) -> tuple[int, int]:
        answers = self._scripts.read(*(partial(_count_and_head, keys.due(tenant)) for tenant in tenants))
        heads = [int(head[0][1]) for head in answers[1::2] if head]
        return sum(answers[::2]), min(heads, default=0)

    def _add(self, shard: Shard, tasks: Sequence[NewTask], echo: bool, alone: Alone | None = None) -> list[Added]:
        _bounded(len(tasks), MAX_ADD)
        nonce = secrets.token_bytes(6)
        arguments: list[wire.Argument] = [0, int(echo), *wire.alone(tasks[0].tenant, alone)]
        for index, task in enumerate(tasks):
            arguments += wire.new_task(task, nonce + index.to_bytes(2))
        answer = self._send_add(shard, wire.tenants_of(tasks), arguments)
        return [] if answer == NOT_ALONE else wire.added(tasks, answer)

    def _send_add(self, shard: Shard, tenants: Sequence[str], arguments: list[wire.Argument]) -> Any:
        answer = self._run("add", shard, tenants, arguments, again=True, replicas=self._wait)
        if answer == UNREGISTERED:
            self._scripts.call(lambda: self._client.sadd(shards_key(self._namespace), f"{shard}/1"), again=True)
            arguments[0] = 1
            answer = self._run("add", shard, tenants, arguments, again=True, replicas=self._wait)
        return answer

    def _run(
        self,
        verb: str,
        shard: Shard,
        tenants: Sequence[str],
        arguments: Sequence[wire.Argument],
        *,
        again: bool,
        replicas: int = 0,
    ) -> Any:
        keys = self._keys(shard)
        if self._scripts.travel and shard not in self._travelling:
            self._scripts.call(lambda: self._client.hset(keys.meta, "clock", "travel"), again=True)
            self._travelling.add(shard)
        return self._scripts.run(verb, keys, tenants, arguments, again=again, replicas=replicas)

    def _keys(self, shard: Shard) -> Keys:
        return keys_of(self._namespace, shard)

    def _met(self, shard: Shard) -> tuple[str, ...]:
        return self._tenants.get(shard, (DEFAULT_TENANT,))

    def _meet(self, shard: Shard, want: Iterable[bytes]) -> None:
        """Remember the tenants whose work waits, so that the next script declares their keys.

        In a tuple of their own: another thread may be sending the one before.
        """
        if want:
            names = dict.fromkeys([*(name.decode() for name in want), *self._met(shard)])
            self._tenants[shard] = tuple(names)[:MAX_WANT]


def _count_and_head(due: str, pipe: Any) -> None:
    pipe.zcard(due).zrange(due, 0, 0, withscores=True)


def _bounded(count: int, most: int) -> None:
    if count > most:
        raise ValueError(f"at most {most} at a time, not {count}")
