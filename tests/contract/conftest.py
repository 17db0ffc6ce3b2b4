"""Every store that keeps the ledger: the suite runs against each."""

from collections.abc import Iterator
from typing import Any

import pytest

from duecourse.adapters.embedded.store import EmbeddedStore as MemoryStore
from duecourse.adapters.redis.connect import connect
from duecourse.adapters.redis.store import RedisStore
from duecourse.domain.shards import Sharding
from duecourse.ports.store import Store
from tests.support import redis_ledger
from tests.support.clock import HandClock
from tests.support.level_store import level_store
from tests.support.matrix import in_turn
from tests.support.redis_login import logged_in, refused, rights_on
from tests.support.redis_server import REDIS, RedisServer

CLUSTER = "redis-cluster"
LOGIN = "-with-a-login"
"""End of the name of a server at which the store has the rights that the pages give, and no more."""
STORES = ["memory", *in_turn(f"redis-{REDIS[0]}", f"redis-{REDIS[-1]}{LOGIN}", "leveldb", CLUSTER)]
SHARDS = 8


@pytest.fixture(params=STORES)
def kind_of_store(request: pytest.FixtureRequest) -> str:
    """Every store in turn, by its name."""
    return str(request.param)


@pytest.fixture
def store(kind_of_store: str, request: pytest.FixtureRequest, clock: HandClock) -> Iterator[Store]:
    """Every store in turn, empty, on the clock that moves by hand."""
    yield from opened(kind_of_store, request, clock, Sharding())


@pytest.fixture
def sharded(kind_of_store: str, request: pytest.FixtureRequest, clock: HandClock) -> Iterator[Store]:
    """Every store in turn, whose queue `default` has eight shards."""
    yield from opened(kind_of_store, request, clock, Sharding({"default": SHARDS}))


@pytest.fixture
def telling(kind_of_store: str, request: pytest.FixtureRequest, clock: HandClock) -> Iterator[Store]:
    """Every store in turn, of which each death is told."""
    yield from opened(kind_of_store, request, clock, Sharding(), deaths=True)


@pytest.fixture
def narrow(kind_of_store: str, request: pytest.FixtureRequest, clock: HandClock) -> Iterator[Store]:
    """Every store in turn, in which each tenant may make two queues."""
    yield from opened(kind_of_store, request, clock, Sharding({"wide": SHARDS}), max_queues=2)


def opened(
    kind: str, request: pytest.FixtureRequest, clock: HandClock, sharding: Sharding, **options: Any
) -> Iterator[Store]:
    """An empty store, whose keys must be in order at the end."""
    if kind == "memory":
        memory = MemoryStore(clock, sharding, **options)
        yield memory
        for shard in sharding.every("default"):
            redis_ledger.check(memory.client, shard)
        return
    if kind == "leveldb":
        with level_store(request.getfixturevalue("tmp_path"), clock, sharding, **options) as store:
            yield store
        return
    place = emptied(kind, request)
    with connect(place_of(kind, request)) as client, connect(place) as operator:
        yield RedisStore(client, sharding=sharding, travel=clock, **options)
        for shard in sharding.every("default"):
            redis_ledger.check(operator, shard)
    if kind.endswith(LOGIN):
        assert refused(server(kind, request)) == set()


def emptied(kind: str, request: pytest.FixtureRequest) -> str:
    """The URL of an empty server, or of the cluster, for who may do all there."""
    return str(request.getfixturevalue("cluster").url) if kind == CLUSTER else server(kind, request).emptied().url


def place_of(kind: str, request: pytest.FixtureRequest) -> str:
    """The URL by which the store logs in."""
    if kind == CLUSTER:
        return str(request.getfixturevalue("cluster").url)
    one = server(kind, request)
    return logged_in(one, rights_on(REDIS[-1])) if kind.endswith(LOGIN) else one.url


def server(kind: str, request: pytest.FixtureRequest) -> RedisServer:
    """The server of a store's name."""
    started: RedisServer = request.getfixturevalue("server_of")(kind.removeprefix("redis-").removesuffix(LOGIN))
    return started
