"""Every store that keeps the ledger: the suite runs against each."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from duecourse.adapters.embedded import lua
from duecourse.adapters.embedded.commands import number
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
from tests.support.redis_server import EVERY, REDIS, VALKEY, RedisServer, labelled

CLUSTER = "-cluster"
"""End of the name of a store on six servers: the newest Redis, or Valkey."""
CLUSTERS = {"redis": REDIS[-1], "valkey": VALKEY}
LOGIN = "-with-a-login"
"""End of the name of a server at which the store has the rights that the pages give, and no more."""
FURTHER = (f"redis-{REDIS[-1]}{LOGIN}", labelled(VALKEY), "leveldb", *(f"{kind}{CLUSTER}" for kind in CLUSTERS))
STORES = ["memory", *in_turn(f"redis-{REDIS[0]}", *FURTHER)]
SHARDS = 8


@pytest.fixture(autouse=True)
def whole_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each number that a script gives a command in memory is one whose text is the same on every server."""
    monkeypatch.setattr(lua, "number", whole)


def whole(value: float) -> bytes:
    """Its text; AssertionError where servers differ (tests/integration/test_servers_alike.py)."""
    assert value == value // 1, value
    assert abs(value) < 1e17, value
    return number(value)


@pytest.fixture(params=EVERY, ids=labelled)
def redis_server(request: pytest.FixtureRequest, server_of: Callable[[str], RedisServer]) -> RedisServer:
    """An empty server of every version at hand in turn, Valkey among them."""
    return server_of(request.param).emptied()


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
    served = servers(kind, request)
    operators = served.emptied().url
    place = logged_in(served, rights_on(REDIS[-1])) if kind.endswith(LOGIN) else operators
    with connect(place) as client, connect(operators) as operator:
        yield RedisStore(client, sharding=sharding, travel=clock, **options)
        for shard in sharding.every("default"):
            redis_ledger.check(operator, shard)
    if kind.endswith(LOGIN):
        assert refused(served) == set()


def servers(kind: str, request: pytest.FixtureRequest) -> Any:
    """The server of a store's name, or the six."""
    name = kind.removesuffix(LOGIN)
    if name.endswith(CLUSTER):
        return request.getfixturevalue("cluster_of")(CLUSTERS[name.removesuffix(CLUSTER)])
    return request.getfixturevalue("server_of")(name.removeprefix("redis-"))
