"""Credentials go where they were sent to, and are seen nowhere else: not in an answer, not in a log."""

import json
from pathlib import Path
from typing import Any

import urllib3

from duecourse_local.harness.options import Options
from tests.support.api import Api
from tests.support.emulator import local_stack
from tests.support.http_server import ReceivedRequest, Reply, answering
from tests.support.matrix import MATRIX
from tests.support.wait import until

HEADERS = {"Authorization": "Bearer HIDDEN", "Cookie": "HIDDEN", "X-Api-Key": "HIDDEN"}


@MATRIX
def test_credentials_reach_whom_they_are_for_and_no_answer_message_or_log(
    http: urllib3.PoolManager, tmp_path: Path
) -> None:
    def reply(asked: ReceivedRequest) -> Reply:
        return Reply(204) if asked.path.startswith("/told") else Reply(403, b"no")

    with answering(reply) as server, local_stack(Options(tick=1, state=tmp_path)) as stack:
        api = Api(http, stack.api)
        url = server.url
        payload = {"url": f"{url}/x?key=HIDDEN", "headers": HEADERS, "interval": 1, "until": "ready"}
        body = {"id": "a", "kind": "poll", "payload": payload, "notify_done": {"url": f"{url}/told?key=HIDDEN"}}
        shown: list[Any] = [api.post("/tasks", body)]
        told = until(lambda: [asked for asked in server.asked if asked.path == "/told?key=HIDDEN"])
        shown += [api.call("GET", path)[1] for path in ("/tasks/a", "/tasks", "/tasks?state=dead", "/tasks/a/why")]
        query = {**payload, "max_age": 0}
        shown.append(api.call("POST", "/queries", query)[1])
    asked = server.asked[0]
    assert (asked.path, asked.headers["authorization"], asked.headers["cookie"]) == (
        "/x?key=HIDDEN", "Bearer HIDDEN", "HIDDEN",
    )  # fmt: skip
    assert shown[1]["task"]["state"] == "dead"
    assert "payload" not in json.loads(told[0].body)["data"]
    assert "HIDDEN" not in json.dumps(shown) + told[0].body.decode()
    logs = {path.name: path.read_text(errors="replace") for path in (tmp_path / "logs").rglob("*") if path.is_file()}
    assert logs
    assert not [name for name, text in logs.items() if "HIDDEN" in text]
