"""The local stack calls this machine unless it is told to behave as deployed, and says which."""

import json
import socket
from pathlib import Path

import pytest
import urllib3

from duecourse.errors import CallFailed
from duecourse.guard.egress import is_public
from duecourse.guard.resolver import SystemResolver
from duecourse_local.harness.options import LOOPBACK, Egress, Options, Precision
from tests.support.api import Api
from tests.support.commands import run
from tests.support.emulator import local_stack
from tests.support.http_server import Reply, answering
from tests.support.matrix import MATRIX, in_turn
from tests.support.project import ROOT
from tests.support.wait import until

pytestmark = pytest.mark.slow

HOOK = {"id": "a", "kind": "webhook", "payload": {"url": "http://127.0.0.1:9/"}, "delay": 60}
QUIET = Options(store="memory://", tick=0, precision=Precision.TICK)


def said(options: Options) -> tuple[str, int]:
    """What a stack says of where tasks may call, and the status of a webhook to this machine."""
    lines: dict[str, str] = {}
    with local_stack(options, say=lines.__setitem__) as stack, urllib3.PoolManager(retries=False) as http:
        status, _ = Api(http, stack.api).call("POST", "/tasks", HOOK)
    return lines["egress"], status


def test_this_machine_may_be_called_by_default_and_the_stack_says_so() -> None:
    line, status = said(QUIET)
    assert line == f"tasks may call public addresses and this machine ({LOOPBACK}); deployed, public addresses alone"
    assert status == 201


def test_a_strict_stack_behaves_as_deployed_and_says_so() -> None:
    line, status = said(Options(store="memory://", tick=0, precision=Precision.TICK, egress=Egress.STRICT))
    assert (line, status) == ("tasks may call public addresses alone", 422)


@MATRIX
def test_what_the_environment_lists_takes_the_place_of_both(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DUECOURSE_EGRESS_ALLOW", "127.0.0.1:9")
    line, status = said(Options(store="memory://", tick=0, precision=Precision.TICK, egress=Egress.STRICT))
    assert (line, status) == (
        "tasks may call public addresses, and what DUECOURSE_EGRESS_ALLOW lists: 127.0.0.1:9",
        201,
    )
    monkeypatch.setenv("DUECOURSE_EGRESS_ALLOW", "in.example")
    assert said(QUIET)[1] == 422


@pytest.mark.parametrize("store", ["memory://", pytest.param(None, marks=MATRIX)])
def test_a_task_calls_no_service_of_its_own_stack(tmp_path: Path, store: str | None) -> None:
    """The emulated Lambda takes anybody for an operator, and the emulated Secrets Manager gives secrets to anybody."""
    pause = json.loads((ROOT / "events/enqueue_http/pause_queue.json").read_text())
    queue = pause["rawPath"]
    with (
        local_stack(Options(store=store, tick=1, precision=Precision.TICK, state=tmp_path)) as stack,
        urllib3.PoolManager(retries=False) as http,
    ):
        api = Api(http, stack.api)
        invoke = f"{stack.lambda_url}/2015-03-31/functions/EnqueueHttpFunction/invocations"
        api.add_webhook("pause", invoke, payload={"url": invoke, "body": pause})
        api.add_webhook("read", stack.aws)
        api.add_webhook("add", "", payload={"url": f"{stack.api}/tasks", "body": {**HOOK, "id": "added"}})
        for name in ("pause", "read"):
            dead = until(lambda name=name: task if (task := api.task(name))["state"] == "dead" else None, every=0.05)
            assert dead["error"].startswith("egress: ")
        assert api.done("add")["result"] == {"status": 201}, "its HTTP API may be called"
        assert not (api.call("GET", queue)[1] or {}).get("queue", {}).get("paused")


def leads_within(name: str) -> bool:
    """True if a name of this machine leads to it, and to no public address."""
    try:
        return not any(is_public(address) for address in SystemResolver()(name, 80, 5.0))
    except CallFailed:
        return False


@MATRIX
@pytest.mark.parametrize("egress", in_turn(Egress.STRICT, Egress.LOOPBACK))
def test_functions_in_processes_and_programs_beside_them_go_by_the_same(tmp_path: Path, egress: Egress) -> None:
    with (
        answering(lambda _: Reply()) as server,
        local_stack(Options(tick=1, precision=Precision.TICK, state=tmp_path, egress=egress)) as stack,
        urllib3.PoolManager(retries=False) as http,
    ):
        api = Api(http, stack.api)
        status = api.add_webhook("a", server.url)
        if egress == Egress.LOOPBACK:
            assert status == 201
            assert api.done("a")["result"] == {"status": 200}
        else:
            assert status == 422
            if leads_within(socket.gethostname()):
                assert api.add_webhook("b", f"http://{socket.gethostname()}:{server.url.rpartition(':')[2]}/") == 201
                dead = until(lambda: task if (task := api.task("b"))["state"] == "dead" else None, every=0.05)
                assert dead["error"].startswith("egress: leads to an address that is not public")
        shown = run("run", "--state", str(tmp_path), "env")
    assert shown.returncode == 0, shown.stderr
    assert (f"DUECOURSE_EGRESS_ALLOW={LOOPBACK}" in shown.stdout) == (egress == Egress.LOOPBACK)
    assert bool(server.asked) == (egress == Egress.LOOPBACK)
