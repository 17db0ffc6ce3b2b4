"""Every saved tick, replayed through the function that takes it."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from duecourse import errors
from duecourse.app import App
from duecourse.ledger.embedded.ledger import EmbeddedLedger
from duecourse.ledger.reminder import Channel, Recipient, Reminder
from duecourse.ledger.task import Status
from tests.support.clock import START, HandClock
from tests.support.failing_ledger import PartlyUnreachable
from tests.support.functions import cases, invoke, load, saved
from tests.support.kinds import Outbox
from tests.support.ledger import bring, new, returned_without_a_settle, stored_task
from tests.support.wired import Wire

GOOD = ("rule", "scheduler")
NOTHING = {
    "shards": 0,
    "reclaimed": 0,
    "lapsed": 0,
    "lapsed_at_target": 0,
    "pruned": 0,
    "oldest_overdue_ms": 0,
    "dead_total": 0,
    "claimed": 0,
    "done": 0,
    "again": 0,
    "retried": 0,
    "dead": 0,
    "backlog": 0,
    "left_out": 0,
}


def test_every_saved_event_is_listed_here() -> None:
    assert cases("poll_tick") == {*GOOD, "bad_source", "bad_request"}


@pytest.mark.parametrize("case", GOOD)
def test_a_tick_over_an_empty_ledger_does_nothing(case: str) -> None:
    assert invoke("poll_tick", saved(f"poll_tick/{case}")) == NOTHING


def test_a_tick_without_schedules_opens_no_calendar(app: App) -> None:
    invoke("poll_tick", saved("poll_tick/scheduler"))
    assert app.zones.are_known
    assert "calendar" not in vars(app)


def test_only_a_schedule_makes_a_tick() -> None:
    with pytest.raises(errors.InvalidInput, match="source"):
        invoke("poll_tick", saved("poll_tick/bad_source"))


@pytest.mark.parametrize("case", GOOD)
def test_a_tick_does_what_the_rings_missed(
    case: str, app: App, ledger: EmbeddedLedger, clock: HandClock, outbox: Outbox
) -> None:
    people = (Recipient("Ada", Channel.EMAIL, "ada@example.com"),)
    app.one_off_reminders.add(Reminder("standup", "Stand-up", (40_000,), people, starts_at=START + 60_000))
    clock.advance(25_000)
    counts = {"shards": 1, "claimed": 1, "done": 1, "oldest_overdue_ms": 5_000}
    assert invoke("poll_tick", saved(f"poll_tick/{case}")) == NOTHING | counts
    assert [message.to for message in outbox.sent] == ["ada@example.com"]
    [task] = ledger.group("reminders", "standup")
    assert (task.status, task.result) == (Status.DONE, {"message_id": "m-1"})


def test_a_tick_measures_a_function_that_returned_without_a_settle(
    ledger: EmbeddedLedger, clock: HandClock, capsys: pytest.CaptureFixture[str]
) -> None:
    returned_without_a_settle(ledger, clock)
    answer = invoke("poll_tick", saved("poll_tick/rule"))
    assert (answer["reclaimed"], answer["lapsed"], answer["lapsed_at_target"]) == (1, 1, 1)
    [line] = [line for line in capsys.readouterr().out.splitlines() if "_aws" in line]
    measured = json.loads(line)
    assert (measured["Lapsed"], measured["LapsedAtTarget"]) == (1, 1)


def test_a_tick_measures_what_the_alarms_watch(ledger: EmbeddedLedger, capsys: pytest.CaptureFixture[str]) -> None:
    bring(ledger, "dead")
    invoke("poll_tick", saved("poll_tick/rule"))
    [line] = [line for line in capsys.readouterr().out.splitlines() if "_aws" in line]
    measured = json.loads(line)
    assert (measured["OldestOverdue"], measured["Dead"], measured["service"]) == (0, 1, "duecourse")
    [directive] = measured["_aws"]["CloudWatchMetrics"]
    assert (directive["Namespace"], directive["Dimensions"]) == ("duecourse", [["service"]])
    assert {"Name": "OldestOverdue", "Unit": "Milliseconds"} in directive["Metrics"]


def test_a_tick_that_cannot_see_all_shards_serves_the_others_and_fails(
    clock: HandClock, capsys: pytest.CaptureFixture[str], wire: Wire
) -> None:
    ledger = PartlyUnreachable(clock)
    ledger.add([new(kind="webhook", payload="{}"), new(kind="webhook", payload="{}", queue="dead")])
    wire(ledger=ledger)
    with pytest.raises(errors.StoreUnavailable):
        invoke("poll_tick", saved("poll_tick/rule"))
    assert '"Claimed": 1' in capsys.readouterr().out
    assert stored_task(ledger).run == 1


@pytest.fixture
def schedules(tmp_path: Path) -> Iterator[Path]:
    """The file of schedules of a deployment."""
    module = load("poll_tick")
    path, former = tmp_path / "schedules.yaml", module.FILE
    module.FILE = path
    yield path
    module.FILE = former


def filed(number: int, *schedules: dict[str, object]) -> str:
    return json.dumps({"number": number, "schedules": schedules})


def hourly(id: str, **fields: object) -> dict[str, object]:
    return {"id": id, "kind": "webhook", "payload": {"url": "https://a.at"}, "repeat": {"every": "PT1H"}} | fields


def test_a_tick_makes_the_schedules_of_its_file_once_a_number(schedules: Path, app: App, clock: HandClock) -> None:
    schedules.write_text(filed(1, hourly("a"), hourly("b")))
    assert invoke("poll_tick", saved("poll_tick/scheduler"))["claimed"] == 0
    assert [one.schedule.id for one in app.schedules.page("default", "", 10)[0]] == ["a", "b"]
    app.schedules.delete("default", "b")
    invoke("poll_tick", saved("poll_tick/scheduler"))
    assert [one.schedule.id for one in app.schedules.page("default", "", 10)[0]] == ["a"]
    clock.advance(3_600_000)
    assert invoke("poll_tick", saved("poll_tick/scheduler"))["done"] == 1
    schedules.write_text(filed(2, hourly("b")))
    invoke("poll_tick", saved("poll_tick/scheduler"))
    assert app.schedule_files.is_over, "another number comes with another process"


def test_a_wrong_file_is_a_line_of_the_log_and_stops_no_tick(
    schedules: Path, app: App, ledger: EmbeddedLedger, caplog: pytest.LogCaptureFixture
) -> None:
    ledger.add([new(kind="webhook", payload='{"url":"https://a.at"}')])
    schedules.write_text(filed(1, hourly("a", colour=1), hourly("b", time_zone="Mars/Base"), hourly("c")))
    assert invoke("poll_tick", saved("poll_tick/scheduler"))["done"] == 1
    [said] = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert said.startswith("schedules.yaml is left out: ")
    assert "a.colour: is not a known field" in said
    assert "b.time_zone: must be the IANA name" in said
    assert app.schedules.page("default", "", 10)[0] == []
    schedules.write_text(filed(1, *(hourly(f"s{n}", colour=1) for n in range(1_000))))
    invoke("poll_tick", saved("poll_tick/scheduler"))
    [_, said] = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert said.endswith("and 97 more: is not a known field; body: has 900 more wrong fields")
    schedules.write_bytes(b"\xff")
    invoke("poll_tick", saved("poll_tick/scheduler"))
    assert "can't decode byte" in caplog.text
    schedules.write_text(filed(1, hourly("c")))
    invoke("poll_tick", saved("poll_tick/scheduler"))
    assert [one.schedule.id for one in app.schedules.page("default", "", 10)[0]] == ["c"]
