"""The bridge's listener: what a busy server says while it confirms is heard, and no fault of its own is silent."""

import logging
import socket
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from duecourse.errors import StoreUnavailable
from duecourse.ledger.bells import BellEvent, BellMessage
from duecourse.ledger.redis_bells import BellNames, RedisSubscription
from duecourse.ledger.watched_keys import Watchlist
from duecourse.ringing.listener import Listener
from duecourse.ringing.timer import ServerClock, Timer
from tests.ringing.test_timer import HandBells

CANARY = "ns:{canary/b0}:bell"
BELL = "ns:{default/0}:bell"
EXPIRED, EVICTED, HEADS = b"__keyevent@0__:expired", b"__keyevent@0__:evicted", b"ns:{*}:head"
CONFIRMED = [[b"subscribe", EXPIRED, 1], [b"subscribe", EVICTED, 2], [b"psubscribe", HEADS, 3]]


class Said:
    """A connection, and the pool that it comes from, whose server says what a test has written down."""

    def __init__(self, *replies: Sequence[Any]) -> None:
        self._replies = deque(replies)
        self.connection_kwargs: dict[str, Any] = {}
        self.commands: list[tuple[str, ...]] = []
        self._sock, self._other = socket.socketpair()

    def get_connection(self) -> "Said":
        return self

    def release(self, connection: "Said") -> None:
        assert connection is self

    def send_command(self, *command: str) -> None:
        self.commands.append(command)

    def read_response(self, **_options: object) -> Sequence[Any]:
        return self._replies.popleft()

    def can_read(self, **_options: object) -> bool:
        return bool(self._replies)

    def disconnect(self) -> None:
        self._sock.close()
        self._other.close()


def subscribed(*replies: Sequence[Any], has: Callable[[str], bool] = lambda _bell: True) -> RedisSubscription:
    names = BellNames("ns", 0, Watchlist())
    return RedisSubscription(Said(*replies), names, CANARY, has, names.pattern, events=True)  # type: ignore[arg-type]


def heard(subscription: RedisSubscription) -> list[Any]:
    found = list(iter(lambda: subscription.hear(0.01), None))
    subscription.close()
    return found


def test_messages_between_two_confirmations_are_no_confirmations_and_are_heard() -> None:
    subscription = subscribed(
        [b"subscribe", EXPIRED, 1],
        [b"message", EXPIRED, BELL.encode()],
        [b"message", EXPIRED, b"a key of another program"],
        [b"subscribe", EVICTED, 2],
        [b"message", EVICTED, BELL.encode()],
        [b"psubscribe", HEADS, 3],
        [b"pmessage", HEADS, b"ns:{default/0}:head", b"1700000000000"],
    )
    assert heard(subscription) == [
        BellMessage(BellEvent.EXPIRED, BELL),
        BellMessage(BellEvent.EVICTED, BELL),
        BellMessage(BellEvent.HEAD, BELL, 1_700_000_000_000),
    ]


def test_a_reply_of_another_kind_is_no_message() -> None:
    subscription = subscribed(
        *CONFIRMED, [b"psubscribe", HEADS, 3], [b"pong", b""], [b"message", EXPIRED, BELL.encode()]
    )
    assert heard(subscription) == [BellMessage(BellEvent.EXPIRED, BELL)]


def test_a_head_counts_where_its_bell_is_and_nowhere_else() -> None:
    def head(bell: str) -> list[bytes]:
        return [b"pmessage", HEADS, bell.removesuffix("bell").encode() + b"head", b"7"]

    subscription = subscribed(*CONFIRMED, head("ns:{elsewhere/0}:bell"), head(BELL), has=lambda bell: bell == BELL)
    assert heard(subscription) == [BellMessage(BellEvent.HEAD, BELL, 7)]


def test_the_canarys_head_counts_wherever_its_slot_is() -> None:
    head = [b"pmessage", HEADS, CANARY.removesuffix("bell").encode() + b"head", b"0"]
    assert heard(subscribed(*CONFIRMED, head, has=lambda _bell: False)) == [BellMessage(BellEvent.HEAD, CANARY, 0)]


class Faulty:
    """A subscription with a fault of its own."""

    closed = False

    def hear(self, _timeout: float) -> None:
        raise TypeError("bytes expected")

    def covers(self, _bells: Sequence[str]) -> bool:
        return True

    def close(self) -> None:
        self.closed = True


def test_a_fault_of_the_listening_thread_is_its_error_and_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    faulty, ended = Faulty(), threading.Event()
    timer = Timer(HandBells(), ServerClock(), lambda _rings: None)
    listener = Listener(faulty, timer, lambda _expiry: None, CANARY, ended)
    with caplog.at_level(logging.ERROR):
        listener.start()
        assert ended.wait(30)
    assert isinstance(listener.error, StoreUnavailable)
    assert faulty.closed
    with pytest.raises(StoreUnavailable, match="bytes expected"):
        listener.heard_canary()
    assert "TypeError" in caplog.text
    listener.close()
