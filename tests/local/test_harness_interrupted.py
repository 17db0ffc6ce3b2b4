"""A stack that is stopped before it is up: nothing of it stays."""

import asyncio
import gc
from pathlib import Path

import psutil
import pytest

from duecourse_local.harness.environment import Environment
from duecourse_local.harness.function_processes import Pool, ProcessRules
from duecourse_local.harness.intrinsics import Addresses
from duecourse_local.harness.logs import Logs
from duecourse_local.harness.template import Template
from tests.support.harness import FOLDER, NOWHERE

pytestmark = pytest.mark.slow


def open_here() -> tuple[int, int]:
    """How many file descriptors this process has open, and how many children."""
    me = psutil.Process()
    return me.num_fds(), len(me.children())


async def begin_and_cancel(pool: Pool, turns: int) -> bool:
    """Start a process of the function and call it off after so many turns of the loop; whether that came too late."""
    starting = asyncio.create_task(pool.warm())
    for _ in range(turns):
        await asyncio.sleep(0)
    late = starting.done()
    starting.cancel()
    await asyncio.wait((starting,))
    await pool.close()
    return late


@pytest.mark.parametrize("turns", range(12))
def test_a_function_whose_start_is_called_off_leaves_no_socket_no_pipe_and_no_process(
    turns: int, tmp_path: Path
) -> None:
    template = Template(FOLDER / "endless.yaml", Addresses(NOWHERE, NOWHERE, NOWHERE), {})
    logs = Logs(tmp_path)
    environment = Environment(NOWHERE, NOWHERE, "redis://127.0.0.1:9/0")
    pool = Pool(template.functions[0], environment, logs.of("function"), ProcessRules())
    gc.collect()  # what tests before this one left is not to end in its time
    before = open_here()
    assert not asyncio.run(begin_and_cancel(pool, turns))
    assert open_here() == before
    logs.close()
