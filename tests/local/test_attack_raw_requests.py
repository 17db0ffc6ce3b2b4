"""Bytes that are no proper HTTP, at the harness's ports: none becomes a request of its own, and others are answered."""

import json
import socket
from contextlib import ExitStack
from urllib.parse import urlsplit

import pytest

from duecourse_local.harness.asgi_server import MAX_HEAD
from duecourse_local.harness.stack import Stack
from tests.support.api import Api

ENVIRONMENT: dict[str, str] = {}
HOST = b"Host: localhost\r\n"
JSON = HOST + b"Content-Type: application/json\r\n"
PLANTED = json.dumps(
    {"id": "planted", "kind": "webhook", "delay": 3600, "payload": {"url": "http://127.0.0.1:1/"}}
).encode()
INNER = b"POST /tasks HTTP/1.1\r\n" + JSON + b"Content-Length: %d\r\n\r\n%s" % (len(PLANTED), PLANTED)
POST = b"POST /health HTTP/1.1\r\n" + JSON
GET = b"GET /health HTTP/1.1\r\n" + HOST
CHUNKED = b"Transfer-Encoding: chunked\r\n"
REJECTED = {
    "a length beside chunks": POST + b"Content-Length: %d\r\n" % (5 + len(INNER)) + CHUNKED + b"\r\n0\r\n\r\n" + INNER,
    "chunks beside a length": POST + CHUNKED + b"Content-Length: 4\r\n\r\n0\r\n\r\n" + INNER,
    "an unknown coding": POST + b"Transfer-Encoding: xchunked\r\nContent-Length: 4\r\n\r\n" + INNER,
    "a space before the colon": POST + b"Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n" + INNER,
    "two lengths": POST + b"Content-Length: 4\r\nContent-Length: 0\r\n\r\n" + INNER,
    "a negative length": POST + b"Content-Length: -1\r\n\r\n" + INNER,
    "a length that no computer counts": POST + b"Content-Length: 99999999999999999999999\r\n\r\n",
    "a chunk without a size": POST + CHUNKED + b"\r\nzz\r\nabc\r\n0\r\n\r\n" + INNER,
    "a chunk that no computer holds": POST + CHUNKED + b"\r\nffffffffffffffffff\r\nabc",
    "a header in two lines": GET + b"X-A: b\r\n c: d\r\n\r\n",
    "a header with a NUL": GET + b"X-A: a\0b\r\n\r\n",
    "line feeds alone": GET.replace(b"\r\n", b"\n") + b"\n",
    "a TLS hello": b"\x16\x03\x01\x02\x00\x01\x00" * 50,
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "a proxy's CONNECT": b"CONNECT evil.example:80 HTTP/1.1\r\n" + HOST + b"\r\n",
    "a URL of a megabyte": b"GET /" + b"a" * 1_000_000 + b" HTTP/1.1\r\n" + HOST + b"\r\n",
    "a header of a megabyte": GET + b"X-A: " + b"a" * 1_000_000 + b"\r\n\r\n",
    "a head without an end": GET + b"X-A: " + b"a" * 20_000_000,
    "many headers": GET + b"X-A: b\r\n" * 200_000 + b"\r\n",
    "another name beside ours": GET + b"Host: evil.example\r\nConnection: close\r\n\r\n",
}


@pytest.fixture(params=["api", "lambda_url"])
def port(stack: Stack, request: pytest.FixtureRequest) -> int:
    found = urlsplit(getattr(stack, request.param)).port
    assert found
    return found


def said(port: int, *pieces: bytes) -> bytes:
    """All that is answered until the server ends the connection, or to ten seconds of silence."""
    with socket.create_connection(("127.0.0.1", port), timeout=10) as one:
        answer = b""
        try:
            for piece in pieces:
                one.sendall(piece)
            while piece := one.recv(65_536):
                answer += piece
        except TimeoutError:
            answer += b" and silence"
        except OSError:
            pass  # it was cut off, which is an answer too
        return answer


@pytest.mark.parametrize("name", REJECTED)
def test_it_is_rejected_as_a_whole_and_others_are_answered(api: Api, port: int, name: str) -> None:
    answer = said(port, REJECTED[name])
    assert answer.count(b"HTTP/1.1 ") <= 1
    assert not answer or (answer.split()[1] in {b"400", b"421"} and b"silence" not in answer)
    assert api.call("GET", "/health")[0] == 200
    assert api.call("GET", "/tasks/planted")[0] == 404


def test_a_head_of_a_usual_size_is_read(port: int) -> None:
    path = b"GET /health HTTP/1.1\r\n" + HOST + b"Connection: close\r\n"
    answer = said(port, path + b"X-A: " + b"a" * (MAX_HEAD - 200) + b"\r\n\r\n")
    assert answer.split()[1] in {b"200", b"404"}


def test_requests_behind_one_another_are_answered_in_their_order(stack: Stack, api: Api) -> None:
    port = urlsplit(stack.api).port
    assert port
    one = b"GET /tasks/none-%d HTTP/1.1\r\n" + HOST
    asked = b"".join(one % n + b"\r\n" for n in range(50)) + one % 50 + b"Connection: close\r\n\r\n"
    answer = said(port, asked)
    found = [f"none-{n}".encode() in part for n, part in enumerate(answer.split(b"HTTP/1.1 404")[1:])]
    assert found == [True] * 51
    assert api.call("GET", "/health")[0] == 200


def test_a_sender_that_goes_in_the_middle_is_nobodys_fault(
    stack: Stack, api: Api, caplog: pytest.LogCaptureFixture
) -> None:
    port = urlsplit(stack.api).port
    assert port
    for _ in range(20):
        with socket.create_connection(("127.0.0.1", port)) as one:
            one.sendall(b"POST /tasks HTTP/1.1\r\n" + JSON + b"Content-Length: 1000\r\n\r\n{")
    assert api.call("GET", "/health")[0] == 200
    assert "ClientDisconnect" not in caplog.text


def test_connections_that_never_finish_a_request_hold_nobody_up(api: Api, port: int) -> None:
    with ExitStack() as opened:
        for n in range(400):
            one = opened.enter_context(socket.create_connection(("127.0.0.1", port), timeout=10))
            one.sendall((GET if n % 2 else POST + b"Content-Length: 10\r\n\r\n")[: -1 - n % 9])
        assert [api.call("GET", "/health")[0] for _ in range(5)] == [200] * 5
        assert api.call("GET", "/tasks/planted")[0] == 404
