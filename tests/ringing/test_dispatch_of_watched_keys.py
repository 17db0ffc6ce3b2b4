"""The relay by itself: batches, refusals, the bound, names too long, what a held-up reader knows, an orderly end."""

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from duecourse.errors import InvocationRejected
from duecourse.ledger.bells import KeyExpiry
from duecourse.ledger.watched_keys import MAX_KEY_BYTES, ExpiredKey
from duecourse.ringing.bridge import BOUND, RELAY_BATCH, WORKERS, ExpiryRelay
from duecourse.ringing.timer import ServerClock
from tests.support.wait import until

SERVER_AHEAD_MS = 1_790_000_000_000.0


class Function:
    """A function's end: it keeps what it is called with, waits where it is shut, refuses while it has refusals."""

    def __init__(self, refusals: int = 0) -> None:
        self.refusals = refusals
        self.open = threading.Event()
        self.open.set()
        self.calls: list[list[ExpiredKey]] = []

    def __call__(self, expired: list[ExpiredKey]) -> Any:
        self.calls.append(expired)
        assert self.open.wait(30)
        if self.refusals:
            self.refusals -= 1
            raise InvocationRejected("no")
        return {}

    def taken(self) -> list[bytes]:
        return [one.key for call in self.calls for one in call]


def clock_ahead() -> ServerClock:
    clock = ServerClock()
    now = time.monotonic()
    clock.observe(now, now, now * 1000 + SERVER_AHEAD_MS)
    return clock


@contextmanager
def relaying(
    function: Callable[[list[ExpiredKey]], Any], patience_s: float = 5, whole: bool = True
) -> Iterator[ExpiryRelay]:
    relay = ExpiryRelay(function, clock_ahead().now, "__keyevent@3__:expired", on_end=lambda: None)
    relay.dispatcher.start()
    try:
        yield relay
    finally:
        assert relay.stop(patience_s) == whole


def expiry(key: bytes = b"a", lain_s: float = 0.0) -> KeyExpiry:
    return KeyExpiry(key, time.monotonic() - lain_s)


def test_a_key_is_handed_over_at_once_with_the_servers_time() -> None:
    function = Function()
    with relaying(function) as relay:
        before = time.monotonic() * 1000 + SERVER_AHEAD_MS
        relay.hear(expiry())
        until(lambda: function.calls)
    [[one]] = function.calls
    assert (one.key, one.channel, one.since) == (b"a", "__keyevent@3__:expired", one.heard_at)
    assert before - 1 <= one.heard_at < before + 500


def test_what_lay_unread_for_long_is_told_since_when() -> None:
    function = Function()
    with relaying(function) as relay:
        relay.hear(expiry(b"short", 0.2))
        relay.hear(expiry(b"long", 7.0))
        until(lambda: len(function.taken()) == 2)
    lain = {one.key: one.heard_at - one.since for call in function.calls for one in call}
    assert lain[b"short"] == 0
    assert 6_999 <= lain[b"long"] < 7_500


def test_what_comes_while_all_are_busy_goes_in_batches() -> None:
    function = Function()
    function.open.clear()
    with relaying(function) as relay:
        for n in range(WORKERS):
            relay.hear(expiry(b"first"))
            until(lambda n=n: len(function.calls) == n + 1)
        for n in range(2 * RELAY_BATCH + 1):
            relay.hear(expiry(b"%d" % n))
        function.open.set()
    assert [len(call) for call in function.calls] == [1] * WORKERS + [RELAY_BATCH, RELAY_BATCH, 1]
    assert function.taken()[WORKERS:] == [b"%d" % n for n in range(2 * RELAY_BATCH + 1)]


@pytest.mark.slow
def test_what_is_refused_comes_again_until_it_is_taken() -> None:
    function = Function(refusals=3)
    with relaying(function) as relay:
        relay.hear(expiry())
        until(lambda: len(function.calls) == 4)
        assert (relay.dispatcher.rejected, relay.lost) == (3, 0)
    assert [call[0] for call in function.calls] == [function.calls[0][0]] * 4, "the same expiry, at the same instant"


def test_beyond_the_bound_keys_are_lost_counted_and_told_once_in_a_while(caplog: pytest.LogCaptureFixture) -> None:
    function = Function()
    function.open.clear()
    with relaying(function) as relay:
        for _ in range(BOUND + 7):
            relay.hear(expiry())
        assert (relay.heard, relay.lost) == (BOUND + 7, 7)
        function.open.set()
        until(lambda: len(function.taken()) == BOUND)
        relay.hear(expiry(b"room again"))
        until(lambda: b"room again" in function.taken())
        assert relay.lost == 7
    [record] = [record for record in caplog.records if "LOST" in record.getMessage()]
    assert record.levelno == logging.ERROR
    assert str(BOUND) in record.getMessage()


def test_a_name_too_long_for_an_invocation_is_lost_and_told(caplog: pytest.LogCaptureFixture) -> None:
    function = Function()
    with relaying(function) as relay:
        relay.hear(expiry(b"x" * (MAX_KEY_BYTES + 1)))
        relay.hear(expiry(b"x" * MAX_KEY_BYTES))
        until(lambda: function.calls)
        assert relay.lost == 1
    assert [len(key) for key in function.taken()] == [MAX_KEY_BYTES]
    assert f"over {MAX_KEY_BYTES} bytes" in caplog.text


def test_at_its_end_it_hands_over_what_it_heard() -> None:
    function = Function(refusals=2)
    with relaying(function) as relay:
        relay.hear(expiry())
        until(lambda: function.calls)
    assert function.refusals == 0
    assert relay.lost == 0


def test_what_there_is_no_time_for_at_its_end_is_lost_and_told(caplog: pytest.LogCaptureFixture) -> None:
    function = Function(refusals=1_000_000)
    with relaying(function, patience_s=0.3, whole=False) as relay:
        for _ in range(5):
            relay.hear(expiry())
        until(lambda: function.calls)
    assert relay.lost == 5
    assert "LOST: 5 watched keys" in caplog.text
