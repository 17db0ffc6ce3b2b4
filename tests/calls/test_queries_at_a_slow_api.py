"""Queries against a slow API and a real ledger: one job each, so many at a time a host, and nothing lost by a kill."""

import os
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any
from urllib.parse import urlsplit

import pytest

from duecourse import Client
from duecourse.app import PROCESS
from duecourse.guard.http_client import GuardedHttpClient
from duecourse.ledger.api_query import QueryState
from duecourse.ledger.connect import connect
from duecourse.ledger.operations.ledger import Ledger
from duecourse.ledger.task import Shard
from duecourse.settings import Settings
from duecourse_local.harness.options import LOOPBACK
from tests.support.egress import HERE
from tests.support.engine import ample
from tests.support.http_server import ReceivedRequest, Reply, answering
from tests.support.redis_server import RedisServer
from tests.support.slow_receiver import slow_at_first
from tests.support.wait import until
from tests.support.wired import wired_with

CROWD = 20
LIMIT = 3
ALWAYS: Any = {"interval": 1, "until": "`true`"}
ASK = """
import sys
from duecourse import Client
Client.from_env().query(url=sys.argv[1], interval=1, until="`true`")
"""


@pytest.fixture
def ledger(redis_server: RedisServer) -> Iterator[Ledger]:
    """The ledger that the functions' parts go by here."""
    with connect(redis_server.url) as client, closing(GuardedHttpClient(CROWD, HERE)) as http:
        ledger = Ledger(client)
        parts = Settings(query_parallel=LIMIT, egress_allow=LOOPBACK)
        with wired_with(settings=parts, ledger=ledger, http=http):
            yield ledger


class Slow:
    """An API that counts who is in it at a time, and lets none go before `LIMIT` are."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0
        self._full = threading.Event()
        self.peak = 0

    def __call__(self, _asked: ReceivedRequest) -> Reply:
        with self._lock:
            self._inside += 1
            self.peak = max(self.peak, self._inside)
            if self._inside >= LIMIT:
                self._full.set()
        self._full.wait(30)
        time.sleep(0.02)  # it is slow, so that one more would be met in it
        with self._lock:
            self._inside -= 1
        return Reply(200, b'{"rows": 3}')


def queue_at(url: str) -> str:
    return f"query:{urlsplit(url).netloc}"


def drain(queue: str) -> None:
    PROCESS.app().drainer.drain([Shard(queue)], ample)


def test_a_crowd_with_the_same_query_is_one_call(ledger: Ledger) -> None:
    with slow_at_first() as (api, server), ThreadPoolExecutor(CROWD) as crowd:
        asked = [crowd.submit(Client.from_env().query, url=server.url, **ALWAYS) for _ in range(CROWD)]
        assert api.asked.wait(30)
        until(lambda: sum(one.done() for one in asked) == CROWD - 1)
        api.go_on.set()
        told = Counter(one.result().status for one in asked)
        again = Client.from_env().query(url=server.url, **ALWAYS)
    assert told == {QueryState.DONE: 1, QueryState.PROCESSING: CROWD - 1}
    assert (again.status, again.known and again.known.data) == (QueryState.DONE, {})
    assert len(server.asked) == 1
    assert ledger.stats(Shard(queue_at(server.url)))[:4] == (0, 0, 1, 0)


def test_no_more_than_so_many_are_in_a_host_at_a_time_by_requests_and_drains_together(ledger: Ledger) -> None:
    api = Slow()
    with answering(api) as server, ThreadPoolExecutor(CROWD + 2) as crowd:
        queue, client = queue_at(server.url), Client.from_env()
        asked = [crowd.submit(client.query, url=f"{server.url}/{n}", **ALWAYS) for n in range(CROWD)]
        ids = [one.result().id for one in asked]
        while any(client.get_query(id).status is QueryState.PROCESSING for id in ids):
            list(crowd.map(drain, [queue] * 2))
        assert [client.get_query(id).known for id in ids].count(None) == 0
    assert len(server.asked) == CROWD
    assert api.peak == LIMIT
    assert ledger.settings_of([queue])[0].max_running == LIMIT


def test_a_request_killed_at_its_call_leaves_the_query_to_be_polled_on(
    ledger: Ledger, redis_server: RedisServer
) -> None:
    with slow_at_first() as (api, server):
        queue = queue_at(server.url)
        ledger.configure(queue, {"lease_ms": 1_000})
        settings = {"DUECOURSE_STORE": redis_server.url, "DUECOURSE_EGRESS_ALLOW": LOOPBACK}
        process = subprocess.Popen([sys.executable, "-c", ASK, server.url], env={**os.environ, **settings})
        try:
            assert api.asked.wait(30)
        finally:
            process.kill()
            process.wait()
        client = Client.from_env()
        seen = client.query(url=server.url, **ALWAYS)
        assert seen.status is QueryState.PROCESSING
        until(lambda: drain(queue) or client.get_query(seen.id).status is QueryState.DONE)
        api.go_on.set()
    task = ledger.get(queue, seen.id)
    assert task is not None
    assert [run.outcome for run in task.history] == ["lapsed", "done"]
    assert len(server.asked) == 2
