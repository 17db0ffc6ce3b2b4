"""The Redis that is measured: one of its own, on a loopback port, with nothing on disk."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from tests.support.redis_server import RedisServer, binaries


class BenchServer(NamedTuple):
    """Where it is, and which version."""

    url: str
    version: str


@contextmanager
def bench_server() -> Iterator[BenchServer]:
    """The newest Redis at hand, until the block ends."""
    version, binary = max(binaries().items())
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    with RedisServer(binary, "--port", str(port)):
        yield BenchServer(f"redis://127.0.0.1:{port}", version)
