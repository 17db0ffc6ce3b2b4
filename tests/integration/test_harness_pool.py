"""A function's processes, when the stack stops while one is only being started."""

import asyncio
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psutil
import pytest

from local.environment import Surroundings
from local.identity import Addresses
from local.invocation import Invocation
from local.logs import Log
from local.model import Function
from local.pool import Pool
from local.template import Template
from local.worker import Rules
from tests.support.harness import FOLDER, NOWHERE

TURNS = 12
"""Of the event loop: more than it takes from the first thought of a process until it runs."""


@pytest.fixture
def function() -> Function:
    addresses = Addresses(NOWHERE, NOWHERE, "memory://")
    return next(f for f in Template(FOLDER / "template.yaml", addresses).functions if f.logical_id == "Echo")


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    with closing(Log(tmp_path, "echo", echo=False)) as made:
        yield made


@pytest.mark.parametrize("turns", range(TURNS))
@pytest.mark.parametrize("cancelled", [True, False], ids=["its caller is cancelled", "its caller waits on"])
def test_a_process_that_is_only_being_started_goes_with_its_pool(
    function: Function, log: Log, turns: int, cancelled: bool
) -> None:
    listening, children = _listening(), _children()

    async def stop_meanwhile() -> None:
        pool = Pool(function, Surroundings(NOWHERE, NOWHERE, "memory://"), log, Rules())
        invoking = asyncio.create_task(pool.invoke(Invocation(b"{}")))
        for _ in range(turns):
            await asyncio.sleep(0)
        if cancelled:
            invoking.cancel()
        await pool.close()
        await asyncio.wait((invoking,))
        assert (_listening(), _children()) == (listening, children)

    asyncio.run(stop_meanwhile())


def _listening() -> set[int]:
    return {one.fd for one in psutil.Process().net_connections() if one.status == psutil.CONN_LISTEN}


def _children() -> set[int]:
    return {child.pid for child in psutil.Process().children()}
