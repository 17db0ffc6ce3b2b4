"""Fixtures that several folders share: real Redis servers, a clock that moves by hand, a ledger in memory."""

import gc
import signal
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack
from functools import cache

import pytest
import redis

from duecourse.adapters.embedded.store import MemoryStore
from duecourse.adapters.redis.connect import connect
from duecourse_local.cli.stack.rabbitmq import RabbitMq
from tests.support import left_open
from tests.support.clock import HandClock
from tests.support.lossy_proxy import LossyProxy
from tests.support.rabbitmq import need_server
from tests.support.redis_cluster import ClusterServers
from tests.support.redis_server import EVERY, SERVERS, RedisServer, labelled, need, newest
from tests.support.wired import Wire, wired_with

# A suite that was started in the background has Ctrl-C ignored, and would hand that on to the processes it stops by it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_sessionstart() -> None:
    """By now pytest has its own hook in place, to which ours adds."""
    left_open.watch()


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What is collected stays to the end: no round of the garbage collector goes through it, in no test's time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.fixture(scope="session")
def server_of() -> Iterator[Callable[[str], RedisServer]]:
    """A running server of the version asked for, the same through the session."""
    with ExitStack() as running:

        @cache
        def start(version: str) -> RedisServer:
            return running.enter_context(RedisServer(need(version)))

        yield start


@pytest.fixture(scope="session")
def cluster_of() -> Iterator[Callable[[str], ClusterServers]]:
    """Six servers of the version asked for that are a cluster, the same through the session."""
    with ExitStack() as running:

        @cache
        def start(version: str) -> ClusterServers:
            return running.enter_context(ClusterServers(need(version)))

        yield start


@pytest.fixture
def cluster(cluster_of: Callable[[str], ClusterServers]) -> ClusterServers:
    """An empty cluster of three primaries with a replica each."""
    return cluster_of(newest()).emptied()


@pytest.fixture(scope="session")
def rabbitmq(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RabbitMq]:
    """A RabbitMQ that a test may stop and start, the same through the session: its start takes seconds."""
    need_server()
    with RabbitMq(tmp_path_factory.mktemp("rabbitmq")) as server:
        yield server


@pytest.fixture(params=SERVERS, ids=labelled)
def redis_server(request: pytest.FixtureRequest, server_of: Callable[[str], RedisServer]) -> RedisServer:
    """An empty Redis server, of every version at hand in turn."""
    return server_of(request.param).emptied()


@pytest.fixture(params=EVERY, ids=labelled)
def server(request: pytest.FixtureRequest) -> Iterator[RedisServer]:
    """A Redis server of the test's own, of every version at hand in turn, to be set and stopped at will."""
    with RedisServer(need(request.param)) as own:
        yield own


@pytest.fixture
def redis_client(redis_server: RedisServer) -> Iterator[redis.Redis]:
    """A client of that server, as the product makes it."""
    with connect(redis_server.url) as client:
        yield client


@pytest.fixture
def proxy(redis_server: RedisServer) -> Iterator[LossyProxy]:
    """A way to that server on which replies can be lost."""
    with LossyProxy(redis_server.socket) as proxy:
        yield proxy


@pytest.fixture
def clock() -> HandClock:
    """The stores' clock, which moves by hand."""
    return HandClock()


@pytest.fixture
def store(clock: HandClock) -> MemoryStore:
    """A ledger for tests that do not care which, on the clock that moves by hand."""
    return MemoryStore(clock)


@pytest.fixture
def wire() -> Iterator[Wire]:
    """An App in place of the one before, as often as the test asks, until its end."""
    with ExitStack() as opened:
        yield lambda settings=None, **parts: opened.enter_context(wired_with(settings, **parts))
