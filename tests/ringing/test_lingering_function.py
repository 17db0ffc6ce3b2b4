"""poll_tick as the schedule invokes it, told to linger: what it serves, measures and answers, and when it ends."""

import itertools
import json
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from duecourse.errors import InvalidSettings, StoreUnavailable
from duecourse.ledger.connect import connect
from duecourse.ledger.embedded.ledger import EmbeddedLedger
from duecourse.ledger.operations.ledger import Ledger
from duecourse.ledger.task import NewTask, Shard, Task, Trigger
from duecourse.settings import Settings
from tests.support.engine import Lambda
from tests.support.functions import Context, invoke, saved
from tests.support.lingering import MARGIN_MS, countdown
from tests.support.matrix import in_turn
from tests.support.redis_server import RedisServer, need, newest
from tests.support.wait import until
from tests.support.wired import wired_with

pytestmark = pytest.mark.slow

LINGER_S = 1.5


class Running(Context):
    """An invocation whose time runs."""

    def __init__(self, seconds: float) -> None:
        self.get_remaining_time_in_millis = countdown(seconds)  # type: ignore[method-assign]


@contextmanager
def wired(server: RedisServer, kind: Callable[[Task], None], **settings: Any) -> Iterator[Ledger]:
    """The functions' parts on this server, whose kind `noop` does what `kind` says."""
    given = {"store": server.url, "namespace": "test", "margin_ms": MARGIN_MS, "parallel": 4}
    linger_ms = {"tick_linger_ms": int(LINGER_S * 1_000)}
    with connect(server.url) as client:
        ledger = Ledger(client, "test")
        parts = Settings(**given | linger_ms | settings)
        with wired_with(settings=parts, ledger=ledger, kinds={"noop": kind}):
            yield ledger


def measured(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines() if "_aws" in line]


def test_a_tick_that_lingers_serves_what_falls_due_and_measures_it(
    redis_server: RedisServer, capsys: pytest.CaptureFixture[str]
) -> None:
    late: list[int] = []
    with wired(redis_server, lambda task: late.append(task.claimed_at - task.due_at)) as ledger:
        ledger.add([NewTask("overdue", "noop"), NewTask("soon", "noop", delay_ms=600)])
        began = time.monotonic()
        answer = invoke("poll_tick", saved("poll_tick/rule"), Running(10))
        took = time.monotonic() - began
    assert LINGER_S <= took < LINGER_S + 2
    assert len(late) == 2
    assert 0 <= late[-1] < 400
    assert answer["shards"] == 1
    found, lingered = measured(capsys.readouterr().out)
    assert {"OldestOverdue", "Dead", "Claimed", "Reclaimed"} <= found.keys()
    assert {"Rings", "RingLateness", "Done", "Retried", "Lapsed", "LapsedAtTarget"} <= lingered.keys()
    assert answer["done"] + lingered["Done"] == 2
    assert lingered["Rings"] >= 1


def test_what_it_found_is_measured_before_it_stays(
    redis_server: RedisServer, capsys: pytest.CaptureFixture[str]
) -> None:
    with wired(redis_server, lambda _: None):
        thread = threading.Thread(target=invoke, args=("poll_tick", saved("poll_tick/rule"), Running(10)))
        thread.start()
        out = until(lambda: capsys.readouterr().out)
        assert thread.is_alive()
        assert [set(line) >= {"OldestOverdue"} for line in measured(out)] == [True]
        thread.join()


def test_a_tick_that_is_not_told_to_linger_ends_at_once(redis_server: RedisServer) -> None:
    with wired(redis_server, lambda _: None, tick_linger_ms=0) as ledger:
        ledger.add([NewTask("later", "noop", delay_ms=300)])
        began = time.monotonic()
        assert invoke("poll_tick", saved("poll_tick/rule"), Running(10))["claimed"] == 0
        assert time.monotonic() - began < 0.3


def test_a_tick_with_slow_work_of_its_own_serves_rings_meanwhile(redis_server: RedisServer) -> None:
    """The drain of the tick itself looks for more each tenth of a second: rings are served beside it, at once."""
    claimed, go_on = dict[str, Trigger | None](), threading.Event()

    def kind(task: Task) -> None:
        claimed[task.id] = task.trigger
        if task.id == "slow":
            assert go_on.wait(30)

    with wired(redis_server, kind, tick_linger_ms=2_000) as ledger:
        ledger.add([NewTask("slow", "noop")])
        thread = threading.Thread(target=invoke, args=("poll_tick", saved("poll_tick/rule"), Running(10)))
        thread.start()
        until(lambda: claimed)
        ledger.add([NewTask(f"quick-{n}", "noop", delay_ms=100 + 30 * n) for n in range(20)])
        until(lambda: len(claimed) == 21)
        go_on.set()
        thread.join()
    by_ring = [id for id, trigger in claimed.items() if trigger in (Trigger.RING, Trigger.TIMER)]
    assert len(by_ring) > 10, "the tick's own drain found most of them"


class Halting(Running):
    """One that halts where it is asked for its time: at first before the tick has seen how the ledger stands.

    `passes` is how many times it does not halt first: of a few shards the tick asks once as it looks at them.
    """

    def __init__(self, seconds: float, passes: int = 0) -> None:
        super().__init__(seconds)
        asks = itertools.count()
        self.asked, self.go_on, self.asked_again = threading.Event(), threading.Event(), threading.Event()
        self.is_over = False
        left_ms = self.get_remaining_time_in_millis

        def halt() -> int:
            if next(asks) < passes:
                return left_ms()
            (self.asked_again if self.asked.is_set() else self.asked).set()
            assert self.go_on.wait(30)
            return MARGIN_MS if self.is_over else left_ms()

        self.get_remaining_time_in_millis = halt  # type: ignore[method-assign]


@pytest.mark.parametrize("away", in_turn("as it comes", "as it sweeps"))
def test_a_tick_that_fails_for_its_store_is_away_serves_rings_once_that_is_back(
    away: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The next tick is a minute away, a server that starts again a second."""
    ran, context = list[str](), Halting(20)

    def tick() -> None:
        with pytest.raises(StoreUnavailable):
            invoke("poll_tick", saved("poll_tick/rule"), context)

    thread = threading.Thread(target=tick)
    durable = RedisServer(need(newest()), "--appendonly", "yes", "--appendfsync", "always")
    with durable as server, wired(server, lambda task: ran.append(task.id), tick_linger_ms=8_000) as ledger:
        ledger.add([NewTask("due", "noop", delay_ms=10)])
        if away == "as it comes":
            server.stop(signal.SIGKILL)
        thread.start()
        assert context.asked.wait(30)
        server.stop(signal.SIGKILL)
        context.go_on.set()
        assert context.asked_again.wait(30), "it stays"
        server.start()
        until(lambda: ran, seconds=6)
        until(lambda: ledger.stats(Shard()).done)
        context.is_over = True
        thread.join()
    assert ran == ["due"]
    assert [line.get("Done") for line in measured(capsys.readouterr().out)] == [1], "its stay is measured all the same"


def test_how_the_ledger_stands_is_seen_before_rings_are_served(redis_server: RedisServer) -> None:
    """They would clear what the alarm is to count."""
    context = Halting(10, passes=1)
    with wired(redis_server, lambda _: None, tick_linger_ms=200) as ledger, redis_server.client() as client:
        ledger.add([NewTask("overdue", "noop")])
        client.config_resetstat()
        thread = threading.Thread(target=invoke, args=("poll_tick", saved("poll_tick/rule"), context))
        thread.start()
        assert context.asked.wait(30)
        seen: Any = client.info("commandstats")
        context.go_on.set()
        thread.join()
    assert seen["cmdstat_zcard"]["calls"]
    assert "cmdstat_psubscribe" not in seen


def test_a_ledger_without_bells_is_named() -> None:
    settings = Settings(store="memory://", tick_linger_ms=60_000)
    with (
        wired_with(settings=settings, ledger=EmbeddedLedger()),
        pytest.raises(InvalidSettings, match=r"DUECOURSE_STORE: .* no bells"),
    ):
        invoke("poll_tick", saved("poll_tick/rule"), Running(10))


def test_a_tick_that_lingers_warms_the_function_of_what_comes_next(redis_server: RedisServer) -> None:
    service, targets = Lambda(), {"report": "lambda:Report"}
    given = {"store": redis_server.url, "namespace": "test", "margin_ms": 1_000, "parallel": 4, "targets": targets}
    times = {"warm_ms": 2_000, "warm_idle_ms": 10_000, "tick_linger_ms": 3_000}
    with connect(redis_server.url) as client:
        ledger = Ledger(client, "test")
        parts = Settings(**given | times)
        with wired_with(settings=parts, ledger=ledger, kinds={}, invoker=service):
            ledger.add([NewTask("soon", "report", delay_ms=2_200), NewTask("next", "report", delay_ms=2_500)])
            invoke("poll_tick", saved("poll_tick/rule"), Running(10))
    assert service.ids() == [[], ["soon"], ["next"]]
