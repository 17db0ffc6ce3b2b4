"""What the tests of the bridge share, each with a `server` of its own."""

from collections.abc import Iterator

import pytest

from tests.support.bridges import Bellman, Recorder, bellman
from tests.support.redis_server import RedisServer


@pytest.fixture
def bells(server: RedisServer) -> Iterator[Bellman]:
    with bellman(server) as man:
        yield man


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()
