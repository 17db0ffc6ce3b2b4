"""The bridge warms before it rings: a real server, a process of its own, and what its invoker is sent when."""

import time
from typing import Any

import pytest

from duecourse.ringing.bridge import LambdaRingHandler
from duecourse.ringing.warming import Warming
from tests.support.bridges import BellSetter, bridging
from tests.support.matrix import in_turn
from tests.support.redis_server import RedisServer
from tests.support.wait import until

pytestmark = pytest.mark.slow

AHEAD_MS, IDLE_MS = 2_000, 5_000


class Service:
    """An invoker that keeps each event, and when it came (epoch ms)."""

    def __init__(self) -> None:
        self.rung: list[float] = []
        self.warmed: list[tuple[float, list[str]]] = []

    def invoke(self, function: str, event: Any) -> Any:
        assert function == "on_expired"
        if "warm" in event:
            self.warmed.append((time.time() * 1000, event["warm"]))
            return {"warmed": []}
        self.rung.append(time.time() * 1000)
        return {"claimed": 1, "backlog": 0}

    def send(self, function: str, event: Any) -> None:
        raise AssertionError((function, event))


@pytest.mark.parametrize("events", in_turn(True, False), ids=["events", "no events"])
def test_a_bell_after_an_idle_spell_is_warmed_for_and_then_rung(
    server: RedisServer, bells: BellSetter, events: bool
) -> None:
    service = Service()
    terms = Warming(LambdaRingHandler(service, "on_expired").warm, AHEAD_MS, IDLE_MS)
    with bridging(server, service, warming=terms, events=events) as bridge:
        bell = bells.shard("default/0")
        at = bells.hang(bell, 2_600)
        until(lambda: service.rung)
        bells.hang(bell, 300)
        until(lambda: len(service.rung) == 2)
        [(when, warmed)] = service.warmed
        assert warmed == [bell]
        assert at - AHEAD_MS - 5 <= when <= at - 1_000
        assert bridge.stats().warmed == 1
        assert bridge.stats().rings >= 2
