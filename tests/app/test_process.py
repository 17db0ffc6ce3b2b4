"""The App of a process, and the handlers that run with it or with another."""

from typing import Any

import pytest

from duecourse import Client, Done, Task, save, task_handler
from duecourse.app import App, Handler, Process
from duecourse.errors import InvalidSettings
from duecourse.ledger.embedded.ledger import EmbeddedLedger
from duecourse.running.task_event import tasks_event
from duecourse.settings import Settings
from tests.support.clock import HandClock
from tests.support.functions import Context
from tests.support.ledger import claim, new, stored_task
from tests.support.wired import wired_with


@pytest.fixture
def other(clock: HandClock) -> EmbeddedLedger:
    """The ledger of the process, where a handler runs on another's."""
    return EmbeddedLedger(clock)


def test_the_environment_is_read_once_and_not_before(monkeypatch: pytest.MonkeyPatch) -> None:
    process = Process()
    monkeypatch.setenv("DUECOURSE_NAMESPACE", "mine")
    assert process.app().settings.namespace == "mine"
    monkeypatch.setenv("DUECOURSE_NAMESPACE", "other")
    assert process.app().settings.namespace == "mine"
    assert process.app() is process.app()


def test_an_environment_that_is_wrong_is_refused_until_it_is_mended(monkeypatch: pytest.MonkeyPatch) -> None:
    process = Process()
    monkeypatch.setenv("DUECOURSE_PARALLEL", "many")
    for _ in range(2):
        with pytest.raises(InvalidSettings, match="DUECOURSE_PARALLEL"):
            process.app()
    monkeypatch.setenv("DUECOURSE_PARALLEL", "7")
    assert process.app().settings.parallel == 7


def test_another_app_is_the_processs_for_the_while() -> None:
    process, first, second = Process(), App(Settings()), App(Settings())
    with process.using(first):
        with process.using(second):
            assert process.app() is second
        assert process.app() is first


def test_handlers_and_clients_of_a_process_share_its_connections(ledger: EmbeddedLedger) -> None:
    seen: list[Any] = []
    handler = Handler(lambda app, event, _context: seen.append((app, event)))
    with wired_with(ledger=ledger) as app:
        handler({"a": 1}, Context())
        Client.from_env().add(kind="webhook", payload={"url": "https://example.com/"}, id="a")
    assert seen == [(app, {"a": 1})]
    assert stored_task(ledger).id == "a"


def test_a_handler_on_another_app_works_and_saves_there(ledger: EmbeddedLedger, other: EmbeddedLedger) -> None:
    @task_handler
    def handler(task: Task) -> Done:
        save(task, {"step": 1})
        return Done()

    for each in (ledger, other):
        each.add([new("a")])
    event = tasks_event(claim(ledger))
    with wired_with(ledger=ledger) as app, wired_with(ledger=other):
        assert handler.on(app)(event, Context())["done"] == 1
    assert stored_task(ledger).state == {"step": 1}
    assert stored_task(other).state is None
