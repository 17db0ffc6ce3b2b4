"""Slots of a function of the local stack: who gets a free one, when, and who is turned away."""

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from duecourse_local.harness.aws.concurrency import Slots
from duecourse_local.harness.aws.invocation import Busy, LambdaError
from duecourse_local.harness.intrinsics import Addresses
from duecourse_local.harness.template import Template

NOWHERE = "http://127.0.0.1:9"
LONG_S = 3_600.0
WITHIN_S = 30.0
"""Time within which a scene ends: a slot that is lost, or a wait that should not be, fails its test."""
FUNCTION = "{Type: AWS::Serverless::Function, Properties: {Handler: a.b, CodeUri: ., ReservedConcurrentExecutions: %d}}"

Scene = Callable[[Slots], Coroutine[Any, Any, None]]


@pytest.fixture
def play(tmp_path: Path) -> Callable[[Scene, int], None]:
    """Runs a scene with the slots of a function that has so many."""

    def run(scene: Scene, count: int = 1) -> None:
        (tmp_path / "template.yaml").write_text("Resources: {It: %s}" % (FUNCTION % count))
        (function,) = Template(tmp_path / "template.yaml", Addresses(NOWHERE, NOWHERE, "memory://")).functions
        asyncio.run(asyncio.wait_for(scene(Slots(function)), WITHIN_S))

    return run


async def turns(count: int = 5) -> None:
    """Some turns of the event loop, in which no time has to pass."""
    for _ in range(count):
        await asyncio.sleep(0)


def test_a_free_slot_is_used_within_a_turn_of_the_event_loop(play: Any) -> None:
    async def scene(slots: Slots) -> None:
        await slots.take()
        begun = []

        async def work(number: int) -> None:
            await slots.take(LONG_S, event=True)
            begun.append(number)

        waiting = [asyncio.create_task(work(n)) for n in range(600)]
        await turns()
        for done in range(600):
            slots.give_back()
            await turns(2)
            assert begun == list(range(done + 1))
        await asyncio.gather(*waiting)

    play(scene)


def test_callers_come_before_events_and_each_in_their_order(play: Any) -> None:
    async def scene(slots: Slots) -> None:
        await slots.take()
        order: list[str] = []

        async def work(name: str, event: bool) -> None:
            await slots.take(LONG_S, event=event)
            order.append(name)
            slots.give_back()

        waiting = [
            asyncio.create_task(work(f"{kind}{n}", kind == "event")) for n in range(2) for kind in ("event", "call")
        ]
        await turns()
        assert (slots.events, slots.callers) == (2, 2)
        slots.give_back()
        await asyncio.gather(*waiting)
        assert order == ["call0", "call1", "event0", "event1"]
        assert slots.taken == 0

    play(scene)


def test_no_slot_is_lost_with_a_caller_that_gives_up(play: Any) -> None:
    async def scene(slots: Slots) -> None:
        await slots.take()
        late = asyncio.create_task(slots.take(0.001))
        with pytest.raises(Busy):
            await late
        cancelled, met = (asyncio.create_task(slots.take(LONG_S)) for _ in range(2))
        await turns()
        slots.give_back()
        cancelled.cancel()  # in the turn of the loop in which it got the slot
        await met
        assert (cancelled.cancelled(), slots.taken) == (True, 1)

    play(scene)


def test_whoever_waits_is_turned_away_when_the_stack_stops(play: Any) -> None:
    async def scene(slots: Slots) -> None:
        await slots.take()
        waiting = asyncio.create_task(slots.take(LONG_S, event=True))
        await turns()
        slots.close()
        for late in (waiting, asyncio.create_task(slots.take())):
            with pytest.raises(LambdaError, match="stopping"):
                await late

    play(scene)


def test_a_function_with_no_concurrency_turns_all_away_at_once(play: Any) -> None:
    async def scene(slots: Slots) -> None:
        with pytest.raises(Busy):
            await slots.take(LONG_S, event=True)

    play(scene, 0)
