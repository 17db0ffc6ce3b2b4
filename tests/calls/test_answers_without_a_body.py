"""Answers whose status is there and whose body is not: the receiver of a webhook has it, and a poll has no answer."""

import gzip
from collections.abc import Iterator
from contextlib import AbstractContextManager

import pytest

from duecourse.calls.poll import Poll
from duecourse.calls.webhook import Webhook
from duecourse.guard.http_client import GuardedHttpClient
from duecourse.ledger.task import Done, Drop, Retry
from tests.support.egress import HERE
from tests.support.http_server import Keeping, keeping
from tests.support.kinds import leased

pytestmark = pytest.mark.slow

UNREADABLE = {
    "gzip that is none": b"Content-Encoding: gzip\r\nContent-Length: 2\r\n\r\nok",
    "deflate that is none": b"Content-Encoding: deflate\r\nContent-Length: 2\r\n\r\nok",
    "gzip that breaks off": b"Content-Encoding: gzip\r\nContent-Length: 44\r\n\r\n" + gzip.compress(b"ok")[:12],
    "a length that is too long": b"Content-Length: 100\r\n\r\nok",
    "two lengths": b"Content-Length: 2\r\nContent-Length: 3\r\n\r\nok",
    "a chunk of no size": b"Transfer-Encoding: chunked\r\n\r\nzz\r\nok\r\n",
    "a chunk of a negative size": b"Transfer-Encoding: chunked\r\n\r\n-5\r\nok\r\n",
    "a chunk that breaks off": b"Transfer-Encoding: chunked\r\n\r\n9\r\nok",
    "a body that is not sent": b"Content-Length: 2\r\n\r\n",
    "headers without end": b"X-More: 1\r\n",
    "too many headers": b"".join(b"X-%d: y\r\n" % number for number in range(101)) + b"Content-Length: 2\r\n\r\nok",
    "a header that is too long": b"X-Big: " + b"x" * 90_000 + b"\r\nContent-Length: 2\r\n\r\nok",
}
"""What follows a status line."""


@pytest.fixture
def http() -> Iterator[GuardedHttpClient]:
    out = GuardedHttpClient(4, HERE)
    yield out
    out.close()


def saying(status: bytes, rest: bytes) -> AbstractContextManager[Keeping]:
    """A server that says so, and keeps the connection."""
    return keeping(lambda connection, _: connection.sendall(b"HTTP/1.1 " + status + b"\r\n" + rest))


@pytest.mark.parametrize("rest", UNREADABLE.values(), ids=UNREADABLE)
def test_a_webhook_that_was_received_is_done(http: GuardedHttpClient, rest: bytes) -> None:
    with saying(b"201 Created", rest) as server:
        task = leased("webhook", {"url": server.url, "body": {}, "timeout": "PT0.4S"})
        assert Webhook(http, timeout_ms=5_000)(task) == Done({"status": 201})
    assert len(server.heard) == 1


@pytest.mark.parametrize("rest", UNREADABLE.values(), ids=UNREADABLE)
def test_a_poll_without_a_body_is_retried_and_says_why(http: GuardedHttpClient, rest: bytes) -> None:
    with saying(b"200 OK", rest) as server:
        task = leased("poll", {"url": server.url, "interval": "PT1S", "until": "ready", "timeout": "PT0.4S"})
        outcome = Poll(http, timeout_ms=5_000)(task)
    assert isinstance(outcome, Retry)
    assert "failed: " in str(outcome.error)


@pytest.mark.parametrize("rest", UNREADABLE.values(), ids=UNREADABLE)
def test_gone_is_dropped_whatever_its_body(http: GuardedHttpClient, rest: bytes) -> None:
    with saying(b"410 Gone", rest) as server:
        hook = leased("webhook", {"url": server.url, "body": {}, "timeout": "PT0.4S"})
        poll = leased("poll", {"url": server.url, "interval": "PT1S", "until": "ready", "timeout": "PT0.4S"})
        assert isinstance(Webhook(http, timeout_ms=5_000)(hook), Drop)
        assert isinstance(Poll(http, timeout_ms=5_000)(poll), Drop)


def test_retry_after_counts_though_the_body_cannot_be_read(http: GuardedHttpClient) -> None:
    with saying(b"429 Slow", b"Retry-After: 7\r\n" + UNREADABLE["gzip that is none"]) as server:
        outcome = Webhook(http, timeout_ms=5_000)(leased("webhook", {"url": server.url}))
    assert isinstance(outcome, Retry)
    assert outcome.after == 7
