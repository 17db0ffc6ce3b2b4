"""The parts of an App: built at their first use, kept, replaced by what is given."""

import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from threading import Barrier, BrokenBarrierError, RLock

import pytest

from duecourse import open_ledger
from duecourse.app import App, Parts, lazy
from duecourse.errors import InvalidSettings
from duecourse.ledger.embedded.ledger import EmbeddedLedger
from duecourse.ledger.operations.ledger import Ledger
from duecourse.ledger.queue import ThrottleReason
from duecourse.ledger.reminder import Channel
from duecourse.ledger.task import Shard, Task
from duecourse.reminders.send import Letter, Message
from duecourse.services.aws import LambdaInvoker
from duecourse.settings import Settings
from tests.support.engine import ample
from tests.support.ledger import SHARD, new
from tests.support.source import ROOT
from tests.support.wired import wired_with


@pytest.fixture
def app(ledger: EmbeddedLedger) -> Iterator[App]:
    with wired_with(ledger=ledger) as app:
        yield app


def test_a_part_is_built_once_and_kept(app: App) -> None:
    assert app.drainer is app.drainer
    assert app.threads.size == Settings().parallel


def test_threads_that_use_a_part_at_once_build_it_once() -> None:
    """A ledger in memory that was built twice is two, and one on disk is in its own way."""
    together = Barrier(2)

    class Slow:
        building = RLock()

        @lazy
        def part(self) -> object:
            with suppress(BrokenBarrierError):
                together.wait(0.3)  # for a second builder, who must not come
            return object()

    slow = Slow()
    with ThreadPoolExecutor(2) as threads:
        first, second = threads.map(lambda _: slow.part, range(2))
    assert first is second


def test_what_is_given_is_used_and_what_is_built_is_one_apps(app: App, ledger: EmbeddedLedger) -> None:
    other = App(Settings(), Parts(ledger=ledger))
    assert other.ledger is app.ledger is ledger
    assert other.tasks is not app.tasks


def test_a_part_that_an_app_does_not_have_cannot_be_given(ledger: EmbeddedLedger) -> None:
    with pytest.raises(TypeError, match="stroe"):
        Parts(stroe=ledger)  # type: ignore[call-arg]


def test_an_app_that_ran_nothing_has_no_thread_to_end() -> None:
    app = App(Settings())
    app.close()
    assert "threads" not in vars(app)


@pytest.mark.parametrize(
    ("url", "kind"), [("memory://", EmbeddedLedger), ("redis://127.0.0.1:1/0", Ledger), ("unix:///x", Ledger)]
)
def test_the_ledger_is_the_one_that_the_settings_name_and_nothing_is_opened_for_it(url: str, kind: type) -> None:
    assert isinstance(open_ledger.open_ledger(Settings(store=url)), kind)


def test_results_are_kept_in_the_ledger_unless_a_table_is_named() -> None:
    assert App(Settings()).results is None
    assert App(Settings(results_table="results")).results is not None


def test_a_results_table_without_boto3_names_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "boto3", None)
    with pytest.raises(InvalidSettings, match=r"DUECOURSE_RESULTS_TABLE: needs boto3.*pip install 'duecourse\[aws\]'"):
        _ = App(Settings(results_table="results")).results


def test_a_caller_may_ask_for_what_something_runs() -> None:
    targets = {"report": "lambda:Report", "reminder": "lambda:SendReminder", "poll": "inline"}
    assert App(Settings(targets=targets)).known_kinds == {"poll", "webhook", "report"}


def test_the_kinds_of_the_design_are_worked_inline(app: App) -> None:
    assert set(app.kinds) == {"poll", "webhook", "reminder", "task.ended", "task.series"}


@pytest.mark.slow
def test_each_channel_that_a_service_serves_has_a_sender_and_jinja2_waits_for_the_first_message() -> None:
    assert set(App(Settings()).senders) | {"webhook"} == set(Channel)
    app = App(Settings(), Parts(writer=lambda letters: [Message("", letter.payload, "") for letter in letters]))
    assert app.write([Letter("a", 0)]) == [Message("", "a", "")]
    assert "jinja2" not in loaded_by("app = PROCESS.app(); app.one_off_reminders, app.reminder_kind, app.kinds")


@pytest.mark.slow
def test_a_client_that_asks_no_query_does_without_what_a_poll_needs() -> None:
    loaded = loaded_by("Client.from_env().add(kind='webhook', payload={'url': 'https://example.com/'})")
    assert {"jmespath", "urllib3"}.isdisjoint(loaded)


@pytest.mark.slow
def test_a_function_that_got_ready_has_what_the_first_due_schedule_needs() -> None:
    ready = loaded_by("app = PROCESS.app(); app.get_ready()")
    assert {"duecourse.schedules.firing", "duecourse.schedules.cron", "tzdata", "zoneinfo"} <= ready


def loaded_by(made: str) -> set[str]:
    """The modules that a fresh process has once it has put this together."""
    code = f"import sys; from duecourse import Client; from duecourse.app import PROCESS; {made}; print(*sys.modules)"
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT / "layers/core"), "DUECOURSE_STORE": "memory://"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    return set(done.stdout.split())


def test_uses_of_functions_are_noted_only_where_idle_ones_are_warmed(app: App, ledger: EmbeddedLedger) -> None:
    assert app.send() != app.invoker.send
    cold = App(Settings(warm_ms=0), Parts(ledger=ledger))
    assert cold.send() == cold.invoker.send
    assert (app.warming is None, cold.warming) == (False, None)


def test_both_doors_lead_to_the_same_engine_which_leaves_kinds_to_those_who_have_them(
    app: App, ledger: EmbeddedLedger
) -> None:
    ledger.add([new("a", kind="nobodys"), new("b", kind="nobodys", queue="other")])
    assert app.drainer.drain([SHARD], ample).claimed == 0
    sweeper = app.sweeper
    assert sweeper.tick(sweeper.survey(ample), ample).claimed == 0
    for queue, id in (("default", "a"), ("other", "b")):
        assert ledger.throttle(Shard(queue), task=ledger.get(queue, id)).reason is ThrottleReason.KIND


def test_a_functions_worker_runs_its_one_kind_whatever_the_tasks_is_called(app: App, ledger: EmbeddedLedger) -> None:
    ledger.add([new("a", kind="this"), new("b", kind="that")])
    ran: list[Task] = []
    leased = ledger.claim(SHARD, 2, lease_ms=30_000).tasks
    assert app.received_tasks(app.runner(lambda _kind: ran.append), ample).work(leased)["done"] == 2
    assert {task.kind for task in ran} == {"this", "that"}


def test_a_drain_does_not_wait_past_its_margin_for_an_event_to_be_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-central-1")
    invoker = App(Settings()).invoker
    assert isinstance(invoker, LambdaInvoker)
    given = invoker._calls.timeout
    assert 2 * (given.connect_timeout + given.read_timeout) < Settings().margin_ms / 1000


@pytest.mark.slow
def test_an_import_opens_nothing_and_reads_no_environment() -> None:
    modules = "duecourse.app, duecourse.client.client, duecourse.task_handlers"
    code = f"import {modules}, threading; assert threading.active_count() == 1"
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "layers" / "core"), "DUECOURSE_STORE": "nonsense"}
    subprocess.run([sys.executable, "-W", "error", "-c", code], env=environment, check=True)


CALLS = """
import sys
from duecourse.guard.http_types import HttpAnswer, HttpRequest
from duecourse.settings import Settings
from duecourse.app import Parts
from duecourse.app import App

class Web:
    def call(self, request):
        return HttpAnswer(200, {}, b"{}")

app = App(Settings(), Parts(http=Web()))
kind = app.webhook_kind
app.caller.call(HttpRequest("GET", "https://a.example/", {}, None, 1_000, 100))
print(sorted({"boto3", "botocore", "pydantic"} & set(sys.modules)))
"""


@pytest.mark.slow
def test_a_call_that_names_no_credential_loads_nothing_that_credentials_take() -> None:
    command = [sys.executable, "-c", CALLS]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert found.stdout == "[]\n"
