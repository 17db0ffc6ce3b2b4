"""Fixtures that several folders share: real Redis servers, and every store that keeps the ledger."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache

import pytest
import redis

from duecourse.adapters.keyvalue.store import MemoryStore
from duecourse.adapters.redis_scripts import connect
from duecourse.adapters.redis_store import RedisStore
from duecourse.ports.store import Store
from tests.support import redis_ledger
from tests.support.clock import HandClock
from tests.support.redis_server import REDIS, RedisServer, need

STORES = ["memory", *(f"redis-{version}" for version in REDIS)]


@pytest.fixture(scope="session")
def server_of() -> Iterator[Callable[[str], RedisServer]]:
    """A running server of the version asked for, the same through the session."""
    with ExitStack() as running:

        @cache
        def start(version: str) -> RedisServer:
            return running.enter_context(RedisServer(need(version)))

        yield start


@pytest.fixture(params=REDIS, ids=lambda version: f"redis-{version}")
def redis_server(request: pytest.FixtureRequest, server_of: Callable[[str], RedisServer]) -> RedisServer:
    """An empty Redis server, of every version at hand in turn."""
    return _emptied(server_of(request.param))


@pytest.fixture
def redis_client(redis_server: RedisServer) -> Iterator[redis.Redis]:
    """A client of that server, as the product makes it."""
    with connect(redis_server.url) as client:
        yield client


@pytest.fixture
def clock() -> HandClock:
    """The stores' clock, which moves by hand."""
    return HandClock()


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest, clock: HandClock, server_of: Callable[[str], RedisServer]) -> Iterator[Store]:
    """Every store in turn, empty, on the clock that moves by hand."""
    if request.param == "memory":
        yield MemoryStore(clock)
        return
    server = _emptied(server_of(request.param.removeprefix("redis-")))
    with connect(server.url) as client:
        yield RedisStore(client, travel=clock)
        redis_ledger.check(client)


def _emptied(server: RedisServer) -> RedisServer:
    with server.client() as client:
        client.flushall()
        client.config_set("maxmemory", 0)
        client.config_set("notify-keyspace-events", "")
    return server
