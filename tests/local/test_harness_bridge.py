"""The local stack's bridge: started again when it dies, at growing pauses, and not when it was ended on purpose."""

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path

import pytest

from duecourse.bridge import Bridge as ProductsBridge
from duecourse.ledger.embedded.ledger import EmbeddedLedger
from duecourse.ringing.bridge import LambdaRingHandler
from duecourse_local.harness import bridge as stack_bridge
from duecourse_local.harness.bridge import BridgeProcess, RestartPauses, ThreadBridge
from duecourse_local.harness.embedded_bells import EmbeddedBells
from duecourse_local.harness.logs import Log
from tests.support.bridges import Recorder
from tests.support.drainer import ENVIRONMENT
from tests.support.project import ROOT
from tests.support.redis_server import RedisServer

pytestmark = pytest.mark.slow

PATIENCE_S = 60.0


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stack_bridge, "PAUSES_S", (0.01, 0.04))


def environment(**settings: str) -> dict[str, str]:
    given = {name: value for name, value in ENVIRONMENT.items() if not name.startswith(("DUECOURSE_", "AWS_"))}
    given |= {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_DEFAULT_REGION": "eu-central-1"}
    return given | {"PYTHONPATH": str(ROOT / "layers/core"), "AWS_ENDPOINT_URL_LAMBDA": "http://127.0.0.1:9"} | settings


def playing(tmp_path: Path, play: Callable[[BridgeProcess, list[str]], Awaitable[None]], **settings: str) -> str:
    """What the bridge's log has after a play with it."""
    notices: list[str] = []

    async def whole(log: Log) -> None:
        bridge = BridgeProcess(environment(**settings), log, notices.append)
        try:
            await asyncio.wait_for(play(bridge, notices), PATIENCE_S)
        finally:
            await bridge.stop()

    with closing(Log(tmp_path, "bridge")) as log:
        asyncio.run(whole(log))
    return (tmp_path / "bridge.log").read_text()


async def until(true: Callable[[], object]) -> None:
    while not true():
        await asyncio.sleep(0.01)


def test_a_bridge_that_was_killed_is_started_again_and_the_log_says_so(server: RedisServer, tmp_path: Path) -> None:
    async def play(bridge: BridgeProcess, notices: list[str]) -> None:
        assert await bridge.start()
        first = bridge.pid
        assert first
        os.kill(first, signal.SIGKILL)
        await until(lambda: bridge.pid not in {None, first} and bridge._ready.is_set())
        assert "THE BRIDGE IS DEAD (exit -9)" in notices[0]
        assert "it is started again in 0.01 s" in notices[0]

    log = playing(tmp_path, play, DUECOURSE_STORE=server.url)
    assert log.count("bridge ready") == 2
    assert "THE BRIDGE IS DEAD (exit -9)" in log
    assert "the bridge was started again: process" in log


def test_a_bridge_that_was_ended_on_purpose_stays_dead(server: RedisServer, tmp_path: Path) -> None:
    async def play(bridge: BridgeProcess, notices: list[str]) -> None:
        assert await bridge.start()
        bridge.kill()
        await until(lambda: notices)
        assert bridge._keeping
        await bridge._keeping
        assert bridge.pid is None

    assert playing(tmp_path, play, DUECOURSE_STORE=server.url).count("bridge ready") == 1


def test_a_bridge_with_wrong_settings_is_not_tried_for_ever(tmp_path: Path) -> None:
    async def play(bridge: BridgeProcess, notices: list[str]) -> None:
        assert not await bridge.start()
        await until(lambda: notices)
        assert "(exit 2)" in notices[0]
        assert "see its log" in notices[0]
        assert bridge._keeping
        await bridge._keeping

    playing(tmp_path, play, DUECOURSE_STORE="nonsense")


def test_each_death_in_a_row_doubles_the_pause_and_a_long_life_ends_the_row(monkeypatch: pytest.MonkeyPatch) -> None:
    deaths = RestartPauses()
    assert [deaths.pause_s() for _ in range(4)] == [0.01, 0.02, 0.04, 0.04]
    monkeypatch.setattr(stack_bridge, "LASTING_S", 0.0)
    assert deaths.pause_s() == 0.01


def test_a_bridge_of_threads_whose_thread_died_is_begun_again() -> None:
    ledger, notices, made = EmbeddedLedger(), list[str](), list[ProductsBridge]()

    def make() -> ProductsBridge:
        made.append(ProductsBridge(EmbeddedBells(ledger, "test"), LambdaRingHandler(Recorder(), "on_expired")))
        return made[-1]

    async def play() -> None:
        bridge = ThreadBridge(make, notices.append)
        assert await bridge.start()
        made[0].on_fault()  # as a thread does that ends by a fault
        await until(lambda: len(made) == 2)
        assert await asyncio.to_thread(made[1].wait_ready, PATIENCE_S)
        await bridge.stop()

    asyncio.run(asyncio.wait_for(play(), PATIENCE_S))
    assert "it is started again in 0.01 s" in notices[0]
    assert notices[1:] == ["the bridge was started again"]
