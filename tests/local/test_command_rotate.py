"""`duecourse rotate`, and the local key of a state folder: a stack that begins again opens what it sealed."""

import json
import stat
from pathlib import Path
from typing import Any

import pytest
import redis
import urllib3

from duecourse_local.harness.options import Options
from duecourse_local.harness.stack import Stack
from tests.support.api import Api
from tests.support.commands import in_this_process
from tests.support.emulator import local_stack
from tests.support.http_server import Reply, answering
from tests.support.matrix import MATRIX
from tests.support.wait import until

pytestmark = pytest.mark.slow


def sealed_with(stack: Stack, id: str) -> str:
    """The id of the data key of a task."""
    with redis.Redis.from_url(stack.store) as client:
        record = client.hget("duecourse:{default/0}:tasks", f"-/{id}")
    assert isinstance(record, bytes)
    return record.partition(b'{"seal":"')[2].partition(b".")[0].decode()


@MATRIX
def test_a_rotation_leaves_what_waits_and_seals_the_next_task_with_another_key(tmp_path: Path) -> None:
    def body(id: str, url: str, **fields: Any) -> dict[str, Any]:
        payload = {"url": f"{url}/{id}", "headers": {"Authorization": "Bearer hidden"}}
        return {"id": id, "kind": "webhook", "payload": payload, **fields}

    with answering(lambda _: Reply()) as server, urllib3.PoolManager(retries=False, timeout=30) as http:
        with local_stack(Options(tick=0, state=tmp_path)) as stack:
            api = Api(http, stack.api)
            api.post("/tasks", body("before", server.url, delay=3600))
            rotated = in_this_process("rotate", "--state", str(tmp_path))
            assert rotated.exit_code == 0, rotated.output
            api.post("/tasks", body("after", server.url, delay=3600))
            keys = [sealed_with(stack, id) for id in ("before", "after")]
            assert keys[0] != keys[1]
            assert keys[1] in rotated.stdout
        key = tmp_path / "seal.key"
        assert (stat.S_IMODE(key.stat().st_mode), stat.S_IMODE(tmp_path.stat().st_mode)) == (0o600, 0o700)
        with local_stack(Options(tick=0, state=tmp_path)) as stack:
            api = Api(http, stack.api)
            for id in ("before", "after"):
                assert api.call("PATCH", f"/tasks/{id}", {"delay": 0})[0] == 200
            until(lambda: len(server.asked) == 2)
    assert {asked.path for asked in server.asked} == {"/before", "/after"}
    assert {asked.headers["authorization"] for asked in server.asked} == {"Bearer hidden"}


def test_a_rotation_without_a_key_says_how_to_give_one(tmp_path: Path) -> None:
    answer = in_this_process("rotate", "--store", "redis://127.0.0.1:1/0", "--state", str(tmp_path))
    assert answer.exit_code == 2
    assert "no key is set: give --key, or set DUECOURSE_SEAL_KEY" in answer.output


def test_a_file_that_is_no_key_is_named(tmp_path: Path) -> None:
    short = tmp_path / "key"
    short.write_text("short")
    ledger = f"leveldb://{tmp_path}/ledger"
    for path, problem in ((short, "must hold 32 random bytes"), (tmp_path / "none", "cannot be read")):
        answer = in_this_process("rotate", "--store", ledger, "--key", f"file://{path}", "--state", str(tmp_path / "s"))
        assert answer.exit_code == 2, json.dumps(answer.output)
        assert problem in " ".join(answer.output.split())
