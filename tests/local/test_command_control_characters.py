"""Text of others in a terminal: no command prints what moves a cursor, turns the direction, or forges a line."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

from duecourse.ledger.connect import connect
from duecourse.ledger.operations.ledger import Ledger
from duecourse.ledger.schedule import AT_ADD, Every, Rule, Schedule
from duecourse.ledger.task import Ending
from duecourse.settings import parse
from duecourse_local.cli import schedules
from duecourse_local.cli.app import app
from duecourse_local.cli.up import Printer, print_raw
from duecourse_local.harness.aws.emulator import SENT
from duecourse_local.harness.state import StateFolder
from tests.local.test_command_operators import TARGETS, TERMINAL, command
from tests.support.http_server import ReceivedRequest, Reply, answering
from tests.support.ledger import LATER_MS, SHARD, new, settle
from tests.support.redis_server import RedisServer
from tests.support.wired import wired_with

pytestmark = pytest.mark.slow

HOSTILE = "a\x1b[2J\x1b]0;t\x07\x00\x7f\x9b31m\u202eb\u2066\u2028\u200fc\rd\nFORGED [bold]e[/bold] \\[x]"
TEXT = json.dumps({"text": HOSTILE, HOSTILE: [HOSTILE]})
BAR = re.compile(r"\x1b\[(\?25[lh]|2K|1A)|\r")
"""Bytes by which a bar of progress hides the cursor, and goes away."""
READING = {
    "queues": (),
    "history": ("default",),
    "top": ("--once",),
    "tasks": (),
    "dead": (),
    "why": ("dead",),
    "show": ("dead",),
    "replay": ("--dead", "--verbose"),
    "cancel": ("waits",),
    "move": ("waits", "--delay", "PT1H"),
    "add": ("report", "--id", "waits", "--payload", TEXT),
    "pause": ("default",),
    "resume": ("default",),
    "limits": ("default",),
    "purge": ("default", "--state", "dead", "--yes"),
    "doctor": (),
    "export": (),
}
"""Commands that answer with what a ledger has, and their words."""
WITHIN = {
    "list": (),
    "show": ("daily",),
    "pause": ("daily",),
    "resume": ("daily",),
    "change": ("daily", '{"overlap": "skip"}'),
    "run": ("daily",),
    "delete": ("daily", "--yes"),
    "add": ("report", "--id", "other", "--every", "PT1H", "--payload", TEXT),
    "preview": ("--every", "PT1H", "--count", "2"),
    "backfill": ("daily", "2026-11-01T00:00:00Z", "2026-11-01T01:00:00Z"),
}
ELSEWHERE = {
    *("page", "up", "advance", "invoke", "events", "sent", "token", "credentials", "keyring", "signing", "demo"),
    *("rabbitmq", "run", "worker", "init", "new", "test", "build", "built", "acl", "reshard", "mend", "repair"),
    *("rotate", "import"),
}
"""Commands that print words of ours and of this machine, or have a test of their own here."""


@pytest.fixture
def ledger(redis_server: RedisServer) -> Iterator[Ledger]:
    with connect(redis_server.url) as client:
        ledger = Ledger(client)
        ledger.add([new("dead", kind="report", payload=TEXT)])
        [task] = ledger.claim(SHARD, 1, lease_ms=9_000).tasks
        settle(ledger, task, Ending.DROP, detail=HOSTILE)
        ledger.add([new("waits", kind="report", payload=TEXT, delay_ms=LATER_MS), new("done", kind="report")])
        [task] = ledger.claim(SHARD, 1, lease_ms=9_000).tasks
        settle(ledger, task, Ending.DONE, result=TEXT)
        with wired_with(parse({"DUECOURSE_TARGETS": TARGETS}), ledger=ledger) as served:
            served.schedules.add(Schedule("daily", "report", Rule(Every(3_600_000), AT_ADD), payload=TEXT))
        yield ledger


def check(done: Result) -> None:
    """Fail where a line that was printed has what cannot be printed, or stands by itself."""
    for line in BAR.sub("", done.stdout + done.stderr).split("\n"):
        assert line.isprintable(), repr(line)
        assert not line.startswith("FORGED")


EVERY = {**READING, **{f"schedules {name}": own for name, own in WITHIN.items()}}


@pytest.mark.usefixtures("ledger")
@pytest.mark.parametrize("terminal", [True, False], ids=["terminal", "pipe"])
@pytest.mark.parametrize("name", EVERY)
def test_no_command_prints_a_control_character_of_a_task(
    redis_server: RedisServer, tmp_path: Path, name: str, terminal: bool
) -> None:
    stack = () if name in {"doctor", "export"} else ("--stack", str(tmp_path))
    variables = {"DUECOURSE_TARGETS": "{}" if name == "doctor" else TARGETS, **(TERMINAL if terminal else {})}
    done = command(*name.split(), *EVERY[name], "--store", redis_server.url, *stack, **variables)
    assert done.exit_code in {0, 1}, done.stderr
    assert done.stdout
    check(done)


@pytest.mark.usefixtures("ledger")
@pytest.mark.parametrize("words", ["show dead", "show done", "why dead", "tasks", "dead", "top"])
def test_json_of_a_command_is_whole_and_can_be_printed(redis_server: RedisServer, tmp_path: Path, words: str) -> None:
    done = command(*words.split(), "--json", "--store", redis_server.url, "--stack", str(tmp_path))
    check(done)
    assert any("\x1b[" in text for text in texts_in(json.loads(done.stdout)))


def texts_in(value: Any) -> Iterator[str]:
    """Every text of a JSON document."""
    if isinstance(value, str):
        yield value
    for one in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from texts_in(one)


def test_an_error_that_quotes_another_is_visible(tmp_path: Path) -> None:
    with answering(lambda _: Reply(422, json.dumps({"detail": HOSTILE, "type": HOSTILE}).encode())) as server:
        done = command("show", "a", "--url", server.url, "--stack", str(tmp_path))
    assert done.exit_code == 2
    for line in done.stderr.split("\n"):
        assert line.isprintable()


@pytest.mark.parametrize("terminal", [True, False], ids=["terminal", "pipe"])
def test_sent_messages_are_visible(tmp_path: Path, terminal: bool) -> None:
    def answer(asked: ReceivedRequest) -> Reply:
        assert asked.path == SENT
        mail = {"to": HOSTILE, "subject": HOSTILE, "body": HOSTILE}
        return Reply(200, json.dumps({"mails": [mail], "sms": [{"to": HOSTILE, "text": HOSTILE}]}).encode())

    with answering(answer) as server:
        state = StateFolder(tmp_path)
        state.announce({"aws": server.url})
        done = command("sent", "--state", str(tmp_path), **(TERMINAL if terminal else {}))
        state.close()
    assert done.exit_code == 0, done.stderr
    check(done)
    assert "[bold]e[/bold]" in done.stdout.replace("\n", "").replace(" ", "")


@pytest.mark.parametrize(
    "line", [HOSTILE.replace("\n", " "), json.dumps({"message": HOSTILE, "level": "ERROR", "error": HOSTILE})]
)
def test_the_log_of_a_stack_is_visible(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    Printer()("F", line)
    print_raw("F", line)
    for one in capsys.readouterr().err.split("\n"):
        assert one.isprintable(), repr(one)


def test_every_command_is_looked_at() -> None:
    every = {one.name or str(getattr(one.callback, "__name__", "")) for one in app.registered_commands}
    assert READING.keys() | ELSEWHERE == every
    assert WITHIN.keys() | {"diff"} == {str(one.name) for one in schedules.app.registered_commands}
