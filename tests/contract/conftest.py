"""Every store that keeps the ledger: the suite runs against each."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from duecourse.adapters.keyvalue.store import MemoryStore
from duecourse.adapters.redis_scripts import connect
from duecourse.adapters.redis_store import RedisStore
from duecourse.ports.store import Store
from tests.support import redis_ledger
from tests.support.clock import HandClock
from tests.support.level_store import level_store
from tests.support.redis_server import REDIS, RedisServer

STORES = ["memory", "leveldb", *(f"redis-{version}" for version in REDIS)]


@pytest.fixture(params=STORES)
def store(
    request: pytest.FixtureRequest, clock: HandClock, server_of: Callable[[str], RedisServer], tmp_path: Path
) -> Iterator[Store]:
    """Every store in turn, empty, on the clock that moves by hand."""
    if request.param == "memory":
        yield MemoryStore(clock)
        return
    if request.param == "leveldb":
        with level_store(tmp_path, clock) as store:
            yield store
        return
    server = server_of(request.param.removeprefix("redis-")).emptied()
    with connect(server.url) as client:
        yield RedisStore(client, travel=clock)
        redis_ledger.check(client)
