"""A function that is killed between the work of a request and its answer, through the whole stack."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import redis
import urllib3

from duecourse_local.harness.options import Options
from duecourse_local.harness.stack import Stack
from tests.support.api import Api
from tests.support.emulator import local_stack
from tests.support.http_server import ReceivedRequest, answering
from tests.support.matrix import MATRIX
from tests.support.slow_receiver import DONE
from tests.support.wait import until

FUNCTION = "EnqueueHttpFunction"
TRIES, ENOUGH = 60, 3
"""Schedules that are tried until so many were cut off: the function may be quicker than the kill."""
LONGEST_S = 40.0
"""Time for which a request that died is held, and some."""


@contextmanager
def killed_at_the_write(stack: Stack, queue: str) -> Iterator[None]:
    """Have the function die as soon as the server has its task: by then it has not kept its answer."""
    ready = threading.Event()
    with redis.Redis.from_url(stack.store) as client, client.monitor() as monitor:

        def watch() -> None:
            ready.set()
            for found in monitor.listen():
                words = found["command"]
                if words == "PING end":
                    return
                if found["client_type"] == "lua" and words.startswith("ZADD") and f"{{{queue}/0}}:due" in words:
                    for pid in stack.pids()["functions"].get(FUNCTION, ()):
                        os.kill(pid, signal.SIGKILL)
                    return

        watching = threading.Thread(target=watch)
        watching.start()
        ready.wait()
        try:
            yield
        finally:
            with redis.Redis.from_url(stack.store) as other:
                other.execute_command("PING", "end")
            watching.join()


@MATRIX
def test_a_schedule_whose_function_is_killed_runs_once_by_one_key(http: urllib3.PoolManager) -> None:
    """`run` made an occurrence at each try: the webhook of each was sent, under another id."""
    with answering(lambda _: DONE) as server, local_stack(Options(tick=1)) as stack:
        api, cut = Api(http, stack.api), []
        for number in range(TRIES):
            body = {
                "id": f"s{number}",
                "queue": "killed",
                "kind": "webhook",
                "payload": {"url": f"{server.url}/s{number}"},
                "repeat": {"every": "PT1H"},
                "starts_at": "2100-01-01T00:00:00Z",
            }
            assert api.call("POST", "/schedules", body)[0] == 201
            with killed_at_the_write(stack, "killed"):
                if run(http, stack, number) >= 500:
                    cut.append(number)
            if len(cut) == ENOUGH:
                break
        assert cut, "the function was never quicker than the kill"
        for number in cut:
            until(partial(is_run, http, stack, number), seconds=LONGEST_S, every=0.5)
        for number in cut:
            until(partial(webhooks, server.asked, number))
        stack.tick()
        assert [len(webhooks(server.asked, number)) for number in cut] == [1] * len(cut)


def run(http: urllib3.PoolManager, stack: Stack, number: int) -> int:
    headers = {"Idempotency-Key": f'"key-{number}"'}
    return http.request("POST", f"{stack.api}/schedules/s{number}/run?queue=killed", headers=headers).status


def is_run(http: urllib3.PoolManager, stack: Stack, number: int) -> bool:
    return run(http, stack, number) == 201


def webhooks(asked: list[ReceivedRequest], number: int) -> set[str]:
    """Ids of the webhooks of a schedule: a second delivery of one has the same."""
    return {one.headers["webhook-id"] for one in asked if one.path == f"/s{number}"}
