"""Every store that keeps the ledger: the suite runs against each."""

from collections.abc import Iterator

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
from tests.support.redis_server import REDIS

CLUSTER = "redis-cluster"
FIRST, *NEWER = (f"redis-{version}" for version in REDIS)
STORES = ["memory", *in_turn(FIRST, *NEWER, "leveldb", CLUSTER)]
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


def opened(
    kind: str, request: pytest.FixtureRequest, clock: HandClock, sharding: Sharding, *, deaths: bool = False
) -> Iterator[Store]:
    """An empty store, whose keys must be in order at the end."""
    if kind == "memory":
        memory = MemoryStore(clock, sharding, deaths=deaths)
        yield memory
        for shard in sharding.every("default"):
            redis_ledger.check(memory.client, shard)
        return
    if kind == "leveldb":
        with level_store(request.getfixturevalue("tmp_path"), clock, sharding, deaths=deaths) as store:
            yield store
        return
    with connect(emptied(kind, request)) as client:
        yield RedisStore(client, sharding=sharding, travel=clock, deaths=deaths)
        for shard in sharding.every("default"):
            redis_ledger.check(client, shard)


def emptied(kind: str, request: pytest.FixtureRequest) -> str:
    """The URL of an empty server, or of the cluster."""
    if kind == CLUSTER:
        return str(request.getfixturevalue("cluster").url)
    server_of = request.getfixturevalue("server_of")
    return str(server_of(kind.removeprefix("redis-")).emptied().url)
