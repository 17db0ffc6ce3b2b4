"""The process of one task that is stopped before its handler begins."""

import subprocess
import sys
from multiprocessing.connection import Pipe

import pytest

from duecourse.ledger.task import Ending
from duecourse.running.run import STOPPED
from duecourse.worker.options import Options
from tests.support.kinds import leased
from tests.support.workers import HANDLERS, environment

pytestmark = pytest.mark.slow


def test_an_async_task_whose_time_is_over_before_the_event_loop_is_there_does_not_begin() -> None:
    ours, its = Pipe()
    line = [sys.executable, "-m", "duecourse.worker.isolated", Options(imports=("endless",)).dump()]
    given = environment("redis://127.0.0.1:1")
    with its:
        process = subprocess.Popen(line, stdin=its.fileno(), env=given, cwd=HANDLERS)
    with ours, process:
        try:
            assert ours.recv() is True
            ours.send((leased("endless", {}), 0.0, False))
            assert ours.poll(30), "it would run until it is killed"
            end = ours.recv()
            assert (end.ending, end.detail) == (Ending.RELEASE, STOPPED)
            assert process.wait(30) == 0
        finally:
            process.kill()
