"""A Redis of a test's own on a port, for functions that reach it by its URL alone."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import redis

from local.redis_server import executable
from local.sockets import LOOPBACK, free_port
from tests.support.wait import until


@contextmanager
def tcp_redis() -> Iterator[str]:
    """The URL of a server that keeps nothing on disk."""
    port = free_port(0, "")
    command = [executable(), "--bind", LOOPBACK, "--port", str(port), "--save", "", "--maxmemory-policy", "noeviction"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        try:
            until(lambda: _answers(port))
            yield f"redis://{LOOPBACK}:{port}/0"
        finally:
            process.terminate()


def _answers(port: int) -> bool:
    with redis.Redis(LOOPBACK, port) as client:
        try:
            return bool(client.ping())
        except redis.ConnectionError:
            return False
