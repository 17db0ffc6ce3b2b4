"""Answers that a hostile destination makes dear to read: each call is bounded in processor time and memory."""

import gzip
import socket
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest

from duecourse.errors import CallFailed
from duecourse.guard.egress import Egress
from duecourse.guard.http_client import GuardedHttpClient
from duecourse.guard.http_types import HttpRequest
from tests.support.http_server import misbehaving

MEGABYTE = 1024 * 1024
CPU_S = 0.5
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n"
PACKED = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n"


def _nothing_packed() -> bytes:
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    return packer.compress(b"") + packer.flush(zlib.Z_SYNC_FLUSH)


ENDLESS = {
    "interim answers": (b"", b"HTTP/1.1 100 \r\n\r\n"),
    "interim answers with headers": (b"", b"HTTP/1.1 100 \r\n" + b"a:\r\n" * 90 + b"\r\n"),
    "chunks of one byte": (CHUNKED + b"\r\n", b"1\r\nx\r\n"),
    "extensions of chunks": (CHUNKED + b"\r\n", b"1;" + b"a" * 60_000 + b"\r\nx\r\n"),
    "trailers": (CHUNKED + b"\r\n0\r\n", b"a:b\r\n"),
    "packed chunks of one byte": (CHUNKED + b"Content-Encoding: gzip\r\n\r\n", b"1\r\n\x1f\r\n"),
    "packed files without content": (PACKED, gzip.compress(b"")),
    "packed blocks without content": (PACKED + _nothing_packed(), b"\x00\x00\x00\xff\xff"),
}
"""Beginning of an answer, and what follows it without end."""


@pytest.fixture(scope="module")
def http() -> Iterator[GuardedHttpClient]:
    caller = GuardedHttpClient(4, Egress.of("127.0.0.1"))
    yield caller
    caller.close()


def endless(beginning: bytes, piece: bytes) -> Callable[[socket.socket], None]:
    pieces = piece * (65_536 // len(piece) + 1)

    def behave(connection: socket.socket) -> None:
        connection.sendall(beginning)
        while True:
            connection.sendall(pieces)

    return behave


@pytest.mark.parametrize("name", ENDLESS)
@pytest.mark.parametrize("max_bytes", [4_096, MEGABYTE])
def test_an_endless_answer_costs_no_more_than_a_bounded_time_of_the_processor(
    http: GuardedHttpClient, name: str, max_bytes: int
) -> None:
    """For the whole timeout, up to 20 s, each took all that it could get: of the time of all other tasks too."""
    with misbehaving(endless(*ENDLESS[name])) as url:
        began = time.thread_time()
        with suppress(CallFailed):
            http.call(HttpRequest("GET", url, {}, None, 5_000, max_bytes))
        assert time.thread_time() - began < CPU_S
