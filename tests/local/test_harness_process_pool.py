"""A function's processes: how many are started at once, when they end, and when the stack stops meanwhile."""

import asyncio
import json
import os
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from duecourse_local.harness.aws.invocation import Answer, Invocation, LambdaError
from duecourse_local.harness.environment import Environment
from duecourse_local.harness.function_processes import Pool, ProcessRules, StartLimit
from duecourse_local.harness.intrinsics import Addresses
from duecourse_local.harness.logs import Log
from duecourse_local.harness.template import Function, Template
from tests.support.harness import FOLDER, NOWHERE

pytestmark = pytest.mark.slow

TURNS = 12
"""Of the event loop: more than it takes from the first thought of a process until it runs."""


@pytest.fixture
def function() -> Function:
    addresses = Addresses(NOWHERE, NOWHERE, "memory://")
    found = next(f for f in Template(FOLDER / "template.yaml", addresses).functions if f.logical_id == "Echo")
    return replace(found, handler="app.busy")


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    with closing(Log(tmp_path, "echo")) as made:
        yield made


@pytest.mark.parametrize("turns", range(TURNS))
@pytest.mark.parametrize("cancelled", [True, False], ids=["its caller is cancelled", "its caller waits on"])
def test_a_process_that_is_only_being_started_goes_with_its_pool(
    function: Function, log: Log, turns: int, cancelled: bool
) -> None:
    listening, children = _listening(), _children()

    async def stop_meanwhile() -> None:
        pool = Pool(function, Environment(NOWHERE, NOWHERE, "memory://"), log, ProcessRules())
        invoking = asyncio.create_task(invoke(pool, Invocation(b"{}")))
        for _ in range(turns):
            await asyncio.sleep(0)
        if cancelled:
            invoking.cancel()
        await pool.close()
        await asyncio.wait((invoking,))
        assert (_listening(), _children()) == (listening, children)

    asyncio.run(stop_meanwhile())


async def invoke(pool: Pool, invocation: Invocation) -> Answer:
    """The answer to an invocation that finds a free slot."""
    await pool.slots.take()
    return await pool.run(invocation)


def _listening() -> set[int]:
    return {one.fd for one in psutil.Process().net_connections() if one.status == psutil.CONN_LISTEN}


def _children() -> set[int]:
    return {child.pid for child in psutil.Process().children()}


class Scene:
    """A pool on a loop of its own, with what it takes."""

    def __init__(self, function: Function, log: Log, **rules: float) -> None:
        self.starts = StartLimit(1)
        environment = Environment(NOWHERE, NOWHERE, "memory://")
        self.pool = Pool(function, environment, log, ProcessRules(**rules), self.starts)  # type: ignore[arg-type]

    async def at_once(self, count: int) -> list[Any]:
        """What so many invocations at a time answer."""
        invocations = (Invocation(b'{"seconds": 0.02}') for _ in range(count))
        return await asyncio.gather(*(invoke(self.pool, one) for one in invocations), return_exceptions=True)


def test_a_burst_starts_no_more_processes_at_once_than_may_and_takes_those_that_are_free(
    function: Function, log: Log
) -> None:
    async def burst() -> None:
        scene = Scene(replace(function, concurrency=8), log)
        most, watching = 0, True

        async def watch() -> None:
            nonlocal most
            while watching:
                starting = [one for one in scene.pool._workers if one._current is None and one._waiting is None]
                most = max(most, len(starting))
                await asyncio.sleep(0.001)

        watcher = asyncio.create_task(watch())
        answers = await scene.at_once(8)
        watching = False
        await watcher
        assert [answer.error for answer in answers] == [None] * 8
        assert most == 1
        assert len(scene.pool.pids()) < 8, "work that is short is done by the first that are there"
        await scene.pool.close()

    asyncio.run(burst())


def test_processes_that_are_idle_end_but_for_one(function: Function, log: Log) -> None:
    async def idle() -> None:
        scene = Scene(replace(function, concurrency=3), log, idle_limit=0.0)
        for _ in range(3):
            await scene.pool.warm()
        assert len(scene.pool.pids()) == 3
        last = scene.pool._idle[-1][1].pid
        await scene.pool.retire()
        assert scene.pool.pids() == [last]
        await scene.pool.retire()
        assert scene.pool.pids() == [last]
        await scene.pool.close()

    asyncio.run(idle())


def test_a_process_that_has_worked_is_taken_before_one_that_was_started_for_nothing(
    function: Function, log: Log
) -> None:
    async def spare() -> None:
        pool = Scene(replace(function, concurrency=2), log).pool
        await pool.warm()
        [worked] = pool.pids()
        long = asyncio.create_task(invoke(pool, Invocation(b'{"seconds": 0.1}')))
        await asyncio.sleep(0)
        waiting = asyncio.create_task(invoke(pool, Invocation(b'{"seconds": 0}')))
        while not pool._starting:
            await asyncio.sleep(0)
        waiting.cancel()  # as where the first is free again before the second has started
        await long
        await asyncio.gather(*pool._growing)
        assert len(pool.pids()) == 2
        answer = await invoke(pool, Invocation(b'{"seconds": 0}'))
        assert int(answer.payload) == worked
        await pool.close()

    asyncio.run(spare())


class Gate:
    """A file that an event of `app.counted` waits for."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.event = Invocation(json.dumps({"until": str(path)}).encode())

    def open(self) -> None:
        self._path.touch()

    def shut(self) -> None:
        self._path.unlink()


async def until(pool: Pool, count: int, payload: bytes) -> None:
    """Until so many processes handle this event."""
    async with asyncio.timeout(30):
        while len([one for one in pool._workers if one._current and one._current.payload == payload]) < count:
            await asyncio.sleep(0.001)


def test_every_process_has_handled_its_first_event_before_it_meets_another(
    function: Function, log: Log, tmp_path: Path
) -> None:
    counted, first, work = replace(function, handler="app.counted"), Gate(tmp_path / "first"), Gate(tmp_path / "work")
    first.open()

    async def spare() -> None:
        environment = Environment(NOWHERE, NOWHERE, "memory://")
        pool = Pool(replace(counted, concurrency=2), environment, log, ProcessRules(), first=first.event.payload)
        both = [asyncio.create_task(invoke(pool, work.event)) for _ in range(2)]
        await until(pool, 2, work.event.payload)
        work.open()
        answers = [json.loads((await one).payload) for one in both]
        assert sorted(answers) == [[pid, 2] for pid in pool.pids()]
        await pool.close()

    asyncio.run(spare())


def test_an_event_takes_a_busy_process_that_is_free_before_the_next_is_warm(
    function: Function, log: Log, tmp_path: Path
) -> None:
    counted, first, work = replace(function, handler="app.counted"), Gate(tmp_path / "first"), Gate(tmp_path / "work")

    async def spare() -> None:
        environment = Environment(NOWHERE, NOWHERE, "memory://")
        pool = Pool(replace(counted, concurrency=2), environment, log, ProcessRules(), first=first.event.payload)
        first.open()
        await pool.warm()
        [warm] = pool.pids()
        first.shut()
        both = [asyncio.create_task(invoke(pool, work.event)) for _ in range(2)]
        await until(pool, 1, first.event.payload)
        work.open()
        assert [json.loads((await one).payload) for one in both] == [[warm, 2], [warm, 3]]
        await pool.close()

    asyncio.run(spare())


def test_a_process_that_dies_of_its_first_event_has_not_started(function: Function, log: Log) -> None:
    async def die() -> None:
        environment = Environment(NOWHERE, NOWHERE, "memory://")
        pool = Pool(replace(function, handler="app.slow", timeout=1), environment, log, ProcessRules(), first=b"{}")
        answer = await invoke(pool, Invocation(b"{}"))
        assert b"Sandbox.Timedout" in answer.payload
        assert pool.pids() == []
        await pool.close()

    asyncio.run(die())


def test_whoever_waits_for_a_process_that_cannot_start_is_told(function: Function, log: Log) -> None:
    async def fail() -> None:
        scene = Scene(replace(function, handler="nowhere.handler", concurrency=2), log)
        answers = await scene.at_once(2)
        assert [b"Runtime.ImportModuleError" in answer.payload for answer in answers] == [True, True]
        assert scene.pool.pids() == []
        await scene.pool.close()

    asyncio.run(fail())


def test_an_answer_to_another_invocation_does_not_end_the_one_that_runs(function: Function, log: Log) -> None:
    async def answer() -> Answer:
        pool = Scene(replace(function, handler="app.late"), log).pool
        try:
            return await invoke(pool, Invocation(b"{}"))
        finally:
            await pool.close()

    assert json.loads(asyncio.run(answer()).payload)["errorType"] == "Runtime.ExitError"


def test_what_waits_for_a_process_is_refused_when_the_stack_stops(function: Function, log: Log) -> None:
    async def stop() -> None:
        scene = Scene(function, log)
        async with scene.starts.turn:
            waiting = asyncio.create_task(invoke(scene.pool, Invocation(b"{}")))
            await asyncio.sleep(0)
            await scene.pool.close()
            with pytest.raises(LambdaError, match="stopping"):
                await waiting

    asyncio.run(stop())


VERSION = "def handler(_event, _context):\n    return {}\n"


def _at(folder: Path, version: int) -> None:
    """The code of a version, its file's time moved on: a coarse clock of the file system may be slower than a test."""
    file = folder / "app.py"
    file.write_text(VERSION.format(version))
    os.utime(file, ns=(version * 10**9,) * 2)


@pytest.fixture
def changing(function: Function, tmp_path: Path) -> Function:
    folder = tmp_path / "code"
    folder.mkdir()
    _at(folder, 1)
    return replace(function, code=folder, handler="app.handler", concurrency=2)


def test_an_invocation_after_a_change_of_the_code_runs_the_changed_code(changing: Function, log: Log) -> None:
    async def change() -> None:
        pool = Scene(changing, log, look_every=0.0).pool
        answers = [await invoke(pool, Invocation(b"{}")) for _ in range(2)]
        [before] = pool.pids()
        _at(changing.code, 2)
        answers += [await invoke(pool, Invocation(b"{}")) for _ in range(2)]
        assert [int(answer.payload) for answer in answers] == [1, 1, 2, 2]
        assert before not in pool.pids()
        await pool.close()

    asyncio.run(change())


def test_a_process_that_worked_while_its_code_changed_ends_with_its_work(changing: Function, log: Log) -> None:
    (changing.code / "app.py").write_text(
        "def handler(event, _context):\n"
        "    if event: open(event['begun'], 'w').close(); open(event['end']).read()\n"
        "    return 1\n"
    )

    async def change(begun: Path, end: Path) -> None:
        pool = Scene(changing, log, look_every=0.0).pool
        os.mkfifo(begun)
        os.mkfifo(end)
        event = json.dumps({"begun": str(begun), "end": str(end)}).encode()
        working = asyncio.create_task(invoke(pool, Invocation(event)))
        await asyncio.to_thread(begun.read_text)
        _at(changing.code, 2)
        assert int((await invoke(pool, Invocation(b"{}"))).payload) == 2
        await asyncio.to_thread(end.write_text, "")
        assert int((await working).payload) == 1
        assert len(pool.pids()) == 1
        await pool.close()

    asyncio.run(change(changing.code.parent / "begun", changing.code.parent / "end"))


def test_what_python_writes_beside_the_code_is_no_change_of_it(changing: Function, log: Log) -> None:
    async def compile_() -> None:
        pool = Scene(changing, log, look_every=0.0).pool
        await pool.warm()
        before = pool.pids()
        (changing.code / "__pycache__").mkdir(exist_ok=True)
        (changing.code / "__pycache__" / "app.pyc").write_bytes(b"")
        (changing.code / ".app.py.swp").write_bytes(b"")
        await invoke(pool, Invocation(b"{}"))
        assert pool.pids() == before
        await pool.close()

    asyncio.run(compile_())
