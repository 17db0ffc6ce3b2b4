"""Values that are read once and kept: by whom, for how long, and what becomes of errors and of rejected ones."""

import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from duecourse.base import secret_cache as module
from duecourse.base.secret_cache import AGAIN_S, ExpiringCache, FetchedValue
from duecourse.errors import CallTimedOut, DuecourseError, SecretUnavailable

SHORT_S = 0.05


class Clock:
    """A clock that is moved by hand."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


class Source:
    """A source of values; each reading takes the next of them, or raises it."""

    def __init__(self, *values: str | DuecourseError, kept_s: float = 100.0) -> None:
        self._values = list(values)
        self._kept_s = kept_s
        self.read = 0

    def __call__(self) -> FetchedValue[str]:
        self.read += 1
        value = self._values.pop(0)
        if isinstance(value, DuecourseError):
            raise value
        return FetchedValue(value, self._kept_s)


def keeping(source: Callable[[], FetchedValue[str]]) -> tuple[Callable[..., str], Clock]:
    clock = Clock()
    kept: ExpiringCache[str, str] = ExpiringCache(clock)
    return lambda rejected=None, key="a": kept.get(key, source, 10.0, rejected), clock


def test_a_value_is_read_again_once_its_time_is_over() -> None:
    source = Source("one", "two")
    get, clock = keeping(source)
    assert (get(), get(), source.read) == ("one", "one", 1)
    clock.now += 99
    assert get() == "one"
    clock.now += 1
    assert (get(), source.read) == ("two", 2)


def test_a_clock_that_was_set_back_keeps_no_value_young() -> None:
    source = Source("one", "two")
    get, clock = keeping(source)
    get()
    clock.now -= 3_600
    assert get() == "two"


def test_a_rejected_value_is_read_again_but_not_one_that_is_new() -> None:
    source = Source("one", "two")
    get, clock = keeping(source)
    get()
    assert (get("one"), source.read) == ("one", 1)
    clock.now += AGAIN_S
    assert (get("one"), source.read) == ("two", 2)
    assert (get("one"), source.read) == ("two", 2), "another caller has it read already"


def test_a_rejected_value_that_stays_is_not_read_at_each_rejection() -> None:
    source = Source("one", "one", "one")
    get, clock = keeping(source)
    get()
    clock.now += AGAIN_S
    assert [get("one") for _ in range(5)] == ["one"] * 5
    assert source.read == 2


def test_an_error_is_kept_for_seconds_and_a_value_follows_it() -> None:
    source = Source(SecretUnavailable(), "one")
    get, clock = keeping(source)
    for _ in range(3):
        with pytest.raises(SecretUnavailable):
            get()
    assert source.read == 1
    clock.now += AGAIN_S
    assert get() == "one"


def test_a_rejected_value_that_cannot_be_read_again_is_kept() -> None:
    source = Source("one", SecretUnavailable())
    get, clock = keeping(source)
    get()
    clock.now += AGAIN_S
    with pytest.raises(SecretUnavailable):
        get("one")
    assert (get(), get("one"), source.read) == ("one", "one", 2)


def test_a_timeout_of_one_caller_is_not_that_of_the_next() -> None:
    get, _ = keeping(Source(CallTimedOut(), "one"))
    with pytest.raises(CallTimedOut):
        get()
    assert get() == "one"


def test_of_many_threads_one_reads() -> None:
    entered, go, reads = threading.Event(), threading.Event(), list[int]()

    def slow() -> FetchedValue[str]:
        reads.append(1)
        entered.set()
        go.wait(10)
        return FetchedValue("one", 100.0)

    kept: ExpiringCache[str, str] = ExpiringCache()
    with ThreadPoolExecutor(8) as threads:
        found = [threads.submit(kept.get, "a", slow, 10.0) for _ in range(8)]
        assert entered.wait(10)
        go.set()
        assert {one.result() for one in found} == {"one"}
    assert len(reads) == 1


def test_who_waits_for_another_waits_no_longer_than_it_has_time() -> None:
    entered, go = threading.Event(), threading.Event()

    def slow() -> FetchedValue[str]:
        entered.set()
        go.wait(10)
        return FetchedValue("one", 100.0)

    kept: ExpiringCache[str, str] = ExpiringCache()
    with ThreadPoolExecutor(1) as threads:
        first = threads.submit(kept.get, "a", slow, 10.0)
        assert entered.wait(10)
        with pytest.raises(CallTimedOut):
            kept.get("a", slow, SHORT_S)
        assert kept.get("b", Source("other"), SHORT_S) == "other", "another key waits for nobody"
        go.set()
        assert first.result() == "one"


def test_the_number_of_values_is_bounded_and_the_one_in_use_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST", 3)
    source = Source(*"abcdefgh")
    get, _ = keeping(source)
    get(key="used")
    for key in "1234":
        get(key=key)
        get(key="used")
    assert source.read == 5
    get(key="1")
    assert source.read == 6


def test_who_keeps_the_most_values_makes_room_for_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST", 6)
    kept: ExpiringCache[str, str] = ExpiringCache(owner=lambda key: key[0])
    read: list[str] = []

    def get(key: str) -> None:
        kept.get(key, lambda: FetchedValue(read.append(key) or key, 100.0), 10.0)

    for key in ("a1", "b1", "b2", *(f"c{n}" for n in range(50)), "a1", "b1", "b2", "c49", "c48", "c47"):
        get(key)
    assert len(read) == 53, "the others' stay, and of the many those that were used last"
    for key in ("c0", "a1", "b1", "b2"):
        get(key)
    assert read[53:] == ["c0"]


def test_a_forked_child_reads_while_a_thread_of_its_parent_reads() -> None:
    kept: ExpiringCache[str, str] = ExpiringCache()
    process = os.getpid()
    entry = kept._entry("a")
    with entry.lock:
        kept._process = process - 1  # what a child sees
        assert kept.get("a", Source("one"), SHORT_S) == "one"
