"""What a bridge survives: restarts, killed subscriptions, evictions, replicas, refusals, another bridge."""

import logging
import signal
import time
from collections.abc import Iterator

import pytest

from tests.support.bridges import BellSetter, Recorder, bell_setter, bridging
from tests.support.matrix import in_turn
from tests.support.redis_server import FLOOR, RedisServer, need
from tests.support.wait import until

pytestmark = pytest.mark.slow


@pytest.fixture
def server() -> Iterator[RedisServer]:
    with RedisServer(need(FLOOR)) as server:
        yield server


def test_bells_that_hung_overdue_or_missing_at_the_start_ring_and_others_do_not(
    server: RedisServer, bells: BellSetter, recorder: Recorder
) -> None:
    missing, overdue, ahead = (bells.shard(f"default/{n}") for n in range(3))
    bells.hang(ahead, 60_000)
    at = bells.hang(overdue, 1)
    until(lambda: bells.now() > at + 1)
    with bridging(server, recorder) as bridge:
        until(lambda: recorder.of(missing) and recorder.of(overdue))
        assert bridge.shards == 3
    assert not recorder.of(ahead)


@pytest.mark.parametrize("persistence", in_turn("aof", "rdb"))
def test_a_bell_that_went_while_redis_was_down_rings_when_it_is_back(
    persistence: str, recorder: Recorder, caplog: pytest.LogCaptureFixture
) -> None:
    aof = ["--appendonly", "yes", "--appendfsync", "always"] if persistence == "aof" else []
    with RedisServer(need(FLOOR), *aof) as server, bell_setter(server) as bells:
        went, ahead = bells.shard("default/0"), bells.shard("default/1")
        with bridging(server, recorder):
            until(lambda: recorder.of(went) and recorder.of(ahead))
            at = bells.hang(went, 2_000)  # far enough off for a slow machine to save and kill before
            bells.hang(ahead, 3_600_000)
            bells.redis.save()
            server.stop(signal.SIGKILL)
            heard = len(recorder.of(went)), len(recorder.of(ahead))
            assert until(lambda: "LOST the store" in caplog.text)
            until_past(at)
            server.start()
            until(lambda: len(recorder.of(went)) > heard[0])
            until(lambda: "the store is back" in caplog.text)
            assert bells.redis.config_get("notify-keyspace-events")["notify-keyspace-events"], "set again"
            later = bells.hang(ahead, 50)
            until(lambda: recorder.of(ahead)[-1].at > later)
    assert caplog.text.count("LOST the store") <= 3


def until_past(at: int) -> None:
    until(lambda: time.time() * 1000 > at + 2)


def test_a_killed_subscription_is_taken_up_again_and_nothing_is_lost(
    server: RedisServer, bells: BellSetter, recorder: Recorder, caplog: pytest.LogCaptureFixture
) -> None:
    bell = bells.shard("default/0")
    with bridging(server, recorder):
        until(lambda: recorder.of(bell))
        bells.redis.execute_command("CLIENT", "KILL", "TYPE", "pubsub")
        at = bells.hang(bell, 10)
        until(lambda: "the store is back" in caplog.text)
        until(lambda: recorder.of(bell)[-1].at > at)


def test_an_evicted_bell_rings(server: RedisServer, bells: BellSetter, recorder: Recorder) -> None:
    bell = bells.shard("default/0")
    with bridging(server, recorder, beat_s=60):
        until(lambda: recorder.of(bell))
        bells.hang(bell, 3_600_000)
        bells.redis.config_set("maxmemory-policy", "volatile-ttl")
        bells.redis.config_set("maxmemory", 1)
        until(lambda: recorder.of(bell)[1:])
    assert recorder.of(bell)[1].event["rings"][0]["channel"] == "__keyevent@0__:evicted"


def test_a_bell_that_vanished_unheard_rings_at_the_next_beat(
    server: RedisServer, bells: BellSetter, recorder: Recorder
) -> None:
    bell = bells.shard("default/0")
    with bridging(server, recorder, beat_s=0.1):
        until(lambda: recorder.of(bell))
        bells.hang(bell, 3_600_000)
        bells.redis.delete(bell)
        until(lambda: recorder.of(bell)[1:])


def test_where_memory_is_short_the_bridge_goes_on(
    server: RedisServer, bells: BellSetter, recorder: Recorder, caplog: pytest.LogCaptureFixture
) -> None:
    bell = bells.shard("default/0")
    with bridging(server, recorder, beat_s=0.05) as bridge:
        until(lambda: recorder.of(bell))
        at = bells.hang(bell, 400)
        bells.redis.config_set("maxmemory", 1)
        until(lambda: recorder.of(bell)[1:])
        assert bridge.stats().events
    assert recorder.of(bell)[1].at > at
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


@pytest.mark.parametrize("read_only", ["yes", "no"])
def test_a_replica_is_refused_until_it_is_promoted(
    server: RedisServer, bells: BellSetter, recorder: Recorder, caplog: pytest.LogCaptureFixture, read_only: str
) -> None:
    bell = bells.shard("default/0")
    bells.redis.config_set("replica-read-only", read_only)
    bells.redis.replicaof("127.0.0.1", "1")
    with bridging(server, recorder, ready=False) as bridge:
        until(lambda: "is a replica" in caplog.text)
        assert not recorder.invocations
        bells.redis.replicaof("NO", "ONE")
        assert bridge.wait_ready(30)
        until(lambda: recorder.of(bell))


@pytest.mark.parametrize("read_only", ["yes", "no"])
def test_a_primary_that_is_demoted_is_noticed_at_the_next_beat(
    server: RedisServer, bells: BellSetter, recorder: Recorder, caplog: pytest.LogCaptureFixture, read_only: str
) -> None:
    bells.redis.config_set("replica-read-only", read_only)
    with bridging(server, recorder, beat_s=0.1):
        bells.redis.replicaof("127.0.0.1", "1")
        until(lambda: "is a replica" in caplog.text)
        bells.redis.replicaof("NO", "ONE")
        until(lambda: "the store is back" in caplog.text)


def test_a_server_without_patterns_is_subscribed_to_by_name_and_new_shards_are_found(
    server: RedisServer, bells: BellSetter, recorder: Recorder
) -> None:
    known = bells.shard("default/0")
    with server.client() as limited:
        limited.execute_command("ACL", "SETUSER", "default", "-psubscribe", "-config")
        with bridging(server, recorder, beat_s=0.1):
            until(lambda: recorder.of(known))
            at = bells.hang(known, 100)
            until(lambda: recorder.of(known)[1:])
            assert recorder.of(known)[1].at > at
            new = bells.shard("default/1")
            until(lambda: recorder.of(new))
            channels = {channel.decode() for channel in limited.pubsub_channels("test:*")}
            assert {"test:{default/0}:head", "test:{default/1}:head"} < channels


def test_two_bridges_both_ring_and_leave_each_others_canaries_alone(server: RedisServer, bells: BellSetter) -> None:
    one, other = Recorder(), Recorder()
    bell = bells.shard("default/0")
    with bridging(server, one, beat_s=0.05), bridging(server, other, beat_s=0.05):
        until(lambda: one.of(bell) and other.of(bell))
        bells.hang(bell, 500)
        until(lambda: one.of(bell)[1:] and other.of(bell)[1:])
    for recorder in (one, other):
        assert {key for invocation in recorder.invocations for key in invocation.keys} == {bell}
        assert len(recorder.of(bell)) <= 3


def test_only_bells_of_the_namespace_ring(server: RedisServer, bells: BellSetter, recorder: Recorder) -> None:
    mine = "test:{default/0}:bell"
    with bridging(server, recorder):
        for key in ("other:{default/0}:bell", "test:{default/0}:lock", "test2:{default/0}:bell", mine):
            bells.hang(key, 5, tell=False)
        until(lambda: not any(bells.redis.exists(key) for key in ("other:{default/0}:bell", mine)))
        until(lambda: recorder.of(mine))
    assert {key for invocation in recorder.invocations for key in invocation.keys} == {mine}
