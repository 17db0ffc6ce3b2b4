"""A function of one's own in a copy of the project, that notes when its first line ran, for which task and where.

A task runs for as many seconds as its payload says.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from duecourse_local.harness.options import PARAMETERS, Options
from tests.support.project import add_resource, copy_project

FUNCTION = "ProbeFunction"
RESOURCE = """
  ProbeFunction:
    Type: AWS::Serverless::Function
    Properties:
      CodeUri: functions/probe
      Timeout: 30{limits}
      Environment:
        Variables:
          DUECOURSE_TARGETS: ""
          PROBE_LOG: {log}
"""
CODE = """
import os
import time

from duecourse import Done, task_handler

log = os.open(os.environ["PROBE_LOG"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)


@task_handler
def handler(task):
    os.write(log, b"%d %d %d %s\\n" % (time.time() * 1_000_000, task.due_at, os.getpid(), task.id.encode()))
    time.sleep(task.payload or 0)
    return Done()
"""


class Line(NamedTuple):
    """The first line of one run: when (epoch ms with its fraction), when it was due, in which process."""

    at: float
    due_at: int
    pid: int

    @property
    def late_ms(self) -> float:
        """How late it was."""
        return self.at - self.due_at


class Probe:
    """A project with the function, whose kind is `probe`; at most `at_once` invocations of it run, if that is given."""

    def __init__(self, folder: Path, at_once: int | None = None) -> None:
        self._template = copy_project(folder)
        self._log = folder / "probe.log"
        limits = f"\n      ReservedConcurrentExecutions: {at_once}" if at_once else ""
        add_resource(self._template, RESOURCE.format(log=self._log, limits=limits))
        (folder / "functions/probe").mkdir()
        (folder / "functions/probe/app.py").write_text(CODE)

    def options(self, settings: Mapping[str, str], **more: Any) -> Options:
        """How to run it."""
        parameters = {**PARAMETERS, "Targets": f'"probe": "lambda:{FUNCTION}"'}
        return Options(template=self._template, parameters=parameters, environment=settings, **more)

    def lines(self) -> dict[str, Line]:
        """Every run so far, by the task's id."""
        if not self._log.exists():
            return {}
        rows = [row.split() for row in self._log.read_text().splitlines()]
        return {id: Line(int(at) / 1000, int(due_at), int(pid)) for at, due_at, pid, id in rows}
