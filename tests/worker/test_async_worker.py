"""Async handlers in processes of a worker: how many at a time, in what memory, stopped, killed and cut off."""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from duecourse.ledger.connect import connect
from duecourse.ledger.operations.ledger import Ledger
from duecourse.ledger.task import NewTask, RetryPolicy, Run, Status, Task
from duecourse.running.event_loop import ASYNC_PARALLEL
from duecourse.running.leases import LeaseState
from duecourse.running.run import STOPPED
from tests.support.redis_server import FLOOR, RedisServer, need
from tests.support.wait import until
from tests.support.workers import board_of, working

pytestmark = pytest.mark.slow

MODULE = "async_kinds"
MOST_KIB = 120 * 1_024


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    with RedisServer(need(FLOOR)) as server:
        yield server


@pytest.fixture
def ledger(server: RedisServer) -> Iterator[Ledger]:
    with connect(server.url) as client, server.client() as plain:
        plain.flushall()
        yield Ledger(client)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "worker.log"


def got(ledger: Ledger, id: str) -> Task:
    task = ledger.get("default", id)
    assert task
    return task


def ended(ledger: Ledger, id: str) -> Task:
    """The task, once it is done or dead."""
    until(lambda: got(ledger, id).status in {Status.DONE, Status.DEAD}, every=0.02, seconds=90)
    return got(ledger, id)


def counted(server: RedisServer, *names: str) -> None:
    """Wait until handlers have counted these."""
    with server.client() as client:
        until(lambda: all(client.hexists("ran", name) for name in names), every=0.02, seconds=90)


def open_gate(server: RedisServer, id: str) -> None:
    with server.client() as client:
        client.lpush(f"gate-{id}", 1)


def gated(id: str, **fields: Any) -> NewTask:
    return NewTask(id, **{"kind": "work", "payload": f'{{"gate":"gate-{id}"}}'} | fields)


def test_a_thousand_tasks_that_await_are_done_a_hundred_at_a_time_in_little_memory(
    ledger: Ledger, server: RedisServer, log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = [f"t{n}" for n in range(1_000)]
    with working(server.url, log=log, module=MODULE) as worker:
        began = time.monotonic()
        ledger.add([NewTask(name, "brief") for name in names])
        until(lambda: got(ledger, names[-1]).status is Status.DONE, every=0.02, seconds=90)
        tasks = [ended(ledger, name) for name in names]
        took_s = time.monotonic() - began
        [process] = worker.children()
        threads = len(list(Path(f"/proc/{process}/task").iterdir()))
    assert {task.status for task in tasks} == {Status.DONE}
    together = max(task.result["together"] for task in tasks)
    peak = max(task.result["peak"] for task in tasks)
    with capsys.disabled():
        print(f"\n1,000 tasks in {took_s:.2f} s, {together} at a time, {peak / 1_024:.0f} MiB, {threads} threads")
    assert together == ASYNC_PARALLEL
    assert peak < MOST_KIB
    assert threads < ASYNC_PARALLEL / 2


def test_a_stop_cancels_what_awaits_and_gives_it_back(ledger: Ledger, server: RedisServer, log: Path) -> None:
    with working(server.url, "--grace", "PT1S", log=log, module=MODULE) as worker:
        ledger.add([NewTask("w", "watch"), NewTask("s", "stubborn")])
        counted(server, "w:1", "s:1")
        worker.term()
        assert worker.process.wait(60) == 0
    counted(server, "w:1:cancelled", "s:1:cancelled")
    for id in ("w", "s"):
        task = got(ledger, id)
        assert (task.status, task.attempt) == (Status.SCHEDULED, 1), "no attempt is spent"
        assert [run.detail for run in task.log if isinstance(run, Run)] == [STOPPED]
    assert "1 tasks run still" in log.read_text()


def test_a_stop_lets_what_awaits_finish_within_the_grace_time(ledger: Ledger, server: RedisServer, log: Path) -> None:
    with working(server.url, "--grace", "PT10M", log=log, module=MODULE) as worker:
        ledger.add([gated("long")])
        counted(server, "long:1")
        worker.term()
        until(lambda: "stopping" in log.read_text(), every=0.02)
        open_gate(server, "long")
        assert ended(ledger, "long").result["remaining"] <= 600
        assert worker.process.wait(60) == 0


def test_what_awaits_is_on_the_board(ledger: Ledger, server: RedisServer, log: Path) -> None:
    with working(server.url, log=log, module=MODULE) as worker:
        ledger.add([gated("a"), gated("b")])
        counted(server, "a:1", "b:1")
        [process] = worker.children()
        board = board_of(process)
        assert {one.id: one.state for one in board.held()} == {"a": LeaseState.RUNS, "b": LeaseState.RUNS}
        board.close()
        for id in ("a", "b"):
            open_gate(server, id)
            ended(ledger, id)


@pytest.mark.parametrize("apart", [False, True])
def test_a_handler_whose_task_is_cancelled_by_force_is_cancelled(
    ledger: Ledger, server: RedisServer, log: Path, apart: bool
) -> None:
    with working(server.url, log=log, module=MODULE) as worker:
        ledger.add([NewTask("w", "watch", retry=RetryPolicy(backoff_ms=100))])
        counted(server, "w:1")
        if apart:  # the next run is in a process of its own
            os.kill(worker.children()[0], signal.SIGKILL)
            counted(server, "w:2")
        ledger.cancel("default", ["w"], force=True)
        counted(server, "w:2:cancelled" if apart else "w:1:cancelled")


def test_a_task_that_kills_its_process_dies_of_it_alone_and_its_neighbour_is_done_at_one_attempt(
    ledger: Ledger, server: RedisServer, log: Path
) -> None:
    once = RetryPolicy(max_attempts=1, backoff_ms=100, jitter=False)
    with working(server.url, log=log, module=MODULE):
        ledger.add([gated("a", retry=once)])
        ledger.add([NewTask("killer", "work", payload='{"gate":"gate-killer","kill":true}', retry=once)])
        counted(server, "a:1", "killer:1")
        for _ in range(2):
            open_gate(server, "killer")
        killer = ended(ledger, "killer")
        assert (killer.status, killer.error) == (Status.DEAD, "its process died while it ran: signal 9")
        counted(server, "a:2")
        open_gate(server, "a")
        task = ended(ledger, "a")
        assert (task.status, task.attempt) == (Status.DONE, 1)


def test_what_runs_apart_is_cancelled_by_a_stop_and_given_back(ledger: Ledger, server: RedisServer, log: Path) -> None:
    with working(server.url, "--grace", "PT5S", log=log, module=MODULE) as worker:
        ledger.add([NewTask("w", "watch", retry=RetryPolicy(backoff_ms=100))])
        counted(server, "w:1")
        os.kill(worker.children()[0], signal.SIGKILL)
        counted(server, "w:2")
        worker.term()
        assert worker.process.wait(60) == 0
    counted(server, "w:2:cancelled")
    task = got(ledger, "w")
    assert (task.status, task.attempt) == (Status.SCHEDULED, 2)
