"""Every saved ring, replayed through the function that answers it."""

import json
from base64 import b64encode
from collections.abc import Iterator

import pytest

from duecourse import errors
from duecourse.api.watched_keys import read_watches
from duecourse.app import App
from duecourse.ledger.embedded.ledger import EmbeddedLedger
from duecourse.ledger.reminder import Channel, Recipient, Reminder
from duecourse.ledger.task import NewTask, Shard, Trigger
from duecourse.running.drain import Drained
from duecourse.settings import Settings
from tests.support.clock import START, HandClock
from tests.support.engine import Lambda
from tests.support.functions import cases, invoke, saved
from tests.support.kinds import Outbox
from tests.support.ledger import LEASE_MS, add, claim_one, returned_without_a_settle, stored_task
from tests.support.wired import wired_with

NOTHING = {"added": 0, **Drained()._asdict()}
GOOD = {"one_bell", "many_bells", "strange_key"}
WARM = {"warm", "warm_strange_key"}
WATCHED = {"watched_keys", "watched_key_heard_late", "strange_expired"}
BAD = {"bad_request", "bad_version", "bad_shape", "bad_door", "bad_expired", "bad_warm"}
WATCH = {"pattern": "send_message-{user}-{type}", "kind": "webhook", "payload": {"url": "http://127.0.0.1:9/"}}


def test_every_saved_event_is_listed_here() -> None:
    assert cases("on_expired") == GOOD | WARM | WATCHED | BAD


@pytest.mark.parametrize("case", sorted(GOOD))
def test_a_ring_with_nothing_due_is_normal(case: str) -> None:
    assert invoke("on_expired", saved(f"on_expired/{case}")) == NOTHING


@pytest.mark.parametrize(
    ("case", "field"),
    [
        ("bad_version", "version"),
        ("bad_shape", "rings.0.key"),
        ("bad_door", "rings.0.door"),
        ("bad_warm", "warm.0"),
        ("bad_warm", "rings"),
        ("bad_expired", "expired.0.heard_at"),
        ("bad_expired", "expired.1.base64"),
        ("bad_expired", "expired.2.key"),
        ("bad_expired", "expired.2.heard_at"),
    ],
)
def test_a_wrong_event_is_refused_by_field(case: str, field: str) -> None:
    with pytest.raises(errors.InvalidInput) as caught:
        invoke("on_expired", saved(f"on_expired/{case}"))
    assert field in {problem.field for problem in caught.value.problems}


@pytest.mark.parametrize(
    ("forged", "field"),
    [
        ({"key": "send_message-42-\ud800"}, "expired.0.key"),
        ({"key": "send_message-42-" + "x" * 300_000}, "expired.0.key"),
        ({"base64": b64encode(b"x" * 1_025).decode()}, "expired.0.base64"),
    ],
)
def test_a_name_that_no_bridge_tells_is_refused(forged: dict[str, str], field: str) -> None:
    event = saved("on_expired/watched_keys")
    event["expired"][0] |= forged
    with pytest.raises(errors.InvalidInput) as caught:
        invoke("on_expired", event)
    assert [problem.field for problem in caught.value.problems] == [field]


def test_only_the_shards_that_rang_are_drained(app: App, ledger: EmbeddedLedger, outbox: Outbox) -> None:
    people = (
        Recipient("Ada", Channel.EMAIL, "ada@example.com"),
        Recipient("Grace", Channel.EMAIL, "grace@example.com"),
    )
    app.one_off_reminders.add(Reminder("standup", "Stand-up", (90_000,), people, starts_at=START + 60_000))
    add(ledger, "later", kind="webhook", delay_ms=7_000)
    quiet = NOTHING | {"bell_at": START + 7_000}
    assert invoke("on_expired", saved("on_expired/one_bell")) == quiet
    assert outbox.sent == []
    assert invoke("on_expired", saved("on_expired/many_bells")) == quiet | {"claimed": 2, "done": 2}
    assert sorted(message.to for message in outbox.sent) == ["ada@example.com", "grace@example.com"]


def test_a_strange_key_is_left_out_and_told(caplog: pytest.LogCaptureFixture) -> None:
    invoke("on_expired", saved("on_expired/strange_key"))
    [record] = [record for record in caplog.records if record.levelname == "WARNING"]
    assert record.__dict__["keys"] == ["session:4711", "duecourse:{default/0}:tasks", "other:{default/0}:bell"]


def test_a_ring_measures_what_it_did(capsys: pytest.CaptureFixture[str]) -> None:
    invoke("on_expired", saved("on_expired/one_bell"))
    [line] = [line for line in capsys.readouterr().out.splitlines() if "_aws" in line]
    lapsed = {"Reclaimed", "Lapsed", "LapsedAtTarget"}
    assert json.loads(line).keys() == {"_aws", "service", "Added", "Claimed", "Done", "Retried", "Dead"} | lapsed


def test_a_ring_measures_runs_that_ended_without_a_settle(
    ledger: EmbeddedLedger, clock: HandClock, capsys: pytest.CaptureFixture[str]
) -> None:
    claim_one(ledger)
    clock.advance(LEASE_MS)
    answer = invoke("on_expired", saved("on_expired/one_bell"))
    assert (answer["reclaimed"], answer["lapsed"], answer["lapsed_at_target"]) == (1, 1, 0)
    [line] = [line for line in capsys.readouterr().out.splitlines() if "_aws" in line]
    measured = json.loads(line)
    assert (measured["Reclaimed"], measured["Lapsed"], measured["LapsedAtTarget"]) == (1, 1, 0)


def test_a_ring_measures_a_function_that_returned_without_a_settle(
    ledger: EmbeddedLedger, clock: HandClock, capsys: pytest.CaptureFixture[str]
) -> None:
    returned_without_a_settle(ledger, clock)
    assert invoke("on_expired", saved("on_expired/one_bell"))["lapsed_at_target"] == 1
    [line] = [line for line in capsys.readouterr().out.splitlines() if "_aws" in line]
    measured = json.loads(line)
    assert (measured["Lapsed"], measured["LapsedAtTarget"]) == (1, 1)


@pytest.mark.parametrize(("case", "trigger"), [("one_bell", Trigger.TIMER), ("many_bells", Trigger.RING)])
def test_what_a_ring_found_tells_by_which_door(ledger: EmbeddedLedger, case: str, trigger: Trigger) -> None:
    ledger.add([NewTask("a", "webhook", '{"url":1}')])
    invoke("on_expired", saved(f"on_expired/{case}"))
    assert stored_task(ledger).history[0].trigger is trigger


@pytest.fixture
def watching(ledger: EmbeddedLedger) -> Iterator[Shard]:
    """The functions watch, and their queue is paused, so that what they add is to be seen."""
    with wired_with(settings=Settings(watch=read_watches([WATCH])), ledger=ledger):
        ledger.configure("default", {"paused": True})
        yield Shard()


def test_each_expiry_is_a_task_and_the_same_key_within_the_window_one(ledger: EmbeddedLedger, watching: Shard) -> None:
    assert invoke("on_expired", saved("on_expired/watched_keys"))["added"] == 3
    assert invoke("on_expired", saved("on_expired/watched_keys"))["added"] == 0, "a retried invocation"
    assert ledger.stats(watching).scheduled == 3
    ledger.configure("default", {"paused": False})
    tasks = ledger.claim(watching, 10, lease_ms=60_000).tasks
    ran = sorted((task.payload["key"]["user"], task.id.rpartition(":")[2]) for task in tasks)
    assert ran == [("42", "1790434500002"), ("42", "1790434501800"), ("\\xff", "1790434500003")]
    assert {task.kind for task in tasks} == {"webhook"}
    assert all(task.payload["url"] == WATCH["payload"]["url"] for task in tasks)


def test_what_may_have_happened_when_another_heard_it_is_the_same(ledger: EmbeddedLedger, watching: Shard) -> None:
    assert invoke("on_expired", saved("on_expired/watched_keys"))["added"] == 3
    assert invoke("on_expired", saved("on_expired/watched_key_heard_late"))["added"] == 0
    assert ledger.stats(watching).scheduled == 3


def test_what_nothing_here_watches_is_left_out_and_told(
    ledger: EmbeddedLedger, watching: Shard, caplog: pytest.LogCaptureFixture
) -> None:
    assert invoke("on_expired", saved("on_expired/strange_expired"))["added"] == 1
    [record] = [record for record in caplog.records if record.levelname == "WARNING"]
    assert record.__dict__["keys"] == ["session:4711"]
    assert ledger.stats(watching).scheduled == 1


@pytest.fixture
def targets(ledger: EmbeddedLedger) -> Iterator[Lambda]:
    """The functions hand two kinds over, one of them to a function that is away."""
    service = Lambda()
    given = Settings(targets={"report": "lambda:Report", "bill": "lambda:Bill"})
    with wired_with(settings=given, ledger=ledger, invoker=service):
        yield service


@pytest.mark.parametrize("case", sorted(WARM))
def test_functions_are_warmed_for_what_comes_next_and_nothing_is_drained(
    ledger: EmbeddedLedger, targets: Lambda, case: str
) -> None:
    ledger.add([NewTask("a", "report", delay_ms=9_000), NewTask("b", "bill", delay_ms=9_000, queue="bills")])
    ledger.add([NewTask("due", "report")])
    assert invoke("on_expired", saved(f"on_expired/{case}")) == {"warmed": ["Report"]}
    assert targets.sent == [("Report", {"source": "duecourse", "version": "1", "tasks": []})]
    assert stored_task(ledger, "due").run == 0
    assert invoke("on_expired", saved(f"on_expired/{case}")) == {"warmed": []}, "once a spell"


@pytest.mark.usefixtures("targets")
def test_a_strange_key_is_left_out_of_what_is_warmed_for(caplog: pytest.LogCaptureFixture) -> None:
    invoke("on_expired", saved("on_expired/warm_strange_key"))
    [record] = [record for record in caplog.records if record.levelname == "WARNING"]
    assert record.__dict__["keys"] == ["session:4711"]


@pytest.mark.usefixtures("targets")
def test_a_function_that_was_handed_tasks_is_not_warmed(ledger: EmbeddedLedger) -> None:
    ledger.add([NewTask("due", "report"), NewTask("later", "report", delay_ms=9_000)])
    assert invoke("on_expired", saved("on_expired/one_bell"))["claimed"] == 1
    assert invoke("on_expired", saved("on_expired/warm")) == {"warmed": []}
