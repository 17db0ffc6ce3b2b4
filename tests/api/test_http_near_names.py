"""Unknown names: the answer repeats the name, and suggests a near one of those that the caller may see."""

import json
from typing import Any

import pytest

from duecourse.api.authorization import ClaimRule
from duecourse.base.hints import alike, nearest
from duecourse.ledger.embedded.ledger import EmbeddedLedger
from duecourse.settings import Settings
from tests.support.ledger import new
from tests.support.requests import DAILY, MEETING, WEBHOOK, Answer, ask
from tests.support.wired import Wire


def token(tenant: str, *roles: str) -> dict[str, Any]:
    """Authorizer of a caller with a token."""
    claims = {"sub": f"{tenant}-shop", "org": tenant, "scope": " ".join(f"duecourse/{role}" for role in roles)}
    return {"jwt": {"claims": claims}}


def problem(answer: Answer, status: int = 404) -> dict[str, Any]:
    """Problem document of an answer."""
    assert answer.status == status
    found: dict[str, Any] = answer.body
    return found


def add_in(queue: str, **more: Any) -> None:
    assert ask("POST", "/tasks", {**WEBHOOK, "queue": queue}, **more).status == 201


@pytest.mark.parametrize(
    ("queue", "near"), [("defualt", "default"), ("Default", "default"), ("reports-daly", "reports-daily"), ("nope", "")]
)
def test_an_unknown_queue_is_named_with_a_near_one(queue: str, near: str) -> None:
    for known in ("default", "reports-daily", "invoices"):
        add_in(known)
    for method, body, advice in (
        ("GET", None, "nobody has added a task to it or created it."),
        ("PATCH", {"paused": True}, "add a task to it, or set it with `create` true."),
    ):
        found = problem(ask(method, f"/queues/{queue}", body))
        hint = f" Did you mean {near}?" if near else ""
        assert found["detail"] == f"Queue {queue} does not exist: {advice}{hint}"
        assert (found["queue"], found.get("near", "")) == (queue, near)


def test_an_unknown_schedule_is_named_with_a_near_one() -> None:
    assert ask("POST", "/schedules", {**DAILY, "id": "morning-report"}).status == 201
    requests = (
        ("GET", "", None),
        ("PATCH", "", {"paused": True}),
        ("DELETE", "", None),
        ("POST", "/run", None),
        ("POST", "/backfill", {"from": "2026-09-01T00:00:00Z", "to": "2026-09-02T00:00:00Z"}),
    )
    for method, more, body in requests:
        found = problem(ask(method, f"/schedules/morning-reprot{more}", body))
        assert found["detail"] == "Queue default has no schedule morning-reprot. Did you mean morning-report?"
        assert found["near"] == "morning-report"
    assert "near" not in problem(ask("GET", "/schedules/nope"))


def test_an_unknown_task_reminder_or_query_is_named() -> None:
    assert ask("POST", "/reminders", MEETING).status == 201
    assert problem(ask("GET", "/tasks/nope"))["detail"] == "Queue default has no task nope."
    assert problem(ask("GET", "/reminders/nope"))["detail"] == "Queue reminders has no reminder nope."
    query = "q-0123456789abcdef0123456789abcdef@api.example.com"
    found = problem(ask("GET", f"/queries/{query}"))
    assert found["detail"] == f"Query {query} does not exist: nobody has sent it, or its answer has expired."


def test_a_tenant_is_told_no_name_of_another(wire: Wire) -> None:
    wire(Settings(tenant_from=ClaimRule("org")), ledger=EmbeddedLedger())
    acme, globex, operator = token("acme", "caller"), token("globex", "caller"), token("ops", "operator")
    for queue in ("acme-exports", "acme-export2"):
        add_in(queue, authorizer=acme)
    add_in("acme-imports", authorizer=globex)
    schedule = {**DAILY, "id": "acme-export", "queue": "acme-exports"}
    assert ask("POST", "/schedules", schedule, authorizer=acme).status == 201

    def shown(path: str, who: Any) -> str:
        return str(problem(ask("GET", path, authorizer=who, query="")).get("near", ""))

    assert shown("/queues/acme-exportz", acme) in {"acme-exports", "acme-export2"}
    assert shown("/queues/acme-exportz", operator) in {"acme-exports", "acme-export2"}
    assert shown("/queues/acme-exportz", globex) == "acme-imports"
    assert shown("/queues/acme-exports", globex) == "acme-imports", "a queue of others is as unknown as none"
    assert shown("/queues/acme-exportz", token("initech", "caller")) == ""
    schedules = [
        ask("GET", "/schedules/acme-exprt", authorizer=who, query="queue=acme-exports") for who in (acme, globex)
    ]
    assert [problem(one).get("near") for one in schedules] == ["acme-export", None]


@pytest.mark.slow
def test_names_of_others_crowd_no_near_name_out(wire: Wire) -> None:
    ledger = EmbeddedLedger()
    wire(Settings(tenant_from=ClaimRule("org")), ledger=ledger)
    ledger.add([new("a", queue=f"exports-{n:03}", tenant="globex") for n in range(300)])
    add_in("exprts-mine", authorizer=token("acme", "caller"))
    found = problem(ask("GET", "/queues/exports-00", authorizer=token("acme", "caller")))
    assert found["near"] == "exprts-mine"


def test_a_near_name_is_the_likest() -> None:
    assert alike("abcd", ["zzzz", "abcx", "abcde"]) == ["abcde", "abcx"]
    assert (nearest("abcd", []), nearest("abcd", ["zzzz"]), alike("abcd", [])) == ("", "", [])
    assert json.dumps(alike("x" * 64, ["x" * 63])) == json.dumps(["x" * 63])
