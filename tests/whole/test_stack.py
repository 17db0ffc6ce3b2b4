"""The whole stack by its HTTP API: what a user sees when a part of it is frozen, killed or away."""

import os
import signal
from pathlib import Path
from typing import Any

import redis
import urllib3

from duecourse_local.harness.options import Options
from tests.support.api import Api
from tests.support.commands import up
from tests.support.emulator import local_stack
from tests.support.http_server import answering
from tests.support.matrix import MATRIX
from tests.support.slow_receiver import DONE, outcomes
from tests.support.wait import until


@MATRIX
def test_a_frozen_process_whose_redis_socket_died_serves_the_next_request(http: urllib3.PoolManager) -> None:
    with local_stack(Options(tick=0, freeze=True)) as stack, redis.Redis.from_url(stack.store) as client:
        api = Api(http, stack.api)
        assert api.call("GET", "/health")[0] == 200
        for number in range(3):
            client.client_kill_filter(_type="normal", skipme=True)
            assert api.add_webhook(f"after-{number}", "http://127.0.0.1:1/", delay=60) == 201


def test_redis_away_is_503_with_retry_after_and_then_all_goes_on(http: urllib3.PoolManager, tmp_path: Path) -> None:
    with answering(lambda _: DONE) as server, local_stack(Options(tick=1, state=tmp_path)) as stack:
        api = Api(http, stack.api)
        assert api.add_webhook("before", server.url, delay=3600) == 201
        os.kill(stack.pids()["redis"], signal.SIGSTOP)
        try:
            answer = http.request("GET", stack.api + "/tasks/before")
        finally:
            os.kill(stack.pids()["redis"], signal.SIGCONT)
        assert (answer.status, answer.headers["retry-after"]) == (503, "1")
        assert answer.headers["content-type"] == "application/problem+json"
        until(lambda: api.call("PATCH", "/tasks/before", {"delay": 0})[0] == 200)
        api.done("before")


@MATRIX
def test_up_goes_on_where_it_was_killed(http: urllib3.PoolManager, tmp_path: Path) -> None:
    with answering(lambda _: DONE) as server:
        with up(tmp_path / "state") as (process, addresses):
            api = Api(http, addresses["api"])
            assert api.add_webhook("survivor", server.url, delay=2) == 201
            until(lambda: _persisted(addresses))
            process.kill()
        with up(tmp_path / "state") as (_, addresses):
            task = Api(http, addresses["api"]).done("survivor")
    assert outcomes(task) == ["done"]


def _persisted(addresses: dict[str, Any]) -> bool:
    """Whether what was answered is on disk: the file is synced each second."""
    with redis.Redis.from_url(addresses["store"]) as client:
        persistence = client.info("persistence")
    return persistence["aof_pending_bio_fsync"] == 0 and persistence["aof_buffer_length"] == 0


def test_requests_that_no_route_takes_get_problem_documents(http: urllib3.PoolManager) -> None:
    with local_stack(Options(tick=0, store="memory://")) as stack:
        typed = {"content-type": "text/plain"}
        unknown = http.request("POST", stack.api + "/task", body=b"a=1", headers=typed)
        assert (unknown.status, unknown.headers["content-type"]) == (404, "application/problem+json")
        assert unknown.json()["detail"] == "Nothing answers to POST /task: did you mean /tasks?"
        wrong = http.request("PUT", stack.api + "/tasks", body=b"a=1", headers=typed)
        assert (wrong.status, wrong.headers["allow"]) == (405, "GET, HEAD, OPTIONS, POST")
        asked = http.request("OPTIONS", stack.api + "/tasks")
        assert (asked.status, asked.headers["allow"], asked.data) == (204, "GET, HEAD, OPTIONS, POST", b"")


def test_head_has_the_headers_of_get_and_no_body(http: urllib3.PoolManager) -> None:
    with local_stack(Options(tick=0, store="memory://")) as stack:
        for path in ("/tasks", "/docs", "/health", "/nothing"):
            got, head = (http.request(method, stack.api + path) for method in ("GET", "HEAD"))
            assert (head.status, head.data) == (got.status, b"")
            assert head.headers["content-type"] == got.headers["content-type"]
            if got.status == 200:
                assert int(head.headers["content-length"]) == len(got.data)
