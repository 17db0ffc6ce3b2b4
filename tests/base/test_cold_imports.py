"""Imports of a cold start: the garbage collector is not in their way, and works as before after them."""

import gc
import json
import subprocess
import sys

import pytest

from duecourse.base.cold_imports import lasting
from tests.support.project import ROOT

COUNTED = """
import gc, json, sys
during = []

def note(phase, about):
    if phase == "start" and "duecourse.app" in sys.modules:
        during.append(about["generation"])

gc.callbacks.append(note)
import app
print(json.dumps([during, gc.isenabled(), gc.get_freeze_count() > 0]))
"""


@pytest.mark.parametrize("function", ["enqueue_http", "enqueue_message", "on_expired", "send_reminder"])
def test_no_garbage_is_collected_while_a_function_is_imported(function: str) -> None:
    path = f"{ROOT / 'functions' / function}:{ROOT / 'layers/core'}"
    done = subprocess.run([sys.executable, "-c", COUNTED], env={"PYTHONPATH": path}, capture_output=True, check=True)
    assert json.loads(done.stdout) == [[], True, True]


def test_a_collector_that_was_off_stays_off() -> None:
    gc.disable()
    try:
        with lasting():
            assert not gc.isenabled()
        assert not gc.isenabled()
    finally:
        gc.enable()
        gc.unfreeze()
