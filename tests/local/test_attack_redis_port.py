"""A web page and the port of Redis: what a browser sends there is no command, on any version that is supported."""

import socket

import redis

from duecourse_local.harness.addresses import LOOPBACK
from tests.support.redis_server import REDIS, need, on_a_port

PLANTS = b"\r\nSET planted 1\r\nEVAL \"redis.call('SET', 'planted', 1)\" 0\r\n"


def test_a_page_that_posts_commands_to_redis_is_hung_up_on() -> None:
    """Every browser sends Host before the body, and Redis ends a connection at that word."""
    with on_a_port(need(REDIS[0])) as url, redis.Redis.from_url(url) as client:
        port = int(url.rpartition(":")[2].partition("/")[0])
        for method in ("POST", "PUT"):
            head = f"{method} / HTTP/1.1\r\nHost: {LOOPBACK}:{port}\r\nContent-Length: {len(PLANTS)}\r\n\r\n"
            with socket.create_connection((LOOPBACK, port), timeout=5) as page:
                page.sendall(head.encode() + PLANTS)
                while page.recv(4096):
                    pass
            assert client.get("planted") is None
