"""The HTTP API as the harness emulates it: events in payload format 2.0, answers as API Gateway reads them."""

import base64
import json
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import urllib3
from urllib3.response import BaseHTTPResponse
from werkzeug.serving import make_server

from duecourse_local.harness import asgi_server
from duecourse_local.harness.aws import moto_server
from tests.support.harness import Probes, probes

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def stack() -> Iterator[Probes]:
    with probes(warm=["Echo", "Shaped"]) as running:
        yield running


@pytest.fixture(scope="module")
def http() -> Iterator[urllib3.PoolManager]:
    with urllib3.PoolManager(retries=False) as pool:
        yield pool


class Caller:
    """Sends requests to the stack's HTTP API."""

    def __init__(self, stack: Probes, http: urllib3.PoolManager) -> None:
        self._url, self._http = stack.stack.api, http

    def __call__(self, method: str, path: str, **more: Any) -> BaseHTTPResponse:
        return self._http.request(method, self._url + path, **more)

    def event(self, method: str, path: str, **more: Any) -> dict[str, Any]:
        """The event that a request became."""
        found: dict[str, Any] = self(method, path, **more).json()["event"]
        return found

    def shaped(self, value: Any) -> BaseHTTPResponse:
        """The response that a function's answer becomes."""
        return self("POST", "/shaped", body=json.dumps(value), headers={"Content-Type": "application/json"})


@pytest.fixture(scope="module")
def call(stack: Probes, http: urllib3.PoolManager) -> Caller:
    return Caller(stack, http)


def test_a_request_becomes_an_event_of_payload_format_2(call: Caller) -> None:
    event = call.event("GET", "/things/7?b=1&b=2&c=%20x&d=", headers={"User-Agent": "me", "X-Own": "1"})
    context = event.pop("requestContext")
    assert event.pop("headers") == {
        "host": context["domainName"],
        "accept-encoding": "identity",
        "user-agent": "me",
        "x-own": "1",
        "x-forwarded-for": "127.0.0.1",
        "x-forwarded-port": context["domainName"].rpartition(":")[2],
        "x-forwarded-proto": "http",
    }
    assert event == {
        "version": "2.0",
        "routeKey": "GET /things/{id}",
        "rawPath": "/things/7",
        "rawQueryString": "b=1&b=2&c=%20x&d=",
        "queryStringParameters": {"b": "1,2", "c": " x", "d": ""},
        "pathParameters": {"id": "7"},
        "isBase64Encoded": False,
    }
    assert context["http"] == {
        "method": "GET",
        "path": "/things/7",
        "protocol": "HTTP/1.1",
        "sourceIp": "127.0.0.1",
        "userAgent": "me",
    }
    assert set(context) == {
        *("accountId", "apiId", "domainName", "domainPrefix", "http", "requestId", "routeKey", "stage"),
        *("time", "timeEpoch"),
    }
    assert (context["stage"], context["routeKey"]) == ("$default", "GET /things/{id}")


def test_paths_are_decoded_as_an_http_api_does(call: Caller) -> None:
    event = call.event("GET", "/things/a%40b%3Ac")
    assert event["rawPath"] == "/things/a@b:c"
    assert event["pathParameters"] == {"id": "a@b:c"}


def test_a_path_with_a_line_break_is_a_path(call: Caller) -> None:
    assert call.event("GET", "/things/a%0Ab")["pathParameters"] == {"id": "a\nb"}


def test_the_most_specific_route_takes_a_request(call: Caller) -> None:
    assert call.event("GET", "/things/fixed")["routeKey"] == "GET /things/fixed"
    assert call.event("DELETE", "/files/a/b")["routeKey"] == "ANY /files/{proxy+}"
    assert call.event("GET", "/files/a/b")["pathParameters"] == {"proxy": "a/b"}


@pytest.mark.parametrize(("method", "path"), [("GET", "/nothing"), ("POST", "/things/7"), ("GET", "/")])
def test_what_no_route_matches_is_not_found(call: Caller, method: str, path: str) -> None:
    answer = call(method, path)
    assert (answer.status, answer.json()) == (404, {"message": "Not Found"})


def test_cookies_and_repeated_headers_are_gathered(call: Caller) -> None:
    headers = urllib3.HTTPHeaderDict()
    for name, value in (("Cookie", "a=1; b=2"), ("X-Many", "1"), ("X-Many", "2")):
        headers.add(name, value)
    event = call.event("GET", "/things/7", headers=headers)
    assert event["cookies"] == ["a=1", "b=2"]
    assert "cookie" not in event["headers"]
    assert event["headers"]["x-many"].replace(" ", "") == "1,2"


@pytest.mark.parametrize(
    ("kind", "body", "encoded"),
    [
        ("application/json", b'{"a": 1}', False),
        ("application/json; charset=utf-8", "ü".encode(), False),
        ("text/plain", b"\xff", True),
        ("application/x-www-form-urlencoded", b"a=1", True),
        ("application/octet-stream", b"\x00", True),
    ],
)
def test_bodies_are_text_or_base64(call: Caller, kind: str, body: bytes, encoded: bool) -> None:
    event = call.event("PUT", "/files/x", body=body, headers={"Content-Type": kind})
    assert event["isBase64Encoded"] is encoded
    assert (base64.b64decode(event["body"]) if encoded else event["body"].encode()) == body


def test_an_answer_with_a_status_code_is_a_response(call: Caller) -> None:
    answer = call.shaped(
        {"statusCode": 201, "headers": {"X-Own": 1, "Content-Type": "a/b"}, "cookies": ["a=1", "b=2"], "body": "ü"}
    )
    assert answer.status == 201
    assert answer.headers["x-own"] == "1"
    assert answer.headers["content-type"] == "a/b"
    assert answer.headers.getlist("set-cookie") == ["a=1", "b=2"]
    assert answer.data.decode() == "ü"


def test_an_encoded_answer_is_decoded(call: Caller) -> None:
    answer = call.shaped({"statusCode": 200, "isBase64Encoded": True, "body": base64.b64encode(b"\x00\xff").decode()})
    assert answer.data == b"\x00\xff"


@pytest.mark.parametrize(("value", "body"), [({"a": 1}, b'{"a": 1}'), ("hello", b"hello"), ([1], b"[1]")])
def test_an_answer_without_a_status_code_is_the_body(call: Caller, value: Any, body: bytes) -> None:
    answer = call.shaped(value)
    assert (answer.status, answer.headers["content-type"], answer.data) == (200, "application/json", body)


@pytest.mark.parametrize("value", [{"statusCode": "x"}, {"statusCode": 200, "body": {}, "headers": 1}])
def test_an_answer_of_the_wrong_shape_is_an_error(call: Caller, value: Any) -> None:
    answer = call.shaped(value)
    assert (answer.status, answer.json()) == (500, {"message": "Internal Server Error"})


def test_a_function_that_fails_is_an_error(call: Caller) -> None:
    answer = call("GET", "/raising")
    assert (answer.status, answer.json()) == (500, {"message": "Internal Server Error"})


def test_a_body_over_the_limit_is_refused(call: Caller) -> None:
    answer = call("PUT", "/files/x", body=b"x" * (10 * 1024 * 1024 + 1))
    assert (answer.status, answer.json()) == (413, {"message": "Request Entity Too Large"})


HEAD = b"PUT /files/x HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/plain\r\nContent-Length: 9\r\n"


HALF = pytest.mark.parametrize("sent", [HEAD[:1], HEAD, HEAD + b"\r\n", HEAD + b"\r\n12345678"])
"""Requests that do not end."""
LATE = b"HTTP/1.1 408 Request Timeout\r\nConnection: close\r\n"


@HALF
def test_a_request_that_does_not_end_is_answered_408_and_whole_ones_go_on(
    stack: Probes, monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    monkeypatch.setattr(asgi_server, "REQUEST_WITHIN_S", 0.2)
    address = stack.stack.api.removeprefix("http://").split(":")
    with (
        urllib3.HTTPConnectionPool(address[0], int(address[1]), maxsize=1) as idle,
        socket.create_connection((address[0], int(address[1])), timeout=30) as half,
    ):
        assert idle.request("GET", "/things/7").status == 200
        half.sendall(sent)
        with half.makefile("rb") as answer:
            assert answer.read().startswith(LATE)
        assert idle.request("GET", "/things/7").status == 200
        assert idle.num_connections == 1


@HALF
def test_so_is_one_at_lambdas_port(stack: Probes, monkeypatch: pytest.MonkeyPatch, sent: bytes) -> None:
    monkeypatch.setattr(asgi_server, "REQUEST_WITHIN_S", 0.2)
    invoking = sent.replace(b"PUT /files/x", b"POST /2015-03-31/functions/Echo/invocations")
    assert answer_to_half(stack.stack.lambda_url, invoking).startswith(LATE)


@HALF
def test_so_is_one_at_the_aws_port_and_whole_ones_go_on(monkeypatch: pytest.MonkeyPatch, sent: bytes) -> None:
    monkeypatch.setattr(moto_server, "REQUEST_WITHIN_S", 0.2)

    def echo(environ: dict[str, Any], start: Any) -> list[bytes]:
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        start("200 OK", [("content-type", "text/plain"), ("content-length", str(len(body)))])
        return [body]

    server = make_server("127.0.0.1", 0, echo, threaded=True, request_handler=moto_server.BoundedRequests)
    serving_it = threading.Thread(target=server.serve_forever)
    serving_it.start()
    try:
        with urllib3.HTTPConnectionPool("127.0.0.1", server.port, maxsize=1) as idle:
            assert idle.request("PUT", "/x", body=b"whole").data == b"whole"
            late = answer_to_half(f"http://127.0.0.1:{server.port}", sent)
            assert (late, late.count(b"HTTP/1.1")) == (moto_server.TOO_LATE, 1)
            assert idle.request("PUT", "/x", body=b"again").data == b"again"
    finally:
        server.shutdown()
        serving_it.join()
        server.server_close()


def answer_to_half(url: str, sent: bytes) -> bytes:
    """Everything that is answered until the connection is closed."""
    host, port = url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=30) as half, half.makefile("rb") as answer:
        half.sendall(sent)
        return answer.read()
