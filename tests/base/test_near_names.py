"""Errors on unknown names: each names the known one that is near, wherever the name was given."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from duecourse import Client
from duecourse.api.credential_secrets import read_secret
from duecourse.api.fields import Strict, read
from duecourse.base.hints import near_name
from duecourse.client.keyword_settings import read_settings
from duecourse.errors import InvalidInput, InvalidSettings
from duecourse.ledger.embedded.ledger import EmbeddedLedger
from duecourse.schedules.file_text import parse_file
from duecourse.settings import Settings, parse
from duecourse_local.backup import format as backup
from tests.support.requests import ask
from tests.support.wired import wired_with

STORE = {"DUECOURSE_STORE": "memory://"}
WORK = {"kind": "webhook", "payload": {"url": "https://hooks.example.com"}}
QUERY = {"url": "https://api.example.com", "interval": "10s", "until": "done"}
MEETING = {"id": "a", "starts_at": "2100-01-01T00:00:00Z", "remind_before": ["1h"], "recipients": []}
SCHEDULE = {"id": "a", "repeat": {"cron": "@daily"}, **WORK}


@pytest.fixture
def client(ledger: EmbeddedLedger) -> Iterator[Client]:
    with wired_with(settings=Settings(), ledger=ledger):
        yield Client.from_env()


def found(call: Callable[[], object]) -> dict[str, str]:
    """The wrong fields that a call names."""
    with pytest.raises((InvalidInput, InvalidSettings)) as caught:
        call()
    return {one.field: one.problem for one in caught.value.problems}


def over_http(method: str, path: str, body: Any = None, **more: Any) -> dict[str, str]:
    """The wrong fields that the HTTP API names."""
    answer = ask(method, path, body, **more)
    assert answer.status == 422
    return {one["field"]: one["problem"] for one in answer.body["errors"]}


@pytest.mark.parametrize(
    ("method", "path", "body", "field", "near"),
    [
        ("POST", "/tasks", WORK | {"methd": 1, "dely": 1}, "dely", "delay"),
        ("POST", "/tasks", WORK | {"retry": {"backof": "1s"}}, "retry.backof", "backoff"),
        ("POST", "/tasks", WORK | {"payload": {"url": "https://a.example", "methd": "GET"}}, "payload.methd", "method"),
        ("POST", "/tasks", WORK | {"kind": "poll", "payload": QUERY | {"resul": "a"}}, "payload.resul", "result"),
        ("POST", "/tasks", WORK | {"notify_done": {"ulr": "https://a.example"}}, "notify_done.ulr", "url"),
        ("POST", "/tasks/batch", {"tasks": [WORK | {"que": "a"}]}, "tasks.0.que", "queue"),
        ("PATCH", "/tasks/a", {"dely": 1}, "dely", "delay"),
        ("PATCH", "/queues/a", {"prio": 1}, "prio", "priority"),
        ("PATCH", "/queues/a", {"rate": {"cuont": 1, "per": 1}}, "rate.cuont", "count"),
        ("POST", "/queues/a/dead/replay", {"dryrun": True}, "dryrun", "dry_run"),
        ("POST", "/queries", QUERY | {"intervall": 1}, "intervall", "interval"),
        ("POST", "/reminders", MEETING | {"remind_befor": ["1h"]}, "remind_befor", "remind_before"),
        ("POST", "/reminders", MEETING | {"recipients": [{"emial": "a@b.example"}]}, "recipients.0.emial", "email"),
        ("POST", "/schedules", SCHEDULE | {"timezone": "UTC"}, "timezone", "time_zone"),
        ("POST", "/schedules", SCHEDULE | {"repeat": {"corn": "@daily"}}, "repeat.corn", "cron"),
    ],
)  # fmt: skip
@pytest.mark.usefixtures("client")
def test_an_unknown_field_over_http_is_rejected_with_the_near_one(
    method: str, path: str, body: dict[str, Any], field: str, near: str
) -> None:
    assert over_http(method, path, body)[field] == f"is not a known field: {near}?"


@pytest.mark.usefixtures("client")
def test_an_unknown_parameter_is_rejected_with_the_near_one() -> None:
    assert ": state?; known: " in over_http("GET", "/tasks", query="stat=dead")["stat"]
    assert over_http("GET", "/tasks", query="state=deda")["state"].endswith(": dead?")


def test_an_unknown_field_in_python_is_rejected_with_the_near_one(client: Client) -> None:
    hook: Any = WORK["payload"]
    wrong: dict[str, Any] = {"dealy": "5m", "retry": {"max_atempts": 2}}
    assert found(lambda: client.add(kind="webhook", payload=hook, **wrong)) == {
        "dealy": "is not a known field: delay?",
        "retry.max_atempts": "is not a known field: max_attempts?",
    }
    fields: dict[str, Any] = {"prio": 1, "max_runing": 2}
    assert found(lambda: client.set_queue("a", **fields)) == {
        "prio": "is not a known field: priority?",
        "max_runing": "is not a known field: max_running?",
    }


@pytest.mark.parametrize(
    ("call", "field", "ending"),
    [
        (lambda: parse(STORE | {"DUECOURSE_SHARD": "1"}), "DUECOURSE_SHARD", ": DUECOURSE_SHARDS?"),
        (
            lambda: parse(STORE | {"DUECOURSE_TENANT_QUOTAS": '{"-": {"tenant_max_pendin": 1}}'}),
            "DUECOURSE_TENANT_QUOTAS.-.tenant_max_pendin",
            ": tenant_max_pending?",
        ),
        (
            lambda: parse(STORE | {"DUECOURSE_TENANT_FROM": 'principals:{"a": {"tenant": "b", "role": []}}'}),
            "DUECOURSE_TENANT_FROM.a.role",
            "is not a known field: roles?",
        ),
        (
            lambda: parse(STORE | {"DUECOURSE_TENANT_FROM": 'principals:{"a": {"tenant": "b", "roles": ["caler"]}}'}),
            "DUECOURSE_TENANT_FROM.a.roles",
            ": caller?",
        ),
        (
            lambda: parse(STORE | {"DUECOURSE_WATCH": '[{"pattern": "a-{b}", "kind": "c", "windw": "1s"}]'}),
            "DUECOURSE_WATCH.0.windw",
            "is not a known field: window?",
        ),
        (lambda: read_settings("memory://", {"shard": 1}), "shard", ": shards?"),
        (lambda: read_secret({"type": "beare"}), "type", ": bearer?"),
        (lambda: read_secret({"type": "bearer", "tokn": "x", "hosts": ["a.example"]}), "tokn", ": token?"),
    ],
)
def test_an_unknown_name_in_settings_is_rejected_with_the_near_one(
    call: Callable[[], object], field: str, ending: str
) -> None:
    assert found(call)[field].endswith(ending)


def test_an_unknown_field_of_a_schedule_file_names_the_near_one() -> None:
    file = parse_file(json.dumps({"number": 1, "schedules": [SCHEDULE | {"catchup": "1h", "missed": "lates"}]}))
    assert {one.field: one.problem.rpartition(": ")[2] for one in file.problems} == {
        "a.catchup": "catch_up?",
        "a.missed": "latest?",
    }


@pytest.mark.parametrize(
    ("field", "value", "near"), [("on_duplicate", "replac", "replace"), ("on_duplicate", "Keep", "keep")]
)
def test_an_unknown_value_of_an_enumeration_is_rejected_with_the_near_one(
    client: Client, field: str, value: str, near: str
) -> None:
    given: dict[str, Any] = {field: value}
    hook: Any = WORK["payload"]
    assert found(lambda: client.add(kind="webhook", payload=hook, **given))[field].endswith(f": {near}?")


def _models(kind: type[Strict] = Strict) -> Iterator[type[Strict]]:
    for below in kind.__subclasses__():
        yield below
        yield from _models(below)


MODELS = sorted({*_models(), backup.Head}, key=lambda model: model.__qualname__)


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.__name__)
def test_each_model_names_the_near_one_of_its_fields(model: type[Strict]) -> None:
    known = {one.alias or name for name, one in model.model_fields.items()}
    for name in known:
        wrong = name[: len(name) // 2] + name[len(name) // 2 + 1 :]
        if len(name) > 5 and wrong not in known:
            problem = found(lambda wrong=wrong: read(model, {wrong: 1}))[wrong]
            assert problem == f"is not a known field: {name}?"


def test_a_name_that_is_far_from_all_others_is_rejected_without_one() -> None:
    for word in ("colour", "", "x" * 100_000, 7, None, "\x00"):
        assert near_name(word, ["priority", "max_running"]) == ""


@pytest.mark.parametrize(
    ("given", "ending"),
    [
        ("localhost:6379", ", not localhost:6379: write redis://localhost:6379/0"),
        ("localhost", ", not localhost: write redis://localhost/0"),
        ("redis.example.com", ", not redis.example.com: write redis://redis.example.com/0"),
        ("10.0.0.7:6380/2", ", not 10.0.0.7:6380/2: write redis://10.0.0.7:6380/2"),
        ("[::1]:6379/", ", not [::1]:6379/: write redis://[::1]:6379/0"),
        ("REDIS://cache:6379/0", ", not REDIS://cache:6379/0: write redis://cache:6379/0"),
        ("me:hunter2@cache:6379", ", not <user>:<password>@cache:6379: write redis://<user>:<password>@cache:6379/0"),
        ("localhost:70000", "memory://"),
        ("redis://h:70000", "[ is %5B, ] is %5D)"),
        ("hunter2", "memory://"),
        ("postgres://me:hunter2@db.example", "memory://"),
        ("hunter2:secret@", "memory://"),
        ("hunter2 localhost:6379", "memory://"),
    ],
)
def test_a_store_without_its_scheme_is_rejected_with_the_right_url(given: str, ending: str) -> None:
    for problem in (
        found(lambda: parse({"DUECOURSE_STORE": given}))["DUECOURSE_STORE"],
        found(lambda: Client(given))["store"],
    ):
        assert problem.endswith(ending)
        assert "hunter2" not in problem
    if ": write " in ending and "<" not in ending:
        assert parse({"DUECOURSE_STORE": ending.partition(": write ")[2]})


def test_a_broker_without_its_scheme_is_rejected_with_the_right_url() -> None:
    problem = found(lambda: parse(STORE | {"DUECOURSE_AMQP": "localhost:5672"}))["DUECOURSE_AMQP"]
    assert problem == "must begin with amqp:// or amqps://, not localhost:5672: write amqp://localhost:5672"
    assert parse(STORE | {"DUECOURSE_AMQP": problem.partition(": write ")[2]})
