"""The stack with Secrets=runtime: no password in any environment, a rotation while it runs, and a secret that is gone.

The harness has its URLs in the emulator's Secrets Manager then, and functions and bridge read them as deployed ones do.
"""

import json
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import psutil
import pytest
import redis
import urllib3

from duecourse_local.errors import HarnessError
from duecourse_local.harness.addresses import LOOPBACK, free_port
from duecourse_local.harness.aws import secrets
from duecourse_local.harness.options import Options, Precision, Secrets
from duecourse_local.harness.stack import Stack
from tests.support.matrix import MATRIX, in_turn
from tests.support.redis_server import REDIS, RedisServer, need
from tests.support.wait import until

pytestmark = pytest.mark.slow

FIRST, SECOND = "a first password", "a second password"


class Running(NamedTuple):
    """A stack on a Redis that wants a password."""

    stack: Stack
    folder: Path
    port: int
    http: urllib3.PoolManager

    def url(self, password: str) -> str:
        return f"redis://:{quote(password)}@{LOOPBACK}:{self.port}/0"

    def add(self, id: str) -> int:
        """Add a task that is due at once: its webhook asks for the API's own health."""
        payload = {"url": f"{self.stack.api}/health", "method": "GET"}
        task = {"id": id, "kind": "webhook", "payload": payload}
        return int(self.http.request("POST", f"{self.stack.api}/tasks", json=task).status)

    def done(self, id: str) -> bool:
        """Whether a task is done: an API that is being rotated may fail a look."""
        answer = self.http.request("GET", f"{self.stack.api}/tasks/{id}")
        return bool(answer.status == 200 and answer.json()["task"]["state"] == "done")

    def rotate(self) -> None:
        """A new password at the server and in the secret; all who are connected are no longer."""
        with redis.Redis(host=LOOPBACK, port=self.port, password=FIRST) as client:
            client.config_set("requirepass", SECOND)
            secrets.put_secrets(self.stack.aws, {secrets.STORE: self.url(SECOND)})
            client.client_kill_filter(_type="normal", skipme=True)
            client.client_kill_filter(_type="pubsub", skipme=True)

    def pids(self) -> dict[int, str]:
        """Each process of a function, and the bridge's, with its name."""
        found: dict[str, Any] = self.stack.pids()
        bridge = {found["bridge"]: "bridge"} if found["bridge"] else {}
        return {**{pid: name for name, pids in found["functions"].items() for pid in pids}, **bridge}

    def log(self, name: str) -> str:
        return (self.folder / "logs" / f"{name}.log").read_text()


@contextmanager
def running(folder: Path, **options: Any) -> Iterator[Running]:
    port = free_port(0, "")
    words = ("--bind", LOOPBACK, "--port", str(port), "--requirepass", FIRST)
    with RedisServer(need(REDIS[0]), *words, password=FIRST), urllib3.PoolManager(retries=False, timeout=20) as http:
        url = f"redis://:{quote(FIRST)}@{LOOPBACK}:{port}/0"
        given = Options(store=url, state=folder, secrets=Secrets.RUNTIME, **{"tick": 0, **options})
        with Stack(given) as stack:
            yield Running(stack, folder, port, http)


def seen(pid: int) -> dict[str, str]:
    """A process's environment as it was started, which is what Lambda's configuration would show."""
    return psutil.Process(pid).environ()


def test_no_process_has_a_password_in_its_environment_and_all_of_them_work(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    # Not in a folder of this test's name, which says the word and is in each environment.
    with running(tmp_path_factory.mktemp("state"), amqp="amqp://user:a-brokers-password@127.0.0.1:9/") as ours:
        assert ours.add("one") == 201
        until(lambda: ours.done("one"))
        pids = ours.pids()
        assert {"bridge", "EnqueueHttpFunction", "OnExpiredFunction"} <= set(pids.values())
        for pid, name in pids.items():
            found = seen(pid)
            assert "password" not in json.dumps(found), name
            assert found["DUECOURSE_STORE_SECRET"] == secrets.STORE
            assert found["DUECOURSE_AMQP_SECRET"] == secrets.BROKER
        kept = ours.stack.session().client("secretsmanager")
        assert kept.get_secret_value(SecretId=secrets.STORE)["SecretString"] == ours.url(FIRST)


@MATRIX
def test_at_deployment_the_url_is_in_the_environment_as_before(tmp_path: Path) -> None:
    with running(tmp_path / "state", precision=Precision.TICK) as ours:
        runtime = [seen(pid) for pid in ours.pids()]
    with Stack(Options(tick=0, precision=Precision.TICK)) as stack:
        [pid] = stack.pids()["functions"]["EnqueueHttpFunction"]
        deploy = seen(pid)
    assert deploy["DUECOURSE_STORE"] == stack.store
    assert deploy["DUECOURSE_STORE_SECRET"] == ""
    assert all(found["DUECOURSE_STORE"] == "" for found in runtime)


@MATRIX
@pytest.mark.parametrize("precision", in_turn(Precision.BRIDGE, Precision.LINGER))
def test_a_password_is_rotated_while_everything_runs(tmp_path: Path, precision: Precision) -> None:
    tick = 2.0 if precision == Precision.LINGER else 0
    with running(tmp_path / "state", precision=precision, tick=tick) as ours:
        assert ours.add("before") == 201
        until(lambda: ours.done("before"))
        before = ours.pids().keys()
        ours.rotate()
        assert ours.add("after") == 201, "one request, and no error"
        until(lambda: ours.done("after"), seconds=20)
        assert before <= ours.pids().keys(), "no process was replaced; ticks that overlap may have begun one more"
        assert SECOND not in "".join(path.read_text() for path in (ours.folder / "logs").iterdir())


@MATRIX
def test_a_secret_that_is_gone_is_an_error_by_the_name_of_its_setting(tmp_path: Path) -> None:
    with running(tmp_path / "state", precision=Precision.TICK) as ours:
        manager = ours.stack.session().client("secretsmanager")
        manager.delete_secret(SecretId=secrets.STORE, ForceDeleteWithoutRecovery=True)
        [pid] = [pid for pid, name in ours.pids().items() if name == "EnqueueHttpFunction"]
        os.kill(pid, signal.SIGKILL)  # the next one starts cold
        until(lambda: not psutil.pid_exists(pid))
        answer = ours.http.request("GET", f"{ours.stack.api}/tasks/one")
        assert (answer.status, FIRST in answer.data.decode()) == (500, False)
        until(lambda: "DUECOURSE_STORE_SECRET: names a secret that does not exist" in ours.log("EnqueueHttpFunction"))
        secrets.put_secrets(ours.stack.aws, {secrets.STORE: ours.url(FIRST)})
        assert ours.add("mended") == 201, "the same process reads it at its next event"


def test_a_store_in_one_process_has_no_login_to_keep(tmp_path: Path) -> None:
    given = Options(store="memory://", tick=0, secrets=Secrets.RUNTIME, state=tmp_path / "state")
    with pytest.raises(HarnessError, match="--secrets runtime is for a Redis"), Stack(given):
        pass
