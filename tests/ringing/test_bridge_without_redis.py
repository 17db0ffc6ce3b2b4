"""The bridge on a store of its own process: no server rings there, and its timer alone keeps time."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from duecourse.bridge import Bridge
from duecourse.ledger.bells import BellEvent, BellMessage, BellTimes
from duecourse.ledger.embedded.ledger import EmbeddedLedger
from duecourse.ledger.task import Ending, Shard, Task
from duecourse.ringing.bridge import LambdaRingHandler
from duecourse_local.harness.embedded_bells import EmbeddedBells
from tests.support.bridges import Recorder
from tests.support.clock import HandClock
from tests.support.engine import engine
from tests.support.ledger import SHARD, add, claim, new, settle, stored_task
from tests.support.level_ledger import level_ledger
from tests.support.stalls import on_time_ms
from tests.support.wait import until

pytestmark = pytest.mark.slow

BELL = "test:{default/0}:bell"
SOON_MS = 150


@pytest.fixture(params=["memory", "leveldb"])
def live(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[EmbeddedLedger]:
    """Each of these stores, on this machine's clock."""
    if request.param == "memory":
        yield EmbeddedLedger()
        return
    with level_ledger(tmp_path / "ledger") as ledger:
        yield ledger


class Working(Recorder):
    """An invoker that works what is due, as on_expired does."""

    def __init__(self, ledger: EmbeddedLedger) -> None:
        super().__init__(self._work)
        self._ledger = ledger
        self.late_ms: list[int] = []

    def _work(self, _keys: list[str]) -> Any:
        got = self._ledger.claim(SHARD, 100, lease_ms=30_000)
        for task in got.tasks:
            self.late_ms.append(got.now - task.due_at)
            settle(self._ledger, task, Ending.DONE)
        return {"claimed": len(got.tasks), "backlog": got.backlog}


@contextmanager
def bridging(ledger: EmbeddedLedger, invoker: Recorder, beat_s: float = 10.0) -> Iterator[Bridge]:
    bridge = Bridge(EmbeddedBells(ledger, "test"), LambdaRingHandler(invoker, "on_expired"), beat_s=beat_s)
    bridge.start()
    try:
        assert bridge.wait_ready(30)
        yield bridge
        assert not bridge.wait_ended(0), "one of the bridge's threads died"
    finally:
        assert bridge.stop()


def test_a_task_rings_when_it_is_due_and_never_before(live: EmbeddedLedger) -> None:
    working = Working(live)
    with on_time_ms(50) as most_ms, bridging(live, working):
        for n in range(10):
            live.add([new(f"t-{n}", delay_ms=SOON_MS + 20 * n)])
        until(lambda: live.stats(SHARD).done == 10)
    assert all(late >= 0 for late in working.late_ms)
    assert sorted(working.late_ms)[5] <= most_ms()


def test_a_task_moved_to_the_front_rings_at_its_new_time(live: EmbeddedLedger) -> None:
    working = Working(live)
    with bridging(live, working):
        add(live, "far", delay_ms=3_600_000)
        add(live, "near", delay_ms=SOON_MS)
        until(lambda: stored_task(live, "near").run == 1)
        assert stored_task(live, "far").run == 0


def test_what_fell_due_while_nobody_listened_rings_at_once(live: EmbeddedLedger) -> None:
    add(live, "missed", delay_ms=1)
    working = Working(live)
    until(lambda: live.now() > stored_task(live, "missed").due_at)
    with bridging(live, working):
        until(lambda: stored_task(live, "missed").run == 1)


def test_a_lapsed_lease_rings(live: EmbeddedLedger) -> None:
    add(live, "a")
    working = Working(live)
    with bridging(live, working):
        until(lambda: stored_task(live, "a").run == 1)
        add(live, "b", delay_ms=3_600_000)
        live.add([new("c")])
        taken = claim(live, lease_ms=100)
        until(lambda: all(stored_task(live, task.id).run > task.run for task in taken))


def test_the_bridge_counts_events_as_heard_and_beats_quietly(
    live: EmbeddedLedger, caplog: pytest.LogCaptureFixture
) -> None:
    with bridging(live, Working(live), beat_s=0.05) as bridge:
        add(live, "far", delay_ms=3_600_000)
        assert not bridge.wait_ended(0.5)
        assert bridge.stats().events is True
        assert bridge.stats().rings <= 1
    assert [record.message for record in caplog.records if record.levelname != "INFO"] == []


def test_a_drain_by_rings_works_what_is_due(live: EmbeddedLedger) -> None:
    """The engine's own drain behind the bridge, with a task that comes again."""
    seen: list[str] = []

    def kind(task: Task) -> None:
        seen.append(task.id)

    with engine(live, kind) as run:
        drain = Recorder(lambda _keys: run.drainer.drain([Shard()], lambda: 60_000)._asdict())
        with bridging(live, drain):
            for n in range(50):
                live.add([new(f"t-{n}", delay_ms=n)])
            until(lambda: live.stats(SHARD).done == 50)
    assert sorted(seen) == sorted(f"t-{n}" for n in range(50))


def test_a_bell_hangs_through_its_own_millisecond_and_is_gone_afterwards(clock: HandClock) -> None:
    ledger = EmbeddedLedger(clock)
    bells = EmbeddedBells(ledger, "test")
    hearing = bells.subscribe()
    at = add(ledger, "a", delay_ms=50).due_at
    assert hearing.hear(1) == BellMessage(BellEvent.HEAD, BELL, at)
    assert bells.known() == [BELL]
    assert bells.look([BELL]) == BellTimes(clock.now(), [at])
    clock.at = at
    assert bells.look([BELL]) == BellTimes(at, [at])
    clock.advance(1)
    assert bells.look([BELL, "test:{nobody/0}:bell"]) == BellTimes(at + 1, [None, None])
    assert bells.look([BELL]).hung == [None]
    assert hearing.hear(1) == BellMessage(BellEvent.EXPIRED, BELL)
    assert hearing.hear(0.01) is None, "it is told once"


def test_a_bell_taken_down_is_told_and_nothing_is_after_the_end(clock: HandClock) -> None:
    ledger = EmbeddedLedger(clock)
    bells = EmbeddedBells(ledger, "test")
    hearing = bells.subscribe()
    add(ledger, "a", delay_ms=50)
    ledger.cancel("default", ["a"])
    assert [hearing.hear(1), hearing.hear(1)][1] == BellMessage(BellEvent.HEAD, BELL, 0)
    hearing.close()
    add(ledger, "b", delay_ms=50)
    assert hearing.hear(0.01) is None
    again = bells.subscribe()
    bells.close()
    add(ledger, "c", delay_ms=10)
    assert again.hear(0.01) is None


def test_the_canary_proves_that_the_subscription_lives() -> None:
    bells = EmbeddedBells(EmbeddedLedger(), "test")
    hearing = bells.subscribe()
    assert bells.try_canary()
    assert [hearing.hear(1), hearing.hear(1)] == [
        BellMessage(BellEvent.EXPIRED, bells.canary),
        BellMessage(BellEvent.HEAD, bells.canary),
    ]
