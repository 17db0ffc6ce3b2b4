"""Look-ups have a time limit, and so many at a time; addresses need none."""

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from duecourse.errors import CallFailed, CallTimedOut, InvalidInput
from duecourse.guard.http_client import GuardedHttpClient
from duecourse.guard.http_types import HttpRequest
from duecourse.guard.resolver import MAX_ADDRESSES, SystemResolver
from tests.support.names import Names
from tests.support.wait import until


class Stuck(Names):
    """A resolver that answers nothing until it is let go."""

    def __init__(self) -> None:
        super().__init__({"a.example": [["192.0.2.1"]], "b.example": [["192.0.2.2"]]})
        self.go_on = threading.Event()

    def __call__(self, host: str, port: int, family: int, kind: int, proto: int, flags: int) -> list[Any]:
        if not flags:
            self.go_on.wait(30)
        return super().__call__(host, port, family, kind, proto, flags)


@pytest.fixture
def stuck() -> Iterator[Stuck]:
    names = Stuck()
    yield names
    names.go_on.set()
    until(lambda: not [one for one in threading.enumerate() if one.name == "look-up"])


@pytest.mark.parametrize(
    ("host", "address"),
    [("127.0.0.1", "127.0.0.1"), ("0x7f.1", "127.0.0.1"), ("2130706433", "127.0.0.1"), ("::1", "::1")],
)
def test_an_address_is_answered_without_a_look_up_or_a_thread(stuck: Stuck, host: str, address: str) -> None:
    threads = threading.active_count()
    assert SystemResolver(stuck)(host, 80, 1.0) == [address]
    assert (stuck.asked, threading.active_count()) == ([], threads)


def test_a_names_addresses_come_once_each_in_their_order_and_no_more_than_are_tried() -> None:
    many = [f"192.0.2.{n}" for n in (3, 1, 3, *range(4, 40))]
    found = Names({"a.example": [many]}).resolver("a.example", 80, 1.0)
    assert found[:3] == ["192.0.2.3", "192.0.2.1", "192.0.2.4"]
    assert len(found) == MAX_ADDRESSES


def test_a_name_that_nobody_knows_and_one_that_nobody_can_have() -> None:
    resolve = SystemResolver()
    with pytest.raises(CallFailed, match="the host name is not known"):
        resolve("nobody.invalid", 80, 5.0)
    with pytest.raises(InvalidInput):
        resolve("a" * 64 + ".example", 80, 5.0)


def test_a_look_up_that_takes_too_long_is_given_up(stuck: Stuck) -> None:
    began = time.monotonic()
    with pytest.raises(CallTimedOut, match=r"the host name was not resolved within 0\.1 s"):
        SystemResolver(stuck, limit_s=0.1)("a.example", 80, 20.0)
    with pytest.raises(CallTimedOut, match=r"within 0\.2 s"):
        SystemResolver(stuck)("a.example", 80, 0.2)
    assert 0.3 <= time.monotonic() - began < 3


def test_no_more_look_ups_run_at_a_time_than_there_are_slots_and_a_slot_comes_back(stuck: Stuck) -> None:
    resolve = SystemResolver(stuck, limit_s=0.1, at_once=2)
    for _ in range(4):
        with pytest.raises(CallTimedOut):
            resolve("a.example", 80, 20.0)
    assert len([one for one in threading.enumerate() if one.name == "look-up"]) == 2
    assert resolve("127.1", 80, 1.0) == ["127.0.0.1"], "an address needs no slot"
    stuck.go_on.set()
    assert until(lambda: _found(resolve, "b.example")) == ["192.0.2.2"]


def test_calls_that_give_up_soon_take_no_slots_of_those_that_wait(stuck: Stuck) -> None:
    """Given up after 20 ms each, on names that nobody resolves, they left no slot for any other tenant's calls."""
    resolve = SystemResolver(stuck, limit_s=1.0, at_once=8)
    for number in range(12):
        with pytest.raises(CallTimedOut):
            resolve(f"h{number}.hostile.example", 80, 0.02)
    beside = threading.Timer(0.05, stuck.go_on.set)
    assert len([one for one in threading.enumerate() if one.name == "look-up"]) == 2
    beside.start()
    assert resolve("b.example", 80, 5.0) == ["192.0.2.2"]


def _found(resolve: SystemResolver, host: str) -> list[str]:
    try:
        return resolve(host, 80, 5.0)
    except CallTimedOut:
        return []


def test_a_call_whose_name_is_not_resolved_in_time_times_out_as_any_other(stuck: Stuck) -> None:
    http = GuardedHttpClient(1, resolve=SystemResolver(stuck, limit_s=0.1))
    with pytest.raises(CallTimedOut, match=r"^GET https://a\.example/ failed: the host name was not resolved"):
        http.call(HttpRequest("GET", "https://a.example/", {}, None, 2_000, 1_000))
    http.close()


def test_the_time_of_a_look_up_is_taken_from_the_calls(stuck: Stuck) -> None:
    http = GuardedHttpClient(1, resolve=SystemResolver(stuck, limit_s=20.0))
    began = time.monotonic()
    with pytest.raises(CallTimedOut):
        http.call(HttpRequest("GET", "https://a.example/", {}, None, 300, 1_000))
    http.close()
    assert time.monotonic() - began < 2


def test_the_systems_own_resolver_is_the_default() -> None:
    assert "127.0.0.1" in SystemResolver()("localhost", 80, 5.0)
