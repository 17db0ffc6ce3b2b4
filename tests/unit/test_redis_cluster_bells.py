"""A cluster's bells heard as one: heads where their bell is, a canary when all were heard, clocks compared."""

import os
import time
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from threading import Barrier, BrokenBarrierError
from types import SimpleNamespace
from typing import Any

import pytest
import redis
from redis.crc import key_slot
from redis.exceptions import SlotNotCoveredError

from duecourse.adapters.redis.bells import RedisBells
from duecourse.adapters.redis.subscription import RedisSubscription
from duecourse.errors import StoreUnavailable
from duecourse.ports.bells import Sound, What
from tests.support.wait import until

HEAD, EXPIRED = What.HEAD, What.EXPIRED
CANARIES = {"one": "canary-1", "two": "canary-2"}


class Heard:
    """A node's ear that hears what a test says."""

    def __init__(self, canary: str) -> None:
        self.canary = canary
        self.closed = False
        self._sounds: deque[Sound | StoreUnavailable] = deque()
        self._woken, self._wake = os.pipe()

    def say(self, sound: Sound | StoreUnavailable) -> None:
        self._sounds.append(sound)
        os.write(self._wake, b"!")

    def fileno(self) -> int:
        return self._woken

    def hear(self, _end: float) -> Sound | None:
        if not self._sounds:
            return None
        os.read(self._woken, 1)
        sound = self._sounds.popleft()
        if isinstance(sound, StoreUnavailable):
            raise sound
        return sound

    def covers(self, bells: Sequence[str]) -> bool:
        return "unheard" not in bells

    def close(self) -> None:
        self.closed = True
        os.close(self._woken)
        os.close(self._wake)


class Map:
    """A cluster whose bells are named for where they are."""

    canary = "all"

    def __init__(self) -> None:
        self.canaries = CANARIES

    def owner_of(self, bell: str) -> str:
        return bell.partition("/")[0]


@contextmanager
def listening(cluster: Map) -> Iterator[tuple[Any, dict[str, Heard]]]:
    nodes = {name: Heard(canary) for name, canary in CANARIES.items()}
    subscription = RedisSubscription(cluster, nodes)  # type: ignore[arg-type]
    try:
        yield subscription, nodes
    finally:
        subscription.close()
    assert all(node.closed for node in nodes.values())


def all_heard(subscription: Any) -> list[Sound]:
    return list(iter(lambda: subscription.hear(0.1), None))


def test_a_head_counts_where_its_bell_is_and_nowhere_else() -> None:
    with listening(Map()) as (subscription, nodes):
        nodes["two"].say(Sound(HEAD, "one/bell", 5))  # it came around by the other node
        nodes["one"].say(Sound(HEAD, "one/bell", 7))
        nodes["two"].say(Sound(EXPIRED, "one/bell"))
        assert sorted(all_heard(subscription)) == [Sound(EXPIRED, "one/bell"), Sound(HEAD, "one/bell", 7)]


def test_the_canary_is_heard_when_that_of_every_node_was() -> None:
    with listening(Map()) as (subscription, nodes):
        for _ in range(2):
            nodes["one"].say(Sound(EXPIRED, "canary-1"))
            nodes["one"].say(Sound(HEAD, "canary-1"))
            assert all_heard(subscription) == []
            nodes["two"].say(Sound(EXPIRED, "canary-2"))
            nodes["two"].say(Sound(HEAD, "canary-2"))
            assert all_heard(subscription) == [Sound(EXPIRED, "all"), Sound(HEAD, "all")]


def test_one_node_without_events_is_enough_for_the_canary_to_be_silent() -> None:
    with listening(Map()) as (subscription, nodes):
        nodes["one"].say(Sound(EXPIRED, "canary-1"))
        nodes["one"].say(Sound(HEAD, "canary-1"))
        nodes["two"].say(Sound(HEAD, "canary-2"))
        assert all_heard(subscription) == [Sound(HEAD, "all")]


def test_a_node_that_is_lost_ends_it() -> None:
    with listening(Map()) as (subscription, nodes):
        nodes["two"].say(StoreUnavailable("gone"))
        with pytest.raises(StoreUnavailable, match="gone"):
            until(lambda: subscription.hear(0.1))


def test_other_primaries_end_it() -> None:
    cluster = Map()
    with listening(cluster) as (subscription, _):
        assert subscription.hear(0.01) is None
        cluster.canaries = {**CANARIES, "two": "another"}
        with pytest.raises(StoreUnavailable, match="others now"):
            subscription.hear(0.01)


def test_it_covers_what_every_node_does() -> None:
    with listening(Map()) as (subscription, _):
        assert subscription.covers(["a", "b"])
        assert not subscription.covers(["a", "unheard"])


class Clock:
    """A node whose clock is so many milliseconds ahead of this machine's."""

    canary = ""

    def __init__(self, ahead: float) -> None:
        self._ahead = ahead

    def ask(self) -> tuple[float, list[Any]]:
        return time.time() * 1000 + self._ahead, []


def test_the_time_is_that_of_the_foremost_clock() -> None:
    bells = RedisBells("redis-cluster://nowhere", "ns")
    bells._primaries = {"one": Clock(-300), "two": Clock(500), "three": Clock(0)}  # type: ignore[dict-item]
    assert abs(bells.look([]).now - time.time() * 1000 - 500) < 50
    assert [round(bells._behind[name], -2) for name in ("one", "two", "three")] == [800, 0, 500]


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


def with_holes() -> RedisBells:
    bells = RedisBells("redis-cluster://nowhere", "ns")
    bells._opened = Holes()
    bells._meet()
    return bells


def test_where_slots_are_nobodys_canaries_hang_in_others() -> None:
    for _ in range(20):
        [primary] = with_holes()._primaries.values()
        assert key_slot(primary.canary.encode()) % 3 == 0


@pytest.mark.parametrize("place", [1, 2], ids=["whose primary is not met", "whose slot is nobody's"])
def test_a_bell_that_is_on_no_primary_is_away(place: int) -> None:
    bell = next(bell for n in range(99) if key_slot((bell := f"ns:{{q/{n}}}:bell").encode()) % 3 == place)
    with pytest.raises(StoreUnavailable):
        with_holes().look([bell])


class Closed:
    """Bells of a primary that count how often they are closed."""

    canary = "canary"

    def __init__(self) -> None:
        self.closed = 0

    def close(self) -> None:
        self.closed += 1


def test_a_primary_that_was_left_is_closed_then_and_in_the_end() -> None:
    """A thread that is looking at its bells at that moment connects to it once more."""
    bells, left = with_holes(), Closed()
    bells._primaries["gone"] = left  # type: ignore[assignment]
    bells._meet()
    assert (left.closed, bells.canaries.keys()) == (1, {"one"})
    bells._opened = None
    bells.close()
    assert left.closed == 2


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
    bells = RedisBells("redis-cluster://nowhere", "ns")
    bells._opened = cluster = Slow()
    with ThreadPoolExecutor(2) as threads:
        list(threads.map(lambda _: bells._meet(), range(2)))
    assert cluster.connected == 1


def test_a_cluster_that_was_never_reached_is_away() -> None:
    with pytest.raises(StoreUnavailable):
        RedisBells("redis-cluster://127.0.0.1:1", "ns").check_primary()
    with pytest.raises(StoreUnavailable):
        RedisBells("redis-cluster://127.0.0.1:1", "ns").look([])
