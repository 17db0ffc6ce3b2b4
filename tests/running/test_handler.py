"""A function of a user's own: the event that the engine sends, worked and settled by the decorator."""

import asyncio
import functools
import json
import math
import re
import threading
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from duecourse import Done, Drop, Kind, Retry, Task, extend, save, task_handler
from duecourse.errors import InvalidInput, StoreUnavailable
from duecourse.ledger.embedded.ledger import EmbeddedLedger
from duecourse.ledger.operations.namespace_records import Warmth
from duecourse.ledger.sharding import Sharding
from duecourse.ledger.task import GRACE_MS, Status
from duecourse.running.task_event import tasks_event
from duecourse.testing import make_task, run
from tests.support.clock import HandClock
from tests.support.engine import Table
from tests.support.functions import Context
from tests.support.ledger import SHARD, claim, new, stored_task
from tests.support.wired import Wire, wired_with


@pytest.fixture
def table() -> Table:
    return Table()


@pytest.fixture(autouse=True)
def wired(ledger: EmbeddedLedger, table: Table) -> Iterator[None]:
    with wired_with(ledger=ledger, results=table):
        yield


@task_handler
def handler(task: Task) -> Done | Retry | Drop | None:
    """Do as the payload says."""
    match task.payload["do"]:
        case "done":
            return Done({"by": task.id})
        case "drop":
            return Drop("no use")
        case "raise":
            raise LookupError("no such customer")
    return None


def event(ledger: EmbeddedLedger, **work: str) -> dict[str, object]:
    """The engine's event for tasks that are to do so, as it comes over the wire."""
    ledger.add([new(id, payload=json.dumps({"do": do})) for id, do in work.items()])
    return dict(json.loads(json.dumps(tasks_event(claim(ledger)))))


def test_each_task_is_settled_as_the_function_says(ledger: EmbeddedLedger, table: Table) -> None:
    answer = handler(event(ledger, a="done", b="drop", c="raise", d="nothing"), Context())
    assert {name: count for name, count in answer.items() if count} == {"done": 2, "dead": 1, "retried": 1}
    assert table.results["a"].value == '{"by":"a"}'
    assert (stored_task(ledger, "b").status, stored_task(ledger, "b").error) == (Status.DEAD, "no use")
    assert stored_task(ledger, "c").error.startswith("LookupError: no such customer at ")


def test_the_same_event_again_settles_nothing(ledger: EmbeddedLedger) -> None:
    given = event(ledger, a="done", b="drop")
    handler(given, Context())
    assert handler(given, Context())["stale"] == 2
    assert len(stored_task(ledger, "b").history) == 1


def test_the_function_keeps_its_name_and_words() -> None:
    assert (handler.__name__, handler.__doc__) == ("handler", "Do as the payload says.")


@pytest.mark.parametrize("away", [False, True])
def test_an_event_without_tasks_has_the_ledger_opened(clock: HandClock, away: bool) -> None:
    asked: list[str] = []

    class StoreAskedForWarmth(EmbeddedLedger):
        def warmth(self) -> Warmth:
            asked.append("warmth")
            if away:
                raise StoreUnavailable
            return super().warmth()

    with wired_with(ledger=StoreAskedForWarmth(clock)):
        answer = handler(tasks_event([]), Context())
    assert (set(answer.values()), asked) == ({0}, ["warmth"])


@pytest.mark.parametrize("strange", [{}, {"source": "aws.events"}, [], None, {"source": "duecourse", "version": "2"}])
def test_an_event_that_is_not_the_engines_is_refused(strange: object) -> None:
    with pytest.raises(InvalidInput):
        handler(strange, Context())


def test_a_checkpoint_and_more_time_reach_the_tasks_own_shard(clock: HandClock, wire: Wire) -> None:
    ledger = EmbeddedLedger(clock, Sharding({"default": 8}))
    wire(ledger=ledger)
    ledger.add([new("a", group="g")])
    (task,) = ledger.claim(ledger.shard_of("default", "a", "g"), 1, lease_ms=5_000).tasks
    save(task, {"at": 3})
    extend(task, "PT60S")
    standing_now = ledger.get("default", "a")
    assert standing_now
    assert (standing_now.state, standing_now.lease_expires_at) == ({"at": 3}, clock.at + 60_000)


def test_more_time_is_never_much_more_than_the_function_has(ledger: EmbeddedLedger, clock: HandClock) -> None:
    ledger.add([new("a")])
    [task] = ledger.claim(SHARD, 1, lease_ms=5_000).tasks
    timed = replace(task, left_ms=lambda: 20_000)
    extend(timed, "PT1H")
    assert timed.remaining == 20
    assert stored_task(ledger).lease_expires_at == clock.at + 20_000 + GRACE_MS
    extend(timed, "PT1S")
    assert stored_task(ledger).lease_expires_at == clock.at + 20_000 + GRACE_MS


def test_a_task_that_nothing_ends_has_all_the_time_there_is(ledger: EmbeddedLedger) -> None:
    ledger.add([new("a")])
    [task] = ledger.claim(SHARD, 1, lease_ms=5_000).tasks
    assert task.remaining == math.inf


def test_a_handler_is_told_what_time_is_left(ledger: EmbeddedLedger) -> None:
    seen: list[float] = []
    given = event(ledger, a="done")
    task_handler(lambda task: seen.append(task.remaining))(given, Context())
    assert seen == [Context().get_remaining_time_in_millis() / 1_000]


@pytest.mark.parametrize("parallel", [1, 2])
def test_a_handler_chooses_how_many_tasks_run_at_once(ledger: EmbeddedLedger, parallel: int) -> None:
    counts, running, lock = [0], [0], threading.Lock()

    @task_handler(parallel=parallel)
    def counting(_task: Task) -> None:
        with lock:
            running[0] += 1
            counts.append(running[0])
        time.sleep(0.02)  # time for the others to begin, if they might
        with lock:
            running[0] -= 1

    assert counting(event(ledger, **dict.fromkeys("abcdef", "done")), Context())["done"] == 6
    assert max(counts) == parallel


def test_without_that_choice_tasks_run_beside_each_other(ledger: EmbeddedLedger) -> None:
    all_of_them = threading.Barrier(6, timeout=30)
    given = event(ledger, **dict.fromkeys("abcdef", "done"))

    @task_handler
    def meeting(_task: Task) -> None:
        all_of_them.wait()

    assert meeting(given, Context())["done"] == 6


def test_a_handler_may_name_the_kind_that_a_worker_runs_with_it() -> None:
    @task_handler(kind="report", parallel=3)
    def named(_task: Task) -> None:
        """Run nothing."""

    assert (named.kind, named.parallel, named.__name__) == ("report", 3, "named")
    assert (handler.kind, handler.parallel) == ("", None)


async def awaited(_task: Task) -> None:
    """Run nothing."""


async def streamed(_task: Task) -> AsyncIterator[None]:
    yield


def stepwise(_task: Task) -> Iterator[None]:
    yield


class Awaited:
    """An object that is called as an async function."""

    async def __call__(self, _task: Task) -> None:
        """Run nothing."""

    async def method(self, _task: Task) -> None:
        """Run nothing."""


@pytest.mark.parametrize(
    ("function", "problem"),
    [
        (streamed, "streamed is a generator"),
        (stepwise, "stepwise is a generator"),
        (functools.partial(functools.partial(stepwise)), "stepwise is a generator"),
        (functools.partial(streamed), "streamed is a generator"),
        ("report", "'report' is no function"),
    ],
)
def test_a_function_that_runs_no_task_when_called_is_no_handler(function: Any, problem: str) -> None:
    for make in (task_handler, task_handler(kind="report"), Kind("report", payload=dict).handler):
        with pytest.raises(TypeError, match=re.escape(problem)) as rejected:
            make(function)
        if callable(function):
            assert Path(__file__).name in str(rejected.value)


@pytest.mark.parametrize(
    "function",
    [awaited, functools.partial(awaited), Awaited(), Awaited().method, functools.partial(Awaited())],
    ids=["function", "partial", "object", "method", "partial of an object"],
)
def test_a_function_that_is_to_be_awaited_is_a_handler(function: Any) -> None:
    for make in (task_handler, task_handler(kind="report"), Kind("report", payload=dict).handler):
        made = make(function)
        assert made.run_async
        assert run(made, make_task()).outcome == Done()
    assert task_handler(lambda _task: None).run_async is None


def test_a_plain_function_that_calls_an_async_one_is_a_handler() -> None:
    @functools.wraps(awaited)
    def plain(task: Task) -> None:
        asyncio.run(awaited(task))

    plain_too = functools.partial(plain)
    assert task_handler(kind="report")(plain).kind == task_handler(kind="report")(plain_too).kind == "report"


@pytest.mark.parametrize(("fields", "named"), [({"kind": "a b"}, "kind"), ({"parallel": 0}, "parallel")])
def test_a_wrong_choice_is_refused_where_it_is_made(fields: dict[str, Any], named: str) -> None:
    with pytest.raises(ValueError, match=f"^{named} must be"):
        task_handler(**fields)
