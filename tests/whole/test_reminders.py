"""Reminders in the whole stack: written from templates, by e-mail, SMS and webhook, before they go and after."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import urllib3

from duecourse_local.harness.aws.emulator import SENT
from tests.support.api import Api
from tests.support.commands import in_this_process, run, up
from tests.support.http_server import ReceivedRequest, Reply, answering
from tests.support.wait import until

MESSAGE = "{{ recipient.name }}: {{ subject }}, {{ starts_at.time }} {{ starts_at.zone }}, room {{ data.room }}"
AGENDA = "x" * 8_000
HTML = "<p>{{ subject }} in <b>{{ data.room }}</b></p>"


def review(hook: str, starts: datetime) -> dict[str, Any]:
    """A review, of which one person is told in two ways, and a program: half a minute before, and once more."""
    return {
        "id": "review",
        "subject": "Review in {{ lead }}",
        "starts_at": starts.isoformat(),
        "remind_before": ["PT30S", "PT29S"],
        "recipients": [
            {"name": "Ada", "email": "ada@example.com", "phone": "+436641234567"},
            {"name": "Ops", "webhook": f"{hook}/meetings", "time_zone": "Asia/Kolkata"},
        ],
        "message": MESSAGE,
        "html": HTML,
        "data": {"room": "4 & 5", "agenda": AGENDA},
        "time_zone": "Europe/Vienna",
    }


def test_what_a_preview_shows_is_what_each_recipient_gets(tmp_path: Path, http: urllib3.PoolManager) -> None:
    once = iter([Reply(503), *[Reply(204)] * 9])

    def take(_: ReceivedRequest) -> Reply:
        return next(once)

    with answering(take) as server, up(tmp_path / "state") as stack:
        api = Api(http, stack.line["api"])
        body = review(server.url, datetime.now(UTC) + timedelta(seconds=32))
        status, preview = api.call("POST", "/reminders/preview", body)
        assert (status, server.asked, sent(http, stack.line)) == (200, [], {"mails": [], "sms": []})
        api.post("/reminders", body)
        assert api.call("POST", "/reminders/preview", {"id": "review"})[1]["messages"] == in_order(preview)
        told = until(lambda: found if len((found := sent(http, stack.line))["mails"]) == 2 else None)
        hooks = until(lambda: server.asked if len(server.asked) == 3 else None)
        shown = preview["messages"]
        mails = [m for m in shown if "email" in m["recipient"]]
        assert sorted((m["subject"], m["body"]) for m in told["mails"]) == sorted(
            (m["subject"], m["html"]) for m in mails
        )
        texts = until(lambda: f if len(f := sent(http, stack.line)["sms"]) == 2 else None)
        assert {sms["text"] for sms in texts} == {m["text"] for m in shown if "phone" in m["recipient"]}
        assert {json.loads(asked.body)["data"]["agenda"] for asked in hooks} == {AGENDA}
        got = {json.loads(asked.body)["text"] for asked in hooks}
        assert got == {m["text"] for m in shown if "webhook" in m["recipient"]}
        assert len({asked.headers["webhook-id"] for asked in hooks}) == 2
        listed = run("sent", "--state", str(tmp_path / "state"))
        assert listed.returncode == 0
        assert "+436641234567" in listed.stdout
        assert "ada@example.com" in listed.stdout


def in_order(preview: Any) -> list[Any]:
    """The messages as the ledger lists them, by id."""
    return sorted(preview["messages"], key=lambda message: message["id"])


def sent(http: urllib3.PoolManager, line: dict[str, Any]) -> Any:
    return http.request("GET", line["aws"] + SENT).json()


def test_what_was_sent_cannot_be_told_of_a_stack_that_is_not_up(tmp_path: Path) -> None:
    refused = in_this_process("sent", "--state", str(tmp_path))
    assert (refused.exit_code, "no stack is running" in refused.stderr) == (2, True)
