"""What holds of time and number when queues are paused, notifications go, and bridges die or are two."""

import logging
import time
from collections.abc import Callable, Iterator

import pytest
import redis

from duecourse.ledger.task import NewTask
from tests.support.bridges import bridge_process, bridging
from tests.support.engine import ample
from tests.support.http_server import answering
from tests.support.matrix import MATRIX
from tests.support.redis_server import RedisServer
from tests.support.stalls import on_time_ms
from tests.support.triggers import Triggers, triggers
from tests.support.wait import until

WATCH_S = 5.0
ON_TIME_MS = 250
"""Far below the second after which a lost ring is made good."""


@pytest.fixture
def house(server: RedisServer) -> Iterator[Triggers]:
    with triggers(server) as house:
        yield house


@pytest.fixture
def most_ms() -> Iterator[Callable[[], float]]:
    """How late a ring may be."""
    with on_time_ms(ON_TIME_MS) as most_ms:
        yield most_ms


def add(house: Triggers, count: int, *, after_ms: int, over_ms: int = 0) -> None:
    """Tasks that fall due one after another."""
    start = house.ledger.now() + after_ms
    made = [NewTask(f"t-{start}-{n}", "work", due_at=start + over_ms * n // count) for n in range(count)]
    house.ledger.add(made)


@MATRIX
def test_a_paused_queue_with_1000_overdue_tasks_causes_no_more_than_two_invocations_a_second(
    server: RedisServer, house: Triggers
) -> None:
    house.ledger.configure("default", {"paused": True})
    add(house, 1_000, after_ms=-60_000)
    with bridging(server, house, beat_s=0.5):
        time.sleep(WATCH_S)  # what is measured is how little happens
        invocations = len(house.invoked_at)
    assert invocations <= 2 * WATCH_S
    assert house.ran == []


def test_a_resumed_queue_is_worked_at_once(server: RedisServer, house: Triggers, most_ms: Callable[[], float]) -> None:
    house.ledger.configure("default", {"paused": True})
    add(house, 200, after_ms=-60_000)
    with bridging(server, house):
        house.ledger.configure("default", {"paused": False})
        resumed = house.ledger.now()
        until(lambda: len(house.ran) == 200)
    assert min(task.claimed_at for task in house.ran) - resumed < 2 * most_ms()


def test_a_backlog_whose_leases_are_held_elsewhere_is_not_hot(server: RedisServer, house: Triggers) -> None:
    add(house, 400, after_ms=-60_000)
    assert len(house.ledger.claim(house.ledger.shards()[0], 400, lease_ms=60_000).tasks) == 400
    with bridging(server, house, beat_s=0.5):
        time.sleep(1)  # what is measured is how little happens
        assert len(house.invoked_at) <= 2


def test_with_notifications_forced_off_the_bridges_timer_is_on_time_and_says_so(
    server: RedisServer, house: Triggers, most_ms: Callable[[], float], caplog: pytest.LogCaptureFixture
) -> None:
    with bridging(server, house, beat_s=0.1), server.client(username="admin", password="pw") as admin:
        forbid_notifications(server, admin)
        until(lambda: "EVENTS OFF" in caplog.text)
        add(house, 200, after_ms=200, over_ms=2_000)
        until(lambda: len(house.ran) == 200)
    late = house.lateness_ms()
    assert late[0] >= 0, "none is early"
    assert late[len(late) * 99 // 100] < most_ms()
    assert [record.levelno for record in caplog.records if "EVENTS OFF" in record.getMessage()] == [logging.WARNING]


def forbid_notifications(server: RedisServer, admin: redis.Redis) -> None:
    """As a managed service does that has none: turned off, and nobody else may turn them on."""
    with server.client() as everyone:
        everyone.acl_setuser("admin", enabled=True, passwords=["+pw"], commands=["+@all"], keys=["*"], channels=["*"])
        everyone.execute_command("ACL", "SETUSER", "default", "-config")
    admin.config_set("notify-keyspace-events", "")


def test_with_neither_notifications_nor_a_bridge_the_tick_runs_what_is_due(house: Triggers) -> None:
    add(house, 50, after_ms=20, over_ms=100)
    until(lambda: house.ledger.stats(house.ledger.shards()[0]).oldest_due_at + 150 < house.ledger.now())
    ticked = house.sweeper.tick(house.sweeper.survey(ample), ample)
    assert (ticked.claimed, ticked.done, ticked.backlog) == (50, 50, 0)
    assert set(house.runs().values()) == {1}


def test_a_killed_bridge_rings_at_its_restart_for_what_came_due_meanwhile(server: RedisServer, house: Triggers) -> None:
    with answering(house.answer) as service:
        with bridge_process(server, service.url) as bridge:
            add(house, 5, after_ms=50)
            until(lambda: len(house.ran) == 5)
            bridge.kill()
            bridge.wait()
        add(house, 20, after_ms=50, over_ms=50)
        until(lambda: house.ledger.stats(house.ledger.shards()[0]).oldest_due_at + 100 < house.ledger.now())
        assert len(house.ran) == 5
        with bridge_process(server, service.url):
            until(lambda: len(house.ran) == 25)
            add(house, 5, after_ms=50)
            until(lambda: len(house.ran) == 30)
    assert set(house.runs().values()) == {1}


def test_two_bridges_ring_each_task_once(server: RedisServer, house: Triggers, most_ms: Callable[[], float]) -> None:
    with triggers(server) as other, bridging(server, house), bridging(server, other):
        add(house, 500, after_ms=200, over_ms=1_000)
        until(lambda: len(house.ran) + len(other.ran) == 500)
        until(lambda: house.ledger.stats(house.ledger.shards()[0]).leased == 0)
    runs = house.runs()
    assert not runs.keys() & other.runs().keys()
    assert {*runs.values(), *other.runs().values()} == {1}
    late = sorted(house.lateness_ms() + other.lateness_ms())
    assert late[len(late) * 99 // 100] < most_ms()


def test_a_bridge_that_is_killed_beside_another_delays_nothing(
    server: RedisServer, house: Triggers, most_ms: Callable[[], float]
) -> None:
    with answering(house.answer) as service, bridge_process(server, service.url) as killed, bridging(server, house):
        add(house, 100, after_ms=100, over_ms=600)
        until(lambda: len(house.ran) > 30)
        killed.kill()
        until(lambda: len(house.ran) == 100)
    assert set(house.runs().values()) == {1}
    assert house.lateness_ms()[98] < most_ms()
