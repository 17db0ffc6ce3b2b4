"""The commands `up`, `invoke` and `events`, run as a user runs them."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import pytest
import redis
import urllib3

from duecourse.ledger.operation_types import Move
from duecourse.ledger.queue import Rate
from duecourse.ledger.sharding import Sharding
from duecourse.ledger.task import NewTask
from duecourse_local.cli.app import app
from duecourse_local.harness.state import StateFolder
from tests.support.commands import BARE, FREE_PORTS, Up, gone, in_this_process, run, up
from tests.support.http_server import Reply, answering
from tests.support.level_ledger import level_ledger
from tests.support.matrix import MATRIX, in_turn
from tests.support.project import ROOT
from tests.support.wait import until

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("number", in_turn(signal.SIGINT, signal.SIGTERM))
def test_up_prints_one_line_when_all_is_ready_and_stops_cleanly_when_told_to(
    tmp_path: Path, number: signal.Signals
) -> None:
    with up(tmp_path / "state") as stack, urllib3.PoolManager() as http:
        line, children = stack.line, stack.children
        assert set(line) == {"page", "api", "lambda", "aws", "store", "amqp", "egress", "auth", "clock", "pids"}
        assert all(len(pids) == 1 for pids in line["pids"]["functions"].values())
        functions = [pid for pids in line["pids"]["functions"].values() for pid in pids]
        assert {line["pids"]["redis"], line["pids"]["bridge"], *functions} < set(children)
        assert http.request("GET", f"{line['api']}/health").json() == {"status": "ok", "store": "ok"}
        stack.process.send_signal(number)
        rest, _ = stack.process.communicate(timeout=30)
        assert stack.process.returncode == 0
    assert rest == ""
    assert gone(children)


@pytest.mark.parametrize(
    "store", [pytest.param((), marks=MATRIX), ("--store", "memory://")], ids=["processes", "threads"]
)
def test_up_in_a_terminal_prints_a_line_for_each_event_of_a_task_and_no_record(
    tmp_path: Path, store: tuple[str, ...]
) -> None:
    command = (sys.executable, "-m", "local", "up", "--state", str(tmp_path), "--tick", "0", *FREE_PORTS, *store)
    with (
        answering(lambda _asked: Reply()) as receiver,
        (tmp_path / "err").open("w+") as err,
        subprocess.Popen(command, cwd=ROOT, env=BARE, stdout=subprocess.PIPE, stderr=err, text=True) as process,
    ):
        assert process.stdout is not None
        ready = list(takewhile(lambda line: not line.startswith("ready:"), process.stdout))
        addresses = {words[0]: words[2] for line in ready if len(words := line.split()) > 2}
        assert addresses["docs"] == f"{addresses['api']}/docs"
        task = {"id": "r1", "kind": "webhook", "payload": {"url": receiver.url}}
        assert urllib3.request("POST", f"{addresses['api']}/tasks", json=task).status == 201
        until(lambda: "r1 done" in (tmp_path / "err").read_text())
        process.send_signal(signal.SIGINT)
        assert (process.wait(timeout=30), process.stdout.read()) == (0, "")
    told = [re.sub(r"^[\d:]{8}  ", "", line) for line in (tmp_path / "err").read_text().splitlines()]
    assert told.pop().startswith("stopped")
    assert told.pop() == "stopping…"
    assert [re.sub(r"claimed: .*", "claimed", line) for line in told] == [
        "r1 added: webhook, now",
        "r1 claimed",
        "r1 done",
    ]


@MATRIX
def test_up_can_be_told_to_stop_while_it_starts(tmp_path: Path) -> None:
    command = (sys.executable, "-m", "local", "up", "--state", str(tmp_path / "state"), *FREE_PORTS)
    with subprocess.Popen(command, cwd=ROOT, env=BARE, stdout=subprocess.PIPE, text=True) as process:
        children = until(lambda: psutil.Process(process.pid).children(recursive=True))
        process.terminate()
        try:
            out, _ = process.communicate(timeout=30)
        finally:
            process.kill()
    assert process.returncode == 0
    assert "Ctrl-C" not in out
    assert gone([child.pid for child in children])


@MATRIX
def test_children_die_with_a_killed_up_and_the_next_one_goes_on_with_its_data(tmp_path: Path) -> None:
    with up(tmp_path / "state") as stack:
        with redis.Redis.from_url(stack.line["store"]) as client:
            client.set("a", "kept-by-the-file")
        until(lambda: b"kept-by-the-file" in b"".join(f.read_bytes() for f in (tmp_path / "state").rglob("*.aof")))
        children = stack.children
        stack.process.kill()
        until(lambda: gone(children))
    stack_said = tmp_path / "state.err"
    with up(tmp_path / "state", "--precision", "tick") as stack, redis.Redis.from_url(stack.line["store"]) as client:
        assert stack.line["pids"]["bridge"] is None
        assert client.get("a") == b"kept-by-the-file"
        stack.process.send_signal(signal.SIGINT)
        assert stack.process.wait(60) == 0
    assert stack_said.read_text().splitlines()[-2:] == [
        "stopping…",
        f"stopped; tasks are kept in {tmp_path / 'state'}",
    ]


def test_a_port_in_use_ends_up_with_one_line(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ports = ("--port", str(port), "--lambda-port", "0", "--aws-port", str(port))
        answer = run("up", *ports, "--state", str(tmp_path))
    assert answer.returncode == 2
    for option in ("--port", "--aws-port"):
        assert f"port {port} cannot be used (Address already in use): choose another with {option}" in answer.stderr
    assert "duecourse up --port 0 --lambda-port 0 --aws-port 0" in answer.stderr
    assert "Traceback" not in answer.stderr


class Lit(NamedTuple):
    """A stack that is up, and its state folder."""

    state: Path
    stack: Up


@pytest.fixture(scope="module")
def lit(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lit]:
    path = tmp_path_factory.mktemp("up") / "state"
    with up(path, "--tick", "0") as stack:
        yield Lit(path, stack)


@pytest.fixture
def state(lit: Lit) -> Path:
    return lit.state


@MATRIX
def test_a_dead_bridge_is_told_and_the_rest_goes_on(lit: Lit) -> None:
    os.kill(lit.stack.line["pids"]["bridge"], signal.SIGKILL)
    until(lambda: "THE BRIDGE IS DEAD" in lit.state.with_suffix(".err").read_text())
    with urllib3.PoolManager() as http:
        assert http.request("GET", f"{lit.stack.line['api']}/health").status == 200


def test_invoke_uses_the_stack_that_is_up(state: Path) -> None:
    answer = run("invoke", "poll_tick", "-e", "events/poll_tick/rule.json", "--state", str(state))
    assert answer.returncode == 0, answer.stderr
    assert isinstance(json.loads(answer.stdout), dict)
    assert answer.stderr.startswith("ok after ")


def test_invoke_takes_an_event_from_its_standard_input(state: Path) -> None:
    event = (ROOT / "events" / "enqueue_http" / "health.json").read_text()
    answer = in_this_process("invoke", "EnqueueHttpFunction", "-e", "-", "--state", str(state), event=event)
    assert json.loads(answer.stdout)["statusCode"] == 200


ADDS = """
from duecourse import Client
client = Client.from_env()
client.add(kind="webhook", payload={"url": "http://localhost:1"}, delay="PT1H", id="mine")
print(client.why("mine").waits.what, client.query(url="http://localhost:1", interval="PT1H", until="a").status)
"""


def test_a_program_of_ones_own_runs_with_the_settings_of_the_stack_that_is_up(lit: Lit) -> None:
    answer = run("run", "--state", str(lit.state), sys.executable, "-c", ADDS)
    assert answer.stdout.split() == ["due", "processing"], answer.stderr
    answer = run("run", "--state", str(lit.state), "env")
    assert f"AWS_ENDPOINT_URL={lit.stack.line['aws']}\n" in answer.stdout
    assert f"AWS_ENDPOINT_URL_LAMBDA={lit.stack.line['lambda']}\n" in answer.stdout
    assert "DUECOURSE_RESULTS_TABLE=ResultsTable\n" in answer.stdout
    missing = in_this_process("run", "--state", str(lit.state), "nowhere")
    assert (missing.exit_code, missing.stderr) == (2, "nowhere: no such command\n")
    with urllib3.PoolManager() as http:
        assert http.request("GET", f"{lit.stack.line['api']}/tasks/mine").json()["task"]["state"] == "scheduled"


def test_a_program_of_ones_own_reads_no_secret_of_a_deployed_stack(tmp_path: Path) -> None:
    folder = StateFolder(tmp_path)
    here = {"api": "http://api", "lambda": "http://lambda", "aws": "http://aws", "egress": "loopback", "amqp": ""}
    folder.announce({**here, "store": "redis://:word@localhost:6399/1"})
    parsed = "import os, duecourse.settings as s; one = s.parse(os.environ); print(one.store, one.store_secret)"
    words = ("run", "--state", str(tmp_path), sys.executable, "-c", parsed)
    answer = run(*words, DUECOURSE_STORE_SECRET="duecourse/redis-url")
    assert answer.stdout == "redis://:word@localhost:6399/1 \n", answer.stderr
    folder.close()


def test_a_program_of_ones_own_has_the_broker_that_the_stack_was_given(tmp_path: Path) -> None:
    folder, broker = StateFolder(tmp_path), "amqp://guest:guest@localhost:5679/"
    here = {"api": "http://api", "lambda": "http://lambda", "aws": "http://aws", "egress": "loopback", "amqp": broker}
    folder.announce({**here, "store": "redis://localhost:6399/1"})
    parsed = "import os, duecourse.settings as s; one = s.parse(os.environ); print(one.amqp, one.targets['bill'])"
    words = ("run", "--state", str(tmp_path), sys.executable, "-c", parsed)
    given = {"DUECOURSE_TARGETS": '{"bill": "amqp:bills"}', "DUECOURSE_AMQP_SECRET": "duecourse/amqp-url"}
    answer = run(*words, **given)
    assert answer.stdout == f"{broker} amqp:bills\n", answer.stderr
    folder.close()


def test_without_a_stack_a_program_of_ones_own_is_not_run(tmp_path: Path) -> None:
    answer = in_this_process("run", "--state", str(tmp_path), "env")
    assert (answer.exit_code, answer.stdout, answer.stderr) == (2, "", "no stack is up: run duecourse up\n")


def test_another_python_than_the_folders_own_is_sent_there() -> None:
    bare = (sys.executable, "-S", "-m", "local", "new", "report")  # -S: without what is installed
    done = subprocess.run(bare, cwd=ROOT, env=BARE, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "python -m local needs this folder's own Python: make setup, then .venv/bin/duecourse …\n"


def test_invoke_names_a_function_that_is_not_there(state: Path) -> None:
    answer = in_this_process("invoke", "nobody", "--state", str(state))
    assert answer.exit_code == 2
    assert "has no function nobody; its functions: " in answer.stderr
    assert "poll_tick (PollTickFunction)" in answer.stderr


def test_events_shows_each_request_and_answer(state: Path) -> None:
    answer = in_this_process("events", "events/enqueue_http/health.json", "events/poll_tick", "--state", str(state))
    assert "enqueue_http/health.json → EnqueueHttpFunction" in answer.stdout
    assert '"store\\":\\"ok' in answer.stdout
    assert " ms" in answer.stdout
    assert "5 events, 2 failed, 0 of them unexpectedly" in answer.stdout
    assert answer.exit_code == 0


def test_events_names_a_folder_without_events(state: Path, tmp_path: Path) -> None:
    answer = in_this_process("events", str(tmp_path), "--state", str(state))
    assert answer.exit_code == 2
    assert "no events" in answer.stderr


@MATRIX
def test_invoke_starts_a_stack_of_its_own_where_none_is_up(tmp_path: Path) -> None:
    answer = run("invoke", "poll_tick", "-e", "events/poll_tick/rule.json", "--state", str(tmp_path / "state"))
    assert answer.returncode == 0, answer.stderr


CALLBACKS = {one.name or one.callback.__name__: one.callback for one in app.registered_commands if one.callback}


@pytest.mark.parametrize("command", CALLBACKS)
def test_the_help_of_every_command_has_examples(command: str) -> None:
    answer = in_this_process(command, "--help")
    assert answer.exit_code == 0
    assert f"duecourse {command}" in answer.stdout


def test_the_help_of_all_names_every_command() -> None:
    answer = in_this_process("--help")
    assert answer.exit_code == 0
    assert all(command in answer.stdout for command in CALLBACKS)


def test_the_version_is_that_of_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert in_this_process("--version").stdout == f"duecourse {project['version']}\n"


def examples(command: str) -> list[str]:
    """The lines that a command's help gives as examples of it."""
    lines = (line.strip() for line in str(CALLBACKS[command].__doc__).splitlines())
    return [line for line in lines if f"duecourse {command}" in line]


@pytest.mark.parametrize("line", in_turn(*examples("invoke"), *examples("events")))
def test_the_examples_of_help_do_what_they_say_and_leave_the_queues_of_the_stack_alone(line: str, lit: Lit) -> None:
    command = f"{line} --state {lit.state}".replace("duecourse ", f"{sys.executable} -m local ", 1)
    done = subprocess.run(["bash", "-c", command], cwd=ROOT, env=BARE, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    answer = urllib3.request("GET", f"{lit.stack.line['api']}/queues/default")
    assert answer.status == 404 or not answer.json()["queue"]["paused"], "one of the saved events pauses it"


def test_every_file_that_help_names_is_there() -> None:
    texts = [str(command.callback.__doc__) for command in app.registered_commands if command.callback]
    named = re.findall(r"events/[\w./]+", "".join(texts))
    assert len(named) >= 4
    assert [path for path in named if not (ROOT / path).exists()] == []


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("up", "--port", "70000"), "--port"),
        (("up", "--lambda-port", "-1"), "--lambda-port"),
        (("up", "--tick", "-5"), "--tick"),
        (("up", "--tick", "nan"), "--tick"),
        (("up", "--tick", "0.001"), "--tick"),
        (("up", "--no-bridge", "--precision", "linger"), "--no-bridge"),
        (("up", "--tick", "0", "--precision", "linger"), "--tick 0"),
        (("show", "a", "--store", "nonsense"), "DUECOURSE_STORE"),
        (("reshard", "default", "8", "--wait", "soon"), "--wait"),
        (("reshard", "default", "8", "--store", "leveldb:///a/folder"), "leveldb:///a/folder has no shards to move"),
        (("show", "a", "--store", "redis://localhost:x"), "DUECOURSE_STORE"),
        (("limits", "default", "colour=red", "--store", "memory://"), "of the names lease"),
        (("replay", "--store", "memory://"), "--dead"),
        (("cancel", "a", "--kind", "report", "--store", "memory://"), "a filter for many"),
        (("cancel", "--store", "memory://"), "give group, kind, error or state"),
        (("queues", "--store", "memory://", "--url", "http://127.0.0.1:1"), "give one of them"),
        (("move", "a", "--delay", "soon"), "--delay"),
    ],
)
def test_a_wrong_option_is_named_without_a_trace(arguments: tuple[str, ...], named: str) -> None:
    done = in_this_process(*arguments)
    assert done.exit_code == 2
    assert isinstance(done.exception, SystemExit), "what else it raises ends in a trace"
    assert named in done.stderr


def test_an_event_file_that_is_not_there_is_named(state: Path) -> None:
    done = in_this_process("invoke", "poll_tick", "-e", "/nowhere.json", "--state", str(state))
    assert done.exit_code == 2
    assert done.stderr == "--event /nowhere.json cannot be read: No such file or directory\n"


def test_ctrl_c_while_it_imports_leaves_no_trace(tmp_path: Path) -> None:
    (tmp_path / "typer.py").write_text("import time\nprint('importing', flush=True)\ntime.sleep(60)\n")
    command = (sys.executable, "-m", "local", "up")
    environment = {**BARE, "PYTHONPATH": str(tmp_path)}
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, cwd=ROOT, env=environment, **pipes) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(signal.SIGINT)
        assert process.communicate()[1] == ""
    assert process.returncode == -signal.SIGINT


def test_show_names_the_ledger_in_which_there_is_no_such_task(tmp_path: Path) -> None:
    folder = f"leveldb://{tmp_path}/ledger"
    shown = in_this_process("show", "r1", "--store", folder, "--stack", str(tmp_path / "none"))
    assert shown.exit_code == 1
    where, told = shown.stderr.splitlines()
    assert where == f"store {folder} (namespace duecourse)"
    assert told.startswith(f"no task r1 in queue default, in the store {folder} (namespace duec")
    assert "--store" in told


def test_show_tells_what_happened_to_a_task_and_what_it_waits_for(tmp_path: Path) -> None:
    folder = f"leveldb://{tmp_path}/ledger"
    with level_ledger(tmp_path / "ledger") as ledger:
        ledger.add([NewTask("a", "report", by="http", delay_ms=60_000, notify="audit")])
        ledger.move("default", [Move("a", delay_ms=90_000, by="client")])
    shown = in_this_process("show", "a", "--store", folder)
    assert shown.exit_code == 0, shown.stderr
    fields = dict(re.findall(r"^(\w+) +(.*?) *$", shown.stdout, re.MULTILINE))
    assert {"state", "due_at", "attempt", "max_attempts", "notify_done"} < fields.keys(), "as GET /tasks/a names them"
    assert fields["state"] == "scheduled"
    assert "audit" in fields["notify_done"]
    assert fields["retry"] == "waits from PT1S, times 2 each, up to PT1H, randomised"
    told = ["Added by http", "Moved by client", "It is due in "]
    assert [text for text in sorted(told, key=shown.stdout.find) if text in shown.stdout] == told


def test_show_tells_of_each_shard_of_a_queue_what_runs_there_and_its_part_of_each_limit(
    tmp_path: Path,
) -> None:
    with level_ledger(tmp_path / "ledger", sharding=Sharding({"default": 2})) as ledger:
        ledger.configure("default", {"max_running": 5, "rate": Rate(9, 1_000)})
    shown = in_this_process("show", "--store", f"leveldb://{tmp_path}/ledger", DUECOURSE_SHARDS='{"default": 2}')
    assert shown.exit_code == 0, shown.stderr
    rows = dict(re.findall(r"^(shard \d) +(.*?) *$", shown.stdout, re.MULTILINE))
    assert rows == {
        "shard 0": "max_running 3, rate 5/s, running 0",
        "shard 1": "max_running 2, rate 4/s, running 0",
    }


def test_show_tells_nothing_of_a_callers_credentials(tmp_path: Path) -> None:
    folder = f"leveldb://{tmp_path}/ledger"
    payload = '{"url":"https://user:HIDDEN@a.example/?key=HIDDEN","headers":{"Authorization":"Bearer HIDDEN"}}'
    with level_ledger(tmp_path / "ledger") as ledger:
        notify = "https://user:HIDDEN@b.example/?key=HIDDEN payload"
        ledger.add([NewTask("a", "poll", payload=payload, state='{"token":"HIDDEN"}', notify=notify)])
    shown = in_this_process("show", "a", "--store", folder)
    assert shown.exit_code == 0, shown.stderr
    assert "•••@a.example" in shown.stdout
    assert "•••@b.example" in shown.stdout
    assert "HIDDEN" not in shown.stdout
