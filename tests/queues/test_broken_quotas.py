"""Quotas in trouble: memory is short, shards are changed, a client is killed, replicas are lost."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
import redis

from duecourse.errors import StoreUnavailable
from duecourse.ledger.keys import keys_of
from duecourse.ledger.maintenance import Reshard
from duecourse.ledger.operation_types import Reply
from duecourse.ledger.operations.ledger import Ledger
from duecourse.ledger.queue import Quotas, quotas_text
from duecourse.ledger.sharding import Sharding
from duecourse.ledger.task import Ending, NewTask, Shard
from tests.support import redis_ledger
from tests.support.ledger import LATER_MS, LEASE_MS, SHARD, ending, new
from tests.support.source import LAYER, ROOT

RESULT = f'"{"r" * 5_000}"'
LARGE = f'"{"x" * 3_000}"'
BYTES = "tenant_max_bytes"
WIDE = quotas_text({"-": Quotas(60, 1_000_000, None)})


def mine(id: str, **fields: object) -> NewTask:
    return new(id, **{"tenant": "acme", "payload": LARGE, "delay_ms": LATER_MS} | fields)


def used(client: redis.Redis, shards: list[Shard]) -> int:
    """Bytes of the tenant in all shards, which are true."""
    for shard in shards:
        redis_ledger.check(client, shard)
    return sum(int(client.hget(keys_of("duecourse", shard).meta, "bytes:acme") or 0) for shard in shards)


@contextmanager
def full(client: redis.Redis) -> Iterator[None]:
    """A server that has no memory for another write."""
    client.config_set("maxmemory", 1)
    try:
        yield
    finally:
        client.config_set("maxmemory", 0)


@pytest.mark.parametrize("notify", ["", "http://a.example/"], ids=["short way", "long way"])
def test_a_result_is_settled_and_counted_where_memory_is_short(redis_client: redis.Redis, notify: str) -> None:
    ledger = Ledger(redis_client, quotas=WIDE)
    ledger.add([mine(id, delay_ms=0, notify=notify) for id in "ab"])
    tasks = ledger.claim(SHARD, 9, lease_ms=LEASE_MS).tasks
    with full(redis_client):
        ledger.settle(SHARD, [ending(task, Ending.DONE, result=RESULT) for task in tasks])
    assert used(redis_client, [SHARD]) == 2 * len(LARGE) + 2 * len(RESULT)


def test_a_deployments_quotas_reach_a_shard_where_memory_is_short(redis_client: redis.Redis) -> None:
    Ledger(redis_client).add([mine("a")])
    ledger = Ledger(redis_client, quotas=WIDE)
    with full(redis_client):
        ledger.sweep(SHARD, retention_ms=1_000)
    assert redis_client.hget(keys_of("duecourse", SHARD).meta, "default_quotas") == WIDE.encode()


@pytest.mark.parametrize(("was", "to"), [(1, 5), (5, 2)])
def test_a_queue_keeps_its_quotas_and_what_they_count_when_its_shards_are_changed(
    redis_client: redis.Redis, was: int, to: int
) -> None:
    before = Sharding({"default": was})
    ledger = Ledger(redis_client, sharding=before, quotas=WIDE)
    ledger.configure("default", {"tenant_max_pending": 50})
    ledger.add([mine(f"t{n}", delay_ms=0 if n < 20 else LATER_MS) for n in range(40)])
    for shard in before.every("default"):
        tasks = ledger.claim(shard, 9, lease_ms=LEASE_MS).tasks
        ledger.settle(shard, [ending(task, Ending.DONE, result=RESULT) for task in tasks[::2]])
        ledger.settle(shard, [ending(task, Ending.DROP) for task in tasks[1::2]])
    counted = used(redis_client, before.every("default"))
    Reshard(redis_client, "duecourse", "default", to, lambda _: None).run(0)
    after = Sharding({"default": to})
    assert used(redis_client, after.every("default")) == counted > 40 * len(LARGE)
    new_ledger = Ledger(redis_client, sharding=after, quotas=WIDE)
    huge = f'"{"x" * 1_000_000}"'
    assert {one.reply for one in new_ledger.add([mine(f"h{n}", payload=huge) for n in range(9)])} == {
        Reply.BEYOND_BYTES
    }
    replies = {one.reply for one in new_ledger.add([mine(f"u{n}") for n in range(50)])}
    assert replies == {Reply.CREATED, Reply.OVER_PENDING}
    small = quotas_text({"-": Quotas(None, to * 10, None)})
    for shard in after.every("default"):
        Ledger(redis_client, sharding=after, quotas=small).sweep(shard, retention_ms=10**9)
    assert {one.reply for one in new_ledger.add([mine("v")])} == {Reply.BEYOND_BYTES}


def test_a_new_queue_has_its_deployments_quotas_after_a_first_add_that_replicas_did_not_get(
    redis_client: redis.Redis, replicas_do_not_come: Callable[[], None]
) -> None:
    replicas_do_not_come()
    quotas = quotas_text({"-": Quotas(2)})
    tasks = [mine(f"t{n}") for n in range(4)]
    for _ in range(2):
        with pytest.raises(StoreUnavailable, match="0 of 1 replicas"):
            Ledger(redis_client, quotas=quotas, wait=1).add(tasks)
    replies = [one.reply for one in Ledger(redis_client, quotas=quotas).add(tasks)]
    assert replies == [Reply.CREATED] * 2 + [Reply.OVER_PENDING] * 2


ADDING = """
import redis
from duecourse.ledger.operations.ledger import Ledger
from tests.queues.test_broken_quotas import WIDE, mine
ledger = Ledger(redis.Redis.from_url({url!r}), quotas=WIDE)
print("ready", flush=True)
number = 0
while True:
    number += 37
    payloads = ['"' + "x" * (number + n) + '"' for n in range(300)]
    ledger.add([mine(f"t{{n}}", on_duplicate="replace", payload=one) for n, one in enumerate(payloads)])
"""


@pytest.mark.parametrize("wait_ms", [3, 11, 29])
def test_what_a_killed_client_has_added_is_counted_and_no_more(redis_client: redis.Redis, wait_ms: int) -> None:
    given = redis_client.connection_pool.connection_kwargs
    url = f"redis://{given['host']}:{given['port']}" if "host" in given else f"unix://{given['path']}"
    env = {**os.environ, "PYTHONPATH": f"{LAYER}:{ROOT}"}
    child = subprocess.Popen([sys.executable, "-c", ADDING.format(url=url)], env=env, stdout=subprocess.PIPE)
    assert child.stdout
    with child, child.stdout:
        assert child.stdout.readline() == b"ready\n"
        while not redis_client.hget(keys_of("duecourse", SHARD).meta, "bytes:acme"):
            pass
        try:
            child.wait(wait_ms / 1000)
        except subprocess.TimeoutExpired:
            child.send_signal(signal.SIGKILL)
        child.wait(60)
    assert used(redis_client, [SHARD]) > 0
    assert Ledger(redis_client).stats(SHARD).scheduled == 60, "its quota of pending tasks"
