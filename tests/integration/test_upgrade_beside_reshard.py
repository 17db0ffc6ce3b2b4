"""An upgrade of the records beside a change of a queue's shards: records of both versions meet, each task runs once."""

from collections.abc import Callable

import pytest
import redis

from duecourse.adapters.redis.connect import Client, connect
from duecourse.adapters.redis.keys import keys_of
from duecourse.adapters.redis.layout import NEWEST, OLDEST
from duecourse.adapters.redis.reshard import Reshard
from duecourse.adapters.redis.store import RedisStore
from duecourse.domain.shards import Sharding
from duecourse.domain.task import Shard
from duecourse.errors import StoreMisused
from tests.support import redis_ledger
from tests.support.ledger import LEASE_MS
from tests.support.redis_server import RedisServer
from tests.support.upgrades import (
    MANY,
    SHARD,
    Cut,
    assert_upgraded,
    cut,
    fill,
    make_old,
    run_all,
    silent,
    upgrade,
    versions,
)


def sweep_all(client: Client, *shards: Shard) -> None:
    store = RedisStore(client, sharding=Sharding({"default": 3}))
    for shard in shards:
        while store.sweep(shard, retention_ms=LEASE_MS * 1_000).more:
            pass


def assert_in_three(client: Client, ids: set[str], then: Callable[..., object]) -> None:
    """Each task is in one of three shards, of the newest version after `then`, and runs once."""
    sharding = Sharding({"default": 3})
    shards = sharding.every("default")
    then(client, *shards)
    assert_upgraded(client, *shards)
    assert sorted(run_all(RedisStore(client, sharding=sharding), *shards)) == sorted(ids)


def test_an_upgrade_beside_a_change_of_shards_is_told_to_come_again_or_is_done(redis_server: RedisServer) -> None:
    with connect(redis_server.url) as client:
        make_old(client, SHARD)
        ids = fill(RedisStore(client), "default", MANY)
        refused, meanwhile = list[str](), list[str]()

        def upgrade_meanwhile(line: str) -> None:
            meanwhile.append(line)
            try:
                upgrade(client)
            except StoreMisused as error:
                refused.append(str(error))

        Reshard(client, "duecourse", "default", 3, upgrade_meanwhile).run(0)
        assert len(meanwhile) > 3
        assert refused
        assert all("is being changed: run this again after that" in line for line in refused)
        assert_in_three(client, ids, lambda *_: upgrade(client))


def test_a_change_of_shards_in_the_midst_of_an_upgrade_loses_nothing_and_sweeps_rewrite_the_rest(
    redis_server: RedisServer,
) -> None:
    """Records of both versions then meet in a shard of either."""
    with connect(redis_server.url) as client:
        make_old(client, SHARD)
        ids = fill(RedisStore(client), "default", MANY)
        with pytest.raises(Cut):
            upgrade(client, cut)
        assert versions(client, SHARD) == {OLDEST, NEWEST}
        Reshard(client, "duecourse", "default", 3, silent).run(0)
        assert_in_three(client, ids, sweep_all)


def test_old_records_that_move_into_a_shard_that_was_upgraded_are_rewritten_there(redis_client: redis.Redis) -> None:
    two, shards = Sharding({"default": 2}), Sharding({"default": 2}).every("default")
    make_old(redis_client)
    for shard in shards:
        redis_client.sadd("duecourse:shards", f"{shard}/2")
        redis_client.hset(keys_of("duecourse", shard).meta, mapping={"fence": 7, "shards": 2})
    store = RedisStore(redis_client, sharding=two)
    ids = fill(store, "default", 40)
    redis_client.hset(keys_of("duecourse", SHARD).meta, mapping={"layout": NEWEST, "rewrite": 0})
    while store.sweep(SHARD, retention_ms=LEASE_MS).more:
        pass
    assert versions(redis_client, *shards) == {OLDEST, NEWEST}
    Reshard(redis_client, "duecourse", "default", 1, silent).run(0)
    store = RedisStore(redis_client)
    while store.sweep(SHARD, retention_ms=LEASE_MS).more:
        pass
    assert versions(redis_client, SHARD) == {NEWEST}
    assert sorted(run_all(store, SHARD)) == sorted(ids)
    redis_ledger.check(redis_client, SHARD)
