"""A command that stays ends at the first signal, at whatever moment that comes."""

import signal
import subprocess
import sys

import pytest

from tests.support.project import ROOT

pytestmark = pytest.mark.slow

STAYING = """
import signal, threading
from duecourse_local.cli.interrupts import staying, until_stopped

told = threading.Event()
threading.Thread(target=told.wait, daemon=True).start()
with until_stopped(), staying():
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    print("up", flush=True)
"""
"""Its signals come to another thread: they do not wake the one that stays, as one that is early by a hair does not."""


def test_a_signal_that_does_not_wake_the_thread_that_stays_ends_it_all_the_same() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", STAYING], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as staying:
        assert staying.stdout is not None
        try:
            assert staying.stdout.readline() == "up\n"
            staying.send_signal(signal.SIGTERM)
            staying.wait(30)
        finally:
            staying.kill()


EARLY = """
import os, signal
from duecourse_local.cli.interrupts import staying, until_stopped

with until_stopped(), staying():
    os.kill(os.getpid(), signal.SIGINT)
"""


def test_a_signal_that_comes_before_the_wait_is_answered_too() -> None:
    said = subprocess.run([sys.executable, "-c", EARLY], cwd=ROOT, capture_output=True, text=True, check=False).stderr
    assert said.splitlines()[:2] == ["stopping…", "stopped"]
