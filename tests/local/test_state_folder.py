"""The state folder of stacks that begin beside others, or after one that was killed."""

import asyncio
import os
import sys
import threading
from pathlib import Path

import pytest

from duecourse_local.errors import HarnessError
from duecourse_local.harness.children import spawn, stop
from duecourse_local.harness.state import ADDRESSES, StateFolder, running
from tests.support.wait import PATIENCE_S

pytestmark = pytest.mark.slow

UP = {"api": "http://127.0.0.1:1"}


def test_a_stack_begins_though_a_command_looks_for_one_meanwhile(tmp_path: Path) -> None:
    looking = StateFolder(tmp_path)
    threading.Timer(0.05, looking.close).start()
    StateFolder(tmp_path, patience_s=PATIENCE_S).close()


def test_the_addresses_of_a_stack_that_was_killed_are_not_those_of_one_that_begins(tmp_path: Path) -> None:
    (tmp_path / ADDRESSES).write_text('{"api": "http://127.0.0.1:9"}')
    folder = StateFolder(tmp_path)
    assert running(tmp_path) is None
    folder.announce(UP)
    assert running(tmp_path) == UP
    folder.close()
    assert running(tmp_path) is None


def test_a_child_that_outlives_its_stack_keeps_the_folder_from_others(tmp_path: Path) -> None:
    async def outlive() -> None:
        folder, nothing = StateFolder(tmp_path), os.open(os.devnull, os.O_WRONLY)
        command = (sys.executable, "-c", "import time; time.sleep(600)")
        child = await spawn(command, environment={}, out=nothing, keeps=(folder.lock,))
        os.close(nothing)
        folder.close()
        with pytest.raises(HarnessError, match="or the redis-server of one that was killed: stop it"):
            StateFolder(tmp_path)
        await stop(child)
        StateFolder(tmp_path).close()

    asyncio.run(outlive())
