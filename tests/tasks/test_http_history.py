"""What the HTTP API tells of tasks: their timelines, pages of them, the dead replayed, and who is told of an end."""

import json
from base64 import urlsafe_b64encode
from typing import Any

import pytest

from duecourse.base.times import format_instant
from duecourse.ledger.embedded.ledger import EmbeddedLedger
from duecourse.ledger.operation_types import Move
from duecourse.ledger.queue import Rate
from duecourse.ledger.task import Ending, Trigger
from tests.support.clock import HandClock
from tests.support.functions import invoke, saved
from tests.support.ledger import LEASE_MS, SHARD, bring, claim, new, settle
from tests.support.requests import replay

HOOK = "order-7:paid"


def page(**query: str) -> Any:
    """What GET /tasks answers to a query."""
    status, body = replay("list_tasks", queryStringParameters=query, rawQueryString="")
    assert status == 200, body
    return body


def wrong(case: str, **changes: Any) -> dict[str, str]:
    """The fields that are wrong, and why."""
    status, body = replay(case, **changes)
    assert status == 422
    return {error["field"]: error["problem"] for error in body["errors"]}


def test_why_tells_a_tasks_whole_story_in_order(ledger: EmbeddedLedger, clock: HandClock) -> None:
    at = clock.at
    replay("add_webhook")
    ledger.move("default", [Move(HOOK, delay_ms=1_000, by="http")])
    clock.advance(1_250)
    (task,) = ledger.claim(SHARD, 1, lease_ms=LEASE_MS, trigger=Trigger.TIMER).tasks
    clock.advance(40)
    settle(ledger, task, Ending.RETRY, delay_ms=60_000, detail="HTTP 500")
    status, why = replay("why_webhook")
    assert status == 200
    assert [one["event"] for one in why["timeline"]] == ["added", "moved", "claimed", "retry"]
    added, moved, claimed, retry = why["timeline"]
    assert (added["by"], added["at"]) == ("http", "2026-09-21T14:13:20.000Z")
    assert moved == {
        "at": "2026-09-21T14:13:20.000Z",
        "event": "moved",
        "text": "Moved by http, due 2026-09-21T14:13:21.000Z instead of 2026-09-21T15:13:20.000Z.",
        "by": "http",
        "due_at": "2026-09-21T14:13:21.000Z",
    }
    assert claimed == {
        "at": "2026-09-21T14:13:21.250Z",
        "event": "claimed",
        "text": "Claimed by the bridge's timer, and begun 250 milliseconds after it was due: run 1.",
        "run": 1,
        "trigger": "timer",
        "late_ms": 250,
    }
    assert (retry["error"], retry["ran_ms"]) == ("HTTP 500", 40)
    assert why["waits"] == {
        "for": "due",
        "text": "It is due in 1 minute, at 2026-09-21T14:14:21.290Z.",
        "until": "2026-09-21T14:14:21.290Z",
    }
    assert clock.at == at + 1_290


@pytest.mark.parametrize(
    ("state", "waits"),
    [("scheduled", "due"), ("leased", "lease"), ("done", "nothing"), ("dead", "nothing"), ("cancelled", "nothing")],
)
def test_why_tells_what_a_task_waits_for(ledger: EmbeddedLedger, state: str, waits: str) -> None:
    bring(ledger, state, HOOK)
    assert replay("why_webhook")[1]["waits"]["for"] == waits


def test_why_tells_what_keeps_a_task_that_is_due(ledger: EmbeddedLedger, clock: HandClock) -> None:
    ledger.add([new(HOOK)])
    clock.advance(5)
    assert replay("why_webhook")[1]["waits"]["for"] == "claim"
    ledger.configure("default", {"paused": True})
    assert replay("why_webhook")[1]["waits"] == {
        "for": "pause",
        "text": "It has been due for 5 milliseconds; its queue is paused.",
    }
    ledger.configure("default", {"paused": False, "rate": Rate(1, 60_000)})
    ledger.add([new("first", due_at=1)])
    assert len(claim(ledger)) == 1
    waits = replay("why_webhook")[1]["waits"]
    assert (waits["for"], waits["until"]) == ("rate", format_instant(clock.at + 60_000))


def test_tasks_are_listed_page_by_page(ledger: EmbeddedLedger) -> None:
    ledger.add([new(f"t{n}", delay_ms=n + 1) for n in range(5)])
    bring(ledger, "dead", "x")
    first = page(limit="4")
    second = page(limit="4", cursor=first["next_cursor"])
    assert [task["id"] for task in first["tasks"] + second["tasks"]] == ["t0", "t1", "t2", "t3", "t4", "x"]
    assert second["next_cursor"] is None
    assert [task["id"] for task in page(state="dead")["tasks"]] == ["x"]
    assert page(kind="other") == page(queue="other") == {"tasks": [], "next_cursor": None}


def test_what_is_wrong_in_a_list_is_named() -> None:
    assert set(wrong("bad_list")) == {"state", "limit", "cursor"}
    for cursor in ("", "ü", "~", urlsafe_b64encode(b"nowhere:1:a").decode(), urlsafe_b64encode(b"due:x:a").decode()):
        query = {"cursor": cursor}
        assert wrong("list_tasks", queryStringParameters=query) == {
            "cursor": "must be the next_cursor of an earlier page, unchanged"
        }


def test_a_cursor_of_another_state_is_refused(ledger: EmbeddedLedger) -> None:
    ledger.add([new("a", delay_ms=5), new("b", delay_ms=6)])
    cursor = page(limit="1", state="scheduled")["next_cursor"]
    query = {"cursor": cursor, "state": "dead"}
    assert wrong("list_tasks", queryStringParameters=query) == {
        "cursor": "belongs to a page of another state: start without a cursor"
    }


def test_the_dead_are_replayed_oldest_first_and_spread(ledger: EmbeddedLedger, clock: HandClock) -> None:
    at = clock.at
    for n in range(4):
        bring(ledger, "dead", f"t{n}", kind="webhook" if n else "other")
        clock.advance(1)
    body = json.dumps({"limit": 2, "rate": {"count": 2, "per": "PT1S"}, "kind": "webhook", "dry_run": True})
    status, told = replay("replay_dead", body=body)
    assert (status, told["replayed"], told["more"], told["dry_run"]) == (200, 2, True, True)
    assert ledger.stats(SHARD).dead == 4
    told = replay("replay_dead", body=body.replace("true", "false"))[1]
    assert told["tasks"] == [
        {"id": "t1", "due_at": "2026-09-21T14:13:20.004Z"},
        {"id": "t2", "due_at": "2026-09-21T14:13:20.504Z"},
    ]
    assert ledger.stats(SHARD)[:4] == (2, 0, 0, 2)
    task = ledger.get("default", "t2")
    assert task
    assert (task.due_at, task.history[0].outcome) == (at + 4 + 500, "drop")
    assert replay("replay_dead_dry")[1]["tasks"] == [
        {"id": "t0", "due_at": "2026-09-21T14:13:20.004Z"},
        {"id": "t3", "due_at": "2026-09-21T14:13:20.004Z"},
    ]


def test_what_is_wrong_in_a_replay_is_named() -> None:
    assert wrong("bad_replay_dead") == {
        "limit": "must be greater than or equal to 1",
        "rate.per": "is required",
        "colour": "is not a known field",
    }
    slow = json.dumps({"limit": 1_000, "rate": {"count": 1, "per": "PT24H"}})
    assert wrong("replay_dead", body=slow) == {
        "rate": "must not spread over more than 7 days: raise it, or lower limit"
    }


def test_one_dead_task_is_replayed(ledger: EmbeddedLedger) -> None:
    bring(ledger, "dead", HOOK)
    status, body = replay("replay_webhook")
    assert (status, body["task"]["state"], body["task"]["attempt"]) == (200, "scheduled", 1)
    assert replay("why_webhook")[1]["timeline"][-1]["event"] == "replayed"


def test_who_is_told_of_an_end_is_kept_and_shown(ledger: EmbeddedLedger) -> None:
    status, body = replay("add_notified")
    assert (status, body["task"]["notify_done"]) == (201, {"url": "https://example.com/done"})
    task = ledger.get("default", HOOK)
    assert task
    assert task.notify == "https://example.com/done"


def test_who_cannot_be_told_is_refused() -> None:
    assert wrong("bad_notify_target") == {
        "notify_done.target": "must be a kind that a deployment hands to a target; known: none, from the ledger, "
        "where no deployment has written its kinds"
    }
    assert wrong("bad_notify") == {"notify_done.url": "must be an http or https URL"}


def test_a_follow_up_is_asked_for_by_its_id_and_no_user_can_take_one(ledger: EmbeddedLedger) -> None:
    ledger.add([new(HOOK, notify="https://a.example/")])
    (task,) = ledger.claim(SHARD, 1, lease_ms=LEASE_MS).tasks
    settle(ledger, task, Ending.DONE)
    id = f"{HOOK}~{task.generation}.1~n"
    why = {"rawPath": f"/tasks/{id}/why", "pathParameters": {"id": id}}
    event = saved("enqueue_http/why_webhook")
    event["requestContext"]["http"]["path"] = why["rawPath"]
    answer = invoke("enqueue_http", event | why)
    assert json.loads(answer["body"])["timeline"][0]["by"] == "duecourse"
    body = json.loads(saved("enqueue_http/add_webhook")["body"]) | {"id": id}
    assert set(wrong("add_webhook", body=json.dumps(body))) == {"id"}
