"""The record of shards on Redis where it is long."""

import pytest
import redis

from duecourse.errors import StoreMisused
from duecourse.ledger import shard_registry
from duecourse.ledger.keys import ledger_key, shards_key
from duecourse.ledger.script_calls import Scripts
from duecourse.ledger.shard_registry import ShardRegistry
from duecourse.ledger.sharding import Sharding
from duecourse.ledger.task import Shard

RECORD = shards_key("duecourse")


@pytest.fixture
def record(redis_client: redis.Redis) -> ShardRegistry:
    """A record of 5,000 queues, `q` among them with four shards."""
    redis_client.sadd(RECORD, "q/2/4", *(f"q{n}/0/1" for n in range(5_000)))
    redis_client.hset(ledger_key("duecourse"), "count:q", 4)
    return ShardRegistry(Scripts(redis_client, None), "duecourse", Sharding(), wait=0)


def test_a_queue_of_another_number_of_shards_is_found_among_thousands(
    record: ShardRegistry, redis_client: redis.Redis
) -> None:
    with pytest.raises(StoreMisused, match="Queue q has 4 registered shards and DUECOURSE_SHARDS says 1"):
        record.register(Shard("q"))
    assert not redis_client.sismember(RECORD, "q/0/1")


def test_a_shard_is_registered_without_reading_the_others(record: ShardRegistry, redis_client: redis.Redis) -> None:
    redis_client.config_resetstat()
    record.register(Shard("new"))
    record.register(Shard("q17"))
    assert redis_client.sismember(RECORD, "new/0/1")
    assert "cmdstat_smembers" not in redis_client.info("commandstats")


def test_a_registered_shard_is_registered_again_without_a_look_through_the_others(
    record: ShardRegistry, redis_client: redis.Redis
) -> None:
    redis_client.config_resetstat()
    record.register(Shard("q17"))
    assert redis_client.info("commandstats")["cmdstat_sscan"]["calls"] == 1, "for marks alone"


def test_new_queues_do_not_read_it_each_however_long_a_reading_takes(
    record: ShardRegistry, redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    passing, members = 0.0, record.members

    def slowly() -> list[tuple[Shard, int]]:
        nonlocal passing
        passing += 3
        return members()

    monkeypatch.setattr(shard_registry.time, "monotonic", lambda: passing)
    monkeypatch.setattr(record, "members", slowly)
    redis_client.config_resetstat()
    for n in range(20):
        record.check(f"new{n}")
        passing += 1
    assert redis_client.info("commandstats")["cmdstat_smembers"]["calls"] == 1
    passing += 60
    record.check("later")
    assert redis_client.info("commandstats")["cmdstat_smembers"]["calls"] == 2
