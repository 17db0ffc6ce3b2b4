"""Warm before it rings, in the whole stack: the first task after an idle spell meets processes that were there."""

import os
import signal
import time
from collections.abc import Iterator
from typing import NamedTuple

import psutil
import pytest
import urllib3

from duecourse_local.harness.options import Precision
from duecourse_local.harness.stack import Stack
from tests.support.api import Api
from tests.support.matrix import MATRIX, in_turn
from tests.support.probe import FUNCTION, Line, Probe
from tests.support.wait import until

SETTINGS = {"DUECOURSE_WARM": "PT8S", "DUECOURSE_WARM_IDLE": "PT9S"}


class Scene(NamedTuple):
    stack: Stack
    api: Api
    probe: Probe

    def end(self, function: str) -> None:
        """End a function's processes, as Lambda does with those that are idle."""
        for pid in self.stack.pids()["functions"][function]:
            os.kill(pid, signal.SIGKILL)
            until(lambda pid=pid: not psutil.pid_exists(pid))  # type: ignore[misc]

    def run(self, id: str, delay: str) -> Line:
        """The first line of one task."""
        self.api.post("/tasks", {"id": id, "kind": "probe", "payload": {}, "delay": delay})
        self.api.done(id)
        return self.probe.lines()[id]


@pytest.fixture(params=in_turn(Precision.LINGER, Precision.BRIDGE))
def scene(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, http: urllib3.PoolManager
) -> Iterator[Scene]:
    probe = Probe(tmp_path_factory.mktemp("project"))
    tick = 60 if request.param is Precision.LINGER else None
    with Stack(probe.options(SETTINGS, precision=request.param, tick=tick)) as stack:
        yield Scene(stack, Api(http, stack.api), probe)


@MATRIX
def test_the_first_task_after_an_idle_spell_meets_a_warm_function(scene: Scene) -> None:
    scene.run("first", "PT0.2S")
    time.sleep(float(SETTINGS["DUECOURSE_WARM_IDLE"][2:-1]))  # the spell itself
    scene.end(FUNCTION)
    if scene.stack.pids()["bridge"]:
        scene.end("OnExpiredFunction")
    seen = scene.run("second", "PT10S")
    started_at = psutil.Process(seen.pid).create_time() * 1000
    assert started_at < seen.due_at, "its process was started for the task"
    assert seen.late_ms < 1_000
