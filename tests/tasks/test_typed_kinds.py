"""Typed kinds: a payload and a result that fit, and what happens to those that do not."""

import asyncio
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date
from typing import Any

import pytest
from pydantic import BaseModel, Field

from duecourse import Again, AsyncClient, Client, Done, Drop, Kind, Retry, Task, errors
from duecourse.app import App
from duecourse.ledger.embedded.ledger import EmbeddedLedger
from duecourse.ledger.task import Ending, Status
from duecourse.running.task_event import tasks_event
from duecourse.settings import Settings
from tests.support.functions import Context
from tests.support.ledger import claim, claim_one, new, settle, stored_task
from tests.support.wired import wired_with

TARGETS = {"report": "lambda:Report"}


class Report(BaseModel):
    month: date
    pages_at_most: int = Field(default=9, alias="pagesAtMost", le=99)


class Summary(BaseModel):
    pages: int


@dataclass
class Order:
    number: int
    at: date


REPORT = Report(month=date(2026, 9, 1), pagesAtMost=3)
report = Kind("report", payload=Report, result=Summary)


@pytest.fixture
def app(ledger: EmbeddedLedger) -> Iterator[App]:
    with wired_with(settings=Settings(targets=TARGETS), ledger=ledger) as app:
        yield app


def worked(app: App, ledger: EmbeddedLedger, function: Callable[[Task[Report]], Any], kind: Any = report) -> Task:
    """The task `a` after the handler had it."""
    kind.handler(function).on(app)(tasks_event(claim(ledger)), Context())
    return stored_task(ledger, "a")


@pytest.mark.usefixtures("app")
def test_a_payload_is_added_as_json_by_the_names_that_requests_use(ledger: EmbeddedLedger) -> None:
    added = report.add(REPORT, id="a", delay="PT5M", retry={"max_attempts": 3})
    assert (added.created, added.task.kind, added.task.retry.max_attempts) == (True, "report", 3)
    assert stored_task(ledger, "a").payload == {"month": "2026-09-01", "pagesAtMost": 3}
    assert report.get("a").payload == REPORT


@pytest.mark.usefixtures("app")
def test_a_payload_that_does_not_fit_is_named_and_nothing_is_added(ledger: EmbeddedLedger) -> None:
    broken = Report.model_construct(month=date(2026, 9, 1), pages_at_most=400)
    with pytest.raises(errors.InvalidInput, match=r"payload\.pagesAtMost: must be less than or equal to 99"):
        report.add(broken)
    with pytest.raises(errors.InvalidInput, match=r"payload\.month"):
        report.add({"pagesAtMost": 3})  # type: ignore[arg-type]
    with pytest.raises(errors.InvalidInput, match="delay"):
        report.add(REPORT, delay="soon")
    assert ledger.shards() == []


@pytest.mark.parametrize(("type_", "payload"), [(Order, Order(3, date(2026, 9, 1))), (dict[str, int], {"pages": 3})])
def test_a_payload_may_be_of_another_type_whose_json_is_an_object(
    app: App, ledger: EmbeddedLedger, type_: Any, payload: Any
) -> None:
    kind: Kind[Any, Any] = Kind("report", payload=type_)
    kind.add(payload, id="a")
    seen: list[Any] = []
    worked(app, ledger, lambda task: seen.append(task.payload), kind)
    assert seen == [payload]


@pytest.mark.usefixtures("app")
def test_a_payload_that_is_no_object_is_rejected() -> None:
    with pytest.raises(errors.InvalidInput, match="payload"):
        Kind("report", payload=int).add(3)


def test_a_handler_gets_a_payload_of_the_type_and_its_result_is_kept(app: App, ledger: EmbeddedLedger) -> None:
    report.add(REPORT, id="a")
    seen: list[Task[Report]] = []

    def function(task: Task[Report]) -> Summary:
        seen.append(task)
        return Summary(pages=task.payload.pages_at_most)

    assert (worked(app, ledger, function).status, stored_task(ledger, "a").result) == (Status.DONE, {"pages": 3})
    assert seen[0].payload == REPORT
    assert seen[0].payload is seen[0].payload, "it is read once"
    assert report.wait("a", timeout=5) == Summary(pages=3)


@pytest.mark.parametrize(
    ("returned", "status", "result"),
    [
        (Done(Summary(pages=2)), Status.DONE, {"pages": 2}),
        (Done({"pages": 2}), Status.DONE, {"pages": 2}),
        (Again(after=60), Status.SCHEDULED, None),
        (Retry(after=60), Status.SCHEDULED, None),
        (Drop("gone"), Status.DEAD, None),
    ],
)
def test_a_handler_may_return_an_outcome(
    app: App, ledger: EmbeddedLedger, returned: Any, status: Status, result: Any
) -> None:
    report.add(REPORT, id="a")
    task = worked(app, ledger, lambda _: returned)
    assert (task.status, task.result) == (status, result)


def test_a_payload_that_does_not_fit_makes_a_task_dead_at_its_first_attempt(app: App, ledger: EmbeddedLedger) -> None:
    ledger.add([new("a", kind="report", payload='{"month": "soon", "pagesAtMost": 3}')])
    calls: list[Any] = []
    task = worked(app, ledger, calls.append)
    assert (task.status, task.attempt, calls) == (Status.DEAD, 1, [])
    assert task.error.startswith("payload.month: must be a valid date")


@pytest.mark.parametrize("returned", [None, "three", Done(), Done({"pages": "many"}), Report])
def test_a_result_that_does_not_fit_makes_a_task_dead_at_its_first_attempt(
    app: App, ledger: EmbeddedLedger, returned: Any
) -> None:
    report.add(REPORT, id="a")
    task = worked(app, ledger, lambda _: returned)
    assert (task.status, task.attempt) == (Status.DEAD, 1)
    assert task.error.startswith("result")


def test_without_a_type_a_result_may_be_any_json_or_none(app: App, ledger: EmbeddedLedger) -> None:
    loose = Kind("report", payload=Report)
    loose.add(REPORT, id="a")
    assert worked(app, ledger, lambda _: {"any": [1]}, loose).result == {"any": [1]}
    loose.add(REPORT, id="b")
    loose.handler(lambda _: None).on(app)(tasks_event(claim(ledger)), Context())
    assert (stored_task(ledger, "b").status, loose.wait("b")) == (Status.DONE, None)


def test_the_errors_of_a_payload_tell_nothing_of_its_values(app: App, ledger: EmbeddedLedger) -> None:
    ledger.add([new("a", kind="report", payload='{"month": "hunter2-9f2e", "pagesAtMost": "hunter2-9f2e"}')])
    assert "hunter2" not in worked(app, ledger, lambda _: None).error


@pytest.mark.usefixtures("app")
def test_waiting_for_a_task_that_is_dead_or_cancelled_says_so(ledger: EmbeddedLedger) -> None:
    report.add(REPORT, id="a")
    settle(ledger, claim_one(ledger), Ending.DROP, detail="no paper")
    with pytest.raises(errors.TaskDead, match="no paper"):
        report.wait("a")
    report.add(REPORT, id="b", delay=60)
    Client.from_env().cancel("b")
    with pytest.raises(errors.TaskCancelled):
        report.wait("b")
    report.add(REPORT, id="c", delay=60)
    with pytest.raises(errors.WaitTimedOut):
        report.wait("c", timeout=0.01)


@pytest.mark.usefixtures("app")
def test_a_kind_has_its_queue_and_may_use_another_client() -> None:
    slow = Kind("report", payload=Report, queue="slow")
    with Client("memory://", targets=TARGETS) as client:
        assert slow.on(client).add(REPORT, id="a").task.queue == "slow"
        assert slow.on(client).get("a").payload == REPORT
        assert client.get("a", "slow").kind == "report"
        with pytest.raises(errors.TaskNotFound):
            slow.get("a")


def test_a_kind_by_an_asynchronous_client_is_awaited(app: App, ledger: EmbeddedLedger) -> None:
    async def use() -> Summary:
        async with AsyncClient.from_env() as client:
            kind = report.on(client)
            assert (await kind.add(REPORT, id="a")).created
            assert (await kind.get("a")).payload == REPORT
            with pytest.raises(errors.InvalidInput, match="payload"):
                await kind.add({})  # type: ignore[arg-type]
            ending = asyncio.create_task(kind.wait("a", timeout=30))
            await asyncio.to_thread(worked, app, ledger, lambda _: Summary(pages=7))
            return await ending

    assert asyncio.run(use()) == Summary(pages=7)


def test_to_declare_a_kind_loads_no_pydantic() -> None:
    code = "import sys; from duecourse import Kind; Kind('a', payload=dict); print('pydantic' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_a_worker_and_the_test_kit_know_a_handler_by_its_kind() -> None:
    assert Kind("typed", payload=dict[str, int]).handler(lambda _: None).kind == "typed"
