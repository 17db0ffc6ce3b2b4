"""The bridge on a cluster: bells on every primary, failover, slots on the move, and proof that each is heard."""

import logging
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress

import pytest
from redis.cluster import RedisCluster
from redis.crc import key_slot

from duecourse.ledger import redis_bells
from duecourse.ledger.redis_bells import RedisBells
from tests.support.bridges import NAMESPACE, BellSetter, Recorder, bridging
from tests.support.redis_cluster import ClusterServers
from tests.support.stalls import on_time_ms
from tests.support.wait import until

NOTIFICATIONS = "notify-keyspace-events"


@pytest.fixture
def client(cluster: ClusterServers) -> Iterator[RedisCluster]:
    with cluster.client() as client:
        yield client


class ClusterBellman(BellSetter):
    """A bellman whose time is one node's; all run on this machine."""

    def now(self) -> int:
        seconds, micros = self.redis.get_redis_connection(self.redis.get_default_node()).time()
        return int(seconds) * 1000 + int(micros) // 1000


def hang_at(cluster: ClusterServers, port: int, bell: str) -> None:
    """Hang a bell by its own node, while another does not answer."""
    with cluster.node(port) as node:
        BellSetter(node).hang(bell, 50)


@pytest.fixture
def bells(client: RedisCluster) -> ClusterBellman:
    return ClusterBellman(client)


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


def one_on_each(cluster: ClusterServers, bells: ClusterBellman) -> dict[int, str]:
    """A bell on each primary, by its port."""
    found: dict[int, str] = {}
    for number in range(99):
        bell = f"test:{{default/{number}}}:bell"
        if cluster.owner(bell) not in found:
            found[cluster.owner(bell)] = bells.shard(f"default/{number}")
        if len(found) == 3:
            return found
    raise AssertionError(found)


def rings_on_time(bells: ClusterBellman, recorder: Recorder, bell: str, *, after_outage: bool = False) -> None:
    """Hang a bell and see it ring on time: what nobody heard comes a second late and more.

    What was heard before it hung may reach the recorder later. After an outage a session also rings for what it missed,
    perhaps while this bell hangs: that is not this bell's ring.
    """

    def heard(since: int) -> list[int]:
        rings = [ring for invocation in recorder.of(bell) for ring in invocation.event["rings"]]
        return [ring["heard_at"] for ring in rings if ring["key"] == bell and ring["heard_at"] > since]

    with on_time_ms(300) as most_ms:
        at = bells.hang(bell, 150)
        since = at - 1 if after_outage else at - 150
        assert at <= until(lambda: heard(since))[0] < at + most_ms()


def test_a_bell_on_any_primary_rings_on_time_and_once(
    cluster: ClusterServers, bells: ClusterBellman, recorder: Recorder
) -> None:
    every = one_on_each(cluster, bells)
    with bridging(cluster, recorder) as bridge:
        until(lambda: all(recorder.of(bell) for bell in every.values()))  # those that hang not are swept
        assert bridge.shards == 3
        assert bridge.stats().events is True
        for bell in every.values():
            rings_on_time(bells, recorder, bell)
            assert len(recorder.of(bell)) == 2


def test_a_bell_that_nobody_told_of_is_heard_by_its_key_event(
    cluster: ClusterServers, bells: ClusterBellman, recorder: Recorder
) -> None:
    every = one_on_each(cluster, bells)
    with bridging(cluster, recorder):
        until(lambda: all(recorder.of(bell) for bell in every.values()))
        for bell in every.values():
            rings_on_time(bells, recorder, bell)
            before = len(recorder.of(bell))
            bells.hang(bell, 50, tell=False)
            until(lambda bell=bell, before=before: len(recorder.of(bell)) > before)


def test_notifications_turned_off_at_one_primary_are_noticed_and_set_again(
    cluster: ClusterServers, bells: ClusterBellman, recorder: Recorder, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    port, bell = one_on_each(cluster, bells).popitem()
    with bridging(cluster, recorder, beat_s=0.2), cluster.node(port) as node:
        node.config_set(NOTIFICATIONS, "")
        until(lambda: "notifications were turned off" in caplog.text)
        until(lambda: node.config_get(NOTIFICATIONS)[NOTIFICATIONS])
        rings_on_time(bells, recorder, bell)


def test_a_subscription_that_one_primary_killed_is_made_again(
    cluster: ClusterServers, bells: ClusterBellman, recorder: Recorder, caplog: pytest.LogCaptureFixture
) -> None:
    every = one_on_each(cluster, bells)
    port, bell = every.popitem()
    with bridging(cluster, recorder, beat_s=600) as bridge, cluster.node(port) as node:
        until(lambda: recorder.of(bell))
        assert node.client_kill_filter(_type="pubsub") == 1
        until(lambda: f"the store's primary 127.0.0.1:{port} is back" in caplog.text)
        at = bells.hang(bell, 60_000)
        until(lambda: (bell, at) in bridge._sessions.pending_bells())  # its head was heard, long before a beat looks
    assert caplog.text.count("LOST") == 1, "the others were heard all the time"


def test_while_one_primary_stands_still_the_bells_of_the_others_ring(
    cluster: ClusterServers, bells: ClusterBellman, recorder: Recorder
) -> None:
    """Its replica takes nobody's place, so that it is away for as long as the test wants."""
    every = one_on_each(cluster, bells)
    record = cluster.owner(f"{NAMESPACE}:shards")
    with bridging(cluster, recorder, beat_s=0.2), standing_alone(cluster):
        until(lambda: all(recorder.of(bell) for bell in every.values()))
        for port in (record, next(other for other in every if other != record)):
            others = {other: bell for other, bell in every.items() if other != port}
            with cluster.paused(port):
                for _ in range(5):
                    for other, bell in others.items():
                        before = len(recorder.of(bell))
                        hang_at(cluster, other, bell)
                        until(lambda bell=bell, before=before: len(recorder.of(bell)) > before)
            rings_again(bells, recorder, every[port])


def test_a_bridge_that_begins_while_one_primary_stands_still_serves_the_others(
    cluster: ClusterServers, bells: ClusterBellman, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redis_bells, "TIMEOUT_S", 1.0)
    every = one_on_each(cluster, bells)
    port, away = every.popitem()
    with standing_alone(cluster), ExitStack() as paused:
        paused.enter_context(cluster.paused(port))
        with bridging(cluster, recorder) as bridge:
            assert bridge.stats().events is not False
            for other, bell in every.items():
                hang_at(cluster, other, bell)
                until(lambda bell=bell: recorder.of(bell))
            paused.close()
            until(lambda: recorder.of(away))


@contextmanager
def standing_alone(cluster: ClusterServers) -> Iterator[None]:
    """No replica takes a primary's place, and the others go on without it."""
    try:
        cluster.configure({"cluster-require-full-coverage": "no", "cluster-replica-no-failover": "yes"})
        yield
    finally:
        cluster.configure({"cluster-require-full-coverage": "yes", "cluster-replica-no-failover": "no"})
        cluster.wait_whole()


def rings_again(bells: ClusterBellman, recorder: Recorder, bell: str) -> None:
    """Hang a bell again and again until it rings on time."""

    def rings() -> bool:
        before, at = len(recorder.of(bell)), bells.hang(bell, 50)
        with suppress(AssertionError):
            until(lambda: len(recorder.of(bell)) > before, seconds=2)
        found = recorder.of(bell)[before:]
        return bool(found) and found[0].at < at + 1_000

    until(rings)


def test_a_slot_that_moves_to_another_primary_takes_its_bell_along(
    cluster: ClusterServers, bells: ClusterBellman, recorder: Recorder
) -> None:
    every = one_on_each(cluster, bells)
    (source, bell), (target, _), *_ = every.items()
    with bridging(cluster, recorder, beat_s=60):
        until(lambda: recorder.of(bell))
        bells.hang(bell, 400)
        before = len(recorder.of(bell))
        cluster.move_slot(key_slot(bell.encode()), source, target)
        assert cluster.owner(bell) == target
        until(lambda: len(recorder.of(bell)) > before)
        rings_on_time(bells, recorder, bell)
        rings_on_time(bells, recorder, every[target])
        cluster.move_slot(key_slot(bell.encode()), target, source)
        rings_on_time(bells, recorder, bell)


def test_a_bell_is_seen_where_it_is_while_its_slot_moves_and_after(
    cluster: ClusterServers, bells: ClusterBellman
) -> None:
    every = one_on_each(cluster, bells)
    (source, bell), (target, other), *_ = every.items()
    slot = key_slot(bell.encode())
    looking = RedisBells(cluster.url, NAMESPACE)
    there = looking.primaries()[f"127.0.0.1:{source}"]
    times: list[int | None] = [bells.hang(bell, 60_000), bells.hang(other, 70_000), None]
    names = [bell, other, every.popitem()[1]]
    cluster.begin_move(slot, source, target)
    assert there.look(names).hung == times
    cluster.move_keys(slot, source, target)
    assert there.look(names).hung == times
    cluster.end_move(slot, target)
    assert there.look(names).hung == times
    assert looking.owner_of(bell) == f"127.0.0.1:{target}"
    looking.close()


def test_after_a_failover_every_bell_rings_on_time_again(
    cluster: ClusterServers, bells: ClusterBellman, recorder: Recorder, caplog: pytest.LogCaptureFixture
) -> None:
    every = one_on_each(cluster, bells)
    port, bell = every.popitem()
    with bridging(cluster, recorder, beat_s=1):
        until(lambda: recorder.of(bell))
        cluster.kill(port)
        cluster.wait_failover()
        until(lambda: "primaries are others now" in caplog.text)
        bells.redis.nodes_manager.initialize()
        for each in (bell, *every.values()):
            rings_on_time(bells, recorder, each, after_outage=True)
        cluster.revive(port)
        rings_on_time(bells, recorder, bell)
