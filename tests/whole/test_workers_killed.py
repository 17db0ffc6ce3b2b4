"""A worker that is suspended or killed in the middle of a task, in the whole stack, whoever serves the rings."""

import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import psutil
import pytest
import urllib3

from duecourse_local.harness.options import Options, Precision
from duecourse_local.harness.stack import Stack
from tests.support.api import Api
from tests.support.emulator import local_stack
from tests.support.http_server import Server
from tests.support.matrix import in_turn
from tests.support.slow_receiver import SHORT_LEASE, outcomes, slow_at_first
from tests.support.wait import until


@pytest.fixture(scope="module", params=in_turn(Precision.LINGER, Precision.BRIDGE))
def stack(request: pytest.FixtureRequest) -> Iterator[Stack]:
    with local_stack(Options(tick=2, precision=request.param, environment=SHORT_LEASE)) as stack:
        assert (stack.pids()["bridge"] is None) == (request.param is Precision.LINGER)
        yield stack


def worker(stack: Stack, server: Server) -> int:
    """The function's process that is asking the server something."""
    port = urllib3.util.parse_url(server.url).port
    pids = [pid for function in stack.pids()["functions"].values() for pid in function]
    [asking] = [pid for pid in pids for c in psutil.Process(pid).net_connections() if c.raddr and c.raddr.port == port]
    return asking


@pytest.mark.parametrize("how", in_turn(signal.SIGSTOP, signal.SIGKILL), ids=["suspended", "killed"])
def test_its_task_goes_to_the_next_run_and_its_late_settle_changes_nothing(
    http: urllib3.PoolManager, stack: Stack, how: signal.Signals
) -> None:
    with slow_at_first() as (receiver, server):
        api, id = Api(http, stack.api), how.name
        assert api.add_webhook(id, server.url) == 201
        assert receiver.asked.wait(30)
        first = worker(stack, server)
        os.kill(first, how)
        try:
            task: Any = api.done(id)
        finally:
            with suppress(ProcessLookupError):
                os.kill(first, signal.SIGCONT)
        receiver.go_on.set()
        assert (task["run"], outcomes(task)) == (2, ["lapsed", "done"])
        after = f"{id}-after"
        until(lambda: api.add_webhook(after, server.url) == 201 and api.done(after))
        assert api.task(id) == task
