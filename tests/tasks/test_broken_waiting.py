"""Waiting on real servers: told at once, though connections, servers and publishers of an end fail."""

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from statistics import median

import pytest
import redis

from duecourse import errors
from duecourse.app import App, Parts
from duecourse.ledger.connect import connect
from duecourse.ledger.keys import keys_of
from duecourse.ledger.operations.ledger import Ledger
from duecourse.ledger.redis_acl import Rights
from duecourse.ledger.task import Ending, OnDuplicate, Task
from duecourse.settings import Settings
from duecourse.tasks import waiting as waits
from tests.support.ledger import LEASE_MS, SHARD, claim, ending, new, settle
from tests.support.matrix import MATRIX, in_turn
from tests.support.project import ROOT
from tests.support.redis_server import RedisServer, newest
from tests.support.wait import until

pytestmark = pytest.mark.slow

PATIENCE_S = 60.0
TOLD_S = 0.05


@pytest.fixture
def server(server_of: Callable[[str], RedisServer]) -> RedisServer:
    return server_of(newest()).emptied()


@pytest.fixture(params=["redis", "redis-cluster"])
def url(request: pytest.FixtureRequest) -> str:
    """A server, and a cluster."""
    return str(request.getfixturevalue("cluster" if "cluster" in request.param else "server").url)


@pytest.fixture
def app(url: str) -> Iterator[App]:
    with connect(url) as client, closing(App(Settings(store=url), Parts(ledger=Ledger(client)))) as app:
        yield app


def waiting_for(app: App, id: str, threads: ThreadPoolExecutor) -> Callable[[], Task]:
    """Begin to wait; answers how to get the answer."""
    before = app.waits.count()
    asked = threads.submit(app.waiting.wait, "default", id, "-", PATIENCE_S)
    until(lambda: app.waits.count() > before or asked.done())
    return lambda: asked.result(PATIENCE_S)


def test_an_end_is_told_at_once(app: App) -> None:
    lags = []
    with ThreadPoolExecutor(1) as threads:
        for n in range(15):
            app.ledger.add([new(f"a{n}")])
            [leased] = claim(app.ledger)
            asked = threads.submit(lambda one=leased: (app.waiting.wait("default", one.id), time.monotonic()))
            until(app.waits.count)
            settle(app.ledger, leased, Ending.DONE)
            at = time.monotonic()
            lags.append(asked.result(PATIENCE_S)[1] - at)
    assert median(lags) < waits.LOOK_S / 20, "told, and not found by a look"
    assert min(lags) < TOLD_S


def listeners(server: RedisServer) -> int:
    """Number of connections that listen for ends."""
    with redis.Redis.from_url(server.url) as operator:
        return int(operator.pubsub_numsub("duecourse:ended")[0][1])


@pytest.fixture
def operator(server: RedisServer) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(server.url) as operator:
        yield operator


@pytest.fixture
def single(server: RedisServer) -> Iterator[App]:
    """The same on one server, which the test may trouble."""
    with connect(server.url) as client, closing(App(Settings(), Parts(ledger=Ledger(client)))) as app:
        yield app


def test_a_connection_that_is_lost_is_made_anew_and_the_tasks_are_looked_at_again(
    single: App, operator: redis.Redis, server: RedisServer
) -> None:
    single.ledger.add([new("a"), new("b")])
    a, b = claim(single.ledger)
    with ThreadPoolExecutor(2) as threads:
        first, second = waiting_for(single, "a", threads), waiting_for(single, "b", threads)
        until(lambda: listeners(server) == 1)
        with operator.pipeline(transaction=True) as together:  # the end comes while nobody listens
            together.execute_command("CLIENT", "KILL", "TYPE", "pubsub")
            together.publish("duecourse:ended", "default -/nobody")
            together.execute()
        settle(single.ledger, a, Ending.DONE)
        assert first().status == "done"
        until(lambda: listeners(server) == 1)
        settle(single.ledger, b, Ending.DROP)
        assert second().status == "dead"


@MATRIX
def test_ten_thousand_waiters_share_one_thread_and_one_connection(single: App, server: RedisServer) -> None:
    tasks = [new(f"a{n}", delay_ms=LEASE_MS) for n in range(10_000)]
    for at in range(0, len(tasks), 1_000):
        single.ledger.add(tasks[at : at + 1_000])
    one = single.tasks.get("default", "a0")
    ends = [single.waits.end_of(replace(one, id=task.id), SHARD) for task in tasks]
    until(lambda: listeners(server) == 1)
    assert [thread.name for thread in threading.enumerate()].count("waits") == 1
    for at in range(0, len(tasks), 1_000):
        single.ledger.cancel("default", [task.id for task in tasks[at : at + 1_000]])
    for end in ends:
        end.result(PATIENCE_S)
    assert single.waits.count() == 0


WAITER = """
import sys
from duecourse import Client
print("waits", flush=True)
Client.from_env().wait(sys.argv[1])
"""


def test_a_waiter_that_is_killed_leaves_nothing_but_a_time_that_passes(
    single: App, operator: redis.Redis, server: RedisServer
) -> None:
    single.ledger.add([new("a"), new("b", delay_ms=LEASE_MS)])
    [leased] = claim(single.ledger)
    environment = {"PYTHONPATH": str(ROOT / "layers/core"), "DUECOURSE_STORE": server.url, "PATH": os.environ["PATH"]}
    before = set(operator.keys())
    waiter = subprocess.Popen([sys.executable, "-c", WAITER, "a"], env=environment)
    until(lambda: operator.hexists(keys_of("duecourse", SHARD).meta, "awaited"))
    waiter.send_signal(signal.SIGKILL)
    waiter.wait()
    until(lambda: listeners(server) == 0)
    assert set(operator.keys()) == before
    assert settle(single.ledger, leased, Ending.DONE) == "done"
    assert single.ledger.await_ends(SHARD, [], 1) == []  # in place of the minute that it may have left
    until(lambda: _swept(single, operator))


def _swept(app: App, operator: redis.Redis) -> bool:
    app.ledger.sweep(SHARD, retention_ms=LEASE_MS)
    return not operator.hexists(keys_of("duecourse", SHARD).meta, "awaited")


def test_a_look_finds_the_end_by_a_login_without_the_channel_which_cannot_wait(
    single: App, operator: redis.Redis, server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waits, "LOOK_S", 0.2)
    line = Rights().line("word").replace("&duecourse:ended ", "")
    operator.execute_command(*line.split())
    url = server.url.replace("://", "://duecourse:word@")
    single.ledger.add([new("a"), new("b", delay_ms=LEASE_MS)])
    with (
        connect(url) as client,
        closing(App(Settings(), Parts(ledger=Ledger(client)))) as older,
        ThreadPoolExecutor(1) as threads,
    ):
        waiting = waiting_for(single, "a", threads)
        until(lambda: operator.hexists(keys_of("duecourse", SHARD).meta, "awaited"))
        [leased] = claim(older.ledger)
        assert settle(older.ledger, leased, Ending.DONE) == "done"
        assert older.ledger.stats(SHARD).bell_at, "the script went on to its end"
        with pytest.raises(errors.StoreMisused, match="may not listen to duecourse:ended"):
            older.waiting.wait("default", "b", timeout_s=PATIENCE_S)
        assert waiting().status == "done"


@pytest.mark.parametrize("seed", in_turn(*range(3)))
def test_whoever_waits_is_told_whatever_happens_in_whatever_order(app: App, seed: int) -> None:
    """Tasks come, run, fail, die, are replayed, replaced and cancelled, while many wait, and some give up."""
    rng, names = random.Random(seed), [f"t{n}" for n in range(30)]
    app.ledger.add([new(name, delay_ms=rng.randrange(200)) for name in names])
    with ThreadPoolExecutor(60) as threads:
        waiting = [threads.submit(patient, app, name, rng.choice((0.05, 0.5, PATIENCE_S))) for name in names * 2]
        for step in range(250):
            trouble(app, rng, rng.choice(names), step)
        until(lambda: _all_over(app, names))
        answers = {one.result(PATIENCE_S) for one in waiting}
    assert answers <= {"done", "dead", "cancelled", "gone"}
    assert app.waits.count() == 0


def patient(app: App, name: str, timeout_s: float) -> str:
    """The state that ends a wait; one that times out is begun again."""
    for _ in range(10_000):
        try:
            return app.waiting.wait("default", name, timeout_s=timeout_s).status
        except errors.WaitTimedOut as error:
            if timeout_s == PATIENCE_S:
                return str(error)
        except errors.TaskNotFound:
            return "gone"
    return "never"


def trouble(app: App, rng: random.Random, name: str, step: int) -> None:
    """One change of a task, or the ends of some."""
    verb = rng.randrange(6)
    if verb == 0:
        app.ledger.cancel("default", [name], force=True)
    elif verb == 1:
        app.ledger.replay("default", [name])
    elif verb == 2:
        app.ledger.add([new(name, on_duplicate=OnDuplicate.REPLACE, payload=f'{{"n":{step}}}')])
    else:
        how = (Ending.DONE, Ending.DROP, Ending.AGAIN)
        app.ledger.settle(SHARD, [ending(task, rng.choice(how)) for task in claim(app.ledger, 4)])


def _all_over(app: App, names: list[str]) -> bool:
    app.ledger.settle(SHARD, [ending(task, Ending.DONE) for task in claim(app.ledger)])
    found = [app.ledger.get("default", name) for name in names]
    return all(task is None or task.is_over for task in found)
