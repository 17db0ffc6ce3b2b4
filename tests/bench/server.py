"""The Redis that is measured: one of its own, on a loopback port, with nothing on disk."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from tests.support.redis_server import need, newest, on_a_port


class BenchServer(NamedTuple):
    """Where it is, and which version."""

    url: str
    version: str


@contextmanager
def bench_server() -> Iterator[BenchServer]:
    """The newest Redis at hand, until the block ends."""
    with on_a_port(need(newest())) as url:
        yield BenchServer(url, newest())
