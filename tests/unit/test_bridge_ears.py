"""The bridge's ears: what a busy server says while it confirms is heard, and no fault of theirs is silent."""

import logging
import threading
from collections import deque
from collections.abc import Sequence
from typing import Any

import pytest

from duecourse.adapters.redis.subscription import Ear, Names
from duecourse.bridge.clock import ServerClock
from duecourse.bridge.ears import Ears
from duecourse.bridge.timer import Timer
from duecourse.domain.watch import Watchlist
from duecourse.errors import StoreUnavailable
from duecourse.ports.bells import Sound, What
from tests.unit.test_bridge_timer import HandBells

CANARY = "ns:{canary/b0}:bell"
BELL = "ns:{default/0}:bell"
EXPIRED, EVICTED, HEADS = b"__keyevent@0__:expired", b"__keyevent@0__:evicted", b"ns:{*}:head"


class Said:
    """A connection, and the pool that it comes from, whose server says what a test has written down."""

    def __init__(self, *replies: Sequence[Any]) -> None:
        self._replies = deque(replies)
        self.commands: list[tuple[str, ...]] = []

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
        self._replies.clear()


def ear_of(*replies: Sequence[Any]) -> Ear:
    names = Names("ns", 0, Watchlist())
    return Ear(Said(*replies), names, CANARY, ["PSUBSCRIBE", "ns:{*}:head"], events=True)  # type: ignore[arg-type]


def heard(ear: Ear) -> list[Any]:
    return list(iter(lambda: ear.hear(float("inf")), None))


def test_messages_between_two_confirmations_are_no_confirmations_and_are_heard() -> None:
    ear = ear_of(
        [b"subscribe", EXPIRED, 1],
        [b"message", EXPIRED, BELL.encode()],
        [b"message", EXPIRED, b"a key of another program"],
        [b"subscribe", EVICTED, 2],
        [b"message", EVICTED, BELL.encode()],
        [b"psubscribe", HEADS, 3],
        [b"pmessage", HEADS, b"ns:{default/0}:head", b"1700000000000"],
    )
    assert heard(ear) == [
        Sound(What.EXPIRED, BELL),
        Sound(What.EVICTED, BELL),
        Sound(What.HEAD, BELL, 1_700_000_000_000),
    ]


def test_a_reply_of_another_kind_is_no_message() -> None:
    confirmed = [[b"subscribe", EXPIRED, 1], [b"subscribe", EVICTED, 2], [b"psubscribe", HEADS, 3]]
    ear = ear_of(*confirmed, [b"psubscribe", HEADS, 3], [b"pong", b""], [b"message", EXPIRED, BELL.encode()])
    assert heard(ear) == [Sound(What.EXPIRED, BELL)]


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
    ears = Ears(faulty, timer, lambda _expiry: None, CANARY, ended)
    with caplog.at_level(logging.ERROR):
        ears.start()
        assert ended.wait(30)
    assert isinstance(ears.error, StoreUnavailable)
    assert faulty.closed
    with pytest.raises(StoreUnavailable, match="bytes expected"):
        ears.heard_canary()
    assert "TypeError" in caplog.text
    ears.close()
