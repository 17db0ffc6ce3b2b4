"""Watched keys in the whole stack: a plain `SET key v PX 300` by any program has its function invoked."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import redis
import urllib3

from duecourse.adapters.redis_keys import keys_of
from duecourse.domain.task import Shard
from local.options import PARAMETERS, Options, Precision
from local.stack import Stack
from tests.support.answering import Reply, answering
from tests.support.project import copy_project
from tests.support.wait import until

PATTERN = "send_message-{user}-{type}"


@pytest.mark.parametrize("precision", [Precision.BRIDGE, Precision.LINGER])
def test_a_key_that_expires_calls_a_webhook_with_the_parts_of_its_name(precision: Precision) -> None:
    with answering(lambda _: Reply(200, b"{}")) as server:
        watch = json.dumps([{"pattern": PATTERN, "kind": "webhook", "payload": {"url": server.url}}])
        options = Options(parameters={**PARAMETERS, "Watch": watch}, precision=precision, tick=5)
        with Stack(options) as stack, redis.Redis.from_url(stack.store) as client:
            subscribed = "__keyevent@0__:expired"
            until(lambda: client.pubsub_numsub(subscribed)[0][1] > 0, seconds=20)
            client.set("send_message-42-sms", "v", px=300)
            until(lambda: server.asked, seconds=20)
    assert [json.loads(asked.body) for asked in server.asked] == [{"key": {"user": "42", "type": "sms"}}]


def test_a_key_that_expires_invokes_a_function_of_ones_own_each_time(tmp_path: Path) -> None:
    template = copy_project(tmp_path)
    command = [sys.executable, "-m", "local", "new", "report"]
    assert subprocess.run(command, cwd=tmp_path, capture_output=True, check=False, timeout=60).returncode == 0
    watch = json.dumps([{"pattern": PATTERN, "kind": "report", "payload": {"n": 1}, "window": "PT0.5S"}])
    options = Options(template=template, parameters={**PARAMETERS, "Watch": watch})
    with Stack(options) as stack, redis.Redis.from_url(stack.store) as client, urllib3.PoolManager() as http:

        def seen() -> list[Any]:
            """What the function was given, of all that was done."""
            sids = [sid.decode() for sid in client.hkeys(keys_of("duecourse", Shard()).tasks)]
            tasks = [http.request("GET", f"{stack.api}/tasks/{sid.partition('/')[2]}").json()["task"] for sid in sids]
            return [task["result"]["seen"] for task in tasks if task["state"] == "done"]

        client.set("send_message-42-sms", "v", px=300)
        until(lambda: len(seen()) == 1, seconds=20)
        client.set("send_message-42-sms", "v", px=600)
        until(lambda: len(seen()) == 2, seconds=20)
        assert seen() == [{"n": 1, "key": {"user": "42", "type": "sms"}}] * 2
