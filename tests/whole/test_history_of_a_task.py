"""A task's whole story by the HTTP API: who found it and how late, who was told of its end, the dead replayed."""

import json

import urllib3

from duecourse_local.harness.options import Options
from tests.support.api import Api
from tests.support.emulator import local_stack
from tests.support.http_server import ReceivedRequest, Reply, answering
from tests.support.wait import until


def test_a_death_is_told_explained_listed_and_replayed(http: urllib3.PoolManager) -> None:
    told: list[ReceivedRequest] = []
    works = False

    def receiver(asked: ReceivedRequest) -> Reply:
        if asked.path == "/told":
            told.append(asked)
            return Reply(204)
        return Reply(200 if works else 410, b"{}")

    with answering(receiver) as server, local_stack(Options(tick=0)) as stack:
        api = Api(http, stack.api)
        notify = {"notify_done": {"url": f"{server.url}/told"}}
        assert api.add_webhook("a", f"{server.url}/work", delay=0.3, **notify) == 201
        until(lambda: told)
        body = json.loads(told[0].body)
        assert (body["type"], body["data"]["id"], body["data"]["state"]) == ("task.dead", "a", "dead")

        status, why = api.call("GET", "/tasks/a/why")
        assert (status, [one["event"] for one in why["timeline"]]) == (200, ["added", "claimed", "drop"])
        claimed = why["timeline"][1]
        assert claimed["trigger"] in {"ring", "timer"}
        assert 0 <= claimed["late_ms"] < 5_000
        assert "answered 410" in why["timeline"][2]["error"]

        _, page = api.call("GET", "/tasks?state=dead&kind=webhook")
        assert [task["id"] for task in page["tasks"]] == ["a"]
        _, dry = api.call("POST", "/queues/default/dead/replay", {"dry_run": True})
        assert ([task["id"] for task in dry["tasks"]], api.task("a")["state"]) == (["a"], "dead")
        works = True
        assert api.call("POST", "/queues/default/dead/replay", {"rate": {"count": 1, "per": "PT1S"}})[0] == 200
        assert api.done("a")["result"] == {"status": 200}
        until(lambda: len(told) == 2)
    assert json.loads(told[1].body)["type"] == "task.done"
    assert told[0].headers["webhook-id"] != told[1].headers["webhook-id"]
