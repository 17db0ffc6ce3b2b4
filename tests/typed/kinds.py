"""Types that mypy must find, and errors that it must report: an `ignore` that nothing needs fails `make check`."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import date
from typing import Any, assert_type

from pydantic import BaseModel

from duecourse import (
    AddedSchedule,
    AddResult,
    AsyncClient,
    AsyncKind,
    Client,
    Done,
    Kind,
    ListedSchedules,
    Retry,
    ScheduleStatus,
    Task,
    Upcoming,
    task_handler,
)


class Report(BaseModel):
    """Payload."""

    month: date


class Summary(BaseModel):
    """Result."""

    pages: int


report = Kind("report", payload=Report, result=Summary)
loose = Kind("loose", payload=Report)


@report.handler
def returns_its_result(task: Task[Report]) -> Summary | Retry:
    """Work a task whose payload is known."""
    assert_type(task, Task[Report])
    assert_type(task.payload, Report)
    return Summary(pages=task.payload.month.day)


@report.handler
def returns_an_outcome(_task: Task[Report]) -> Done:
    """Outcomes are fine, too."""
    return Done(Summary(pages=1))


@report.handler  # type: ignore[arg-type]
def returns_another_result(_task: Task[Report]) -> str:
    """A result of another type is not."""
    return "three pages"


@report.handler  # type: ignore[arg-type]
def takes_another_payload(_task: Task[Summary]) -> Summary:
    """Nor is a payload of another type."""
    return Summary(pages=1)


@task_handler
def untyped(task: Task) -> Done:
    """The untyped way stays."""
    assert_type(task.payload, Any)
    return Done()


def use(client: Client) -> None:
    """Use a kind from Python."""
    assert_type(report.add(Report(month=date(2026, 9, 1)), delay="PT5M"), AddResult)
    assert_type(report.wait("a", timeout=5), Summary)
    assert_type(report.get("a").payload, Report)
    assert_type(report.on(client), Kind[Report, Summary])
    assert_type(loose.wait("a"), Any)
    report.add(Summary(pages=1))  # type: ignore[arg-type]
    report.add({"month": "2026-09-01"})  # type: ignore[arg-type]
    report.add(Report(month=date(2026, 9, 1)), colour="red")  # type: ignore[call-arg]
    report.add(Report(month=date(2026, 9, 1)), queue="other")  # type: ignore[call-arg]


def schedule(client: Client) -> None:
    """Use schedules from Python."""
    verbs = client.schedules
    assert_type(verbs.add(kind="report", payload={}, repeat={"cron": "0 9 * * *"}), AddedSchedule)
    assert_type(verbs.list(after="a"), ListedSchedules)
    assert_type(verbs.get("daily"), ScheduleStatus)
    assert_type(verbs.change("daily", overlap="skip", limit=None), ScheduleStatus)
    assert_type(verbs.preview(repeat={"every": "PT1H"}), Sequence[Upcoming])
    assert_type(verbs.run("daily"), str)
    verbs.add(kind="report", payload={})  # type: ignore[call-arg]
    verbs.change("daily", overlap="both")  # type: ignore[arg-type]
    verbs.change("daily", colour="red")  # type: ignore[call-arg]


async def await_it(client: AsyncClient) -> None:
    """Use a kind in an event loop."""
    assert_type(await client.schedules.get("daily"), ScheduleStatus)
    assert_type(await client.schedules.backfill("daily", since="2026-11-01T00:00:00Z", to="2026-11-02T00:00:00Z"), int)
    awaited = report.on(client)
    assert_type(awaited, AsyncKind[Report, Summary])
    assert_type(await awaited.add(Report(month=date(2026, 9, 1))), AddResult)
    assert_type(await awaited.wait("a"), Summary)
    assert_type((await client.add(kind="report", payload={})).task, Task[Any])
    await client.add(kind="report")  # type: ignore[call-arg]
    client.add(kind="report", payload={}).created  # type: ignore[attr-defined]  # noqa: B018


def change(task: Task) -> None:
    """Values cannot be changed in place, and `replace` knows their fields."""
    assert_type(replace(task, attempt=2), Task[Any])
    replace(task, attempt="2")  # type: ignore[arg-type]
    replace(task, colour="red")  # type: ignore[call-arg]
    task.attempt = 2  # type: ignore[misc]
    task.retry.jitter = False  # type: ignore[misc]
    Done("x").result = "y"  # type: ignore[misc]
