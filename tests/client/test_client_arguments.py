"""What a program meets first: positional kind and payload, instants as datetimes, errors as answers of its own API."""

import asyncio
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from fastapi import FastAPI

from duecourse import AsyncClient, Client, Problem, errors, problem_of, to_datetime
from duecourse.base.times import MAX_INSTANT
from duecourse.ledger.embedded.ledger import EmbeddedLedger
from duecourse.settings import Settings
from duecourse.testing import Duecourse
from tests.support.clock import START
from tests.support.source import ROOT
from tests.support.wired import wired_with

PAGE = ROOT / "docs" / "reference" / "python.md"
PAYLOAD = {"month": "2026-09"}


@pytest.fixture
def client(ledger: EmbeddedLedger) -> Iterator[Client]:
    with wired_with(settings=Settings(targets={"report": "lambda:Report"}), ledger=ledger):
        yield Client.from_env()


def test_kind_and_payload_may_be_positional(client: Client) -> None:
    task = client.add("report", PAYLOAD, delay="5m").task
    assert (task.kind, task.payload) == ("report", PAYLOAD)
    assert client.add("report", payload=PAYLOAD).created


@pytest.mark.usefixtures("client")
def test_kind_and_payload_may_be_positional_for_asyncio() -> None:
    async def add() -> Any:
        async with AsyncClient.from_env() as ours:
            return (await ours.add("report", PAYLOAD)).task

    assert asyncio.run(add()).payload == PAYLOAD


def test_kind_and_payload_may_be_positional_in_the_test_kit(duecourse: Duecourse) -> None:
    duecourse.handle("report", lambda _: None)
    assert duecourse.add("report", PAYLOAD).payload == PAYLOAD
    assert duecourse.add(kind="report", payload=PAYLOAD).payload == PAYLOAD


def test_a_task_has_its_times_as_datetimes_that_add_takes_again(client: Client) -> None:
    due, deadline = datetime(2100, 1, 4, 9, 30, tzinfo=UTC), datetime(2100, 1, 5, tzinfo=UTC)
    task = client.add("report", PAYLOAD, due_at=due, deadline=deadline).task
    assert (task.due, task.deadline) == (due, deadline)
    assert (task.due_at, task.deadline_at) == (due.timestamp() * 1000, deadline.timestamp() * 1000)
    assert client.move(task.id, due_at=task.due + timedelta(hours=1)).due == due + timedelta(hours=1)


def test_a_time_that_is_not_there_is_none(client: Client) -> None:
    task = client.add("report", PAYLOAD).task
    assert task.deadline is None
    assert replace(task, due_at=MAX_INSTANT).due is None


def test_each_other_instant_is_a_datetime_by_one_function(client: Client) -> None:
    task = client.add("report", PAYLOAD).task
    assert to_datetime(task.created_at) == datetime.fromtimestamp(START / 1000, UTC)
    assert to_datetime(1_774_747_800_123).isoformat() == "2026-03-29T01:30:00.123000+00:00"


def test_the_error_of_a_good_task_is_empty_text(client: Client) -> None:
    assert client.add("report", PAYLOAD).task.error == ""


def page_app() -> FastAPI:
    """The app of the page on the client."""
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    [code] = [block for block in blocks if "exception_handler" in block]
    names: dict[str, Any] = {}
    exec(compile(code, PAGE.name, "exec"), names)  # noqa: S102 - our own page
    app: FastAPI = names["app"]
    return app


def app_of(client: Client) -> FastAPI:
    """An API of a program: the app of the page, with routes on a client of the test."""
    app = page_app()

    @app.post("/reports/{id}")
    def add(id: str, delay: str) -> dict[str, str]:
        return {"id": client.add("report", {}, id=id, delay=delay).task.id}

    @app.get("/reports/{id}")
    def get(id: str) -> dict[str, str]:
        return {"status": client.get(id).status}

    @app.get("/down")
    def down() -> None:
        raise errors.StoreUnavailable("redis://10.0.0.7:6379 does not answer")

    return app


def answer(app: FastAPI, method: str, path: str, query: str = "") -> tuple[int, dict[str, str], Any]:
    """Status, headers and JSON of one request, by ASGI."""
    return asyncio.run(answer_here(app, method, path, query))


async def answer_here(app: FastAPI, method: str, path: str, query: str = "") -> tuple[int, dict[str, str], Any]:
    """The same within a running event loop."""
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method, "path": path,
             "raw_path": path.encode(), "query_string": query.encode(), "headers": [], "scheme": "http",
             "root_path": "", "server": ("testserver", 80), "client": ("127.0.0.1", 1)}  # fmt: skip
    await app(scope, receive, send)
    headers = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
    return sent[0]["status"], headers, json.loads(b"".join(one.get("body", b"") for one in sent[1:]))


def test_an_error_is_the_answer_of_a_fastapi_program(client: Client) -> None:
    app = app_of(client)
    assert answer(app, "POST", "/reports/a", "delay=5m")[::2] == (200, {"id": "a"})
    status, headers, wrong = answer(app, "POST", "/reports/b", "delay=P1M")
    assert (status, headers["content-type"]) == (422, "application/problem+json")
    assert [one["field"] for one in wrong["errors"]] == ["delay"]
    status, _, missing = answer(app, "GET", "/reports/none")
    assert (status, missing["type"]) == (404, "urn:duecourse:problem:task-not-found")
    status, headers, down = answer(app, "GET", "/down")
    assert (status, headers["retry-after"]) == (503, "1")
    assert "10.0.0.7" not in json.dumps(down)


def test_the_fastapi_app_of_the_page_adds_a_task_by_one_client() -> None:
    app = page_app()

    async def ask() -> list[tuple[int, dict[str, str], Any]]:
        async with app.router.lifespan_context(app):
            return [await answer_here(app, "POST", path) for path in ("/months/2026-10", "/months/2026 10")]

    with wired_with(settings=Settings(targets={"report": "worker"}), ledger=EmbeddedLedger()):
        added, wrong = asyncio.run(ask())
    assert added[::2] == (202, {"id": "report-2026-10"})
    assert (wrong[0], [one["field"] for one in wrong[2]["errors"]]) == (422, ["id"])


def test_the_answer_of_an_error_is_that_of_the_http_api() -> None:
    assert problem_of(errors.InvalidInput([])).status == 422
    assert isinstance(problem_of(errors.TaskDead()), Problem)
    assert problem_of(ValueError("secret")).document["detail"] != "secret"


@pytest.mark.parametrize(
    ("count", "text"),
    [(1, "tasks.0.kind: no"), (3, "tasks.0.kind: no; tasks.1.kind: no; tasks.2.kind: no"),
     (100, "tasks.0.kind, tasks.1.kind, tasks.2.kind and 97 more: no")],
)  # fmt: skip
def test_a_problem_that_many_fields_have_is_told_once(count: int, text: str) -> None:
    problems = [errors.FieldError(f"tasks.{n}.kind", "no") for n in range(count)]
    error = errors.InvalidInput([*problems, errors.FieldError("queue", "slip")])
    assert str(error) == f"{text}; queue: slip"
    assert len(error.problems) == count + 1
