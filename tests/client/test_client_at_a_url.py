"""Clients by the URL of a store: their settings, several in one process, and their end."""

import threading
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from duecourse import Client, errors
from duecourse.app import PROCESS, Process
from duecourse.client.keyword_settings import ClientSettings, read_settings
from duecourse.ledger.embedded.ledger import EmbeddedLedger
from duecourse.ledger.embedded.leveldb import LevelDisk
from duecourse.settings import Settings, variables
from tests.support.ledger import stored_task
from tests.support.wired import wired_with

HOOK: dict[str, Any] = {"kind": "webhook", "payload": {"url": "https://example.com/"}, "delay": "PT1H"}
VERBS: dict[str, Callable[[Client], object]] = {
    "add": lambda client: client.add(**HOOK),
    "get": lambda client: client.get("a"),
    "list_queues": lambda client: client.list_queues(),
    "get_query": lambda client: client.get_query("q-" + "0" * 32 + "@example.com"),
    "reminders": lambda client: client.reminders.get("standup"),
}


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"leveldb://{tmp_path / 'ledger'}"


def test_a_client_at_a_url_adds_and_shows_tasks_and_leaves_its_ledger_when_it_is_closed(url: str) -> None:
    with Client(url) as client:
        assert client.add(**HOOK, id="a").created
        with pytest.raises(errors.StoreInUse):
            LevelDisk(url.removeprefix("leveldb://"))
    LevelDisk(url.removeprefix("leveldb://")).close()
    with Client(url) as client:
        assert client.get("a").id == "a"


def test_clients_with_the_same_url_share_a_ledger_until_the_last_one_is_closed(url: str) -> None:
    first, second = Client(url), Client(url, tenant="acme")
    first.add(**HOOK, id="a")
    second.add(**HOOK, id="a")
    first.close()
    assert second.get("a").tenant == "acme"
    second.close()
    LevelDisk(url.removeprefix("leveldb://")).close()


def test_clients_with_other_settings_are_apart() -> None:
    with Client("memory://") as one, Client("memory://", namespace="other") as other:
        one.add(**HOOK, id="a")
        assert one.get("a").id == "a"
        with pytest.raises(errors.TaskNotFound):
            other.get("a")
    with Client("memory://") as again, pytest.raises(errors.TaskNotFound):
        again.get("a")


def test_a_client_at_a_url_reads_nothing_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DUECOURSE_PARALLEL", "many")
    with Client("memory://", targets={"report": "lambda:Report"}) as client:
        assert client.add(kind="report", payload={}).created
        with pytest.raises(errors.InvalidInput, match="kind"):
            client.add(kind="other", payload={})


@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_of_a_closed_client_says_so_and_closing_again_is_nothing(verb: str) -> None:
    with Client("memory://") as other:
        client = Client("memory://")
        for _ in range(2):
            client.close()
        with pytest.raises(errors.ClientClosed, match="closed: make another"):
            VERBS[verb](client)
        assert other.add(**HOOK).created, "closing twice gives back once"


def test_a_closed_client_of_the_environment_leaves_the_process_its_connections(ledger: EmbeddedLedger) -> None:
    with wired_with(ledger=ledger) as app:
        with Client.from_env() as client:
            client.add(**HOOK, id="a")
        with pytest.raises(errors.ClientClosed):
            client.get("a")
        assert PROCESS.app() is app
        assert Client.from_env().get("a") == stored_task(ledger, "a")


def test_every_wrong_setting_is_named() -> None:
    with pytest.raises(errors.InvalidSettings) as caught:
        Client("http://user:hunter2@h", namespace="no spaces", shards={"default": 0}, wait=99)
    assert {one.field for one in caught.value.problems} == {"store", "namespace", "shards.default", "wait"}
    assert "hunter2" not in str(caught.value)
    with pytest.raises(errors.InvalidSettings) as caught:
        Client("", colour="red", wait=99)  # type: ignore[call-arg]
    assert {one.field for one in caught.value.problems} == {"store", "colour", "wait"}
    with pytest.raises(errors.InvalidInput, match="tenant"):
        Client("memory://", tenant="no spaces")


def test_settings_may_be_pythons_own_values() -> None:
    given = read_settings(
        "redis://h",
        {
            "shards": {"default": 8},
            "log_tasks": True,
            "http_timeout": timedelta(seconds=5),
            "sms_countries": ["AT", "DE"],
            "poll_interval": 2.5,
            "namespace": None,
        },
    )
    assert (given.shards, given.log_tasks, given.http_timeout_ms) == ({"default": 8}, "on", 5_000)
    assert (given.sms_countries, given.poll_interval_ms, given.namespace) == (("AT", "DE"), 2_500, "duecourse")


def test_each_setting_of_a_client_is_one_of_the_environment() -> None:
    known = {one.name.removeprefix("DUECOURSE_").lower() for one in variables()}
    assert set(ClientSettings.__annotations__) <= known


def test_a_client_is_shown_without_its_password() -> None:
    with Client("redis://user:hunter2@host:6380/2?db=3", tenant="acme") as client:
        assert repr(client) == "Client('redis://host:6380/2', tenant='acme')"


def test_apps_of_the_same_settings_are_one_whichever_thread_asks_first() -> None:
    process, found = Process(), []
    ready = threading.Barrier(8)

    def ask() -> None:
        ready.wait()
        found.append(process.opened(Settings()))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(found)) == 1
    for app in found[:-1]:
        process.closed(app)
    assert process.opened(Settings()) is found[0]
