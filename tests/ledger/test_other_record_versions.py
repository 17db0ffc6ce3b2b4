"""A ledger with records of another version: each call is rejected with the way out, and nothing in it changes."""

from collections.abc import Callable
from typing import Any

import pytest
import redis

from duecourse.errors import OtherVersion
from duecourse.ledger.keys import keys_of, ledger_key
from duecourse.ledger.layout import VERSION
from duecourse.ledger.maintenance import Mend, Reshard
from duecourse.ledger.many_tasks import TaskFilter
from duecourse.ledger.operations import Move
from duecourse.ledger.store.ledger import Ledger
from duecourse.ledger.task import Ending, Task
from tests.support.ledger import LATER_MS, LEASE_MS, SHARD, add, claim, ending, lease_of, new, settle, stored_task
from tests.support.schedules import put

KEYS = keys_of("duecourse", SHARD)
UPGRADE = "^The ledger is of an earlier version: upgrade it once with commit 9d900a4"
RELEASE = "^The ledger is of a later version: use the release that wrote it"
VERSIONS = {
    "0.1.0, which names none": (None, UPGRADE),
    "an earlier version": (VERSION - 1, UPGRADE),
    "a later version": (VERSION + 1, RELEASE),
    "a later version of more digits": (10 * VERSION, RELEASE),
}
CALLS: dict[str, Callable[[Ledger, Task], object]] = {
    "add": lambda store, _: store.add([new("b", delay_ms=LATER_MS)]),
    "add another": lambda store, _: store.add([new("c"), new("d")]),
    "claim": lambda store, _: claim(store),
    "take": lambda store, _: store.take("default", "b", lease_ms=LEASE_MS),
    "settle": lambda store, leased: store.settle(SHARD, [ending(leased, Ending.DONE)]),
    "extend": lambda store, leased: store.extend(SHARD, [lease_of(leased)], LEASE_MS),
    "save": lambda store, leased: store.save(SHARD, lease_of(leased), "1"),
    "move": lambda store, _: store.move("default", [Move("b", delay_ms=5)]),
    "cancel": lambda store, _: store.cancel("default", ["b"], force=True),
    "replay": lambda store, _: store.replay("default", ["b"]),
    "page": lambda store, _: store.page("default", TaskFilter(), None, 9),
    "schedule": lambda store, _: put(store),
    "configure": lambda store, _: store.configure("default", {"max_running": 3}),
    "sweep": lambda store, _: store.sweep(SHARD, retention_ms=0),
    "mend": lambda store, _: Mend(store._client, "duecourse", LEASE_MS, print).run(),
    "reshard": lambda store, _: Reshard(store._client, "duecourse", "default", 3, print).run(0),
}


@pytest.fixture
def store(redis_client: redis.Redis) -> Ledger:
    return Ledger(redis_client)


def written_as(client: redis.Redis, version: int | None) -> dict[bytes, Any]:
    """Have the shard name this version; what the server holds then."""
    if version is None:
        client.hdel(KEYS.meta, "layout")
    else:
        client.hset(KEYS.meta, "layout", version)
    return {key: client.dump(key) for key in client.scan_iter()}


@pytest.mark.parametrize(("version", "way_out"), VERSIONS.values(), ids=VERSIONS)
@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_a_shard_of_another_version_rejects_each_call_with_the_way_out(
    store: Ledger,
    redis_client: redis.Redis,
    call: Callable[[Ledger, Task], object],
    version: int | None,
    way_out: str,
) -> None:
    add(store, "b", delay_ms=LATER_MS)
    add(store)
    [leased] = claim(store)
    before = written_as(redis_client, version)
    with pytest.raises(OtherVersion, match=way_out):
        call(store, leased)
    assert {key: redis_client.dump(key) for key in redis_client.scan_iter()} == before


@pytest.mark.parametrize(
    ("version", "way_out"), [(VERSION - 1, UPGRADE), (VERSION + 1, RELEASE)], ids=["earlier", "later"]
)
def test_a_ledger_of_another_version_takes_no_new_queue(
    store: Ledger, redis_client: redis.Redis, version: int, way_out: str
) -> None:
    add(store, delay_ms=LATER_MS)
    redis_client.hset(ledger_key("duecourse"), "layout", version)
    with pytest.raises(OtherVersion, match=way_out):
        store.add([new("b", queue="other")])
    assert store.shards() == [SHARD]


@pytest.mark.parametrize("key", [KEYS.meta, ledger_key("duecourse")], ids=["a shard's", "the ledger's"])
def test_a_version_that_another_program_deleted_is_written_again(
    store: Ledger, redis_client: redis.Redis, key: str
) -> None:
    add(store)
    redis_client.delete(key)
    [leased] = claim(Ledger(redis_client))
    store.add([new("b", queue="other")])
    assert redis_client.hget(key, "layout") == b"%d" % VERSION
    assert settle(store, leased, Ending.DONE) == "done"
    assert stored_task(store).status == "done"
