"""Upgrades of a ledger's records in tests: a ledger of before, its work, and what it is like once it is upgraded."""

from collections.abc import Callable
from typing import Any

from duecourse.adapters.redis.connect import Client
from duecourse.adapters.redis.keys import keys_of, ledger_key
from duecourse.adapters.redis.layout import NEWEST
from duecourse.adapters.redis.store import RedisStore
from duecourse.adapters.redis.upgrade import Upgrade, Upgraded
from duecourse.domain.outcomes import Ending
from duecourse.domain.task import NewTask, Shard
from duecourse.ports.leases import Settled
from tests.support import redis_ledger
from tests.support.ledger import LEASE_MS, ending

SHARD = Shard()
LARGE = '"' + 3_000 * "x" + '"'
"""A payload that is apart from its record, but in the oldest version."""
MANY = 1_000


class Cut(Exception):
    """A kill, at one place."""


def cut(line: str) -> None:
    """A kill once the first records are rewritten, and others are not."""
    if "rewrote" in line:
        raise Cut


def silent(_line: str) -> None:
    """What nobody reads."""


def upgrade(client: Client, tell: Callable[[str], object] = silent) -> Upgraded:
    return Upgrade(client, "duecourse", tell).run(0)


def versions(client: Client, *shards: Shard) -> set[int]:
    every = [client.hgetall(keys_of("duecourse", shard).tasks) for shard in shards]
    return {data[0] for tasks in every for name, data in tasks.items() if b"=" not in name}


def make_old(client: Client, *shards: Shard) -> None:
    """A ledger of before: 0.1.0 has begun each of these shards."""
    client.hdel(ledger_key("duecourse"), "layout")
    for shard in shards:
        client.sadd("duecourse:shards", f"{shard}/1")
        client.hset(keys_of("duecourse", shard).meta, "fence", 7)


def fill(store: RedisStore, queue: str, count: int, **fields: Any) -> set[str]:
    """Tasks with large payloads; answers their ids."""
    tasks = [NewTask(f"{queue}-{n}", "work", LARGE, queue=queue, **fields) for n in range(count)]
    store.add(tasks)
    return {task.id for task in tasks}


def run_all(store: RedisStore, *shards: Shard) -> list[str]:
    """Claim and end whatever is due; answers the ids in their order."""
    ran: list[str] = []
    for shard in shards:
        while tasks := store.claim(shard, 100, lease_ms=LEASE_MS).tasks:
            assert {task.payload_json for task in tasks} == {LARGE}
            answers = store.settle(shard, [ending(task, Ending.DONE) for task in tasks])
            assert set(answers) == {Settled.DONE}
            ran += [task.id for task in tasks]
    return ran


def assert_upgraded(client: Client, *shards: Shard) -> None:
    assert versions(client, *shards) == {NEWEST}
    assert client.hget(ledger_key("duecourse"), "layout") == b"%d" % NEWEST
    for shard in shards:
        meta = client.hgetall(keys_of("duecourse", shard).meta)
        assert meta[b"layout"] == b"%d" % NEWEST
        assert not meta.keys() & {b"rewrite", b"drawn", b"others", b"others_at"}
        redis_ledger.check(client, shard)
