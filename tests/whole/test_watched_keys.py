"""Watched keys in the whole stack: a plain `SET key v PX 300` by any program has its function invoked."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import redis
import urllib3

from duecourse.ledger.keys import keys_of
from duecourse.ledger.task import Shard
from duecourse_local.harness.options import PARAMETERS, Options, Precision
from tests.support.emulator import local_stack
from tests.support.http_server import Reply, Server, answering
from tests.support.matrix import MATRIX
from tests.support.project import copy_project
from tests.support.wait import until

PATTERN = "send_message-{user}-{type}"


def test_a_key_that_expires_calls_a_webhook_with_the_parts_of_its_name_where_a_tick_lingers() -> None:
    with answering(lambda _: Reply(200, b"{}")) as server:
        watch = json.dumps([{"pattern": PATTERN, "kind": "webhook", "payload": {"url": server.url}}])
        options = Options(parameters={**PARAMETERS, "Watch": watch}, precision=Precision.LINGER, tick=5)
        with local_stack(options) as stack, redis.Redis.from_url(stack.store) as client:
            subscribed = "__keyevent@0__:expired"
            until(lambda: client.pubsub_numsub(subscribed)[0][1] > 0)
            call(client, server, "send_message-42-sms")
    assert called(server) == [{"key": {"user": "42", "type": "sms"}}]


@MATRIX
def test_with_a_bridge_a_key_calls_a_webhook_and_another_a_function_of_ones_own_each_time_it_expires(
    tmp_path: Path,
) -> None:
    template = copy_project(tmp_path)
    command = [sys.executable, "-m", "local", "new", "report"]
    assert subprocess.run(command, cwd=tmp_path, capture_output=True, check=False, timeout=60).returncode == 0
    with answering(lambda _: Reply(200, b"{}")) as server:
        watch = [
            {"pattern": PATTERN, "kind": "report", "payload": {"n": 1}, "window": "PT0.5S"},
            {"pattern": f"web_{PATTERN}", "kind": "webhook", "payload": {"url": server.url}},
        ]
        options = Options(template=template, parameters={**PARAMETERS, "Watch": json.dumps(watch)})
        with local_stack(options) as stack, redis.Redis.from_url(stack.store) as client, urllib3.PoolManager() as http:

            def seen() -> list[Any]:
                """What the function was given, of all that was done."""
                sids = [sid.decode() for sid in client.hkeys(keys_of("duecourse", Shard()).tasks)]
                paths = [f"{stack.api}/tasks/{sid.partition('/')[2]}" for sid in sids]
                tasks = [http.request("GET", path).json()["task"] for path in paths]
                return [task["result"]["seen"] for task in tasks if task["state"] == "done"]

            client.set("send_message-42-sms", "v", px=300)
            until(lambda: len(seen()) == 1)
            client.set("send_message-42-sms", "v", px=600)
            until(lambda: len(seen()) == 2)
            assert seen() == [{"n": 1, "key": {"user": "42", "type": "sms"}}] * 2
            call(client, server, "web_send_message-42-sms")
    assert called(server) == [{"key": {"user": "42", "type": "sms"}}]


def call(client: redis.Redis, server: Server, key: str) -> None:
    """Have a key expire, and see the webhook called for it."""
    client.set(key, "v", px=300)
    until(lambda: server.asked)


def called(server: Server) -> list[Any]:
    return [json.loads(asked.body) for asked in server.asked]
