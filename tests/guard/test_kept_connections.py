"""Connections that are kept for the next call: only those on which nothing is still to come.

A server of each test answers `/b` by the path. If a call to `/b` gets anything else, an answer has crossed.
"""

import gzip
import io
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from duecourse.errors import CallFailed
from duecourse.guard.http_client import GuardedHttpClient
from duecourse.guard.http_types import HttpRequest
from tests.support.egress import HERE
from tests.support.http_server import Keeping, keeping
from tests.support.tls import certificate
from tests.support.wait import until

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n"
SECOND = OK + b"/x"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n"
PACKED = gzip.compress(b"hello")

INTERIM = {
    "100": b"HTTP/1.1 100 Continue\r\n\r\n",
    "102": b"HTTP/1.1 102 Processing\r\n\r\n",
    "103 with headers": b"HTTP/1.1 103 Early Hints\r\nLink: </x>; rel=preload\r\nContent-Length: 9\r\n\r\n",
    "199": b"HTTP/1.1 199 Odd\r\n\r\n",
    "three": b"HTTP/1.1 102 Processing\r\n\r\n" * 2 + b"HTTP/1.1 103 Early Hints\r\n\r\n",
}
RESTLESS = {
    "a second answer at once": OK + b"/a" + SECOND,
    "the beginning of a second answer": OK + b"/aHTTP/1.1 200 OK\r\n",
    "bytes after Content-Length": OK + b"/amore",
    "bytes after the last chunk": CHUNKED + b"\r\n2\r\n/a\r\n0\r\n\r\n" + SECOND,
    "both Content-Length and Transfer-Encoding": CHUNKED + b"Content-Length: 2\r\n\r\n2\r\n/a\r\n0\r\n\r\n",
    "another Transfer-Encoding": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\nContent-Length: 0\r\n\r\n",
    "a second Transfer-Encoding": CHUNKED + b"Transfer-Encoding: gzip\r\n\r\n2\r\n/a\r\n0\r\n\r\n",
    "two equal lengths": b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\n/a",
    "two different lengths": b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 44\r\n\r\n/a" + SECOND,
    "two lengths in one header": b"HTTP/1.1 200 OK\r\nContent-Length: 2, 44\r\n\r\n/a",
    "a length that Python alone reads": b"HTTP/1.1 200 OK\r\nContent-Length: +2\r\n\r\n/a",
    "204 with a length": b"HTTP/1.1 204 No Content\r\nContent-Length: 2\r\n\r\n",
    "204 with chunks": b"HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked\r\n\r\n",
    "204 with bytes": b"HTTP/1.1 204 No Content\r\n\r\n" + SECOND,
    "205 with a length": b"HTTP/1.1 205 Reset\r\nContent-Length: 2\r\n\r\n/a",
    "304 with a length": b"HTTP/1.1 304 Not Modified\r\nContent-Length: 2\r\n\r\n",
    "an old version that would stay": b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\n/a",
    "a second Connection that closes": OK[:-2] + b"Connection: keep-alive\r\nConnection: close\r\n\r\n/a",
    "a body that breaks off": b"HTTP/1.1 200 OK\r\nContent-Length: 44\r\n\r\n/a",
    "a chunk that breaks off": CHUNKED + b"\r\n9\r\n/a",
    "chunks without an end": CHUNKED + b"\r\n2\r\n/a\r\n0\r\n",
    "a chunk of no size": CHUNKED + b"\r\nzz\r\n/a\r\n" + SECOND,
    "packed, and not so": OK[:-2] + b"Content-Encoding: gzip\r\n\r\n/a" + SECOND,
    "a body over the limit": b"HTTP/1.1 200 OK\r\nContent-Length: 1500\r\n\r\n" + b"x" * 1_500,
    "101": b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n" + SECOND,
}
"""Answers to `/a` after which something may still come."""
RESTING = {
    "a length": OK + b"/a",
    "no body": b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
    "chunks": CHUNKED + b"\r\n2;x=y\r\n/a\r\n0\r\n\r\n",
    "chunks and trailers": CHUNKED + b"\r\n2\r\n/a\r\n0\r\nX-Sum: 1\r\n\r\n",
    "204": b"HTTP/1.1 204 No Content\r\n\r\n",
    "404": b"HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\nno",
    "an interim answer": b"HTTP/1.1 103 Early Hints\r\n\r\n" + OK + b"/a",
    "packed": b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n%b" % (len(PACKED), PACKED),
    "as much as may be read": b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n" + b"x" * 1_000,
}


@pytest.fixture
def http() -> Iterator[GuardedHttpClient]:
    out = GuardedHttpClient(4, HERE)
    yield out
    out.close()


def request(server: Keeping, path: str, **changes: object) -> HttpRequest:
    return HttpRequest("GET", server.url + path, {}, None, 5_000, 1_000)._replace(**changes)


def answering_first(answer: bytes) -> Callable[[socket.socket, str], None]:
    """Answers the first path by these bytes, any other by itself."""

    def say(connection: socket.socket, path: str) -> None:
        connection.sendall(answer if path == "/a" else OK + path.encode())

    return say


def connections(server: Keeping) -> list[int]:
    return [heard.connection for heard in server.heard]


@pytest.mark.parametrize("name", INTERIM)
def test_the_answer_after_an_interim_one_is_the_answer(http: GuardedHttpClient, name: str) -> None:
    with keeping(answering_first(INTERIM[name] + OK + b"/a")) as server:
        answers = [http.call(request(server, path)) for path in ("/a", "/b")]
    assert [(answer.status, answer.body) for answer in answers] == [(200, b"/a"), (200, b"/b")]


def test_interim_answers_without_end_are_a_failed_call(http: GuardedHttpClient) -> None:
    with (
        keeping(answering_first(INTERIM["103 with headers"] * 21 + OK)) as server,
        pytest.raises(CallFailed, match="interim"),
    ):
        http.call(request(server, "/a"))


def test_an_interim_answer_alone_ends_at_the_timeout(http: GuardedHttpClient) -> None:
    with keeping(answering_first(INTERIM["102"])) as server, pytest.raises(CallFailed, match="no whole answer"):
        http.call(request(server, "/a", timeout_ms=300))


def test_a_switch_of_protocols_is_a_failed_call(http: GuardedHttpClient) -> None:
    with keeping(answering_first(RESTLESS["101"])) as server, pytest.raises(CallFailed, match="another protocol"):
        http.call(request(server, "/a"))


@pytest.mark.parametrize("name", RESTLESS)
def test_a_connection_with_more_to_come_is_not_kept(http: GuardedHttpClient, name: str) -> None:
    with keeping(answering_first(RESTLESS[name])) as server:
        with suppress(CallFailed):
            http.call(request(server, "/a", timeout_ms=400))
        assert http.call(request(server, "/b")).body == b"/b"
    assert connections(server) == [1, 2]


@pytest.fixture
def tls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ssl.SSLContext:
    """A server's TLS context for localhost, which calls of this process trust."""
    pem = certificate(tmp_path, "localhost")
    monkeypatch.setenv("SSL_CERT_FILE", str(pem))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem)
    return context


def at_localhost(server: Keeping) -> Keeping:
    return server._replace(url=server.url.replace("127.0.0.1", "localhost"))


@pytest.mark.parametrize("name", RESTING)
def test_a_connection_at_rest_is_kept(http: GuardedHttpClient, name: str) -> None:
    with keeping(answering_first(RESTING[name])) as server:
        http.call(request(server, "/a"))
        assert http.call(request(server, "/b")).body == b"/b"
    assert connections(server) == [1, 1]


def test_a_connection_by_tls_at_rest_is_kept(http: GuardedHttpClient, tls: ssl.SSLContext) -> None:
    with keeping(answering_first(OK + b"/a"), tls) as server:
        for path in ("/a", "/b", "/b"):
            assert http.call(request(at_localhost(server), path, method="POST", body=b"{}")).body == path.encode()
    assert connections(server) == [1, 1, 1]


def test_a_long_request_by_tls_ends_its_connection(http: GuardedHttpClient, tls: ssl.SSLContext) -> None:
    """Nobody can see whether its answer began before the request was sent: TLS has messages of its own."""
    with keeping(answering_first(OK + b"/a"), tls) as server:
        assert http.call(request(at_localhost(server), "/a", method="POST", body=b"x" * 100_000)).body == b"/a"
        assert http.call(request(at_localhost(server), "/b")).body == b"/b"
    assert connections(server) == [1, 2]


def test_an_answer_to_head_with_a_length_is_not_kept(http: GuardedHttpClient) -> None:
    with keeping(answering_first(OK)) as server:
        assert http.call(request(server, "/a", method="HEAD")).body == b""
        assert http.call(request(server, "/b")).body == b"/b"
    assert connections(server) == [1, 2]


def test_a_kept_connection_that_speaks_unasked_is_closed(http: GuardedHttpClient) -> None:
    spoken = threading.Event()

    def say(connection: socket.socket, path: str) -> None:
        connection.sendall(OK + path.encode())
        if path == "/a":
            answered.wait(30)
            connection.sendall(SECOND)
            spoken.set()

    answered = threading.Event()
    with keeping(say) as server:
        http.call(request(server, "/a"))
        answered.set()
        until(spoken.is_set)
        assert http.call(request(server, "/b")).body == b"/b"
    assert connections(server) == [1, 2]


def test_a_connection_with_decrypted_bytes_left_is_closed(http: GuardedHttpClient, tls: ssl.SSLContext) -> None:
    """One record of TLS holds both answers: the first one fills Python's buffer, and the second one is in none."""
    head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n"
    length = io.DEFAULT_BUFFER_SIZE - len(head % 8_000)
    with keeping(answering_first(head % length + b"x" * length + SECOND), tls) as server:
        assert len(http.call(request(at_localhost(server), "/a", max_bytes=10_000)).body) == length
        assert http.call(request(at_localhost(server), "/b")).body == b"/b"
    assert connections(server) == [1, 2]


@pytest.mark.parametrize("status", [b"200 OK", b"413 Too Large"])
def test_an_answer_before_the_request_was_sent_ends_the_connection(http: GuardedHttpClient, status: bytes) -> None:
    with keeping(answering_first(b"HTTP/1.1 %b\r\nContent-Length: 0\r\n\r\n" % status)) as server:
        answer = http.call(request(server, "/a", method="POST", body=b"x" * 10_000_000))
        assert answer.status == int(status[:3])
        assert http.call(request(server, "/b")).body == b"/b"
    assert connections(server) == [1, 2]


def test_an_error_that_may_have_left_the_body_unread_ends_the_connection(http: GuardedHttpClient) -> None:
    with keeping(answering_first(RESTING["404"])) as server:
        assert http.call(request(server, "/a", method="POST", body=b"{}")).status == 404
        assert http.call(request(server, "/b")).body == b"/b"
    assert connections(server) == [1, 2]


def test_a_connection_serves_one_tenant_alone(http: GuardedHttpClient) -> None:
    with keeping(answering_first(OK + b"/a")) as server:
        for tenant in ("acme", "other", "acme", "other"):
            http.call(request(server, "/b", tenant=tenant))
    assert connections(server) == [1, 2, 1, 2]
