"""A tenant that is over a quota: what callers get over HTTP and in Python, and what stays possible."""

from datetime import timedelta
from typing import Any

import pytest

from duecourse import Client, errors
from duecourse.ledger.embedded.ledger import EmbeddedLedger
from duecourse.ledger.operation_types import FORGET_MS
from duecourse.ledger.task import Ending, Shard
from duecourse.settings import Settings
from duecourse_local.harness.environment import TENANTS
from tests.support.clock import HandClock
from tests.support.kinds import Web, answer
from tests.support.ledger import LEASE_MS, ending, new
from tests.support.requests import DAILY, MEETING, WEBHOOK, Answer, ask
from tests.support.wired import Wire

KEY = '"8e03978e-40d5-43e8-bc93-6894a57f9324"'
ASKED = {"url": "https://api.example.com/report", "interval": "PT1H", "until": "`true`"}
PENDING = "tenant_max_pending"


@pytest.fixture(autouse=True)
def told_by_header(ledger: EmbeddedLedger, wire: Wire) -> None:
    """As in the harness, with one task of the tenant and room for one more."""
    web = Web(*[answer(200, 1)] * 4)
    wire(settings=Settings(tenant_header=TENANTS["DUECOURSE_TENANT_HEADER"]), ledger=ledger, http=web)
    for queue in ("default", "reminders", "query:api.example.com"):
        ledger.configure(queue, {PENDING: 1})


def acme(method: str, path: str, body: Any = None, **headers: str) -> Answer:
    return ask(method, path, body, x_tenant="acme", **headers)


def over(got: Answer, quota: str = PENDING, wait: str = "10") -> bool:
    problem = got.body
    return (got.status, got.headers["Retry-After"], problem["type"], problem["quota"]) == (
        429,
        wait,
        "urn:duecourse:problem:quota-exceeded",
        quota,
    )


def beyond(got: Answer, *fields: str, quota: str = PENDING) -> bool:
    """True if the answer says that no wait helps: by its status, and without a time."""
    problem = got.body
    named = [one["field"] for one in problem["errors"]]
    return (got.status, problem["type"], problem["quota"], named, "Retry-After" in got.headers) == (
        422,
        "urn:duecourse:problem:beyond-quota",
        quota,
        list(fields),
        False,
    )


def add(id: str, **headers: str) -> Answer:
    return acme("POST", "/tasks", WEBHOOK | {"id": id}, **headers)


def test_a_task_over_a_quota_is_429_with_the_quota_and_a_time(ledger: EmbeddedLedger) -> None:
    assert add("a").status == 201
    assert over(rejected := add("b"))
    assert "ask an operator to raise it" in rejected.body["detail"]
    assert add("a").status == 200
    assert ledger.get("default", "b", "acme") is None
    ledger.configure("default", {PENDING: None, "tenant_adds_per_minute": 2})
    assert [add("b").status, add("c").status] == [201, 201]
    assert over(add("d"), "tenant_adds_per_minute", "30")


def test_a_task_beyond_a_whole_quota_is_422_by_its_name_and_leaves_its_key_free(ledger: EmbeddedLedger) -> None:
    ledger.configure("default", {PENDING: None, "tenant_max_bytes": 100})
    large = WEBHOOK | {"id": "large", "payload": {**WEBHOOK["payload"], "body": "x" * 100}}
    assert beyond(acme("POST", "/tasks", large, idempotency_key=KEY), "payload", quota="tenant_max_bytes")
    [item] = acme("POST", "/tasks/batch", {"tasks": [large]}).body["tasks"]
    assert (item["refused"], item["quota"]) == ("quota", "tenant_max_bytes")
    assert "more than the whole quota" in item["detail"]
    with pytest.raises(errors.BeyondQuota, match="payload: needs more"):
        Client.from_env("acme").add(**large)
    ledger.configure("default", {"tenant_max_bytes": 1_000})
    assert acme("POST", "/tasks", large, idempotency_key=KEY).status == 201


def test_a_run_of_a_schedule_over_a_quota_is_429_and_its_series_counts_nothing(ledger: EmbeddedLedger) -> None:
    assert acme("POST", "/schedules", DAILY).status == 201
    before = acme("GET", "/schedules/daily").body
    add("a")
    assert over(acme("POST", "/schedules/daily/run"))
    assert ledger.group("default", "daily", "acme") == []
    assert acme("GET", "/schedules/daily").body == before
    assert acme("DELETE", "/tasks/a").status == 204
    assert acme("POST", "/schedules/daily/run").status == 201


def test_a_batch_names_the_quota_for_each_task_that_is_over_it() -> None:
    taken = acme("POST", "/tasks/batch", {"tasks": [WEBHOOK | {"id": id} for id in "ab"]}).body["tasks"]
    assert [one["created"] for one in taken] == [True, False]
    assert (taken[1]["refused"], taken[1]["quota"]) == ("quota", PENDING)


def test_a_rejected_request_is_free_to_be_sent_again_with_its_key() -> None:
    add("a")
    assert over(add("b", idempotency_key=KEY))
    assert acme("DELETE", "/tasks/a").status == 204
    assert add("b", idempotency_key=KEY).status == 201


def test_a_reminder_is_added_with_all_its_messages_or_not_at_all(ledger: EmbeddedLedger) -> None:
    two = MEETING | {"remind_before": ["PT1H", "PT2H"]}
    assert beyond(acme("POST", "/reminders", two), "remind_before", "recipients")
    ledger.configure("reminders", {PENDING: 2})
    ledger.add([new("another", tenant="acme", queue="reminders")])
    assert over(acme("POST", "/reminders", two))
    assert ledger.group("reminders", str(MEETING["id"]), "acme") == []
    ledger.cancel("reminders", ["another"], tenant="acme")
    assert acme("POST", "/reminders", two).status == 201
    later = acme("PATCH", f"/reminders/{MEETING['id']}", {"starts_at": "2099-04-02T08:00:00Z"})
    assert (later.status, len(later.body["tasks"])) == (200, 2), "a move is never rejected"


def test_a_query_over_a_quota_is_429_and_makes_no_call(ledger: EmbeddedLedger) -> None:
    assert acme("POST", "/queries", ASKED).status == 200
    ledger.configure("query:api.example.com", {"tenant_adds_per_minute": 1, PENDING: None})
    assert acme("POST", "/queries", ASKED | {"body": 1}).status == 200
    assert over(acme("POST", "/queries", ASKED | {"body": 2}), "tenant_adds_per_minute", "60")


def test_a_replay_over_a_quota_is_429_and_the_task_stays_dead(ledger: EmbeddedLedger, clock: HandClock) -> None:
    for id in "ab":
        assert acme("POST", "/tasks", WEBHOOK | {"id": id, "delay": 0}).status == 201
        [task] = ledger.claim(Shard(), 1, lease_ms=LEASE_MS).tasks
        ledger.settle(Shard(), [ending(task, Ending.DROP)])
        clock.advance(1)
    first = acme("POST", "/queues/default/dead/replay", {})
    assert (first.status, first.body["replayed"], first.body["more"]) == (200, 1, True)
    assert over(acme("POST", "/queues/default/dead/replay", {}))
    assert over(acme("POST", "/tasks/b/replay"))
    assert acme("GET", "/tasks/b").body["task"]["state"] == "dead"


def test_a_client_raises_the_same(ledger: EmbeddedLedger) -> None:
    client = Client.from_env("acme")
    client.add(id="a", kind="webhook", payload=WEBHOOK["payload"], delay=timedelta(minutes=5))
    with pytest.raises(errors.QuotaExceeded, match=PENDING) as rejected:
        client.add(id="b", kind="webhook", payload=WEBHOOK["payload"])
    assert (rejected.value.quota, rejected.value.wait_ms) == (PENDING, 10_000)
    [item] = client.add_many([{"id": "b", "kind": "webhook", "payload": WEBHOOK["payload"]}])
    assert isinstance(item, errors.QuotaExceeded)
    Client.from_env().add(id="b", kind="webhook", payload=WEBHOOK["payload"])
    assert ledger.stats(Shard()).scheduled == 2


def test_a_queue_with_a_quota_is_not_forgotten(ledger: EmbeddedLedger, clock: HandClock) -> None:
    for _ in range(3):
        ledger.sweep(Shard(), retention_ms=0)
        clock.advance(FORGET_MS)
    assert Shard() in ledger.shards()
