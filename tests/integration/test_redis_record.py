"""The record of shards on Redis where it is long."""

import pytest
import redis

from duecourse.adapters.redis import shards
from duecourse.adapters.redis.keys import shards_key
from duecourse.adapters.redis.scripts import Scripts
from duecourse.adapters.redis.shards import ShardsOnRecord
from duecourse.domain.shards import Sharding
from duecourse.domain.task import Shard
from duecourse.errors import StoreMisused

RECORD = shards_key("duecourse")


@pytest.fixture
def record(redis_client: redis.Redis) -> ShardsOnRecord:
    """A record of 5,000 queues, `q` among them with four shards."""
    redis_client.sadd(RECORD, "q/2/4", *(f"q{n}/0/1" for n in range(5_000)))
    return ShardsOnRecord(Scripts(redis_client, None), "duecourse", Sharding(), wait=0)


def test_a_queue_of_another_number_of_shards_is_found_among_thousands(
    record: ShardsOnRecord, redis_client: redis.Redis
) -> None:
    with pytest.raises(StoreMisused, match="Queue q has 4 shards on record and DUECOURSE_SHARDS says 1"):
        record.register(Shard("q"))
    assert not redis_client.sismember(RECORD, "q/0/1")


def test_a_shard_is_put_on_record_without_reading_the_others(record: ShardsOnRecord, redis_client: redis.Redis) -> None:
    redis_client.config_resetstat()
    record.register(Shard("new"))
    record.register(Shard("q17"))
    assert redis_client.sismember(RECORD, "new/0/1")
    assert "cmdstat_smembers" not in redis_client.info("commandstats")


def test_a_shard_that_is_on_record_is_put_there_again_without_a_look_through_the_others(
    record: ShardsOnRecord, redis_client: redis.Redis
) -> None:
    redis_client.config_resetstat()
    record.register(Shard("q17"))
    assert redis_client.info("commandstats")["cmdstat_sscan"]["calls"] == 1, "for marks alone"


def test_new_queues_do_not_read_it_each_however_long_a_reading_takes(
    record: ShardsOnRecord, redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    passing, members = 0.0, record.members

    def slowly() -> list[tuple[Shard, int]]:
        nonlocal passing
        passing += 3
        return members()

    monkeypatch.setattr(shards.time, "monotonic", lambda: passing)
    monkeypatch.setattr(record, "members", slowly)
    redis_client.config_resetstat()
    for n in range(20):
        record.check(f"new{n}")
        passing += 1
    assert redis_client.info("commandstats")["cmdstat_smembers"]["calls"] == 1
    passing += 60
    record.check("later")
    assert redis_client.info("commandstats")["cmdstat_smembers"]["calls"] == 2
