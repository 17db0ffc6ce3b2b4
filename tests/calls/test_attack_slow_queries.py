"""Slow queries of a hostile tenant beside a victim's requests: over HTTP, on a stack with its bridge."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

import pytest
import urllib3

from duecourse_local.harness.options import Options
from duecourse_local.harness.stack import Stack
from tests.support.emulator import local_stack
from tests.support.http_server import ReceivedRequest, Reply, Server, answering
from tests.support.matrix import MATRIX
from tests.support.requests import WEBHOOK
from tests.support.wait import until

MOST = 3
"""Requests of a tenant that wait for a query at a time: the harness runs four executions of a function."""
HOSTS = 8
CALLS = 4
"""Calls to one host at a time, by default."""


class Slow:
    """A host that holds each call for `/slow` until it may answer; it counts them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.may = threading.Event()
        self.now = 0

    def __call__(self, asked: ReceivedRequest) -> Reply:
        if asked.path.startswith("/slow"):
            with self._lock:
                self.now += 1
            assert self.may.wait(60)
            with self._lock:
                self.now -= 1
        return Reply(200, b"{}")


class Scene(NamedTuple):
    """A stack, and threads for requests that wait."""

    stack: Stack
    http: urllib3.PoolManager
    threads: ThreadPoolExecutor

    def ask(self, tenant: str, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        answer = self.http.request(method, self.stack.api + path, json=body, headers={"X-Tenant": tenant})
        return answer.status, answer.json()

    def query(self, tenant: str, url: str) -> tuple[int, Any]:
        body = {"url": url, "interval": "PT1S", "until": "`true`", "timeout": 20}
        return self.ask(tenant, "POST", "/queries", body)

    def until_done(self, id: str) -> None:
        until(lambda: self.ask("hostile", "GET", f"/queries/{id}")[1]["status"] == "done", every=0.05)

    def queries(self, tenant: str, urls: list[str]) -> list[Future[tuple[int, Any]]]:
        return [self.threads.submit(self.query, tenant, url) for url in urls]


@pytest.fixture(scope="module")
def scene() -> Iterator[Scene]:
    environment = {"DUECOURSE_TENANT_MAX_QUERIES": str(MOST)}
    with (
        local_stack(Options(tick=0, environment=environment)) as stack,
        urllib3.PoolManager(retries=False, timeout=60, maxsize=2 * HOSTS) as http,
        ThreadPoolExecutor(HOSTS) as threads,
    ):
        yield Scene(stack, http, threads)


@contextmanager
def hosts(slow: Callable[[ReceivedRequest], Reply], count: int) -> Iterator[list[Server]]:
    """So many hosts, each with a queue of its own."""
    with ExitStack() as held:
        yield [held.enter_context(answering(slow)) for _ in range(count)]


def answered(asked: list[Future[tuple[int, Any]]]) -> list[int]:
    return [one.result()[0] for one in asked if one.done()]


@MATRIX
def test_slow_queries_of_one_tenant_to_many_hosts_hold_few_executions_and_none_is_lost(scene: Scene) -> None:
    """One caller with a wildcard record held every execution of the HTTP function for 11 s each."""
    slow = Slow()
    with hosts(slow, HOSTS) as servers:
        try:
            first = scene.queries("hostile", [server.url + "/slow" for server in servers[:MOST]])
            until(lambda: slow.now == MOST)
            beyond = [scene.query("hostile", server.url + "/slow") for server in servers[MOST:]]
            assert [status for status, _ in beyond] == [202] * (HOSTS - MOST)
            assert answered(first) == [], "nobody waited for the slow calls"
            assert scene.ask("victim", "POST", "/tasks", WEBHOOK)[0] == 201
            assert scene.query("victim", servers[0].url + "/quick")[0] == 200
        finally:
            slow.may.set()
        assert [one.result()[0] for one in first] == [200] * MOST
        for _, body in beyond:
            scene.until_done(body["task"])
        assert scene.query("hostile", servers[0].url + "/quick-now")[0] == 200, "those that have answered count no more"


def test_slow_queries_of_one_tenant_leave_a_call_at_their_host_for_another_tenants(scene: Scene) -> None:
    """Four held all calls to a host, by requests and drains together: another tenant's query waited for 20 s."""
    slow = Slow()
    with hosts(slow, 1) as [server]:
        try:
            first = scene.queries("hostile", [f"{server.url}/slow/{n}" for n in range(MOST)])
            until(lambda: slow.now == MOST)
            status, last = scene.query("hostile", f"{server.url}/slow/{MOST}")
            assert status == 202

            def throttled() -> bool:
                found = scene.ask("hostile", "GET", f"/tasks/{last['task']}/why?queue={last['queue']}")[1]
                return slow.now == CALLS or "tenant_max_running" in str(found)

            until(throttled)
            assert scene.query("victim", server.url + "/quick")[0] == 200
            assert answered(first) == []
        finally:
            slow.may.set()
        scene.until_done(last["task"])
