"""A cluster's bells, primary by primary: canaries in slots of their own, a record of shards that one of them has."""

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from threading import Barrier, BrokenBarrierError
from types import SimpleNamespace
from typing import Any

import pytest
import redis
from redis.crc import key_slot
from redis.exceptions import SlotNotCoveredError

from duecourse.errors import StoreUnavailable
from duecourse.ledger.redis_bells import RedisBells


class Holes:
    """A cluster of one primary with every third slot; others are of one that is not met, the rest nobody's."""

    nodes_manager: "Holes"

    def __init__(self) -> None:
        self.nodes_manager = self

    def get_primaries(self) -> list[Any]:
        return [SimpleNamespace(name="one")]

    def get_redis_connection(self, _node: Any) -> redis.Redis:
        return redis.Redis()

    def get_node_from_slot(self, slot: int) -> Any:
        if slot % 3 == 2:
            raise SlotNotCoveredError(f'Slot "{slot}" not covered by the cluster.')
        return SimpleNamespace(name=("one", "stranger")[slot % 3])


def bells_of(cluster: Any) -> RedisBells:
    bells = RedisBells("redis-cluster://nowhere", "ns")
    bells._opened = cluster
    return bells


def bell_at(place: int) -> str:
    """A bell in one of every third slot."""
    return next(bell for n in range(99) if key_slot((bell := f"ns:{{q/{n}}}:bell").encode()) % 3 == place)


def test_where_slots_are_nobodys_canaries_hang_in_others() -> None:
    for _ in range(20):
        [primary] = bells_of(Holes()).primaries().values()
        assert key_slot(primary.canary.encode()) % 3 == 0


def test_a_bell_is_its_primarys_alone() -> None:
    bells = bells_of(Holes())
    [primary] = bells.primaries().values()
    assert [primary.has(bell_at(place)) for place in range(3)] == [True, False, False]
    assert [bells.owner_of(bell_at(place)) for place in range(3)] == ["one", "stranger", ""]


def test_a_primary_is_met_once_and_anew_where_its_canarys_slot_has_moved() -> None:
    cluster = Holes()
    bells = bells_of(cluster)
    [before] = bells.primaries().values()
    assert bells.primaries() == {"one": before}
    cluster.get_node_from_slot = lambda slot: SimpleNamespace(name=("stranger", "one")[slot % 2])  # type: ignore[method-assign]
    before.canary = next(bell for place in range(3) if bells.owner_of(bell := bell_at(place)) == "stranger")
    assert bells.primaries()["one"] is not before


class Slow(Holes):
    """A cluster of one primary, to which two connect at the same time if both may; it counts them."""

    name = "one"

    def __init__(self) -> None:
        super().__init__()
        self._together = Barrier(2)
        self.connected = 0

    def get_primaries(self) -> list[Any]:
        return [self]

    def get_redis_connection(self, _node: Any) -> Any:
        return self

    @property
    def connection_pool(self) -> redis.ConnectionPool:
        with suppress(BrokenBarrierError):
            self._together.wait(0.3)
        self.connected += 1
        return redis.Redis().connection_pool


def test_threads_that_meet_a_primary_at_once_connect_to_it_once() -> None:
    """The connections of one would be left open, and in nobody's table."""
    cluster = Slow()
    bells = bells_of(cluster)
    with ThreadPoolExecutor(2) as threads:
        list(threads.map(lambda _: bells.primaries(), range(2)))
    assert cluster.connected == 1


class Record(Holes):
    """A cluster whose record of shards answers, or not, and counts how often it was read."""

    def __init__(self) -> None:
        super().__init__()
        self.away = False
        self.reads = 0

    def get_node_from_key(self, _key: str) -> Any:
        return self

    def get_redis_connection(self, node: Any) -> Any:
        return self if node is self else redis.Redis()

    def smembers(self, _key: str) -> Sequence[bytes]:
        self.reads += 1
        if self.away:
            raise redis.TimeoutError("Timeout reading from socket")
        return [b"q/%d/1" % n for n in range(99)]


def test_bells_stay_known_while_the_record_is_away_and_it_is_not_asked_by_each_who_wants_them() -> None:
    cluster = Record()
    bells = bells_of(cluster)
    [primary] = bells.primaries().values()
    known = primary.known()
    assert known
    assert all(primary.has(bell) for bell in known)
    cluster.away = True
    assert [primary.known() for _ in range(5)] == [known] * 5
    assert cluster.reads == 2


def test_bells_whose_record_never_answered_are_not_known() -> None:
    cluster = Record()
    cluster.away = True
    bells = bells_of(cluster)
    [primary] = bells.primaries().values()
    assert primary.known() is None
    cluster.away = False
    bells._read_at = time.monotonic()
    assert primary.known()


def test_a_cluster_that_was_never_reached_is_away() -> None:
    with pytest.raises(StoreUnavailable):
        RedisBells("redis-cluster://127.0.0.1:1", "ns").primaries()
