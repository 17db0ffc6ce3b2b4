"""The commands of operators: the same on a store, on an API that wants a signature, on the stack that is up."""

import json
import os
import pty
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from datetime import datetime
from io import StringIO
from pathlib import Path
from threading import Event, Thread
from typing import Any, NamedTuple, cast
from urllib.parse import unquote

import pytest
from typer.models import CommandInfo
from typer.testing import Result

from duecourse.api.authorization import Role
from duecourse.app import App
from duecourse.base.times import to_ms
from duecourse.ledger.connect import connect
from duecourse.ledger.operations.ledger import Ledger
from duecourse.ledger.schedule import AT_ADD, Every, Overlap, Rule, Schedule
from duecourse.ledger.task import Ending, NewTask, RetryPolicy, Status
from duecourse.queues.http import MAX_PAGE
from duecourse.routes import serve
from duecourse.settings import parse
from duecourse_local.cli import formatting, schedules
from duecourse_local.cli.api import ApiClient, RequestRejected
from duecourse_local.cli.app import app
from duecourse_local.cli.dead import ReplayWait
from duecourse_local.harness.aws import authorizer
from duecourse_local.harness.aws.authorizer import Auth, Authorize, IdentityRejected
from duecourse_local.harness.aws.events import HttpRequest, http_event
from duecourse_local.harness.state import StateFolder
from tests.support.commands import BARE, in_this_process
from tests.support.http_server import ReceivedRequest, Reply, answering
from tests.support.ledger import LATER_MS, SHARD, bring, new, settle
from tests.support.matrix import in_turn
from tests.support.project import ROOT
from tests.support.redis_server import RedisServer
from tests.support.schedules import due, fire, occurrence, put, waits
from tests.support.wired import wired_with

pytestmark = pytest.mark.slow

TARGETS = '{"report": "lambda:Report"}'
WAYS = ("store", "url", "token", "stack")
COMMANDS = (
    "top",
    "queues",
    "history",
    "tasks",
    "show",
    "why",
    "dead",
    "add",
    "move",
    "cancel",
    "replay",
    "purge",
    "pause",
    "resume",
    "limits",
    "schedules",
)
FILED = """
number: {number}
schedules:
  - {{id: daily-report, kind: report, payload: {{month: 10}}, repeat: {{cron: "{cron}"}}, time_zone: Europe/Vienna}}
  - {{id: own, kind: report, payload: {{}}, repeat: {{every: PT1H}}}}
  - {{id: new, queue: imports, tenant: acme, kind: webhook, payload: {{url: "https://a.at"}}, repeat: {{every: PT1H}}}}
"""
"""A file of schedules."""


class Context:
    def get_remaining_time_in_millis(self) -> int:
        return 30_000


class Place(NamedTuple):
    """A ledger, and the words and variables by which a command finds it."""

    ledger: Ledger
    options: tuple[str, ...]
    variables: dict[str, str]

    def run(self, *words: str, event: str | None = None) -> Result:
        return command(*words, *self.options, event=event, **self.variables)

    def ask(self, *words: str) -> Any:
        done = self.run(*words, "--json")
        assert done.exit_code == 0, done.stderr
        return json.loads(done.stdout)


TERMINAL = {"TTY_COMPATIBLE": "1", "COLUMNS": "80"}
"""Variables by which the output counts as a terminal's."""


def command(*words: str, event: str | None = None, **variables: str) -> Result:
    """A command in this process, with no variable of this environment that means anything to it."""
    return in_this_process(*words, event=event or "", **variables)


@contextmanager
def api(served: App, authorize: Authorize) -> Iterator[str]:
    """The URL of the HTTP API on an App, which lets those in who prove who they are."""

    def answer(asked: ReceivedRequest) -> Reply:
        path, _, query = asked.path.partition("?")
        headers = [*asked.headers.items()]
        request = HttpRequest(
            asked.method, unquote(path), query, headers, asked.body, "127.0.0.1", "HTTP/1.1", sent_path=path
        )
        try:
            identity = authorize(request)
        except IdentityRejected as error:
            return Reply(error.status, json.dumps({"message": str(error)}).encode())
        with redirect_stdout(StringIO()):  # metrics, which are no part of what the command prints
            done = serve(served, http_event(request, "$default", {}, identity), Context())
        return Reply(done["statusCode"], (done.get("body") or "").encode(), {"content-type": "application/json"})

    with answering(answer) as server:
        yield server.url


@pytest.fixture
def ledger(redis_server: RedisServer) -> Iterator[Ledger]:
    with connect(redis_server.url) as client:
        yield Ledger(client)


@pytest.fixture(params=in_turn(*WAYS))
def place(request: pytest.FixtureRequest, ledger: Ledger, redis_server: RedisServer, tmp_path: Path) -> Iterator[Place]:
    """One ledger, in each way in turn."""
    folder = tmp_path / "state"
    if request.param == "store":
        options = ("--store", redis_server.url, "--stack", str(folder))
        yield Place(ledger, options, {"DUECOURSE_TARGETS": TARGETS})
        return
    auth = Auth.JWT if request.param in {"token", "stack"} else Auth.IAM
    rule = authorizer.parameters(auth)["TenantFrom"]
    settings = parse({"DUECOURSE_TENANT_FROM": rule, "DUECOURSE_TARGETS": TARGETS})
    with wired_with(settings, ledger=ledger) as served, api(served, authorizer.authorizer(auth, folder)) as url:
        yield from reached(str(request.param), ledger, url, folder)


def reached(way: str, ledger: Ledger, url: str, folder: Path) -> Iterator[Place]:
    if way == "stack":
        state = StateFolder(folder)
        state.announce({"api": url, "auth": "jwt", "store": "redis://nowhere"})
        yield Place(ledger, ("--stack", str(folder)), {})
        state.close()
    elif way == "token":
        made = authorizer.tokens(folder).issue("ops", "", [Role.OPERATOR], 600)
        yield Place(ledger, ("--url", url, "--token", made), {})
    else:
        names = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
        issued = authorizer.signatures(folder).issue("operator")
        yield Place(ledger, ("--url", url), dict(zip(names, issued, strict=True)))


def test_a_task_is_added_moved_shown_explained_and_cancelled(place: Place) -> None:
    added = place.ask("add", "report", "--payload", '{"month": 10}', "--id", "r1", "--delay", "PT10M")
    assert (added["created"], added["task"]["state"]) == (True, "scheduled")
    moved = place.ask("move", "r1", "--delay", "PT1H")["task"]
    shown = place.ask("show", "r1")
    assert shown["task"] == moved
    assert shown["task"]["payload"] == {"month": 10}
    told = place.ask("why", "r1")
    assert [one["event"] for one in told["timeline"]] == ["added", "moved"]
    assert all(re.match("http:.*(operator|ops|command)|command:.+@", one["by"]) for one in told["timeline"])
    assert place.ask("cancel", "r1") == {"cancelled": 1, "dry_run": False}
    assert place.ledger.get("default", "r1").status is Status.CANCELLED  # type: ignore[union-attr]


def test_queues_and_tasks_are_listed_however_many(place: Place) -> None:
    place.ledger.add([new(f"t{n:03}", kind="report", delay_ms=LATER_MS + n) for n in range(130)])
    [queue] = place.ask("queues")["queues"]
    assert (queue["queue"], queue["tasks"]["scheduled"]) == ("default", 130)
    assert [one["id"] for one in place.ask("tasks", "--limit", "120")["tasks"]] == [f"t{n:03}" for n in range(120)]
    first = place.ask("tasks", "--limit", "100")
    assert len(place.ask("tasks", "--limit", "100", "--cursor", first["next_cursor"])["tasks"]) == 30
    assert place.ask("tasks", "--state", "dead") == {"tasks": [], "next_cursor": None}


@pytest.mark.parametrize("words", [("tasks", "--since"), ("show",), ("limits",), ("schedules", "list", "--queue")])
def test_bytes_that_are_no_text_are_named_in_one_line(place: Place, words: tuple[str, ...]) -> None:
    done = place.run(*words, "\udcff")
    assert (done.exit_code, "an argument is no UTF-8: " in done.stderr) == (2, True), done.stderr


def test_a_purge_counts_asks_and_deletes(place: Place) -> None:
    for id in ("a", "b"):
        bring(place.ledger, "dead", id)
    words = ("purge", "default", "--state", "dead")
    assert place.ask(*words, "--dry-run") == {"purged": 2, "dry_run": True}
    refused = place.run(*words, event="")
    assert refused.exit_code == 2
    assert "2 tasks of queue default will be purged" in refused.stderr
    assert "--yes" in refused.stderr
    assert place.ledger.get("default", "a")
    assert place.ask(*words, "--older-than", "P1D", "--yes") == {"purged": 0, "dry_run": False}
    assert place.ask(*words, "--yes") == {"purged": 2, "dry_run": False}
    assert place.ledger.get("default", "a") is None


def test_a_purge_that_finds_nothing_says_why_it_asks_nothing(place: Place) -> None:
    bring(place.ledger, "scheduled")
    for words, said in (
        (("purge", "default", "--state", "done"), "no done task in queue default: nothing to purge"),
        (("purge", "default", "--state", "dead", "--kind", "x"), "no dead task of that kind in queue default: nothing"),
        (("cancel", "--group", "g"), "no task of that group in queue default: nothing to cancel"),
    ):
        for option in ((), ("--dry-run",), ("--yes",)):
            done = place.run(*words, *option, event="n\n")
            assert (done.exit_code, done.stdout.startswith(said)) == (0, True), done.stdout
    done = place.run("purge", "defualt", "--state", "done", event="n\n")
    assert (done.exit_code, done.stdout.strip()) == (0, "no done task in queue defualt: nothing to purge")
    assert "there is no queue defualt: did you mean default?" in done.stderr


def in_a_terminal(answer: str, *words: str) -> subprocess.CompletedProcess[str]:
    """A command whose standard input is a terminal, in which somebody types."""
    keyboard, terminal = pty.openpty()
    try:
        os.write(keyboard, answer.encode())
        program = (sys.executable, "-m", "local", *words)
        return subprocess.run(
            program, cwd=ROOT, env=BARE, stdin=terminal, capture_output=True, text=True, check=False, timeout=120
        )
    finally:
        os.close(keyboard)
        os.close(terminal)


def test_a_purge_asks_in_a_terminal_and_goes_by_the_answer(
    ledger: Ledger, redis_server: RedisServer, tmp_path: Path
) -> None:
    words = ("purge", "default", "--state", "dead", "--store", redis_server.url, "--stack", str(tmp_path))
    bring(ledger, "dead")
    refused = in_a_terminal("n\n", *words)
    assert (refused.returncode, refused.stdout.strip()) == (1, "")
    assert "1 task of queue default will be purged. Go on?" in refused.stderr
    assert ledger.get("default", "a")
    done = in_a_terminal("y\n", *words)
    assert (done.returncode, done.stdout.strip()) == (0, "1 task of queue default purged")
    assert ledger.get("default", "a") is None


def test_many_tasks_are_cancelled_in_several_requests(place: Place) -> None:
    for start in range(0, 2_100, 700):
        place.ledger.add([new(f"t{n}", delay_ms=LATER_MS, kind="report") for n in range(start, start + 700)])
    place.ledger.add([new("other", delay_ms=LATER_MS)])
    assert place.ask("cancel", "--kind", "report", "--yes") == {"cancelled": 2_100, "dry_run": False}
    assert place.ledger.stats(SHARD).scheduled == 1


def test_top_looks_at_queues_and_at_what_runs_and_died(place: Place) -> None:
    for state in ("leased", "dead"):
        bring(place.ledger, state, state)
    put(place.ledger, at=place.ledger.now() + 90_000)
    seen = place.ask("top")
    assert [(queue["queue"], queue["schedules"]["count"]) for queue in seen["queues"]] == [("default", 1)]
    assert [[task["id"] for task in seen[state]] for state in ("leased", "dead")] == [["leased"], ["dead"]]
    shown = place.run("top", "--once").stdout
    assert re.search(r"^default .* 1, in 1 min *$", shown, re.MULTILINE)
    assert re.search(r"^running\n.*\ndefault +leased .*\n\ndead\n", shown, re.MULTILINE)


def test_history_plots_what_a_queue_did(place: Place) -> None:
    for state in ("done", "dead"):
        bring(place.ledger, state, state)
    seen = place.ask("history", "default", "--span", "1d")
    assert [seen["total"][name] for name in ("added", "claimed", "done", "dead")] == [2, 2, 1, 1]
    assert (seen["span"], seen["step"], len(seen["lines"])) == ("1d", "PT1H", 24)
    shown = place.run("history", "default").stdout
    assert re.search(r"^added +·{58}[·█]{2} +2 +[12] *$", shown, re.MULTILINE)
    assert re.search(r"^again +·{60} +0 +0 *$", shown, re.MULTILINE)
    assert re.search(r"^run p50 +·+[▁█·]+ +\d+ m?s +\d+ m?s *$", shown, re.MULTILINE)


def test_history_of_a_span_or_a_queue_that_is_none_is_rejected(place: Place) -> None:
    bring(place.ledger, "done")
    wrong = place.run("history", "default", "--span", "2h")
    assert (wrong.exit_code, "'2h' is no span: give one of 1h, 1d, 7d, 90d" in wrong.stderr) == (2, True)
    assert "queue" in place.run("history", "defualt").stderr


def test_top_stays_until_ctrl_c_or_until_the_store_is_gone(server: RedisServer, tmp_path: Path) -> None:
    words = ("top", "--every", "500ms", "--store", server.url, "--stack", str(tmp_path))
    for end, code in ((lambda process: process.send_signal(signal.SIGINT), 0), (lambda _: server.stop(), 3)):
        keyboard, terminal = pty.openpty()
        program = (sys.executable, "-m", "local", *words)
        with subprocess.Popen(program, cwd=ROOT, env=BARE, stdin=terminal, stdout=terminal, stderr=terminal) as process:
            os.close(terminal)
            seen = b""
            while b"late p99" not in seen:
                seen += os.read(keyboard, 65_536)
            end(process)
            drained(keyboard)
            assert process.wait(timeout=60) == code
        os.close(keyboard)


def drained(keyboard: int) -> None:
    """Read until the other side of a terminal is closed: a full one would hold its writer up."""
    with suppress(OSError):
        while os.read(keyboard, 65_536):
            pass


def test_the_dead_are_replayed_one_or_all(place: Place) -> None:
    for id in ("a", "b", "c"):
        bring(place.ledger, "dead", id)
    assert place.ask("replay", "--dead", "--dry-run")["replayed"] == 3
    assert place.ask("replay", "a")["task"]["state"] == "scheduled"
    answer = place.ask("replay", "--dead", "--rate", "1/PT60S")
    assert [one["id"] for one in answer["tasks"]] == ["b", "c"]
    assert place.ledger.stats(SHARD).dead == 0


def die(ledger: Ledger, id: str, error: str = "KeyError: 'prize' at app.py:9", kind: str = "report") -> None:
    """Let one task die of an error at its only attempt."""
    ledger.add([new(id, kind=kind, retry=RetryPolicy(max_attempts=1))])
    [task] = ledger.claim(SHARD, 1, lease_ms=9_000).tasks
    settle(ledger, task, Ending.RETRY, detail=error)


def test_the_dead_are_shown_by_their_errors_with_the_line_that_replays_them(place: Place) -> None:
    for n in range(12):
        die(place.ledger, f"r{n:02}", f"KeyError: 'order-{n}' at app.py:9")
    die(place.ledger, "b", 'OSError: "no" \x1b[31m at app.py:12', "bill")
    [queue] = place.ask("dead")["queues"]
    assert (queue["queue"], queue["tasks"]) == ("default", 13)
    first, second = queue["errors"]
    assert (first["error"], first["kind"], first["count"]) == ("KeyError: 'order-#' at app.py:9", "report", 12)
    assert (first["example"], first["since"] < first["latest"]) == ("r11", True)
    assert place.ask("dead", "--since", "PT1H", "--error", "OSError")["queues"][0]["errors"] == [second]
    assert place.ask("dead", "--kind", "none") == {"queues": []}
    shown = place.run("dead").stdout
    assert re.match(r"queue default: 13 dead tasks\n\n12 \S KeyError: 'order-#' at app.py:9\n", shown)
    assert "kind report, since " in shown
    assert "such as r11" in shown
    assert "\x1b" not in shown
    lines = [line.strip() for line in shown.splitlines() if "duecourse replay" in line]
    assert lines[0].startswith(
        """duecourse replay --dead --queue default --kind report --error "KeyError: 'order-#' at"""
    )
    for line, count in zip(lines, (12, 1), strict=True):
        own = shlex.split(line)[1:]
        words = own[: own.index("--error") + 2]
        assert place.ask(*words)["replayed"] == count
    assert place.ledger.stats(SHARD).dead == 0


def test_an_error_filters_what_is_listed_replayed_and_purged(place: Place) -> None:
    for id in ("a", "b", "c"):
        die(place.ledger, id)
    die(place.ledger, "other", "OSError: away")
    filtered = ("--error", "KeyError: #app.py:9")
    assert [one["id"] for one in place.ask("tasks", *filtered)["tasks"]] == ["a", "b", "c"]
    assert [one["id"] for one in place.ask("tasks", "--state", "dead", "--since", "PT1H")["tasks"]][-1] == "other"
    assert place.ask("tasks", "--since", "2099-01-01T00:00:00Z")["tasks"] == []
    assert place.ask("replay", "--dead", *filtered, "--limit", "1")["replayed"] == 1
    assert place.ask("purge", "default", "--state", "dead", *filtered, "--yes")["purged"] == 2
    assert place.ask("dead")["queues"][0]["errors"][0]["error"] == "OSError: away"


def test_a_replay_is_one_line_and_rows_are_for_who_asks(place: Place) -> None:
    for id in ("a", "b"):
        die(place.ledger, id)
    die(place.ledger, "c", kind="bill")
    words = ("replay", "--dead", "--rate", "1/PT5S")
    said = "3 dead tasks of queue default would be replayed: 2 report, 1 bill; drained in about 15 s\n"
    assert place.run(*words, "--dry-run").stdout == said
    rows = place.run(*words, "--dry-run", "--verbose").stdout
    assert re.search(r"^a +20", rows, re.MULTILINE)
    assert rows.endswith(said)
    assert (
        place.run(*words, "--limit", "2").stdout
        == "2 dead tasks of queue default replayed, of 3; drained in about 10 s\n"
    )
    assert place.run("replay", "--dead").stdout == "1 dead task of queue default replayed: 1 bill\n"

    nothing = "no dead task in queue default: nothing to replay\n"
    assert place.run("replay", "--dead").stdout == nothing
    assert place.run("replay", "--dead", "--verbose", "--wait").stdout == nothing
    filtered = place.run("replay", "--dead", "--kind", "report", "--error", "KeyError", "--dry-run")
    assert filtered.stdout == "no dead task of that kind and error in queue default: nothing to replay\n"


def test_a_replay_of_any_size_keeps_one_rate_over_its_requests(ledger: Ledger, redis_server: RedisServer) -> None:
    ids = [f"t{n:04}" for n in range(1_100)]
    for start in range(0, len(ids), 500):
        ledger.add([new(id, kind="report") for id in ids[start : start + 500]])
        for task in ledger.claim(SHARD, 500, lease_ms=9_000).tasks:
            settle(ledger, task, Ending.DROP, detail="no")
    place = Place(ledger, ("--store", redis_server.url), {})
    counted = place.ask("replay", "--dead", "--dry-run")["tasks"]
    assert len({one["id"] for one in counted}) == 1_100
    answer = place.ask("replay", "--dead", "--rate", "10/PT1S")
    due = [to_ms(datetime.fromisoformat(one["due_at"])) for one in answer["tasks"]]
    assert (len(due), answer["more"]) == (1_100, False)
    assert 109_000 <= max(due) - min(due) <= 120_000
    assert min(due[1_000:]) - max(due[:1_000]) <= 10_000


@contextmanager
def working(ledger: Ledger, **ends: Ending) -> Iterator[None]:
    """A thread that works what is due: to the end that is named for its id, else it is done."""
    over = Event()

    def work() -> None:
        while not over.wait(0.02):
            for task in ledger.claim(SHARD, 10, lease_ms=9_000).tasks:
                settle(ledger, task, ends.get(task.id, Ending.DONE), detail="again")

    thread = Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def test_dead_looks_at_every_page_of_queues(place: Place) -> None:
    for n in range(MAX_PAGE):  # all of them come before `default`
        place.ledger.configure(f"a-{n}", {"priority": 5})
    die(place.ledger, "a")
    [found] = place.ask("dead")["queues"]
    assert (found["queue"], found["tasks"]) == ("default", 1)


def test_a_replay_waits_until_its_tasks_are_over(place: Place) -> None:
    for id in ("a", "b", "c"):
        die(place.ledger, id)
    with working(place.ledger):
        done = place.run("replay", "--dead", "--wait")
        assert (done.exit_code, done.stdout) == (0, "3 over: 3 done\n")
        assert "3 dead tasks of queue default replayed: 3 report" in done.stderr
    die(place.ledger, "d")
    with working(place.ledger):
        assert place.run("replay", "d", "--wait").stdout == "1 over: 1 done\n"


def test_a_replay_of_tasks_that_die_again_ends_with_code_1(place: Place) -> None:
    for id in ("a", "b", "c"):
        die(place.ledger, id)
    with working(place.ledger, b=Ending.DROP):
        done = place.run("replay", "--dead", "--wait", "--json")
    assert (done.exit_code, json.loads(done.stdout)["ends"]) == (1, {"done": 2, "cancelled": 0, "dead": 1, "gone": 0})


def test_a_wait_ends_for_a_task_that_is_deleted_meanwhile() -> None:
    asked: list[str] = []

    class Forgets:
        name = "a ledger that has nothing"

        def request(self, _method: str, path: str, _query: Any = None) -> Any:
            asked.append(path)
            if path == "/tasks":
                return {"tasks": [], "next_cursor": None}
            raise RequestRejected(404, {})

    followed = ReplayWait(cast(ApiClient, Forgets()), "default", [{"id": "a", "due_at": "2026-01-01T00:00:00Z"}])
    followed.look()
    assert (followed.pending, followed.ends["gone"]) == ({}, 1)
    assert asked == ["/tasks"] * 3 + ["/tasks/a"]


def test_ctrl_c_ends_the_waiting_and_the_tasks_go_on(ledger: Ledger, redis_server: RedisServer, tmp_path: Path) -> None:
    die(ledger, "a")
    words = ("replay", "--dead", "--wait", "--store", redis_server.url, "--stack", str(tmp_path))
    program = (sys.executable, "-m", "local", *words)
    with subprocess.Popen(
        program, cwd=ROOT, env=BARE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as run:
        assert run.stderr is not None
        while "replayed" not in run.stderr.readline():
            assert run.poll() is None
        run.send_signal(signal.SIGINT)
        assert "stopped waiting: 1 task not over yet; they go on" in run.stderr.read()
        assert run.wait(timeout=60) == 130
    assert ledger.get("default", "a").status is Status.SCHEDULED  # type: ignore[union-attr]


def test_a_queue_is_paused_resumed_and_limited(place: Place) -> None:
    place.ledger.add([new("a", delay_ms=LATER_MS)])
    assert place.ask("pause", "default")["queue"]["paused"] is True
    assert place.ask("resume", "default")["queue"]["paused"] is False
    changed = place.ask("limits", "default", "max_running=20", "rate=10/PT1S", "retention=P2D")["queue"]
    assert (changed["max_running"], changed["rate"]) == (20, {"count": 10, "per": "PT1S"})
    assert place.ask("limits", "default", "rate=default")["queue"]["rate"] is None
    assert place.ask("limits", "default")["queue"]["max_running"] == 20
    assert place.run("pause", "nowhere").exit_code == 1
    assert place.ask("limits", "fresh", "priority=2", "--create")["queue"]["priority"] == 2


def test_another_tenants_tasks_are_reached_by_its_name(place: Place) -> None:
    place.ledger.add([new("a", tenant="acme", delay_ms=LATER_MS)])
    assert place.run("show", "a").exit_code == 1
    assert place.ask("show", "a", "--tenant", "acme")["task"]["id"] == "a"
    assert place.ask("purge", "default", "--state", "scheduled", "--tenant", "acme", "--yes")["purged"] == 1


def test_a_schedule_is_added_shown_changed_paused_run_and_deleted(place: Place) -> None:
    words = ("--id", "daily", "--cron", "0 9 * * *", "--time-zone", "Europe/Vienna")
    added = place.ask("schedules", "add", "report", *words, "--payload", '{"month": 10}')
    assert (added["created"], added["schedule"]["repeat"]) == (True, {"cron": "0 9 * * *"})
    assert place.ask("schedules", "add", "report", *words, "--payload", '{"month": 10}')["created"] is False
    shown = place.ask("schedules", "show", "daily")["schedule"]
    assert (len(shown["next"]), shown["time_zone"]) == (10, "Europe/Vienna")
    assert place.ask("schedules", "change", "daily", '{"overlap": "skip"}')["schedule"]["overlap"] == "skip"
    assert place.ask("schedules", "pause", "daily")["schedule"]["paused"] is True
    assert place.ask("schedules", "resume", "daily")["schedule"]["paused"] is False
    ran = place.ask("schedules", "run", "daily")["id"]
    assert place.ledger.get("default", ran)
    span = ("2026-11-01T00:00:00Z", "2026-11-08T00:00:00Z")
    assert place.ask("schedules", "backfill", "daily", *span, "--overlap", "queue")["occurrences"] == 7
    [fill] = [one for one in due(place.ledger) if one.schedule.of]
    assert fill.schedule.overlap is Overlap.QUEUE
    assert [one["id"] for one in place.ask("schedules", "list")["schedules"]] == ["daily"]
    unasked = place.run("schedules", "delete", "daily", event="")
    assert (unasked.exit_code, "--dry-run" in unasked.stderr) == (2, False)
    assert place.ask("schedules", "delete", "daily", "--yes") == {"id": "daily"}
    assert place.ask("schedules", "list")["schedules"] == []


HOOK = ("--payload", '{"url": "https://example.org/hook"}')


def test_many_schedules_are_counted_asked_for_and_deleted(place: Place) -> None:
    for n in range(5):
        place.ask("schedules", "add", "report" if n else "webhook", "--id", f"s-{n}", "--every", "PT1H", *HOOK)
    assert place.ask("schedules", "delete", "--kind", "report", "--dry-run") == {"purged": 4, "dry_run": True}
    unasked = place.run("schedules", "delete", "--kind", "report", event="")
    assert (unasked.exit_code, "--dry-run" in unasked.stderr) == (2, True)
    assert place.ask("schedules", "delete", "--prefix", "s-3", "--yes") == {"purged": 1, "dry_run": False}
    assert place.ask("schedules", "delete", "--kind", "report", "--yes") == {"purged": 3, "dry_run": False}
    assert [one["id"] for one in place.ask("schedules", "list")["schedules"]] == ["s-0"]
    for words in ((), ("s-0", "--all"), ("s-0", "--dry-run")):
        assert "give the id of one schedule" in place.run("schedules", "delete", *words).stderr
    assert place.ask("schedules", "delete", "--all", "--yes") == {"purged": 1, "dry_run": False}
    assert place.ask("schedules", "delete", "--all", "--yes") == {"purged": 0, "dry_run": False}


def test_an_occurrence_that_waits_for_the_end_of_another_is_shown_without_a_due_time(place: Place) -> None:
    put(place.ledger, overlap=Overlap.QUEUE, deadline_ms=9_000, kind="report")
    fire(place.ledger)
    fire(place.ledger)
    assert waits(place.ledger, occurrence(2))
    for words in (("show", occurrence(2)), ("why", occurrence(2)), ("tasks", "--group", "s")):
        said = place.run(*words).stdout
        assert "9999" not in said
        assert "after another" in said


def test_schedules_are_listed_however_many(place: Place) -> None:
    with wired_with(parse({"DUECOURSE_TARGETS": TARGETS}), ledger=place.ledger) as served:
        for n in range(120):
            served.schedules.add(Schedule(f"s{n:03}", "report", Rule(Every(3_600_000), AT_ADD)))
    found = place.ask("schedules", "list", "--limit", "110")
    assert [one["id"] for one in found["schedules"]] == [f"s{n:03}" for n in range(110)]


def test_the_times_of_a_rule_are_printed_with_changes_of_the_clocks(place: Place) -> None:
    words = ("--cron", "30 2 * * *", "--time-zone", "Europe/Vienna", "--from", "2027-03-27T00:00:00Z", "--count", "2")
    times = place.ask("schedules", "preview", *words)["times"]
    assert [one["local"] for one in times] == ["2027-03-27T02:30:00+01:00", "2027-03-28T03:00:00+02:00"]
    assert "the clocks have changed" in place.run("schedules", "preview", *words).stdout


def test_a_file_of_schedules_is_compared_with_what_there_is(place: Place, tmp_path: Path) -> None:
    path = tmp_path / "schedules.yaml"
    with wired_with(parse({"DUECOURSE_TARGETS": TARGETS}), ledger=place.ledger) as served:
        served.schedules.add(Schedule("own", "report", Rule(Every(60_000), AT_ADD)))
        text = FILED.format(number=1, cron="0 9 * * *").replace("id: new", "id: old")
        served.apply_schedules(text + "  - {id: gone, kind: report, payload: {}, repeat: {every: PT1H}}\n")
    path.write_text(FILED.format(number=2, cron="0 10 * * *"))
    new, old = ({"queue": "imports", "tenant": "acme", "id": id} for id in ("new", "old"))
    changed = {"repeat": {"from": {"cron": "0 9 * * *"}, "to": {"cron": "0 10 * * *"}}}
    found = place.ask("schedules", "diff", str(path))
    applied = found.pop("applied")
    assert found == {
        "number": 2,
        "added": [new],
        "changed": [{"queue": "default", "id": "daily-report", "fields": changed}],
        "deleted": [{"queue": "default", "id": "gone"}, old],
        "left_alone": [{"queue": "default", "id": "own"}],
    }
    assert applied in {1, None}
    shown = place.run("schedules", "diff", str(path))
    assert (shown.exit_code, shown.stdout.splitlines()) == (
        0,
        [
            "+ new (queue imports, tenant acme)",
            '~ daily-report (queue default): repeat {"cron": "0 9 * * *"} → {"cron": "0 10 * * *"}',
            "- gone (queue default)",
            "- old (queue imports, tenant acme)",
            "= own (queue default): no file made it, it is left alone",
        ],
    )
    with wired_with(parse({"DUECOURSE_TARGETS": TARGETS}), ledger=place.ledger) as served:
        served.apply_schedules(path.read_text())
    same = place.run("schedules", "diff", str(path))
    assert same.stdout == "= own (queue default): no file made it, it is left alone\n"
    assert ("Raise `number`" in same.stderr) == (applied is not None)


def test_a_file_changes_nothing_of_a_schedule_of_a_release_without_auto(place: Place, tmp_path: Path) -> None:
    path = tmp_path / "schedules.yaml"
    former = FILED.format(number=1, cron="0 * * * *").replace("kind: report", "gap: shift, fold: first, kind: report")
    with wired_with(parse({"DUECOURSE_TARGETS": TARGETS}), ledger=place.ledger) as served:
        served.apply_schedules(former)
    path.write_text(FILED.format(number=2, cron="0 * * * *"))
    assert place.ask("schedules", "diff", str(path))["changed"] == []
    path.write_text(former.replace("gap: shift", "gap: skip"))
    [*changed] = place.ask("schedules", "diff", str(path))["changed"]
    assert all(one["fields"] == {"gap": {"from": "shift", "to": "skip"}} for one in changed)
    assert len(changed) == former.count("gap: shift")


def test_a_schedule_without_a_next_time_says_why_in_a_sentence(place: Place) -> None:
    place.ask("schedules", "add", "report", "--id", "daily", "--cron", "0 9 * * *")
    place.ask("schedules", "pause", "daily")
    shown = place.run("schedules", "show", "daily").stdout
    assert "No occurrence is to come. It is paused: nothing fires until it is resumed." in shown
    none = ("--every", "PT1H", "--from", "9999-12-31T00:00:00Z")
    assert place.run("schedules", "preview", *none).stdout == "The rule has no time from then on.\n"


def test_a_wrong_file_of_schedules_is_one_line_with_every_wrong_field_and_code_2(place: Place, tmp_path: Path) -> None:
    path = tmp_path / "schedules.yaml"
    path.write_text(
        FILED.format(number=2, cron="0 25 * * *").replace("time_zone: Europe", "colour: 1, time_zone: Europe")
    )
    path.write_text(path.read_text() + "  - {id: a, kind: report, payload: {}, repeat: {cron: 0 9 31 2 *}}\n")
    done = place.run("schedules", "diff", str(path))
    assert (done.exit_code, done.stdout) == (2, "")
    assert "daily-report.colour: is not a known field; a.repeat.cron: " in done.stderr
    assert place.run("schedules", "diff", str(tmp_path / "none.yaml")).exit_code == 2


CRON = ("schedules", "add", "report", "--cron", "0 9 * * *")


def test_exit_codes_and_the_one_line_of_an_error(place: Place) -> None:
    bring(place.ledger, "scheduled")
    for words, code, said in (
        (("show", "none"), 1, "no task none in queue default, in the "),
        (("why", "none"), 1, "no task none"),
        (("replay", "a"), 1, "scheduled"),
        (("move", "a"), 2, "due_at"),
        (("add", "nonsense"), 2, "kind"),
        (("limits", "default", "colour=red"), 2, "sets nothing"),
        (("limits", "fresh", "max_running=3"), 1, "there is no queue fresh: duecourse limits fresh --create makes it"),
        (("pause", "nope"), 1, "there is no queue nope: duecourse limits nope --create makes it"),
        (
            ("resume", "defualt"),
            1,
            "there is no queue defualt: did you mean default? (duecourse limits defualt --create",
        ),
        (("show", "--queue", "defualt"), 1, "there is no queue defualt: did you mean default? ("),
        (("add", "report", "--payload", "{bad"), 2, "--payload: must be JSON, or @FILE with JSON in it"),
        (("add", "report", "--more", "[1]"), 2, "--more: must be a JSON object"),
        (("schedules", "add", "report", "--more", "7"), 2, "--more: must be a JSON object"),
        (("add", "report", "--id", "x", "--queue", "q", "--more", '{"id": "y", "queue": "r"}'), 2, "--more: id, queue"),
        ((*CRON, "--more", '{"repeat": {"every": "PT1H"}}'), 2, "--more: repeat must not be given by an option too"),
        ((*CRON, "--more", '{"payload": {"n": 1}, "kind": "x"}'), 2, "--more: kind must not"),
        (("schedules", "preview", "--every", "PT1H", "--count", "2", "--more", '{"count": 3}'), 2, "--more: count"),
        (("schedules", "change", "none", "null"), 2, "CHANGES: must be a JSON object"),
        (("schedules", "show", "none"), 1, "Queue default has no schedule none."),
        (("schedules", "add", "report", "--cron", "0 25 * * *"), 2, "repeat.cron"),
        (("schedules", "preview"), 2, "give one of every, cron and rrule"),
    ):
        done = place.run(*words)
        where, told = done.stderr.splitlines()
        assert (done.exit_code, done.stdout) == (code, ""), words
        assert where.startswith(("store unix://", "API http://127.0.0.1:"))
        assert said in told


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--store", "redis://127.0.0.1:1/0"), "127.0.0.1:1"),
        (("--url", "http://127.0.0.1:1"), "does not answer"),
    ],
)
def test_a_place_that_is_away_is_one_line_and_code_3(options: tuple[str, ...], said: str, tmp_path: Path) -> None:
    done = command("queues", *options, "--stack", str(tmp_path))
    assert done.exit_code == 3
    assert said in done.stderr.splitlines()[-1]
    assert len(done.stderr.splitlines()) <= 2


@pytest.mark.parametrize("words", [("queues",), ("add", "report"), ("doctor",), ("export",), ("mend",)])
def test_without_a_stack_and_a_store_nothing_is_looked_for_on_this_machine(
    words: tuple[str, ...], tmp_path: Path
) -> None:
    folder = "--stack" if words[0] in COMMANDS else "--state"
    done = command(*words, folder, str(tmp_path))
    assert (done.exit_code, done.stdout, len(done.stderr.splitlines())) == (2, "", 1)
    assert "run duecourse up, give --store, or set DUECOURSE_STORE" in done.stderr


def test_a_url_without_its_scheme_is_an_error_that_shows_one(tmp_path: Path) -> None:
    done = command("queues", "--url", "localhost:3000", "--stack", str(tmp_path))
    assert (done.exit_code, len(done.stderr.splitlines())) == (2, 1)
    assert "such as http://localhost:3000" in done.stderr


def test_what_is_no_ledger_is_one_line_and_code_3(redis_server: RedisServer, tmp_path: Path) -> None:
    with answering(lambda _: Reply(200, b"<html>")) as other:
        done = command("queues", "--url", other.url)
        assert done.exit_code == 3
        assert "is not the HTTP API of duecourse" in done.stderr
    with answering(lambda _: Reply(404, b'{"detail": "Not Found"}')) as other:
        done = command("queues", "--url", other.url)
        assert (done.exit_code, "no duecourse API there" in done.stderr) == (3, True)
    with answering(lambda _: Reply(200, b"<html>")) as other:
        port = other.url.rpartition(":")[2]
        done = command("queues", "--store", f"redis://127.0.0.1:{port}/0", "--stack", str(tmp_path))
        assert (done.exit_code, len(done.stderr.splitlines())) == (3, 1)
    done = command("queues", "--store", f"{redis_server.url}?db=99", "--stack", str(tmp_path))
    assert done.exit_code == 3
    assert done.stderr.startswith(
        "The store rejected the command: DB index is out of range: a server usually has 0 to 15"
    )


def test_without_a_proof_the_api_lets_nobody_in_and_the_error_names_the_way(ledger: Ledger, tmp_path: Path) -> None:
    settings = parse({"DUECOURSE_TENANT_FROM": authorizer.parameters(Auth.IAM)["TenantFrom"]})
    with wired_with(settings, ledger=ledger) as served, api(served, authorizer.authorizer(Auth.IAM, tmp_path)) as url:
        done = command("queues", "--url", url, AWS_EC2_METADATA_DISABLED="true", HOME=str(tmp_path))
    assert done.exit_code == 1
    assert "set AWS credentials or give --token" in done.stderr


def test_an_api_without_a_rule_for_tenants_gets_them_in_a_header(ledger: Ledger, tmp_path: Path) -> None:
    ledger.add([NewTask("a", "report", tenant="acme", delay_ms=LATER_MS)])
    settings = parse({"DUECOURSE_TENANT_HEADER": "X-Tenant"})
    with wired_with(settings, ledger=ledger) as served, api(served, authorizer.authorizer(Auth.NONE, tmp_path)) as url:
        done = command("show", "a", "--url", url, "--tenant", "acme", "--json", DUECOURSE_TOKEN="any")
    assert done.exit_code == 0, done.stderr
    assert json.loads(done.stdout)["task"]["id"] == "a"


def texts_of(commands: list[CommandInfo]) -> dict[str, str]:
    """The help of commands, by their names."""
    return {one.callback.__name__: str(one.callback.__doc__) for one in commands if one.callback}


def examples() -> list[str]:
    """Each line of help that is an example of a command here."""
    within = "\n".join(texts_of(schedules.app.registered_commands).values())
    texts = {**texts_of(app.registered_commands), "schedules": within}
    lines = [line.strip() for name in COMMANDS for line in texts[name].splitlines()]
    page = re.findall(r"^    (duecourse .*)$", (ROOT / "docs/how-to/operate.md").read_text(), re.MULTILINE)
    return [*(line for line in lines if line.startswith("duecourse ")), *(line for line in page if "$URL" not in line)]


def with_all(ledger: Ledger) -> None:
    """Have every task and queue that an example names."""
    for id in ("report-42", "dead-1"):
        ledger.add([new(id, kind="report")])
        [task] = ledger.claim(SHARD, 1, lease_ms=1_000).tasks
        settle(ledger, task, Ending.DROP, detail="no use")
    ledger.add([new("order-7", delay_ms=LATER_MS), new("standup:300:0", queue="reminders", group="standup")])
    ledger.configure("imports", {"paused": True})
    with wired_with(parse({"DUECOURSE_TARGETS": TARGETS}), ledger=ledger) as served:
        repeat = Rule(Every(3_600_000), AT_ADD)
        for id in ("daily-report", "morning-report"):
            served.schedules.add(Schedule(id, "report", repeat))


@pytest.mark.parametrize("line", examples())
def test_an_example_of_help_does_what_it_says(
    line: str, ledger: Ledger, redis_server: RedisServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("report.json").write_text('{"month": "2026-10"}')
    Path("schedules.yaml").write_text(FILED.format(number=1, cron="0 9 * * *"))
    with_all(ledger)
    _, *words = shlex.split(re.sub(r" --store \S+", "", line))
    done = command(*words, "--store", redis_server.url, "--stack", str(tmp_path), DUECOURSE_TARGETS=TARGETS)
    assert done.exit_code == 0, done.stderr
    assert done.stdout


def test_every_command_has_an_example() -> None:
    assert {line.split()[1] for line in examples()} == set(COMMANDS)
    named = {line.split()[2] for line in examples() if line.startswith("duecourse schedules ")}
    assert named == {one.name for one in schedules.app.registered_commands}


def test_what_people_read_fits_80_columns(ledger: Ledger, redis_server: RedisServer, tmp_path: Path) -> None:
    with_all(ledger)
    here = Place(ledger, ("--store", redis_server.url, "--stack", str(tmp_path)), TERMINAL)
    for words in (
        ("queues",),
        ("tasks",),
        ("show", "report-42"),
        ("why", "report-42"),
        ("limits", "imports"),
        ("schedules", "list"),
        ("schedules", "show", "daily-report"),
    ):
        done = here.run(*words)
        assert done.exit_code == 0
        assert max(map(len, done.stdout.splitlines())) <= 80


@pytest.fixture
def in_vienna(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as changed:
        changed.setenv("TZ", "Europe/Vienna")
        time.tzset()
        yield
    time.tzset()


@pytest.mark.usefixtures("in_vienna")
def test_the_clock_of_people_is_that_of_their_zone() -> None:
    assert formatting.local("2026-07-01T10:00:00.000Z") == "2026-07-01 12:00:00 (10:00:00 UTC)"
    assert formatting.text_of("due 2026-01-01T10:00:00.500Z.") == "due 2026-01-01 11:00:00 (10:00:00 UTC)."
    assert [formatting.short(ms) for ms in (40, 5_000, 300_000, 7_200_000, 86_400_000)] == [
        *("40 ms", "5 s", "5 min", "2 h", "1 d")
    ]


@pytest.mark.usefixtures("in_vienna")
@pytest.mark.parametrize(
    "text",
    [
        "9999-12-31T23:59:59.000Z",  # "never" to many programs; in Vienna it is in the year 10000
        "0001-01-01T00:00:00.000Z",  # no time, in Go and .NET
        "2026-13-45T10:00:00.000Z",
    ],
)
def test_an_instant_that_no_clock_of_people_shows_is_printed_as_it_is(text: str) -> None:
    assert formatting.text_of(f"seen at {text}.") == f"seen at {text}."
    assert formatting.local(text) == text


def test_a_span_just_under_a_whole_number_of_units_is_that_number() -> None:
    assert [formatting.short(ms) for ms in (599_985, 3_599_800, 86_399_000, 5_300_000, 0)] == [
        *("10 min", "1 h", "1 d", "1 h", "0 ms")
    ]


def test_a_rate_is_shown_as_it_is_written() -> None:
    rates = [{"count": 10, "per": per} for per in ("PT1S", "PT1M", "PT1H", "P1D", "PT0.5S")]
    assert [formatting.parts_of(rate) for rate in rates] == ["10/s", "10/m", "10/h", "10/d", "10/PT0.5S"]
