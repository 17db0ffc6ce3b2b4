"""The test kit with one handler and one task: made as a function gets it, run as a function runs it."""

import functools
import os
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from duecourse import Again, Done, Drop, Retry, Task, extend, save, task_handler
from duecourse.errors import InvalidInput
from duecourse.testing import Ran, make_task, run


class Report(BaseModel):
    """A payload of a user's own."""

    month: datetime
    pages: int


@task_handler
def handler(task: Task) -> Done | Again | Drop | None:
    """Work in steps, as users' functions do."""
    match task.payload.get("do"):
        case "steps":
            save(task, {"page": 1})
            save(task, {"page": 2})
            extend(task, "PT20S")
            return Again(after="PT1M", state={"page": 3})
        case "raise":
            raise LookupError("no such customer")
        case "late":
            return Done({"left": task.remaining})
        case "large":
            return Done("x" * 70_000)
        case "drop":
            return Drop("no use")
    return None


def test_a_task_has_what_a_function_gets() -> None:
    task = make_task(
        kind="report", payload={"n": 1}, state={"page": 2}, attempt=3, id="r1", queue="slow", tenant="acme",
        group="g", run=5, due_at="2026-02-01T08:00:00Z", max_attempts=4, remaining="PT5S",
    )  # fmt: skip
    assert (task.kind, task.payload, task.state, task.attempt, task.id) == ("report", {"n": 1}, {"page": 2}, 3, "r1")
    assert (task.queue, task.tenant, task.group, task.run, task.retry.max_attempts) == ("slow", "acme", "g", 5, 4)
    assert task.due_at == datetime(2026, 2, 1, 8, tzinfo=UTC).timestamp() * 1000
    assert task.remaining == 5
    assert task.token
    assert task.idempotency_key == "r1:1"


def test_a_task_that_says_nothing_is_a_first_attempt_with_an_empty_payload() -> None:
    task = make_task()
    assert (task.payload, task.state, task.attempt, task.run, task.remaining) == ({}, None, 1, 1, 60)


def test_a_payload_may_be_a_pydantic_model() -> None:
    task = make_task(payload=Report(month=datetime(2026, 10, 1, tzinfo=UTC), pages=3))
    assert task.payload == {"month": "2026-10-01T00:00:00Z", "pages": 3}


@pytest.mark.parametrize(
    ("fields", "says"), [({"id": "a b"}, "id"), ({"queue": "a/b"}, "queue"), ({"kind": ""}, "kind")]
)
def test_a_task_that_cannot_be_is_rejected_by_the_name_of_its_field(fields: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidInput, match=says):
        make_task(**fields)


def test_a_payload_that_json_cannot_carry_is_rejected() -> None:
    with pytest.raises(TypeError, match="not JSON serializable"):
        make_task(payload={"when": datetime.now(UTC)})


def test_the_outcome_comes_with_what_was_saved_and_extended() -> None:
    ran = run(handler, make_task(payload={"do": "steps"}))
    assert ran == Ran(Again(after="PT1M", state={"page": 3}), ({"page": 1}, {"page": 2}), (timedelta(seconds=20),))


def test_none_is_done() -> None:
    assert run(handler, make_task()).outcome == Done()


def test_an_extension_is_cut_at_the_end_of_the_function() -> None:
    @task_handler
    def greedy(task: Task) -> None:
        extend(task, "PT10M")

    [extended] = run(greedy, make_task(remaining=30)).extended
    assert timedelta(seconds=30) <= extended < timedelta(minutes=1)


def test_an_exception_is_raised_where_it_came_from() -> None:
    with pytest.raises(LookupError, match="no such customer") as raised:
        run(handler, make_task(payload={"do": "raise"}))
    assert raised.traceback[-1].path == Path(__file__)


def test_a_state_that_is_too_large_is_raised() -> None:
    @task_handler
    def hoarder(task: Task) -> None:
        save(task, "x" * 5_000)

    with pytest.raises(ValueError, match="over 4 KiB"):
        run(hoarder, make_task())


@pytest.mark.parametrize(
    ("outcome", "error", "says"),
    [
        ("done", TypeError, "returns Done, Again, Retry or Drop, not str"),
        (Done({1, 2}), TypeError, "not JSON serializable"),
        (Done("x" * 70_000), ValueError, "over 64 KiB"),
        (Again(after="5 minutes"), ValueError, "write 5m"),
        (Retry(state="x" * 5_000), ValueError, "over 4 KiB"),
    ],
)
def test_an_outcome_that_the_engine_would_not_take_is_raised(outcome: Any, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        run(lambda _: outcome, make_task())


def test_a_plain_function_and_a_decorated_handler_are_run_too() -> None:
    def logged(inner: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(inner)
        def outer(event: Any, context: Any) -> Any:
            return inner(event, context)

        return outer

    assert run(lambda task: Done(task.payload), make_task(payload=7)).outcome == Done(7)
    assert run(logged(handler), make_task(payload={"do": "drop"})).outcome == Drop("no use")


def test_it_wants_no_settings_and_changes_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DUECOURSE_STORE", "nonsense")
    before = dict(os.environ)
    assert run(handler, make_task(payload={"do": "late"})).outcome == Done({"left": 60.0})
    assert dict(os.environ) == before
