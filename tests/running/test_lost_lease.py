"""`task.lost`: how a handler learns that its lease is gone, by polling, by waiting, in an event loop."""

import asyncio
import threading
import time
from collections.abc import Callable
from dataclasses import replace

import pytest

from duecourse import Lost, Task
from duecourse.errors import StoreUnavailable
from duecourse.ledger.embedded.ledger import EmbeddedLedger
from duecourse.running.leases import LeaseExtender
from duecourse.testing import make_task
from tests.support.clock import HandClock
from tests.support.ledger import claim, claim_one


def watched(task: Task, until: float) -> Task:
    return replace(task, signal=Lost(until))


def test_a_task_that_nothing_runs_has_lost_nothing() -> None:
    task = make_task()
    assert not task.lost
    assert not task.lost.wait(0)


def test_a_wait_ends_with_the_loss_and_answers_it() -> None:
    lost, said = Lost(), list[bool]()
    thread = threading.Thread(target=lambda: said.append(lost.wait(30)))
    thread.start()
    lost.set()
    thread.join(30)
    assert said == [True]
    assert (bool(lost), lost.is_set(), lost.wait(), repr(lost)) == (True, True, True, "Lost(True)")


def test_an_event_loop_awaits_the_loss_beside_its_work() -> None:
    lost = Lost()

    async def work() -> str:
        working, losing = asyncio.create_task(asyncio.sleep(60)), asyncio.ensure_future(wait())
        threading.Timer(0.05, lost.set).start()
        done, _ = await asyncio.wait([working, losing], return_when=asyncio.FIRST_COMPLETED)
        working.cancel()
        return "lost" if losing in done else "worked"

    async def wait() -> None:
        await lost

    assert asyncio.run(work()) == "lost"
    asyncio.run(wait())


def cancel(ledger: EmbeddedLedger, _clock: HandClock) -> None:
    ledger.cancel("default", ["a"], force=True)


def lapse(ledger: EmbeddedLedger, clock: HandClock) -> None:
    for _ in range(2):  # the first look after a silence spares lapsed leases for some seconds
        clock.advance(60_000)
        claim(ledger)


@pytest.mark.parametrize("take", [cancel, lapse])
def test_the_next_step_of_the_keep_alive_tells_of_a_lease_that_is_gone(
    ledger: EmbeddedLedger, clock: HandClock, take: Callable[[EmbeddedLedger, HandClock], None]
) -> None:
    task = watched(claim_one(ledger, "a"), time.monotonic() + 60)
    alive = LeaseExtender(ledger)
    with alive.while_running(task):
        alive.extend()
        assert not task.lost
        take(ledger, clock)
        alive.extend()
        assert task.lost


def test_a_lease_that_could_not_be_extended_is_lost_once_it_has_lapsed(
    ledger: EmbeddedLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    task, held = watched(claim_one(ledger, "a"), 0), watched(claim_one(ledger, "b"), time.monotonic() + 60)
    alive = LeaseExtender(ledger)

    def away(*_: object, **__: object) -> list[int]:
        raise StoreUnavailable

    with alive.while_running(task), alive.while_running(held):
        alive.extend()
        assert not task.lost, "the store has extended it"
        task.lost._until = 0
        monkeypatch.setattr(ledger, "extend", away)
        alive.extend()
        assert (bool(task.lost), bool(held.lost)) == (True, False)
