"""Every saved request, replayed through the function that answers it."""

import json
from dataclasses import replace
from typing import Any

import pytest

from duecourse import errors
from duecourse.base.times import format_instant
from duecourse.ledger.embedded.ledger import EmbeddedLedger
from duecourse.ledger.operation_types import Move
from duecourse.ledger.task import Shard, Status
from tests.support.functions import cases, invoke, saved
from tests.support.ledger import LEASE_MS, bring, claim_one, new
from tests.support.requests import DAILY, WEBHOOK, ask, replay, wrong
from tests.support.wired import Wire
from tests.template.test_policies import ROUTES

NOT_FOUND = {"type": "urn:duecourse:problem:task-not-found"}
EXPECTED: dict[str, tuple[list[str], int, dict[str, Any]]] = {
    "add_batch": ([], 200, {}),
    "add_notified": ([], 201, {"created": True}),
    "bad_list": ([], 422, {"type": "urn:duecourse:problem:invalid-input"}),
    "bad_notify": ([], 422, {"type": "urn:duecourse:problem:invalid-input"}),
    "bad_notify_target": ([], 422, {"type": "urn:duecourse:problem:invalid-input"}),
    "ask_query": ([], 202, {"status": "processing", "data": None, "due_at": "2026-09-21T14:13:30.000Z"}),
    "bad_query": ([], 422, {"type": "urn:duecourse:problem:invalid-input"}),
    "bad_query_id": (
        [],
        422,
        {
            "errors": [
                {"field": "id", "problem": "must be the id of a query, as in the answer of POST /queries: q-…@<host>"}
            ]
        },
    ),
    "bad_replay_dead": ([], 422, {"type": "urn:duecourse:problem:invalid-input"}),
    "bad_list_dead": ([], 422, {"type": "urn:duecourse:problem:invalid-input"}),
    "bad_purge": ([], 422, {"type": "urn:duecourse:problem:invalid-input"}),
    "bad_cancel": ([], 422, {"type": "urn:duecourse:problem:invalid-input"}),
    "purge_dead": (["add_webhook"], 200, {"purged": 0, "dry_run": False, "next_cursor": None}),
    "purge_dry": (["add_webhook"], 200, {"purged": 1, "dry_run": True, "next_cursor": None}),
    "cancel_group": (["add_webhook"], 200, {"cancelled": 0, "dry_run": False, "next_cursor": None}),
    "cancel_kind": (["add_webhook"], 200, {"cancelled": 1, "dry_run": False, "next_cursor": None}),
    "list_tasks": (["add_webhook"], 200, {"next_cursor": None}),
    "replay_dead": ([], 200, {"replayed": 0, "dry_run": False, "more": False, "tasks": []}),
    "replay_dead_dry": (["add_webhook"], 200, {"replayed": 0, "dry_run": True}),
    "queue_history": (["add_webhook"], 200, {"queue": "default", "span": "7d", "step": "PT1H"}),
    "bad_queue_history": ([], 422, {"type": "urn:duecourse:problem:invalid-input"}),
    "list_dead": (["add_webhook"], 200, {"tasks": 0, "errors": [], "next_cursor": None}),
    "replay_unknown": ([], 404, NOT_FOUND),
    "replay_webhook": (["add_webhook"], 409, {"reason": "scheduled"}),
    "why_unknown": ([], 404, NOT_FOUND),
    "why_webhook": (["add_webhook"], 200, {"id": "order-7:paid", "state": "scheduled", "forgotten": 0}),
    "add_poll": ([], 201, {"created": True}),
    "add_with_auth": ([], 201, {"created": True}),
    "bad_auth": ([], 422, {"type": "urn:duecourse:problem:invalid-input"}),
    "add_reminder": ([], 201, {"id": "standup"}),
    "add_reminder_channels": ([], 201, {"id": "review"}),
    "add_webhook": ([], 201, {"created": True}),
    "add_webhook_base64": ([], 201, {"created": True}),
    "add_with_key": ([], 201, {"created": True}),
    "bad_batch": ([], 422, {"type": "urn:duecourse:problem:invalid-input"}),
    "bad_doubled_name": ([], 422, {"errors": [{"field": "payload.url", "problem": "stands twice in its object"}]}),
    "bad_extend": ([], 422, {"errors": [{"field": "for", "problem": "must be between PT1S and P1D"}]}),
    "bad_fields": ([], 422, {"type": "urn:duecourse:problem:invalid-input"}),
    "bad_form": ([], 415, {"type": "urn:duecourse:problem:unsupported-body"}),
    "bad_json": ([], 400, {"type": "urn:duecourse:problem:malformed-body"}),
    "bad_key": ([], 400, {"type": "urn:duecourse:problem:malformed-key"}),
    "bad_kind": ([], 422, {"type": "urn:duecourse:problem:invalid-input"}),
    "bad_past_start": ([], 422, {"errors": [{"field": "starts_at", "problem": "must be in the future"}]}),
    "bad_preview_template": ([], 422, {"type": "urn:duecourse:problem:invalid-input"}),
    "bad_reminder_recipients": ([], 422, {"type": "urn:duecourse:problem:invalid-input"}),
    "bad_reminder_template": ([], 422, {"type": "urn:duecourse:problem:invalid-input"}),
    "bad_set_queue": ([], 422, {"type": "urn:duecourse:problem:invalid-input"}),
    "bad_settle": ([], 422, {"type": "urn:duecourse:problem:invalid-input"}),
    "bad_settle_fields": ([], 422, {"type": "urn:duecourse:problem:invalid-input"}),
    "bad_two_due_times": ([], 422, {"type": "urn:duecourse:problem:invalid-input"}),
    "cancel_reminder": (["add_reminder"], 204, {}),
    "cancel_webhook": (["add_webhook"], 204, {}),
    "docs": ([], 200, {}),
    "bad_begin": ([], 422, {"errors": [{"field": "for", "problem": "must be between PT1S and P1D"}]}),
    "begin_task": (["add_webhook"], 409, {"reason": "stale"}),
    "extend_lease": (["add_webhook"], 409, {"reason": "stale"}),
    "health": ([], 200, {"status": "ok", "store": "ok"}),
    "list_queues": (["add_poll", "pause_queue"], 200, {}),
    "move_poll": (["add_poll"], 200, {}),
    "move_reminder": (["add_reminder"], 200, {"starts_at": "2099-03-02T09:00:00.000Z", "leased": [], "sent": []}),
    "openapi": ([], 200, {"openapi": "3.1.0"}),
    "preview_reminder": ([], 200, {"id": "review", "left_out": 0}),
    "preview_reminder_standing": (["add_reminder"], 200, {"id": "standup", "left_out": 0}),
    "pause_queue": (["add_poll"], 200, {}),
    "save_state": (["add_webhook"], 409, {"reason": "stale"}),
    "set_queue": ([], 200, {}),
    "settle_again": (["add_webhook"], 409, {"reason": "stale"}),
    "settle_done": (["add_webhook"], 409, {"reason": "stale"}),
    "settle_drop": (["add_webhook"], 409, {"reason": "stale"}),
    "settle_retry": (["add_webhook"], 409, {"reason": "stale"}),
    "settle_stale": (["add_webhook"], 409, {"reason": "stale"}),
    "settle_unknown": (["add_webhook"], 404, {"type": "urn:duecourse:problem:task-not-found"}),
    "show_poll": (["add_poll"], 200, {}),
    "show_queue": (["add_poll"], 200, {}),
    "show_reminder": (["add_reminder"], 200, {"subject": "Stand-up", "starts_at": "2099-03-02T08:00:00.000Z"}),
    "show_unknown_queue": ([], 404, {"type": "urn:duecourse:problem:queue-not-found"}),
    "show_query": (["ask_query"], 200, {"status": "processing", "queue": "query:nobody.invalid"}),
    "show_unknown_query": ([], 404, {"type": "urn:duecourse:problem:query-not-found"}),
    "add_schedule": ([], 201, {"created": True}),
    "add_schedule_gap_skip": ([], 201, {"created": True}),
    "add_schedule_gap_shift": ([], 201, {"created": True}),
    "add_schedule_fold_first": ([], 201, {"created": True}),
    "add_schedule_fold_second": ([], 201, {"created": True}),
    "add_schedule_fold_both": ([], 201, {"created": True}),
    "add_schedule_missed_latest": ([], 201, {"created": True}),
    "add_schedule_missed_all": ([], 201, {"created": True}),
    "add_schedule_missed_none": ([], 201, {"created": True}),
    "add_schedule_overlap_allow": ([], 201, {"created": True}),
    "add_schedule_overlap_skip": ([], 201, {"created": True}),
    "add_schedule_overlap_queue": ([], 201, {"created": True}),
    "add_schedule_overlap_replace": ([], 201, {"created": True}),
    "add_schedule_jitter": ([], 201, {"created": True}),
    "add_schedule_every": ([], 201, {"created": True}),
    "add_schedule_rrule": ([], 201, {"created": True}),
    "bad_schedule": ([], 422, {"type": "urn:duecourse:problem:invalid-input"}),
    "bad_schedule_fields": ([], 422, {"type": "urn:duecourse:problem:invalid-input"}),
    "bad_change_schedule": ([], 422, {"type": "urn:duecourse:problem:invalid-input"}),
    "bad_backfill_schedule": (
        [],
        422,
        {"errors": [{"field": "to", "problem": "must be later than from"}]},
    ),
    "bad_preview_schedule": ([], 422, {"type": "urn:duecourse:problem:invalid-input"}),
    "show_schedule": (["add_schedule"], 200, {}),
    "show_unknown_schedule": ([], 404, NOT_FOUND | {"detail": "Queue default has no schedule nobody."}),
    "list_schedules": (["add_schedule", "add_schedule_every"], 200, {}),
    "change_schedule": (["add_schedule"], 200, {}),
    "change_schedule_late": (["add_schedule"], 409, {"type": "urn:duecourse:problem:version-conflict"}),
    "pause_schedule": (["add_schedule"], 200, {}),
    "delete_schedule": (["add_schedule"], 204, {}),
    "purge_schedules": (
        ["add_schedule", "add_schedule_every"],
        200,
        {"purged": 1, "dry_run": False, "next_after": None},
    ),
    "run_schedule": (["add_schedule"], 201, {}),
    "backfill_schedule": (["add_schedule"], 201, {"occurrences": 5}),
    "preview_schedule": (
        [],
        200,
        {
            "times": [
                {"at": "2027-03-27T01:30:00.000Z", "local": "2027-03-27T02:30:00+01:00"},
                {"at": "2027-03-28T01:00:00.000Z", "local": "2027-03-28T03:00:00+02:00", "clock_change": True},
                {"at": "2027-03-29T00:30:00.000Z", "local": "2027-03-29T02:30:00+02:00"},
            ]
        },
    ),
    "add_repeating": ([], 201, {"id": "jour-fixe", "tasks": []}),
    "bad_repeating": ([], 422, {"type": "urn:duecourse:problem:invalid-input"}),
    "bad_repeating_credential": ([], 422, {"type": "urn:duecourse:problem:invalid-input"}),
    "bad_repeating_start": (
        [],
        422,
        {
            "errors": [
                {
                    "field": "starts_at",
                    "problem": "is no time of the rule; its next one is 2099-03-02T10:00:00+01:00",
                }
            ]
        },
    ),
    "bad_until_alone": ([], 422, {"errors": [{"field": "limit", "problem": "goes with repeat"}]}),
    "change_one_start": (["add_reminder"], 422, {"type": "urn:duecourse:problem:invalid-input"}),
    "move_occurrence_past": (
        ["add_repeating"],
        422,
        {"errors": [{"field": "starts_at", "problem": "must be in the future"}]},
    ),
    "cancel_occurrence": (["add_repeating"], 204, {}),
    "cancel_repeating": (["add_repeating"], 204, {}),
    "change_repeating": (["add_repeating"], 200, {"starts_at": "2099-03-03T08:00:00.000Z", "tasks": []}),
    "move_occurrence": (["add_repeating"], 200, {"starts_at": "2099-03-10T08:00:00.000Z", "leased": [], "sent": []}),
    "move_no_occurrence": (
        ["add_repeating"],
        404,
        NOT_FOUND | {"detail": "Queue reminders has no occurrence jour-fixe@2099-03-10T08:00:00Z."},
    ),
    "show_repeating": (["add_repeating"], 200, {"subject": "Jour fixe", "tasks": []}),
    "rest_add": ([], 201, {"created": True}),
    "rest_add_base64": ([], 201, {"created": True}),
    "rest_health_head": ([], 200, {}),
    "rest_list_base_path": (["rest_add"], 200, {"next_cursor": None}),
    "rest_show_cognito": (["rest_add"], 200, {}),
    "payload_1_jwt": (["url_add"], 200, {"next_cursor": None}),
    "alb_add": ([], 403, {"type": "urn:duecourse:problem:unverified-caller"}),
    "alb_add_base64": ([], 403, {"type": "urn:duecourse:problem:unverified-caller"}),
    "alb_list_multi_value": ([], 403, {"type": "urn:duecourse:problem:unverified-caller"}),
    "alb_show_encoded": ([], 403, {"type": "urn:duecourse:problem:unverified-caller"}),
    "alb_health": ([], 200, {"status": "ok", "store": "ok"}),
    "url_add": ([], 201, {"created": True}),
    "show_mapping_key": (["add_webhook"], 200, {}),
    "preview_schedule_stage": ([], 200, {}),
    "unknown_route": (
        [],
        404,
        {"type": "urn:duecourse:problem:no-such-route", "detail": "Nothing answers to GET /task: did you mean /tasks?"},
    ),
    "wrong_method": ([], 405, {"type": "urn:duecourse:problem:method-not-allowed"}),
    "head_tasks": ([], 200, {}),
    "options_tasks": ([], 204, {}),
    "bad_base64": ([], 422, {"errors": [{"field": "body", "problem": "must be Base64, as isBase64Encoded says"}]}),
    "show_unknown": ([], 404, NOT_FOUND | {"detail": "Queue default has no task nobody."}),
}
NO_REQUESTS = {"bad_null", "bad_sqs", "bad_event_bridge"}
"""Events of others, which `test_http_foreign_events.py` replays."""


def wrong_fields(case: str, **changes: Any) -> set[str]:
    """The fields that a refused request is refused for."""
    status, problem = replay(case, **changes)
    assert status == 422
    return {error["field"] for error in problem["errors"]}


def test_every_saved_request_is_listed_here() -> None:
    assert cases("enqueue_http") == EXPECTED.keys() | NO_REQUESTS


def test_every_route_has_a_saved_request_that_it_takes() -> None:
    taken = {case for case in cases("enqueue_http") if not case.startswith("bad_")}
    routes = {saved(f"enqueue_http/{case}").get("routeKey", "$default") for case in taken}
    assert routes == ROUTES | {"$default"}


@pytest.mark.parametrize("case", EXPECTED)
def test_a_saved_request_is_answered_as_promised(case: str, ledger: EmbeddedLedger) -> None:
    before, status, part = EXPECTED[case]
    for earlier in before:
        replay(earlier)
    got, body = replay(case)
    assert (got, body) == (status, body | part)
    if case.startswith("bad_"):
        assert ledger.shards() == []


def test_an_added_task_is_answered_as_it_stands_and_again_when_it_is_sent_again() -> None:
    first, again, shown = replay("add_poll"), replay("add_poll"), replay("show_poll")
    assert first[1]["task"] == again[1]["task"] == shown[1]["task"]
    assert (again[0], again[1]["created"]) == (200, False)
    task = first[1]["task"]
    payload = json.loads(saved("enqueue_http/add_poll")["body"])["payload"]
    assert (task["id"], task["state"], task["run"], task["attempt"], task["max_attempts"]) == (
        "export-42",
        "scheduled",
        0,
        1,
        10,
    )
    assert (task["due_at"], task["payload"], task["history"]) == ("2026-09-21T15:13:20.000Z", payload, [])


def test_a_moved_task_has_its_new_due_time() -> None:
    replay("add_poll")
    assert replay("move_poll")[1]["task"]["due_at"] == "2026-09-21T16:13:20.000Z"


def test_a_base64_body_is_the_same_body() -> None:
    plain, coded = replay("add_webhook")[1]["task"], replay("add_webhook_base64")[1]["task"]
    assert plain["payload"] == coded["payload"]
    assert plain["payload"]["body"]["note"] == "grüße"


def test_a_reminder_is_one_task_a_lead_time_and_person() -> None:
    body = replay("add_reminder")[1]
    assert {task["id"]: task["due_at"] for task in body["tasks"]} == {
        "standup:300:0": "2099-03-02T07:55:00.000Z",
        "standup:300:1": "2099-03-02T07:55:00.000Z",
        "standup:3600:0": "2099-03-02T07:00:00.000Z",
        "standup:3600:1": "2099-03-02T07:00:00.000Z",
    }
    assert replay("add_reminder")[0] == 200
    assert [task["was"] for task in replay("move_reminder")[1]["tasks"]] == ["scheduled"] * 4
    assert replay("cancel_reminder")[0] == 204
    assert {task["state"] for task in replay("show_reminder")[1]["tasks"]} == {"cancelled"}


def test_a_preview_answers_what_each_recipient_would_read_and_adds_nothing(ledger: EmbeddedLedger) -> None:
    email, phone, webhook = replay("preview_reminder")[1]["messages"]
    text = "Ada, Review in 1 hour: 09:00 CET in room 4.\n- budget\n- R&D\n"
    assert email == {
        "id": "review:3600:0",
        "due_at": "2099-03-02T07:00:00.000Z",
        "remind_before": "PT1H",
        "recipient": {"name": "Ada", "email": "ada@example.com", "time_zone": "Europe/Vienna"},
        "subject": "Review in 1 hour",
        "text": text,
        "html": "<p>Review in 1 hour</p><ul><li>budget</li><li>R&amp;D</li></ul>",
    }
    assert (phone["text"], phone["sms_parts"]) == (text.strip(), 1)
    assert webhook["text"].startswith("Ops, Review in 1 hour: 03:00 EST in room 4.")
    assert ledger.shards() == []
    assert replay("add_reminder_channels")[1]["tasks"] == [
        {"id": each["id"], "due_at": each["due_at"]} for each in (email, phone, webhook)
    ]


def test_a_preview_of_what_stands_is_of_all_its_messages() -> None:
    replay("add_reminder")
    messages = replay("preview_reminder_standing")[1]["messages"]
    assert {message["id"]: message["text"] for message in messages} == dict.fromkeys(
        ["standup:300:0", "standup:300:1", "standup:3600:0", "standup:3600:1"], "Room 4\n"
    )


def test_a_preview_of_what_does_not_stand_is_not_found() -> None:
    assert replay("preview_reminder_standing")[0] == 404


@pytest.mark.parametrize("case", ["bad_reminder_template", "bad_preview_template"])
def test_every_broken_template_is_named_with_its_line_and_the_fix(case: str) -> None:
    errors = {error["field"]: error["problem"] for error in replay(case)[1]["errors"]}
    assert errors == {
        "subject": "line 1: titel is not known; known here: title, room, agenda",
        "message": "line 2: room is not known; known are: data, id, lead, lead_seconds, recipient, starts_at, subject",
        "html": "line 1: {% include %} is not known here: "
        "there are {{ }}, {# #}, {% if %}, {% for %} and {% set name = value %}",
    }


def test_every_wrong_recipient_is_named() -> None:
    assert wrong_fields("bad_reminder_recipients") == {
        "time_zone", "recipients.0.phone", "recipients.1.webhook", "recipients.2"
    }  # fmt: skip


def _as(method: str, path: str) -> dict[str, Any]:
    context = saved("enqueue_http/health")["requestContext"]
    sent = {"routeKey": "$default", "rawPath": path}
    return {**sent, "requestContext": context | {"http": context["http"] | {"method": method, "path": path}}}


def test_every_wrong_field_is_named() -> None:
    assert wrong_fields("bad_fields") == {
        "id",
        "payload.url",
        "payload.interval",
        "payload.until",
        "due_at",
        "delay",
        "retry.max_attempts",
        "colour",
    }
    assert wrong_fields("bad_batch") == {"tasks.1.delay", "tasks.2.payload.url"}
    assert wrong_fields("bad_two_due_times") == {"due_at", "delay"}
    assert wrong_fields("bad_kind") == {"kind"}


def test_an_id_in_the_path_may_come_percent_encoded() -> None:
    replay("add_webhook")
    assert replay("show_unknown", **_as("GET", "/tasks/order-7%3Apaid"))[1]["task"]["id"] == "order-7:paid"


def test_an_id_that_cannot_be_is_named() -> None:
    assert wrong_fields("show_unknown", **_as("GET", "/tasks/no spaces")) == {"id"}


def test_a_queue_that_cannot_be_is_named() -> None:
    assert wrong_fields("show_unknown", queryStringParameters={"queue": "a/b"}, rawQueryString="queue=a/b") == {"queue"}


def test_a_task_is_looked_for_in_the_queue_that_was_named() -> None:
    replay("add_webhook")
    other = {"queryStringParameters": {"queue": "other"}, "rawQueryString": "queue=other"}
    assert replay("show_unknown", **_as("GET", "/tasks/order-7:paid"), **other)[0] == 404


@pytest.mark.parametrize(("body", "status"), [("[]", 422), ("null", 422), ('[{"kind": "poll"}]', 422), ("", 422)])
def test_a_body_that_is_no_object_is_refused(body: str, status: int) -> None:
    assert replay("add_poll", body=body)[0] == status


def test_a_body_that_is_not_text_is_malformed() -> None:
    assert replay("add_poll", body="//8=", isBase64Encoded=True)[0] == 400


@pytest.mark.parametrize("body", ["a", "%%%", "e30=\n", "e30", "é"])
@pytest.mark.parametrize("case", ["add_poll", "replay_webhook", "pause_queue"])
def test_wrong_base64_is_rejected_and_changes_nothing(case: str, body: str, ledger: EmbeddedLedger) -> None:
    bring(ledger, "dead", id="order-7:paid")
    before = ledger.get("default", "order-7:paid")
    headers = {"content-type": "application/json"}
    assert wrong_fields(case, body=body, isBase64Encoded=True, headers=headers) == {"body"}
    assert ledger.get("default", "order-7:paid") == before


def test_a_body_over_256_kib_is_too_large(ledger: EmbeddedLedger) -> None:
    body = json.dumps({"kind": "webhook", "payload": {"url": "https://example.com", "body": "x" * 262_144}})
    assert replay("add_webhook", body=body)[0] == 413
    assert ledger.shards() == []


FORM = '--b\r\nContent-Disposition: form-data; name="delay"\r\n\r\n5\r\n--b--\r\n'


@pytest.mark.parametrize(
    ("content_type", "body"),
    [
        ("multipart/form-data; boundary=b", FORM),
        ("application/x-www-form-urlencoded", "delay=5"),
        ("text/plain", ""),
        ("text/plain", '{"delay": 5}'),
        ("application/x-www-form-urlencoded, application/json", '{"delay": 5}'),
        ("text/plain; a=application/json", '{"delay": 5}'),
        ("application/json-patch+json", '{"delay": 5}'),
        ("", '{"delay": 5}'),
    ],
)
def test_what_any_page_may_send_to_any_address_changes_nothing(
    content_type: str, body: str, ledger: EmbeddedLedger
) -> None:
    bring(ledger, "scheduled")
    before = ledger.get("default", "a")
    assert ask("PATCH", "/tasks/a", body, content_type=content_type).status == 415
    assert ask("PATCH", "/queues/default", body, content_type=content_type).status == 415
    assert ledger.get("default", "a") == before


def test_a_body_without_a_type_changes_nothing_whatever_the_route(ledger: EmbeddedLedger) -> None:
    """A page's fetch with a Blob sends none, and asks nobody first."""
    bring(ledger, "dead")
    before = ledger.get("default", "a")
    event = saved("enqueue_http/replay_webhook")
    event["headers"].pop("content-type", None)
    for method, path in (("POST", "/tasks"), ("POST", "/tasks/a/replay"), ("DELETE", "/tasks/a"), ("GET", "/tasks/a")):
        event["requestContext"]["http"] |= {"method": method, "path": path}
        answer = invoke("enqueue_http", event | {"routeKey": "$default", "rawPath": path, "body": '{"delay": 5}'})
        assert answer["statusCode"] == 415, (method, path, answer)
    assert ledger.get("default", "a") == before


@pytest.mark.parametrize("body", ["{bad", "[1]", '{"colour": 1}'])
def test_a_route_that_reads_no_body_ignores_what_one_holds(body: str, ledger: EmbeddedLedger) -> None:
    bring(ledger, "dead")
    assert ask("POST", "/schedules", DAILY).status == 201
    assert ask("POST", "/schedules/daily/run", body).status == 201
    assert ask("POST", "/tasks/a/replay", body).status == 200
    assert ask("DELETE", "/tasks/a", body).status == 204


def test_a_request_without_a_body_needs_no_type(ledger: EmbeddedLedger) -> None:
    bring(ledger, "dead")
    event = saved("enqueue_http/replay_webhook")
    event["headers"].pop("content-type", None)
    assert invoke("enqueue_http", event | {"pathParameters": {"id": "a"}, "body": None})["statusCode"] == 200


@pytest.mark.parametrize("written", ["APPLICATION/JSON", "Application/Json; charset=utf-8", "application/json"])
def test_json_is_json_however_its_type_is_written(written: str) -> None:
    assert ask("POST", "/tasks", WEBHOOK, content_type=written).status == 201


def test_an_answer_out_of_shape_is_our_fault_not_the_callers(ledger: EmbeddedLedger, wire: Wire) -> None:
    class Odd:
        def __getattr__(self, verb: str) -> Any:
            return getattr(ledger, verb)

        def get(self, *named: Any) -> Any:
            return replace(ledger.get(*named), status="odd")

    bring(ledger, "scheduled")
    wire(ledger=Odd())
    answer = ask("GET", "/tasks/a")
    assert (answer.status, answer.body["type"]) == (500, "urn:duecourse:problem:internal")


def test_a_content_type_beside_no_body_hides_no_other_problem() -> None:
    assert wrong(ask("GET", "/tasks", query="limit=0", content_type="text/plain")).keys() == {"limit"}


@pytest.mark.parametrize(("method", "path"), [("GET", "/"), ("GET", "/nothing"), ("PUT", "/nothing")])
def test_a_route_that_is_none_is_not_found(method: str, path: str) -> None:
    status, problem = replay("health", **_as(method, path))
    assert (status, problem["detail"]) == (404, f"Nothing answers to {method} {path}.")


def test_a_leased_task_is_taken_only_by_force(ledger: EmbeddedLedger) -> None:
    claim_one(ledger, "order-7:paid")
    status, problem = replay("cancel_webhook", rawQueryString="", queryStringParameters={})
    assert (status, problem["reason"]) == (409, "leased")
    assert replay("cancel_webhook")[0] == 204


def test_a_leased_task_is_moved_only_by_force(ledger: EmbeddedLedger) -> None:
    claim_one(ledger, "order-7:paid")
    move = _as("PATCH", "/tasks/order-7:paid")
    status, problem = replay("move_poll", **move, body='{"delay": 60}')
    assert (status, problem["reason"]) == (409, "leased")
    assert replay("move_poll", **move, body='{"delay": 60, "force": true}')[1]["task"]["state"] == "scheduled"


def test_a_task_is_moved_and_cancelled_in_the_queue_that_was_named(ledger: EmbeddedLedger) -> None:
    ledger.add([new("a", queue=queue, delay_ms=1_000) for queue in ("default", "other")])
    query = {"queryStringParameters": {"queue": "other"}, "rawQueryString": "queue=other"}
    moved = replay("move_poll", **_as("PATCH", "/tasks/a"), **query, body='{"delay": 60}')[1]["task"]
    assert (moved["queue"], moved["due_at"]) == ("other", format_instant(ledger.now() + 60_000))
    assert replay("cancel_webhook", **_as("DELETE", "/tasks/a"), **query)[0] == 204
    kept = ledger.get("default", "a")
    assert kept
    assert (kept.status, kept.due_at) == (Status.SCHEDULED, ledger.now() + 1_000)


def test_a_reminder_that_is_being_sent_is_cancelled_only_by_force(ledger: EmbeddedLedger) -> None:
    replay("add_reminder")
    ledger.move("reminders", [Move(ledger.group("reminders", "standup")[0].id)])
    assert len(ledger.claim(Shard("reminders"), 1, lease_ms=LEASE_MS).tasks) == 1
    cancel = _as("DELETE", "/reminders/standup")
    status, problem = replay("cancel_webhook", **cancel, rawQueryString="", queryStringParameters={})
    assert (status, problem["reason"]) == (409, "leased")
    assert replay("cancel_webhook", **cancel)[0] == 204
    assert {task.status for task in ledger.group("reminders", "standup")} == {Status.CANCELLED}


def test_what_was_added_is_measured(capsys: pytest.CaptureFixture[str]) -> None:
    for case in ("add_webhook", "add_webhook", "add_reminder", "add_reminder"):
        replay(case)
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines() if "_aws" in line]
    assert [line["Added"] for line in lines] == [1, 0, 4, 0]


def test_force_must_be_yes_or_no() -> None:
    query = {"rawQueryString": "force=perhaps", "queryStringParameters": {"force": "perhaps"}}
    assert wrong_fields("cancel_webhook", **query) == {"force"}


class Broken:
    """A ledger all of whose verbs raise one error."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def __getattr__(self, verb: str) -> Any:
        def refuse(*_: Any, **__: Any) -> None:
            raise self._error

        return refuse


@pytest.mark.parametrize(
    "case", ["add_poll", "show_poll", "move_poll", "cancel_webhook", "add_reminder", "settle_done"]
)
def test_a_store_that_is_away_is_told_with_a_time_to_come_again(case: str, wire: Wire) -> None:
    wire(ledger=Broken(errors.StoreUnavailable("Error 111 at 10.0.0.7")))
    answer = invoke("enqueue_http", saved(f"enqueue_http/{case}"))
    assert (answer["statusCode"], answer["headers"]["Retry-After"]) == (503, "1")
    assert json.loads(answer["body"])["detail"] == "The store does not answer.", (
        "which host it is, is the log's to tell"
    )


def test_health_tells_that_the_store_is_away(wire: Wire) -> None:
    wire(ledger=Broken(errors.StoreUnavailable()))
    answer = invoke("enqueue_http", saved("enqueue_http/health"))
    assert (answer["statusCode"], answer["headers"]["Retry-After"]) == (503, "1")
    assert json.loads(answer["body"]) == {"status": "unavailable", "store": "unavailable"}


def test_an_unexpected_error_is_logged_and_not_told(caplog: pytest.LogCaptureFixture, wire: Wire) -> None:
    wire(ledger=Broken(KeyError("a secret")))
    status, problem = replay("add_poll")
    assert (status, problem["detail"]) == (500, "An internal error occurred; the log has its cause.")
    assert "a secret" in caplog.text
