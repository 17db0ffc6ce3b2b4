"""`duecourse worker`: the same work in processes of one's own, with no Lambda, stopped, killed and cut off."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest

from duecourse.app import App
from duecourse.errors import StoreMisused
from duecourse.ledger.connect import connect
from duecourse.ledger.keys import keys_of
from duecourse.ledger.layout import AHEAD
from duecourse.ledger.many_tasks import TaskFilter
from duecourse.ledger.operation_types import Move
from duecourse.ledger.operations.ledger import Ledger
from duecourse.ledger.task import NewTask, RetryPolicy, Run, Shard, Status, Task
from duecourse.running.event_loop import ASYNC_PARALLEL
from duecourse.running.leases import LeaseState
from duecourse.settings import Settings
from duecourse.task_handlers import task_handler
from duecourse.worker.child import size_of
from tests.support import redis_ledger
from tests.support.http_server import Reply, answering
from tests.support.matrix import LENGTHY, MATRIX, in_turn
from tests.support.redis_server import FLOOR, RedisServer, need
from tests.support.wait import until
from tests.support.workers import HANDLERS, board_of, command, environment, working

pytestmark = pytest.mark.slow


@pytest.fixture
def server() -> Iterator[RedisServer]:
    """A server that a test may stop and start: what it was told is on its disk."""
    with RedisServer(need(FLOOR), "--appendonly", "yes", "--appendfsync", "always") as server:
        yield server


@pytest.fixture
def ledger(server: RedisServer) -> Iterator[Ledger]:
    with connect(server.url) as client:
        yield Ledger(client)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "worker.log"


def work(id: str, **fields: Any) -> NewTask:
    return NewTask(id, **{"kind": "work"} | fields)


def gated(id: str, **fields: Any) -> NewTask:
    return work(id, payload=f'{{"gate":"gate-{id}"}}', **fields)


def got(ledger: Ledger, id: str, queue: str = "default") -> Task:
    task = ledger.get(queue, id)
    assert task
    return task


def ended(ledger: Ledger, id: str, queue: str = "default") -> Task:
    """The task, once it is done or dead."""
    until(lambda: got(ledger, id, queue).status in {Status.DONE, Status.DEAD}, every=0.02, seconds=90)
    return got(ledger, id, queue)


def ran(server: RedisServer) -> dict[str, int]:
    with server.client() as client:
        found: Any = client.hgetall("ran")
    return {name.decode(): int(count) for name, count in found.items()}


def runs_of(server: RedisServer, id: str) -> int:
    """Number of times that a handler began this task."""
    return sum(count for name, count in ran(server).items() if name.startswith(f"{id}:"))


def begun(server: RedisServer, *runs: str) -> None:
    until(lambda: set(runs) <= set(ran(server)), every=0.02, seconds=90)


def open_gate(server: RedisServer, id: str) -> None:
    with server.client() as client:
        client.lpush(f"gate-{id}", 1)


def test_tasks_run_at_their_time_in_a_process_of_the_worker(ledger: Ledger, server: RedisServer, log: Path) -> None:
    with working(server.url, "--processes", "2", log=log) as worker:
        ledger.add([work("now"), work("soon", delay_ms=400)])
        now, soon = ended(ledger, "now"), ended(ledger, "soon")
        assert {now.result["by"], soon.result["by"]} <= set(worker.children())
        assert [run.outcome for run in (*now.history, *soon.history)] == ["done", "done"]
        assert soon.history[0].claimed_at >= soon.due_at
        assert now.result["remaining"] == 1e9
        deployed = ledger.deployments().read()  # so that clients may add the kinds
        assert {"work", "alone"} <= set(deployed.kinds) & set(deployed.handed)
    assert ran(server) == {"now:1": 1, "soon:1": 1}


def test_no_boto3_typer_or_pydantic_is_needed_and_built_in_kinds_run_too(
    ledger: Ledger, server: RedisServer, log: Path, tmp_path: Path
) -> None:
    for absent in ("boto3", "botocore", "typer", "pydantic", "aws_lambda_powertools", "pika"):
        (tmp_path / f"{absent}.py").write_text(f"raise ModuleNotFoundError('no {absent} here', name='{absent}')")
    with (
        answering(lambda _asked: Reply()) as web,
        working(server.url, log=log, path=str(tmp_path), EGRESS_ALLOW="127.0.0.1"),
    ):
        ledger.add([work("own"), work("call", kind="webhook", payload=f'{{"url":"{web.url}","body":{{}}}}')])
        assert ended(ledger, "own").status == Status.DONE
        assert ended(ledger, "call").status == Status.DONE, got(ledger, "call").error
    assert len(web.asked) == 1


def test_a_stop_gives_back_what_has_not_begun_and_finishes_what_runs(
    ledger: Ledger, server: RedisServer, log: Path
) -> None:
    with working(server.url, "--concurrency", "1", "--grace", "PT10M", log=log) as first:
        ledger.add([gated("long"), work("next")])
        begun(server, "long:1")
        first.term()
        with working(server.url, "--concurrency", "1", log=log) as second:
            assert ended(ledger, "next").result["by"] in second.children()
            assert got(ledger, "long").status == Status.LEASED
            open_gate(server, "long")
            assert first.process.wait(60) == 0
            assert (ended(ledger, "long").run, ran(server)) == (1, {"long:1": 1, "next:1": 1})


def test_signals_to_each_of_its_processes_stop_it_once(ledger: Ledger, server: RedisServer, log: Path) -> None:
    with working(server.url, "--processes", "2", "--grace", "PT10M", log=log) as worker:
        ledger.add([gated("long")])
        begun(server, "long:1")
        children = worker.children()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGTERM):
            for pid in children:
                os.kill(pid, number)
        worker.term()
        until(lambda: log.read_text().count("stopping") == 2, every=0.02)
        open_gate(server, "long")
        assert worker.process.wait(60) == 0
    assert (got(ledger, "long").status, ran(server)) == (Status.DONE, {"long:1": 1})


def test_what_runs_beyond_the_grace_time_is_tried_again_elsewhere_at_once(
    ledger: Ledger, server: RedisServer, log: Path
) -> None:
    with working(server.url, "--grace", "PT0.5S", log=log) as first:
        ledger.add([gated("stuck")])
        begun(server, "stuck:1")
        first.term()
        assert first.process.wait(60) == 0
        task = got(ledger, "stuck")
        last = task.log[-1]
        assert isinstance(last, Run)
        assert (task.status, task.attempt, task.error) == (Status.SCHEDULED, 1, ""), "no attempt is spent"
        assert (last.outcome, last.detail) == ("release", "the worker was stopped before the handler returned")
        with working(server.url, log=log):
            begun(server, "stuck:2")
            open_gate(server, "stuck")
            assert ended(ledger, "stuck").status == Status.DONE


def test_a_lease_is_kept_while_the_handler_runs_however_short_its_queue_makes_it(
    ledger: Ledger, server: RedisServer, log: Path
) -> None:
    ledger.configure("default", {"lease_ms": 1_000})
    with working(server.url, log=log):
        ledger.add([gated("long")])
        begun(server, "long:1")
        until(lambda: got(ledger, "long").lease_expires_at > ledger.now() + 5_000, every=0.02)
        open_gate(server, "long")
        assert (ended(ledger, "long").run, ran(server)) == (1, {"long:1": 1})


def test_a_handler_sees_the_grace_time_run_out(ledger: Ledger, server: RedisServer, log: Path) -> None:
    with working(server.url, "--grace", "PT10M", log=log) as worker:
        ledger.add([gated("long")])
        begun(server, "long:1")
        worker.term()
        until(lambda: "stopping" in log.read_text(), every=0.02)
        open_gate(server, "long")
        assert ended(ledger, "long").result["remaining"] <= 600


def test_for_a_process_that_is_killed_another_is_started_and_its_task_runs_elsewhere(
    ledger: Ledger, server: RedisServer, log: Path
) -> None:
    with working(server.url, "--processes", "2", log=log) as worker:
        ledger.add([gated("held")])
        begun(server, "held:1")
        before = worker.children()
        for pid in before:  # whichever has it
            os.kill(pid, signal.SIGKILL)
        until(lambda: len(after := worker.children()) == 2 and not set(after) & set(before), every=0.05)
        open_gate(server, "held")
        task = ended(ledger, "held")
        assert (task.status, [run.outcome for run in task.history]) == (Status.DONE, ["retry", "done"])
        assert task.result["by"] not in before
        killed, other = worker.children()
        os.kill(killed, signal.SIGKILL)
        until(lambda: len(after := worker.children()) == 2 and killed not in after, every=0.05)
        assert other in worker.children(), "it is replaced beside the one that lives"


def test_a_task_that_kills_its_process_dies_of_it_alone_and_its_neighbours_are_done_at_one_attempt(
    ledger: Ledger, server: RedisServer, log: Path
) -> None:
    neighbours = ("a", "b", "c")
    twice = RetryPolicy(max_attempts=2, backoff_ms=100, jitter=False)
    with working(server.url, log=log, module="beside") as worker:
        ledger.add([gated(id, retry=replace(twice, max_attempts=1)) for id in neighbours])
        ledger.add([work("killer", payload='{"gate":"gate-killer","kill":true}', retry=twice)])
        begun(server, *(f"{id}:1" for id in (*neighbours, "killer")))
        for _ in range(3):
            open_gate(server, "killer")
        killer = ended(ledger, "killer")
        assert (killer.status, killer.attempt) == (Status.DEAD, 2)
        assert runs_of(server, "killer") == 3, "one beside others, two alone"
        assert killer.error == "its process died while it ran: signal 9"
        until(lambda: all(runs_of(server, id) == 2 for id in neighbours), every=0.02, seconds=90)
        [process] = worker.children()
        for id in neighbours:
            open_gate(server, id)
        done = [ended(ledger, id) for id in neighbours]
        assert [(task.status, task.attempt) for task in done] == [(Status.DONE, 1)] * 3
        by = {task.result["by"] for task in done}
        assert len(by) == 3, "each in a process of its own"
        assert process not in by
        assert worker.children() == [process], "nothing there has died since"
        ledger.add([work("next")])
        assert ended(ledger, "next").result["by"] == process


def test_what_runs_apart_is_given_back_by_a_stop_and_its_process_ends(
    ledger: Ledger, server: RedisServer, log: Path
) -> None:
    with working(server.url, "--grace", "PT0.5S", log=log, module="beside") as worker:
        ledger.add([gated("held")])
        begun(server, "held:1")
        os.kill(worker.children()[0], signal.SIGKILL)
        until(lambda: runs_of(server, "held") == 2, every=0.02, seconds=90)
        worker.term()
        assert worker.process.wait(60) == 0
        task = got(ledger, "held")
        assert (task.status, task.attempt) == (Status.SCHEDULED, 2)
        with server.client() as client:
            until(lambda: not any(each["flags"] == "b" for each in client.client_list()), seconds=30)


REAPER = "import ctypes, os, sys; ctypes.CDLL(None).prctl(36, 1, 0, 0, 0); os.execv(sys.argv[1], sys.argv[1:])"
"""Makes a process the parent of all orphans below it (PR_SET_CHILD_SUBREAPER), as the first one of a container is."""


@pytest.mark.skipif(sys.platform != "linux", reason="the parent of orphans is set by prctl")
def test_a_worker_that_gets_the_orphans_of_its_container_reaps_them(
    ledger: Ledger, server: RedisServer, log: Path
) -> None:
    launcher = [sys.executable, "-c", REAPER]
    with working(server.url, log=log, module="beside", launcher=launcher) as worker:
        ledger.add([NewTask(f"o{n}", "orphan") for n in range(5)])
        left = {ended(ledger, f"o{n}").result["left"] for n in range(5)}
        until(lambda: set(worker.children()) & left == set() and not any(Path(f"/proc/{pid}").exists() for pid in left))
        os.kill(worker.children()[0], signal.SIGKILL)
        ledger.add([NewTask("next", "orphan")])
        pid = ended(ledger, "next").result["left"]
        until(lambda: not Path(f"/proc/{pid}").exists())


@pytest.mark.parametrize("apart", [False, True])
def test_a_handler_in_a_worker_learns_that_its_task_was_cancelled_by_force(
    ledger: Ledger, server: RedisServer, log: Path, apart: bool
) -> None:
    with working(server.url, log=log, module="extends_often") as worker:
        ledger.add([NewTask("w", "watch", retry=RetryPolicy(backoff_ms=100))])
        begun(server, "w:1")
        if apart:  # the next run is in a process of its own
            os.kill(worker.children()[0], signal.SIGKILL)
            begun(server, "w:2")
        ledger.cancel("default", ["w"], force=True)
        begun(server, "w:2:lost" if apart else "w:1:lost")


@pytest.mark.parametrize("fault", ["a permission that is gone", "a foreign value under a key"])
def test_a_rejected_command_costs_a_queue_some_seconds_and_no_outcome(
    ledger: Ledger, server: RedisServer, log: Path, fault: str
) -> None:
    key = "duecourse:{default/0}:ring" if "foreign" in fault else ""
    with server.client() as client:
        client.execute_command("ACL", "SETUSER", "worker", "on", ">pw", "~*", "&*", "+@all")
        url = server.url.replace("://", "://worker:pw@")
        with working(url, "--health-port", "0", log=log, module="beside") as worker:
            ledger.add([gated("held", retry=RetryPolicy(max_attempts=1)), work("other", queue="other")])
            begun(server, "held:1")
            ended(ledger, "other", "other")
            if key:
                ledger.add([work("due", delay_ms=200)])
                client.delete(key)
                client.set(key, "x")
            else:
                client.execute_command("ACL", "SETUSER", "worker", "-evalsha")
                ledger.add([work("due")])
            until(lambda: worker.health("/ready")[1]["left_out"] == 1, every=0.1)
            open_gate(server, "held")
            if key:
                client.delete(key)
            else:
                client.execute_command("ACL", "SETUSER", "worker", "+evalsha")
            assert ended(ledger, "held").status == Status.DONE
            assert ended(ledger, "due").status == Status.DONE
            until(lambda: worker.health("/ready")[1]["left_out"] == 0, every=0.1)


def test_a_right_that_is_missing_for_two_seconds_leaves_no_task_late_and_none_in_two_places(
    ledger: Ledger, server: RedisServer, log: Path
) -> None:
    """Changes that were half made are put right by sweeps, which any process asks for that met a rejection."""
    with server.client() as operator:
        operator.execute_command("ACL", "SETUSER", "limited", "on", ">pw", "~*", "&*", "+@all")
        url = server.url.replace("://", "://limited:pw@")
        with working(url, log=log), connect(url) as client:
            limited = Ledger(client)
            limited.add([work(f"t{n:03}", delay_ms=5 * n) for n in range(600)])
            ended(ledger, "t000")
            operator.execute_command("ACL", "SETUSER", "limited", "-hset")
            until_s = time.monotonic() + 2
            for n in cycle(range(200, 600)):
                with suppress(StoreMisused):
                    limited.cancel("default", [f"t{n:03}"])
                with suppress(StoreMisused):
                    limited.move("default", [Move(f"t{(n + 1) % 600:03}", delay_ms=500)])
                if time.monotonic() > until_s:
                    break
            operator.execute_command("ACL", "SETUSER", "limited", "+hset")
            until(lambda: limited.add([work("last")]), every=0.1)

            def is_at_rest() -> bool:
                # The worker may ask for a sweep only after one, and its own is a minute away.
                limited.sweep(Shard(), retention_ms=86_400_000)
                return ledger.stats(Shard()).scheduled + ledger.stats(Shard()).leased == 0

            until(is_at_rest, every=0.1, seconds=60)
        redis_ledger.check(operator)
    tasks = [got(ledger, f"t{n:03}") for n in range(600)]
    assert {task.status for task in tasks} == {Status.DONE}, "no cancel was accepted"


def test_tasks_that_a_killed_process_had_claimed_ahead_are_due_again_at_once_and_spend_no_attempt(
    ledger: Ledger, server: RedisServer, log: Path
) -> None:
    ids, once = {f"t{n:03}" for n in range(1_000)}, RetryPolicy(max_attempts=1)
    with working(server.url, log=log, PARALLEL="4") as worker, server.client() as client:
        [pid] = worker.children()
        ledger.add([NewTask(id, kind="slow", payload="0.02", retry=once) for id in sorted(ids)])

        def is_ahead(id: str) -> bool:
            data = client.hget(keys_of("duecourse", Shard()).tasks, f"-/{id}")
            return data is not None and data[-1:] == b"L" and data[-2] >= AHEAD

        def unbegun() -> list[str]:
            """Tasks that were claimed ahead and of which no handler has begun, of a process that is stopped."""
            os.kill(pid, signal.SIGSTOP)
            begun = {run.partition(":")[0] for run in ran(server)}
            page = ledger.page("default", TaskFilter(Status.LEASED), None, 100)
            # Of a claim whose reply it has not read, it can show its parent nothing: those leases lapse.
            shown = {one.id for one in board_of(pid).held() if one.state is LeaseState.WAITS}
            ahead = [task.id for task in page.tasks if task.id in shown - begun and is_ahead(task.id)]
            if not ahead:
                os.kill(pid, signal.SIGCONT)
            return ahead

        ahead = until(unbegun, every=0.01)
        os.kill(pid, signal.SIGKILL)
        ledger.cancel("default", sorted(ids - set(ahead)))  # those given back would come after all of them
        tasks = [ended(ledger, id) for id in ahead]
    assert [(task.status, task.attempt) for task in tasks] == [(Status.DONE, 1)] * len(ahead)
    said = log.read_text()
    assert all(f"task {id} is given back: it had not begun" in said for id in ahead), "no lease had to lapse"


def test_a_delivery_that_a_killed_process_had_not_handed_over_is_due_again_at_once(
    ledger: Ledger, server: RedisServer, log: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(30)
        endpoint = f"AWS_ENDPOINT_URL=http://127.0.0.1:{silent.getsockname()[1]}"
        account = (f"{name}=x" for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_DEFAULT_REGION"))
        launcher = ("env", endpoint, *account)
        with working(server.url, log=log, launcher=launcher, TARGETS='{"report": "lambda:report"}') as worker:
            ledger.add([NewTask("a", kind="report")])
            connection, _ = silent.accept()  # the invocation is under way, and not accepted
            with connection:
                [pid] = worker.children()
                os.kill(pid, signal.SIGKILL)
                silent.accept()[0].close()  # the next process hands it over again
            assert got(ledger, "a").attempt == 1
    assert "task a is given back: it had not begun" in log.read_text()


@MATRIX
def test_the_task_of_a_machine_that_died_runs_again_when_its_lease_lapses_within_30_s(
    ledger: Ledger, server: RedisServer, log: Path
) -> None:
    with working(server.url, "--processes", "2", log=log) as worker:
        ledger.add([gated("held")])
        begun(server, "held:1")
        for pid in (worker.process.pid, *worker.children()):  # the parent first: nobody gives its leases back
            os.kill(pid, signal.SIGKILL)
        died_at = ledger.now()
    lapses_at = got(ledger, "held").lease_expires_at
    assert lapses_at is not None
    assert died_at < lapses_at <= died_at + 30_000
    with working(server.url, log=log):
        begun(server, "held:2")
        open_gate(server, "held")
        task = ended(ledger, "held")
    assert [run.outcome for run in task.history] == ["lapsed", "done"]


@LENGTHY
@MATRIX
def test_what_ended_while_redis_stood_still_is_done_and_runs_once(
    ledger: Ledger, server: RedisServer, log: Path
) -> None:
    ids, once = [f"t{n:03}" for n in range(200)], RetryPolicy(max_attempts=1)
    with working(server.url, log=log, PARALLEL="16"), server.client() as client:
        redis_pid = client.info()["process_id"]
        ledger.add([NewTask(id, kind="slow", payload="0.2", retry=once) for id in ids])
        ledger.add([NewTask("long", kind="slow", payload="60", retry=once)])
        until(lambda: len(ran(server)) > 40, every=0.02)
        os.kill(redis_pid, signal.SIGSTOP)
        frozen_at = time.monotonic()
        until(lambda: time.monotonic() - frozen_at > 40, every=1.0, seconds=60)
        os.kill(redis_pid, signal.SIGCONT)
        tasks = [ended(ledger, id) for id in [*ids, "long"]]
    assert [(task.id, task.error) for task in tasks if task.status is not Status.DONE] == []
    assert sorted(run.partition(":")[0] for run in ran(server)) == sorted([*ids, "long"])
    assert set(ran(server).values()) == {1}


def test_a_worker_goes_on_when_redis_was_away_and_its_health_says_so(
    ledger: Ledger, server: RedisServer, log: Path
) -> None:
    with working(server.url, "--health-port", "0", log=log) as worker:
        ledger.add([gated("held")])
        begun(server, "held:1")
        ok = {"status": "ok", "store": "ok", "processes": {"ready": 1, "wanted": 1}, "left_out": 0}
        assert worker.health("/ready") == (200, ok)
        server.stop()
        status, said = worker.health("/ready")
        assert (status, said["store"], said["status"]) == (503, "unavailable", "unavailable")
        assert worker.health("/live") == (200, {"status": "ok"})
        assert worker.health("/other")[0] == 404
        server.start()
        assert until(lambda: worker.health("/ready")[0] == 200, every=0.1)
        ledger.add([work("after", delay_ms=100)])
        assert ended(ledger, "after").status == Status.DONE
        pids = worker.children()
    assert len(pids) == 1


def test_a_worker_leaves_queues_alone_that_are_not_its_own(ledger: Ledger, server: RedisServer, log: Path) -> None:
    with working(server.url, "--queue", "mine", log=log):
        ledger.add([work("theirs", queue="other")])
        ledger.add([work("own", queue="mine", delay_ms=200)])
        assert ended(ledger, "own", "mine").status == Status.DONE
        theirs = got(ledger, "theirs", "other")
        assert (theirs.status, theirs.run) == (Status.SCHEDULED, 0)


@MATRIX
def test_workers_beside_each_other_run_each_task_once(ledger: Ledger, server: RedisServer, log: Path) -> None:
    ids = [f"t{n}" for n in range(300)]
    with working(server.url, "--processes", "2", log=log) as one, working(server.url, log=log) as two:
        ledger.add([work(id) for id in ids])
        tasks = [ended(ledger, id) for id in ids]
        assert {task.result["by"] for task in tasks} <= {*one.children(), *two.children()}
    # A claim that is given back unused counts as a run's number too: each id is there once.
    assert sorted(run.split(":")[0] for run in ran(server)) == sorted(ids)
    assert set(ran(server).values()) == {1}


def test_functions_that_do_not_have_its_kinds_drain_beside_it_and_leave_them_alone(
    ledger: Ledger, server: RedisServer, log: Path
) -> None:
    ids = [f"t{n}" for n in range(200)]
    functions = App(Settings(store=server.url, targets={"work": "worker"}))
    with working(server.url, log=log, TARGETS='{"report": "worker"}'):
        ledger.add([work(id, delay_ms=n if n % 2 else 100) for n, id in enumerate(ids)])

        def all_done() -> bool:
            assert functions.drainer.drain(ledger.shards(), lambda: 60_000).claimed == 0
            return ledger.stats(Shard()).done == len(ids)

        until(all_done)
    functions.close()
    assert [got(ledger, id).attempt for id in ids] == [1] * len(ids)


def test_its_processes_end_with_a_parent_that_is_killed(server: RedisServer, log: Path) -> None:
    with working(server.url, "--processes", "2", log=log) as worker:
        children = worker.children()
        worker.process.kill()
        worker.process.wait()
        until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in children), every=0.05)


@pytest.mark.parametrize(
    ("options", "settings", "problem"),
    in_turn(
        ((), {}, "--import: is required"),
        (("--import", "nowhere.kinds"), {}, "--import nowhere.kinds: cannot be imported: ModuleNotFoundError"),
        (("--import", "unnamed"), {}, "unnamed.handler: names no kind: write @task_handler(kind="),
        (("--import", "kinds", "--import", "twice"), {}, "twice.other: names the kind work, as another handler does"),
        (("--import", "json"), {}, "--import json: has no handler"),
        (("--import", "streamed"), {}, "streamed.py, line 8: report is a generator: return one outcome"),
        (("--import", "kinds", "--processes", "0"), {}, "--processes: must be 1 to 64, not 0"),
        (("--import", "kinds", "--store", "memory://"), {}, "DUECOURSE_STORE: must be a Redis"),
        (("--import", "kinds"), {"STORE": ""}, "--store: is required: give --store URL, set DUECOURSE_STORE, or"),
        (("--import", "kinds"), {"LEASE": "soon"}, "DUECOURSE_LEASE: "),
    ),
)
def test_what_is_wrong_is_said_and_nothing_is_tried_again(
    server: RedisServer, options: tuple[str, ...], settings: dict[str, str], problem: str
) -> None:
    given = environment(server.url, **settings)
    done = subprocess.run(
        command(*options), env=given, cwd=HANDLERS, capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert problem in done.stderr
    assert "Traceback" not in done.stderr


def test_a_handler_may_have_a_process_run_one_task_at_a_time() -> None:
    def handler(_task: Task) -> None:
        """Do nothing."""

    async def handler_async(_task: Task) -> None:
        """Never run."""

    app = App(Settings(parallel=8))
    free, one = task_handler(kind="a")(handler), task_handler(kind="b", parallel=1)(handler)
    awaited, few = task_handler(kind="c")(handler_async), task_handler(kind="d", parallel=3)(handler_async)
    assert (size_of(app, {"a": free}), size_of(app, {"a": free, "b": one})) == (8, 1)
    assert (size_of(app, {"c": awaited}), size_of(app, {"c": awaited, "d": few})) == (ASYNC_PARALLEL, 3)
    assert size_of(app, {"a": free, "c": awaited}) == 8
    assert (size_of(app, {"c": awaited}, 20), size_of(app, {"a": free}, 20)) == (20, 20)


def test_the_command_is_the_same_worker(ledger: Ledger, server: RedisServer, log: Path) -> None:
    line = [sys.executable, "-m", "duecourse_local", "worker", "--import", "kinds", "--concurrency", "2"]
    given = environment(server.url)
    with (
        log.open("wb") as errors,
        subprocess.Popen(line, env=given, cwd=HANDLERS, stdout=subprocess.PIPE, stderr=errors, text=True) as process,
    ):
        try:
            assert process.stdout
            assert process.stdout.readline() == f"worker ready: 1 process, every queue at {server.url}\n", (
                log.read_text()
            )
            ledger.add([work("a")])
            assert ended(ledger, "a").status == Status.DONE
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0
        finally:
            process.kill()
