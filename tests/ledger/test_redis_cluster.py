"""What is the store's own on a cluster: redirections followed, nothing repeated blindly, errors told in our words."""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
import redis
from redis.crc import key_slot
from redis.exceptions import (
    AskError,
    ClusterCrossSlotError,
    ClusterDownError,
    ClusterError,
    MasterDownError,
    MovedError,
    RedisClusterException,
    SlotNotCoveredError,
    TryAgainError,
)

from duecourse.errors import StoreMisused, StoreUnavailable
from duecourse.ledger.connect import Login, NodePool, connect, node_of, open_client, primaries_of, refresh_slots
from duecourse.ledger.keys import keys_of, shards_key
from duecourse.ledger.operation_types import Reply
from duecourse.ledger.operations.ledger import Ledger
from duecourse.ledger.script_calls import translate
from duecourse.ledger.sharding import Sharding
from tests.support.ledger import LEASE_MS, SHARD, add, claim, new, stored_task
from tests.support.redis_cluster import ClusterServers
from tests.support.wait import until

pytestmark = pytest.mark.slow

TASKS = keys_of("duecourse", SHARD).tasks


@pytest.mark.parametrize(
    "error",
    [
        ClusterDownError("The cluster is down"),
        MasterDownError("Link with MASTER is down"),
        TryAgainError("Multiple keys request during rehashing of slot"),
        MovedError("1234 127.0.0.1:7000"),
        AskError("1234 127.0.0.1:7000"),
        ClusterError("TTL exhausted."),
        RedisClusterException("Redis Cluster cannot be connected."),
        SlotNotCoveredError('Slot "7" not covered by the cluster.'),
        redis.ReadOnlyError("You can't write against a read only replica."),
    ],
    ids=lambda error: type(error).__name__,
)
def test_what_a_cluster_says_while_it_mends_itself_is_told_as_away(error: Exception) -> None:
    assert isinstance(translate(error), StoreUnavailable)


def test_keys_of_several_nodes_in_one_command_are_a_mistake() -> None:
    assert isinstance(translate(ClusterCrossSlotError("Keys in request don't hash to the same slot")), StoreMisused)


@pytest.mark.parametrize("hosts", ["127.0.0.1:1,127.0.0.1:2", "[::1]:1,127.0.0.1:2", "user:p%40ss@[::1]:1"])
def test_a_cluster_that_is_away_is_told_as_such(hosts: str) -> None:
    with pytest.raises(StoreUnavailable):
        connect(f"redis-cluster://{hosts}")


def test_one_node_that_answers_is_enough_to_know_the_cluster(cluster: ClusterServers) -> None:
    with connect(f"redis-cluster://127.0.0.1:1,127.0.0.1:{cluster.ports[4]}") as client:
        Ledger(client).ping()


def test_the_keys_of_a_shard_are_of_one_slot_and_those_of_many_shards_of_many() -> None:
    slots = [
        {key_slot(key.encode()) for key in (*keys_of("duecourse", shard).fixed, keys_of("duecourse", shard).due("x"))}
        for shard in Sharding({"q": 64}).every("q")
    ]
    assert {len(found) for found in slots} == {1}
    assert len(set.union(*slots)) > 60


def test_a_claim_whose_reply_is_late_is_not_sent_again(cluster: ClusterServers) -> None:
    """The primary sleeps past the client's patience, and runs then what it was sent: once."""
    with open_client(cluster.url, socket_timeout=0.15) as client, connect(cluster.url) as patient:
        ledger, sure = Ledger(client), Ledger(patient)
        sure.add([new(f"t-{n}") for n in range(9)])
        ledger.claim(SHARD, 1, lease_ms=LEASE_MS)  # so that connection and script are there
        with cluster.node(cluster.owner(TASKS)) as node, ThreadPoolExecutor(1) as pool:
            sleeping = pool.submit(node.execute_command, "DEBUG", "SLEEP", "0.5")
            time.sleep(0.05)  # until it sleeps: a claim that is too early makes this test fail, never pass
            with pytest.raises(StoreUnavailable):
                ledger.claim(SHARD, 1, lease_ms=LEASE_MS)
            sleeping.result()
        until(lambda: sure.stats(SHARD).leased > 1)
        assert sure.stats(SHARD)[:2] == (7, 2)


def test_a_shard_that_has_moved_is_found_by_every_verb_and_by_one_that_waits(cluster: ClusterServers) -> None:
    source = cluster.owner(TASKS)
    target = next(port for port in cluster.primaries() if port != source)
    with connect(cluster.url) as client:
        for ledger in (Ledger(client), Ledger(client, wait=1)):
            refresh_slots(client)
            add(ledger, "a")
            at = cluster.owner(TASKS)
            cluster.move_slot(client.keyslot(TASKS), at, target if at == source else source)
            assert ledger.add([new("a"), new(f"b-{at}")])[1].reply is Reply.CREATED
            assert stored_task(ledger, "a").id == "a"
            assert node_of(client, TASKS).get_connection_kwargs()["port"] != at
        assert len(claim(ledger)) == 3


def test_an_add_that_waits_for_a_replica_says_so_where_there_is_none(
    cluster: ClusterServers, replicas_do_not_come: Callable[[], None]
) -> None:
    owner = cluster.owner(TASKS)
    with connect(cluster.url) as client, cluster.node(owner) as node:
        careful = Ledger(client, wait=1)
        add(careful, "a")
        replicas_do_not_come()
        with cluster.paused(cluster.replica_of(owner)), pytest.raises(StoreUnavailable, match="0 of 1 replicas"):
            careful.add([new("b")])
        assert node.execute_command("HLEN", TASKS) == 2


def test_health_is_that_of_the_node_that_knows_the_shards(cluster: ClusterServers) -> None:
    with connect(cluster.url) as client:
        ledger = Ledger(client)
        ledger.ping()
        assert abs(ledger.now() - time.time() * 1000) < 1_000
        assert node_of(client, shards_key("duecourse")).get_connection_kwargs()["port"] == cluster.owner(
            shards_key("duecourse")
        )


def test_a_miss_among_many_shards_is_one_round_trip_more(cluster: ClusterServers) -> None:
    with connect(cluster.url) as client:
        ledger = Ledger(client, sharding=Sharding({"default": 64}))
        reads: list[int] = []
        read = ledger._scripts.read
        ledger._scripts.read = lambda *commands: (reads.append(len(commands)), read(*commands))[1]  # type: ignore[method-assign]
        ledger.add([new("a")])
        assert ledger.get("default", "a")
        assert reads == [3]
        assert ledger.get("default", "b") is None
        assert reads == [3, 3, 2 * 63]


def test_a_cluster_with_a_slot_that_is_nobodys_serves_the_others(cluster: ClusterServers) -> None:
    with cluster.without_slot(key_slot(TASKS.encode()) ^ 1), connect(cluster.url) as client:
        add(Ledger(client), "a")


class Secret:
    """A Secret that never changes."""

    def __init__(self, url: str) -> None:
        self._url = url

    def value(self) -> str:
        return self._url

    def renewed(self, _refused: str) -> str | None:
        return None


@pytest.mark.parametrize("with_login", [False, True])
def test_connections_to_each_node_are_refused_while_it_does_not_answer(
    cluster: ClusterServers, with_login: bool
) -> None:
    with connect(cluster.url, Login(Secret(cluster.url)) if with_login else None) as client:
        pools = [node.connection_pool for node in primaries_of(client).values()]
    assert [isinstance(pool, NodePool) for pool in pools] == [True] * 3
