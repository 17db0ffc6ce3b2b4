"""A tick that stays and serves rings itself: on time, once, until its time is over, and then with nothing left open."""

import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator

import pytest
import redis

from duecourse.ledger.connect import connect
from duecourse.ledger.operations.ledger import Ledger
from duecourse.ledger.task import DEFAULT_QUEUE, NewTask, Shard, Status, Task
from tests.support.drainer import NAMESPACE
from tests.support.lingering import MARGIN_MS, Open, countdown, lingering
from tests.support.matrix import MATRIX
from tests.support.redis_server import RedisServer
from tests.support.stalls import on_time_ms
from tests.support.wait import until

pytestmark = pytest.mark.slow

ON_TIME_MS = 400
"""Far more than the few milliseconds it takes, for machines with other work; far less than a deadman's second."""


@pytest.fixture
def ledger(server: RedisServer) -> Iterator[Ledger]:
    with connect(server.url) as client:
        yield Ledger(client, NAMESPACE)


class Ran:
    """What ran, and how long after it was due it was claimed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.times: Counter[str] = Counter()
        self.late: list[int] = []

    def __call__(self, task: Task) -> None:
        with self._lock:
            self.times[task.id] += 1
            self.late.append(task.claimed_at - task.due_at)


def add(ledger: Ledger, id: str, delay_ms: int = 0) -> None:
    ledger.add([NewTask(id, "noop", delay_ms=delay_ms)])


def task(ledger: Ledger, id: str) -> Task:
    found = ledger.get(DEFAULT_QUEUE, id)
    assert found
    return found


def connections(server: RedisServer) -> list[str]:
    """The kinds of the server's clients, this one aside."""
    with redis.Redis.from_url(server.url) as client:
        return sorted(c["cmd"] for c in client.client_list() if c["cmd"] != "client|list" and c["cmd"] != "client")


@pytest.mark.parametrize("events", [True, False], ids=["events on", "events off"])
def test_what_falls_due_while_it_stays_is_claimed_on_time(server: RedisServer, ledger: Ledger, events: bool) -> None:
    ran, left = Ran(), Open()
    with (
        on_time_ms(ON_TIME_MS) as most_ms,
        lingering(server, ran, linger_ms=60_000, remaining_ms=left, events=events) as linger,
    ):
        ledger.add([NewTask(f"due-{n}", "noop", delay_ms=300 + 20 * n) for n in range(50)])
        until(lambda: ledger.stats(Shard()).done == 50, every=0.05)
        left.is_over = True
    assert ran.times == {f"due-{n}": 1 for n in range(50)}
    assert min(ran.late) >= 0
    assert max(ran.late) < most_ms()
    assert linger.counts["done"] == 50
    assert linger.stats().events is events


def test_two_at_once_run_every_task_exactly_once(server: RedisServer, ledger: Ledger) -> None:
    ran, number, left = Ran(), 600, Open()
    with (
        lingering(server, ran, linger_ms=60_000, remaining_ms=left) as one,
        lingering(server, ran, linger_ms=60_000, remaining_ms=left) as other,
    ):
        ledger.add([NewTask(f"task-{n}", "noop", delay_ms=100 + 3 * n) for n in range(number)])
        until(lambda: ledger.stats(Shard()).done == number, every=0.05)
        left.is_over = True
    assert ran.times == {f"task-{n}": 1 for n in range(number)}
    assert one.counts["done"] + other.counts["done"] == number
    assert one.counts["stale"] + other.counts["stale"] == 0
    assert ledger.stats(Shard()).done == number


def test_one_takes_over_from_the_other_without_a_gap(server: RedisServer, ledger: Ledger) -> None:
    ran = Ran()
    ledger.add([NewTask(f"task-{n}", "noop", delay_ms=300 + 10 * n) for n in range(300)])
    second = threading.Timer(1.5, lambda: _stay(server, ran, 2_500))
    with on_time_ms(ON_TIME_MS) as most_ms:
        second.start()
        _stay(server, ran, 2_000)
        second.join()
    assert set(ran.times.values()) == {1}
    assert len(ran.times) == 300
    assert sorted(ran.late)[-3] < most_ms()


def _stay(server: RedisServer, ran: Ran, linger_ms: int) -> None:
    with lingering(server, ran, linger_ms=linger_ms):
        pass


def test_it_ends_when_its_time_is_over(server: RedisServer) -> None:
    began = time.monotonic()
    with lingering(server, Ran(), linger_ms=400):
        pass
    assert 0.4 <= time.monotonic() - began < 2


def test_it_leaves_the_margin_of_a_shorter_timeout_alone(server: RedisServer) -> None:
    left = countdown(MARGIN_MS / 1000 + 0.4)
    with lingering(server, Ran(), linger_ms=60_000, remaining_ms=left):
        pass
    assert 0 < left() <= MARGIN_MS


def test_what_is_under_way_at_the_end_is_finished_and_what_is_not_begun_is_given_back(
    server: RedisServer, ledger: Ledger
) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def slow(_: Task) -> None:
        begun.set()
        assert go_on.wait(30)

    ledger.add([NewTask(id, "noop") for id in ("one", "two")])
    threading.Timer(1.2, go_on.set).start()
    with lingering(server, slow, linger_ms=600, size=1):
        assert begun.wait(30)
    states = sorted((task(ledger, id).status, task(ledger, id).attempt) for id in ("one", "two"))
    assert states == [(Status.DONE, 1), (Status.SCHEDULED, 1)]


def test_nothing_is_open_and_no_thread_runs_once_it_has_ended(server: RedisServer, ledger: Ledger) -> None:
    add(ledger, "a", 300)
    open_before, threads_before = len(connections(server)), threading.active_count()
    switch_before = sys.getswitchinterval()
    with lingering(server, Ran(), linger_ms=500) as linger:
        until(lambda: any("subscribe" in c for c in connections(server)))
    assert threading.active_count() == threads_before
    assert sys.getswitchinterval() == switch_before, "the process serves other invocations"
    until(lambda: len(connections(server)) == open_before)  # the server notices a moment later
    assert linger.counts["done"] == 1, "and it is not garbage whose connections are closed for that"


def test_where_the_tick_fails_it_stops_at_once(server: RedisServer) -> None:
    began, threads = time.monotonic(), threading.active_count()
    with pytest.raises(ZeroDivisionError), lingering(server, Ran(), linger_ms=60_000):
        _ = 1 / 0
    assert time.monotonic() - began < 3
    assert threading.active_count() == threads


def test_where_the_tick_fails_its_drains_begin_nothing_more(server: RedisServer, ledger: Ledger) -> None:
    begun = threading.Event()

    def slow(_: Task) -> None:
        begun.set()
        time.sleep(0.05)  # as long as work takes

    ledger.add([NewTask(f"task-{n}", "noop") for n in range(300)])
    with pytest.raises(ZeroDivisionError), lingering(server, slow, linger_ms=60_000, size=1):
        _ = 1 / (not begun.wait(30))
    assert ledger.stats(Shard()).done < 100
    assert ledger.stats(Shard()).leased == 0, "what was claimed and not begun is given back"


def test_a_subscription_that_is_cut_is_made_anew(server: RedisServer, ledger: Ledger) -> None:
    ran, left = Ran(), Open()
    with (
        lingering(server, ran, linger_ms=60_000, remaining_ms=left) as linger,
        redis.Redis.from_url(server.url) as client,
    ):
        until(lambda: client.client_kill_filter(_type="pubsub"))
        add(ledger, "after", 300)
        until(lambda: linger.counts["done"])
        left.is_over = True
    assert ran.times == {"after": 1}


@MATRIX
def test_a_store_that_refuses_for_a_while_is_asked_again(server: RedisServer, ledger: Ledger) -> None:
    ran = Ran()
    add(ledger, "due", 200)
    with lingering(server, ran, linger_ms=4_000), redis.Redis.from_url(server.url) as client:
        client.execute_command("ACL", "SETUSER", "default", "-@scripting")
        until(lambda: ledger.now() > task(ledger, "due").due_at + 100)
        client.execute_command("ACL", "SETUSER", "default", "+@scripting")
    assert ran.times == {"due": 1}
