"""The whole stack with rings served in other ways: with events off; by a tick that lingers, and no bridge."""

import os
import re
import subprocess
import sys

import pytest
import urllib3

from duecourse_local.harness.options import Options, Precision
from tests.support.api import Api
from tests.support.commands import in_this_process
from tests.support.emulator import local_stack
from tests.support.http_server import answering
from tests.support.matrix import LENGTHY, MATRIX, in_turn
from tests.support.project import ROOT
from tests.support.redis_cluster import ClusterServers
from tests.support.slow_receiver import DONE, outcomes

pytestmark = LENGTHY

BATCH = "A batch for a receiver that takes 2 at a time"
SCHEDULE = "A schedule through both changes of the"
KEY = "A key of another program expires"


def demo(*options: str, **environment: str) -> str:
    command = [sys.executable, "-m", "local", "demo", *options]
    given = {**os.environ, "COLUMNS": "160", **environment}
    done = subprocess.run(command, cwd=ROOT, env=given, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def found(shown: str) -> list[tuple[str, int]]:
    """By which door each task was found before who rings was killed, and how many milliseconds late."""
    rows = re.findall(r"(\S+) +│ \w+ +│ (ring|timer|tick) +│ +\d+ │ +([\d,]+) ms", shown)
    return [(trigger, int(ms.replace(",", ""))) for task, trigger, ms in rows if task != "meanwhile"]


@pytest.mark.parametrize(
    ("precision", "events", "killed"),
    in_turn(("linger", "on", "The lingering tick is killed"), ("bridge", "off", "The bridge is killed")),
)
def test_the_demos_stories_hold(precision: str, events: str, killed: str) -> None:
    shown = demo("--precision", precision, DUECOURSE_EVENTS=events)
    assert "All checks passed" in shown
    assert SCHEDULE in shown
    assert BATCH in shown
    assert KEY not in shown, "they are not heard, or with a gap"
    assert killed in shown
    late = [ms for _, ms in found(shown)]
    assert len(late) == 10
    assert events == "on" or "ring" not in {trigger for trigger, _ in found(shown)}
    assert sorted(late)[len(late) // 2] < 400, shown


@MATRIX
@pytest.mark.parametrize("precision", ["bridge", "linger"])
def test_the_demos_stories_hold_on_a_cluster_with_queues_of_many_shards(
    precision: str, cluster: ClusterServers
) -> None:
    shards = '{"default": 4, "reminders": 3}'
    shown = demo("--precision", precision, "--store", cluster.url, DUECOURSE_SHARDS=shards)
    assert "All checks passed" in shown
    assert BATCH in shown
    assert (KEY in shown) == (precision == "bridge")
    assert len(found(shown)) == 10
    with cluster.client() as client:
        assert {f"default/{n}/4".encode() for n in range(4)} & client.smembers("duecourse:shards")


def test_a_tick_alone_is_refused_for_the_demo() -> None:
    done = in_this_process("demo", "--precision", "tick")
    assert done.exit_code == 2
    assert "linger or bridge" in done.stderr


@MATRIX
def test_ticks_that_linger_keep_time_from_one_to_the_next(http: urllib3.PoolManager) -> None:
    options = Options(tick=3, precision=Precision.LINGER)
    with answering(lambda _: DONE) as server, local_stack(options) as stack:
        api = Api(http, stack.api)
        for n in range(30):
            assert api.add_webhook(f"hook-{n}", server.url, delay=2 + n * 0.2) == 201
        tasks = [api.done(f"hook-{n}") for n in range(30)]
    assert len(server.asked) == 30
    # On a busy machine a tick may end between a claim and its work: it gives the task back, at no cost of an attempt.
    assert {outcome for task in tasks for outcome in outcomes(task)[:-1]} <= {"release"}
    assert {(outcomes(task)[-1], task["attempt"]) for task in tasks} == {("done", 1)}


@MATRIX
def test_the_first_tick_that_lingers_does_not_wait_for_its_time(http: urllib3.PoolManager) -> None:
    options = Options(tick=3_600, precision=Precision.LINGER)
    with answering(lambda _: DONE) as server, local_stack(options) as stack:
        api = Api(http, stack.api)
        assert api.add_webhook("soon", server.url, delay=1) == 201
        assert api.done("soon")["run"] == 1
