"""The health port of a worker: at the machine's own address, for as many callers as may come, quiet about bad ones."""

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from duecourse.worker import parent
from duecourse.worker.parent import EVERYWHERE, LOOPBACK, MOST, default_host, served
from tests.support.wait import until

FINE = {"status": "ok", "left_out": 0}


def asked(port: int, request: bytes = b"GET /ready HTTP/1.1\r\n\r\n", host: str = LOOPBACK) -> bytes:
    """Everything that the port answers to a request."""
    with socket.create_connection((host, port), timeout=30) as caller:
        caller.sendall(request)
        return b"".join(iter(lambda: caller.recv(4_096), b""))


def refused(port: int, request: bytes = b"GET /ready HTTP/1.1\r\n\r\n") -> bool:
    """True if the port closes the connection without an answer."""
    try:
        return not asked(port, request)
    except ConnectionError:
        return True


@pytest.fixture
def port() -> Iterator[int]:
    with served(LOOPBACK, 0, lambda: FINE) as port:
        yield port


@pytest.mark.parametrize(
    ("request_line", "status", "body"),
    [
        (b"GET /ready", 200, FINE),
        (b"GET /live", 200, {"status": "ok"}),
        (b"HEAD /live", 200, None),
        (b"GET /other", 404, {"status": "unknown", "paths": ["/live", "/ready"]}),
        (b"POST /ready", 405, {"status": "unknown", "methods": ["GET", "HEAD"]}),
        (b"what", 405, {"status": "unknown", "methods": ["GET", "HEAD"]}),
    ],
)
def test_each_request_has_its_answer(port: int, request_line: bytes, status: int, body: Any) -> None:
    head, _, text = asked(port, request_line + b" HTTP/1.1\r\nHost: x\r\n\r\n").partition(b"\r\n\r\n")
    assert int(head.split()[1]) == status
    assert (json.loads(text) if text else None) == body


def test_many_half_requests_cost_no_threads_and_delay_no_probe(port: int, caplog: pytest.LogCaptureFixture) -> None:
    asked(port)
    threads = threading.active_count()
    with ExitStack() as stack:
        for _ in range(MOST - 2):
            caller = stack.enter_context(socket.create_connection((LOOPBACK, port), timeout=30))
            caller.sendall(b"GET /re")
        assert asked(port).endswith(json.dumps(FINE).encode())
        assert threading.active_count() == threads
    until(lambda: not refused(port))
    assert caplog.records == []


def test_a_half_request_is_cut_off_after_its_time(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parent, "REQUEST_S", 0.05)
    assert asked(port, b"GET /ready HTTP/1.1\r\n") == b""


def test_a_request_that_is_too_long_is_cut_off(port: int) -> None:
    assert refused(port, b"GET /ready HTTP/1.1\r\n" + b"x" * 20_000)


def test_connections_beyond_the_most_are_closed_at_once(port: int) -> None:
    with ExitStack() as stack:
        for _ in range(MOST):
            stack.enter_context(socket.create_connection((LOOPBACK, port), timeout=30))
        until(lambda: refused(port))
    until(lambda: not refused(port))


def test_a_store_that_does_not_answer_makes_the_worker_unready_and_is_asked_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(parent, "LOOK_S", 0.05)
    answers, looks = threading.Event(), list[int]()

    def look() -> dict[str, Any]:
        looks.append(1)
        assert answers.wait(30)
        return FINE

    with served(LOOPBACK, 0, look) as port:
        assert b"503" in asked(port)
        assert b"503" in asked(port)
        assert b"200" in asked(port, b"GET /live HTTP/1.1\r\n\r\n")
        answers.set()
        assert looks == [1]
        until(lambda: b"200 OK" in asked(port))


def test_a_caller_that_hangs_up_is_no_news(port: int, caplog: pytest.LogCaptureFixture, capfd: Any) -> None:
    for text in (b"", b"GET /ready HTTP/1.1\r\n", b"GET /ready HTTP/1.1\r\n\r\n"):
        with socket.create_connection((LOOPBACK, port), timeout=30) as caller:
            caller.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            caller.sendall(text)
    assert asked(port)
    assert caplog.records == []
    assert capfd.readouterr() == ("", "")


def test_the_default_address_is_the_machines_own_outside_containers(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in parent.NAMES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(parent, "MARKS", ())
    assert default_host() == LOOPBACK
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    assert default_host() == EVERYWHERE


def test_every_address_is_listened_on_where_that_is_wanted() -> None:
    with served(EVERYWHERE, 0, lambda: FINE) as port:
        assert asked(port)
        if socket.has_dualstack_ipv6():
            assert asked(port, host="::1")
