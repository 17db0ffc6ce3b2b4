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
from duecourse.ledger.operation_types import Move
from duecourse.ledger.operations.ledger import Ledger
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
    "add": lambda ledger, _: ledger.add([new("b", delay_ms=LATER_MS)]),
    "add another": lambda ledger, _: ledger.add([new("c"), new("d")]),
    "claim": lambda ledger, _: claim(ledger),
    "take": lambda ledger, _: ledger.take("default", "b", lease_ms=LEASE_MS),
    "settle": lambda ledger, leased: ledger.settle(SHARD, [ending(leased, Ending.DONE)]),
    "extend": lambda ledger, leased: ledger.extend(SHARD, [lease_of(leased)], LEASE_MS),
    "save": lambda ledger, leased: ledger.save(SHARD, lease_of(leased), "1"),
    "move": lambda ledger, _: ledger.move("default", [Move("b", delay_ms=5)]),
    "cancel": lambda ledger, _: ledger.cancel("default", ["b"], force=True),
    "replay": lambda ledger, _: ledger.replay("default", ["b"]),
    "page": lambda ledger, _: ledger.page("default", TaskFilter(), None, 9),
    "schedule": lambda ledger, _: put(ledger),
    "configure": lambda ledger, _: ledger.configure("default", {"max_running": 3}),
    "sweep": lambda ledger, _: ledger.sweep(SHARD, retention_ms=0),
    "mend": lambda ledger, _: Mend(ledger._client, "duecourse", LEASE_MS, print).run(),
    "reshard": lambda ledger, _: Reshard(ledger._client, "duecourse", "default", 3, print).run(0),
}


@pytest.fixture
def ledger(redis_client: redis.Redis) -> Ledger:
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
    ledger: Ledger,
    redis_client: redis.Redis,
    call: Callable[[Ledger, Task], object],
    version: int | None,
    way_out: str,
) -> None:
    add(ledger, "b", delay_ms=LATER_MS)
    add(ledger)
    [leased] = claim(ledger)
    before = written_as(redis_client, version)
    with pytest.raises(OtherVersion, match=way_out):
        call(ledger, leased)
    assert {key: redis_client.dump(key) for key in redis_client.scan_iter()} == before


@pytest.mark.parametrize(
    ("version", "way_out"), [(VERSION - 1, UPGRADE), (VERSION + 1, RELEASE)], ids=["earlier", "later"]
)
def test_a_ledger_of_another_version_takes_no_new_queue(
    ledger: Ledger, redis_client: redis.Redis, version: int, way_out: str
) -> None:
    add(ledger, delay_ms=LATER_MS)
    redis_client.hset(ledger_key("duecourse"), "layout", version)
    with pytest.raises(OtherVersion, match=way_out):
        ledger.add([new("b", queue="other")])
    assert ledger.shards() == [SHARD]


@pytest.mark.parametrize("key", [KEYS.meta, ledger_key("duecourse")], ids=["a shard's", "the ledger's"])
def test_a_version_that_another_program_deleted_is_written_again(
    ledger: Ledger, redis_client: redis.Redis, key: str
) -> None:
    add(ledger)
    redis_client.delete(key)
    [leased] = claim(Ledger(redis_client))
    ledger.add([new("b", queue="other")])
    assert redis_client.hget(key, "layout") == b"%d" % VERSION
    assert settle(ledger, leased, Ending.DONE) == "done"
    assert stored_task(ledger).status == "done"
