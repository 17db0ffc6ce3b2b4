"""A primary behind a Sentinel is killed: store and bridge go on with the replica, and what it had is not lost."""

import logging
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from itertools import count
from typing import Any

import pytest
import redis

from duecourse.app import App, Parts
from duecourse.errors import StoreUnavailable
from duecourse.ledger.connect import connect, open_client
from duecourse.ledger.operations.ledger import Ledger
from duecourse.ledger.task import Shard, Status
from duecourse.settings import Settings
from tests.support.bridges import NAMESPACE, BellSetter, Recorder, bridging
from tests.support.ledger import LEASE_MS, new
from tests.support.redis_sentinel import SentinelServers
from tests.support.wait import until

BELL = f"{NAMESPACE}:{{default/0}}:bell"


@pytest.fixture
def service() -> Iterator[SentinelServers]:
    with SentinelServers() as service:
        yield service


def added(ledger: Ledger, id: str) -> bool:
    try:
        return bool(ledger.add([new(id)]))
    except StoreUnavailable:
        return False


def test_the_store_and_the_bridge_follow_a_sentinels_failover(
    service: SentinelServers, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    recorder, answered = Recorder(), list[str]()
    with connect(service.url) as client, bridging(service, recorder, beat_s=1) as bridge:
        ledger = Ledger(client, NAMESPACE, wait=1)
        for n in range(200):
            ledger.add([new(f"t-{n}")])
            answered.append(f"t-{n}")
        until(lambda: recorder.of(BELL))
        service.kill(service.primary_port)
        assert not added(ledger, "lost")
        until(lambda: service.primary() == service.replica_port)
        ledger = Ledger(client, NAMESPACE)
        until(lambda: added(ledger, "after"), every=0.05)
        until(lambda: "the store is back" in caplog.text)
        assert bridge.stats().events
        before = len(recorder.of(BELL))
        added(ledger, "rings")
        until(lambda: len(recorder.of(BELL)) > before)
        ids = {task.id for task in ledger.claim(Shard(), 500, lease_ms=LEASE_MS).tasks}
        assert ids - {"lost"} == {*answered, "after", "rings"}


def test_who_waits_is_told_by_the_replica_that_took_over(service: SentinelServers) -> None:
    with (
        connect(service.url) as client,
        closing(App(Settings(), Parts(ledger=Ledger(client, wait=1)))) as app,
        ThreadPoolExecutor(1) as threads,
    ):
        app.ledger.add([new("a", delay_ms=LEASE_MS)])
        waiting = threads.submit(app.waiting.wait, "default", "a", "-", 60.0)
        until(app.waits.count)
        service.kill(service.primary_port)
        until(lambda: service.primary() == service.replica_port)
        ledger = Ledger(client)
        until(lambda: added(ledger, "after"), every=0.05)
        ledger.cancel("default", ["a"])
        assert waiting.result(60).status is Status.CANCELLED


def test_a_service_that_no_sentinel_knows_is_away(service: SentinelServers) -> None:
    with connect(service.url.replace("/main/", "/other/")) as client, pytest.raises(StoreUnavailable):
        Ledger(client).ping()


def test_a_primary_that_was_demoted_is_left(service: SentinelServers) -> None:
    with connect(service.url) as client:
        ledger = Ledger(client)
        ledger.add([new("a")])
        with open_client(f"redis://127.0.0.1:{service.port}") as sentinel:
            sentinel.execute_command("SENTINEL", "FAILOVER", "main")
        until(lambda: service.primary() == service.replica_port)
        until(lambda: added(ledger, "b"), every=0.05)
        assert {task.id for task in ledger.claim(Shard(), 9, lease_ms=LEASE_MS).tasks} == {"a", "b"}


def test_a_client_that_is_closed_leaves_no_connection_to_a_sentinel(service: SentinelServers) -> None:
    with redis.Redis(port=service.port) as sentinel:
        alone = len(sentinel.client_list())
        with connect(service.url) as client:
            Ledger(client).ping()
            pool: Any = client.connection_pool
            for connection in [pool.get_connection(), pool.get_connection()]:  # the second asks where the primary is
                pool.release(connection)
            assert len(sentinel.client_list()) > alone
        until(lambda: len(sentinel.client_list()) == alone)
        assert client, "it is closed, not forgotten"


@pytest.mark.parametrize(("old", "new"), [("let%20me%20in@", "wrong@"), (":let%20me%20in@", "")], ids=["wrong", "none"])
def test_a_service_that_wants_another_password_is_away_and_none_is_told(
    service: SentinelServers, old: str, new: str
) -> None:
    with connect(service.url.replace(old, new)) as client, pytest.raises(StoreUnavailable) as caught:
        Ledger(client).ping()
    assert "wrong@" not in str(caught.value)
    assert "assword" in str(caught.value) or "uthentication" in str(caught.value)


def test_without_any_sentinel_a_service_is_away() -> None:
    url = "redis+sentinel://ada:hunter2@127.0.0.1:1,127.0.0.1:2/main"
    with connect(url) as client, pytest.raises(StoreUnavailable) as caught:
        Ledger(client).ping()
    assert "hunter2" not in str(caught.value)


def test_a_former_primary_that_wakes_is_left_though_it_takes_itself_for_the_primary(
    service: SentinelServers, caplog: pytest.LogCaptureFixture
) -> None:
    recorder = Recorder()
    with connect(service.url) as client, bridging(service, recorder, beat_s=60):
        ledger = Ledger(client, NAMESPACE)
        ledger.add([new("before")])
        until(lambda: recorder.of(BELL))
        with service.forgotten(service.primary_port) as former, service.client(service.replica_port) as primary:
            ids = (f"t-{n}" for n in count())
            there = Ledger(primary, NAMESPACE)
            until(lambda: added(ledger, id := next(ids)) and there.get("default", id), every=0.05)
            until(lambda: "the store is back" in caplog.text)
            before = len(recorder.of(BELL))
            BellSetter(primary).hang(BELL, 50)
            until(lambda: len(recorder.of(BELL)) > before)
            assert former.role()[0] == b"master"


def test_a_former_primary_that_must_have_a_replica_takes_no_change_once_it_wakes(service: SentinelServers) -> None:
    with service.client(service.primary_port) as primary:
        primary.config_set("min-replicas-to-write", 1)
        primary.config_set("min-replicas-max-lag", 1)
    with service.forgotten(service.primary_port) as former:
        ledger = Ledger(former, NAMESPACE)
        until(lambda: not added(ledger, "late"))
        assert former.role()[0] == b"master"


def test_sentinels_that_do_not_answer_are_asked_ever_less_often_and_the_primary_is_used(
    service: SentinelServers,
) -> None:
    with connect(service.url) as client:
        ledger = Ledger(client)
        ledger.ping()
        pool: Any = client.connection_pool
        with service.without_sentinel():
            for failures in range(1, 4):
                pool._ask_at = 0.0
                ledger.ping()
                assert pool._failures == failures
                assert pool._ask_at - time.monotonic() > 2**failures - 1
                ledger.ping()
                assert pool._failures == failures, "it was not asked again"
        pool._ask_at = 0.0
        ledger.ping()
        assert pool._failures == 0
