"""The bridge's figures, minute by minute."""

import json
from typing import cast

import pytest

from duecourse.base.metrics import BridgeLine
from duecourse.bridge import Bridge, Stats
from duecourse.bridge import __main__ as process
from duecourse.ledger.embedded.ledger import EmbeddedLedger
from duecourse.ringing.bridge import LambdaRingHandler
from duecourse.ringing.bridge_event import Ring
from duecourse.settings import Settings
from duecourse_local.harness.embedded_bells import EmbeddedBells
from tests.support.engine import Lambda


def test_a_line_of_figures_is_of_the_time_since_the_last_one() -> None:
    before, now = Stats(10, 5, 1, 3.0, True, 4, 1, 2), Stats(17, 9, 1, 2.25, True, 14, 3, 5)
    assert now.since(before) == {
        "Rings": 7,
        "Invocations": 4,
        "Refused": 0,
        "RingLateness": 2.2,
        "Keys": 10,
        "KeysLost": 2,
        "Warmed": 3,
    }


class Ringing:
    """What the process sees of a bridge that rings once between two looks, and ends at the fourth."""

    shards = 1

    def __init__(self) -> None:
        self._looks = 0

    def wait_ready(self, _timeout: float) -> bool:
        return True

    def wait_ended(self, _timeout: float) -> bool:
        self._looks += 1
        return self._looks > 3

    def stats(self) -> Stats:
        return Stats(0, 0, 0, 0.0, True)

    def report(self) -> BridgeLine:
        return Stats(self._looks, 0, 0, 0.0, True).since(Stats(0, 0, 0, 0.0, True))


def test_a_bridge_tells_its_figures_whenever_a_minute_is_over(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(process, "REPORT_S", 0.0)
    bridge = cast(Bridge, Ringing())
    assert process._stay(bridge, Settings(), "redis://localhost"), "it ended by a fault"
    ready, *told = capsys.readouterr().out.splitlines()
    assert ready.startswith("bridge ready: 1 shards")
    assert [json.loads(line)["Rings"] for line in told] == [1, 2, 3]


def test_the_worst_lateness_is_that_since_the_last_report() -> None:
    bridge = Bridge(EmbeddedBells(EmbeddedLedger(), "test"), LambdaRingHandler(Lambda(), "on_expired"))
    bridge.start()
    assert bridge.wait_ready(30)
    [session] = bridge._sessions.every()
    session.timer.latest_ms = 7.0
    assert [bridge.report()["RingLateness"], bridge.report()["RingLateness"]] == [7.0, 0.0]
    assert bridge.stop()


def test_a_report_has_the_rings_since_the_last_one() -> None:
    bridge = Bridge(EmbeddedBells(EmbeddedLedger(), "test"), LambdaRingHandler(Lambda(), "on_expired"))
    bridge.on_rings([Ring("a", "", 0), Ring("b", "", 0)])
    assert [bridge.report()["Rings"], bridge.report()["Rings"]] == [2, 0]
