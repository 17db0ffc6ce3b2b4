"""The test kit's fixture: the whole product in this process, on a clock that the test moves."""

import json
import random
import re
import sys
import time
from collections import Counter
from datetime import UTC, datetime, timedelta
from types import ModuleType
from typing import Any

import pytest

from duecourse import Again, Client, Done, Drop, Retry, Task, save, task_handler
from duecourse.app import PROCESS
from duecourse.errors import InvalidInput, InvalidSettings
from duecourse.ledger.task import Status
from duecourse.testing import Duecourse, TooManyRuns, product
from duecourse.webhooks import verify
from tests.support.matrix import LENGTHY, in_turn

pytestmark = LENGTHY

START = datetime(2026, 1, 1, tzinfo=UTC)
HOOK = "https://hooks.example.com/in"


def at(**span: float) -> datetime:
    """So long after the start."""
    return START + timedelta(**span)


def test_a_task_runs_at_its_due_time_and_not_before(duecourse: Duecourse) -> None:
    seen: list[tuple[datetime, Any]] = []
    duecourse.handle("report", lambda task: seen.append((duecourse.now, task.payload)))
    duecourse.add(kind="report", payload={"month": 10}, delay="PT5M", id="r1")
    assert duecourse.advance(299) == 0
    assert seen == []
    assert duecourse.advance("1s") == 1
    assert seen == [(at(minutes=5), {"month": 10})]
    assert duecourse.now == at(minutes=5)
    assert duecourse.client.get("r1").status is Status.DONE


def test_tasks_of_all_kinds_and_queues_run_in_the_order_of_their_due_times(duecourse: Duecourse) -> None:
    seen: list[str] = []

    @task_handler
    def note(task: Task) -> None:
        seen.append(task.id)

    for kind in ("a", "b"):
        duecourse.handle(kind, note)
    for number in (5, 1, 4, 2, 3, 0):
        duecourse.add(kind="ab"[number % 2], payload={}, delay=number * 3600, id=f"t{number}", queue=f"q{number % 3}")
    assert duecourse.advance("1d") == 6
    assert seen == [f"t{number}" for number in range(6)]
    assert duecourse.now == at(days=1)


@pytest.mark.duecourse(start="2027-03-27T00:00:00+01:00")
def test_schedules_fire_in_order_with_tasks_through_a_change_of_the_clocks(duecourse: Duecourse) -> None:
    seen: list[str] = []
    duecourse.handle("report", lambda task: seen.append(f"{duecourse.now:%d %H:%M} {task.id}"))
    night = {"kind": "report", "payload": {}, "repeat": {"cron": "30 2 * * *"}, "time_zone": "Europe/Vienna"}
    duecourse.client.schedules.add(id="night", **night)
    duecourse.add(kind="report", payload={}, id="between", delay="P1D")
    assert duecourse.advance("3d") == 4
    assert seen == [
        "27 01:30 night@2027-03-27T01:30:00Z",
        "27 23:00 between",
        "28 01:00 night@2027-03-28T01:00:00Z",  # 02:30 is left out: the first instant after
        "29 00:30 night@2027-03-29T00:30:00Z",
    ]
    assert [one.state for one in duecourse.client.schedules.get("night").recent] == ["done"] * 3


def test_a_paused_schedule_makes_up_for_what_it_missed_as_it_says(duecourse: Duecourse) -> None:
    seen: list[str] = []
    duecourse.handle("report", lambda task: seen.append(task.id))
    schedules = duecourse.client.schedules
    for missed in ("latest", "all", "none"):
        hourly = {"kind": "report", "payload": {}, "repeat": {"every": "PT1H"}}
        schedules.add(id=missed, missed=missed, catch_up="PT3H", paused=True, **hourly)  # type: ignore[arg-type]
    assert duecourse.advance("PT5H30M") == 0
    for missed in ("latest", "all", "none"):
        schedules.change(missed, paused=False)
    assert duecourse.advance("PT20M") == 4
    assert sorted(seen) == [f"all@2026-01-01T0{hour}:00:00Z" for hour in (3, 4, 5)] + ["latest@2026-01-01T05:00:00Z"]
    assert schedules.get("latest").recent[0].stands_for == 5


def test_overlap_is_decided_where_an_occurrence_is_still_tried_again(duecourse: Duecourse) -> None:
    duecourse.handle("report", lambda _: Retry("PT90M", error="the file is not there yet"))
    hourly = {"kind": "report", "payload": {}, "repeat": {"every": "PT1H"}}
    for overlap in ("allow", "skip", "queue", "replace"):
        duecourse.client.schedules.add(id=overlap, overlap=overlap, **hourly)  # type: ignore[arg-type]
    duecourse.advance("PT2H10M")
    recent = {one: duecourse.client.schedules.get(one).recent for one in ("allow", "skip", "queue", "replace")}
    states = {one: [passed.state for passed in reversed(found)] for one, found in recent.items()}
    assert states == {
        "allow": ["scheduled", "scheduled"],
        "skip": ["scheduled", "skipped"],
        "queue": ["scheduled", "scheduled"],
        "replace": ["cancelled", "scheduled"],
    }


def test_the_clock_goes_to_an_instant_and_never_back(duecourse: Duecourse) -> None:
    duecourse.advance("2026-03-29T01:30:00Z")
    assert duecourse.now == datetime(2026, 3, 29, 1, 30, tzinfo=UTC)
    duecourse.advance(datetime(2026, 4, 1, tzinfo=UTC))
    assert duecourse.advance(0) == 0
    with pytest.raises(ValueError, match=r"2026-03-31T00:00:00.000Z is past: it is 2026-04-01T00:00:00.000Z here"):
        duecourse.advance("2026-03-31T00:00:00Z")
    with pytest.raises(ValueError, match="must be a duration"):
        duecourse.advance("soon")


@pytest.mark.duecourse(start="2027-05-01T12:00:00+02:00", environment={"DUECOURSE_RETENTION": "PT1H"})
def test_the_marker_sets_the_start_and_settings(duecourse: Duecourse) -> None:
    assert duecourse.now == datetime(2027, 5, 1, 10, tzinfo=UTC)
    duecourse.add(kind="webhook", payload={"url": HOOK}, id="w")
    duecourse.advance("PT30M")
    assert [task.id for task in duecourse.tasks(state="done")] == ["w"]
    duecourse.advance("PT31M")
    assert duecourse.tasks() == []


def test_a_setting_that_cannot_be_is_named() -> None:
    with pytest.raises(InvalidSettings, match="DUECOURSE_PARALEL"):
        Duecourse(environment={"DUECOURSE_PARALEL": "1"})


def test_a_failing_task_is_retried_with_backoff_and_dies_with_its_reason(duecourse: Duecourse) -> None:
    seen: list[tuple[datetime, int]] = []

    def fail(task: Task) -> None:
        seen.append((duecourse.now, task.attempt))
        raise LookupError("no such customer")

    duecourse.handle("report", fail)
    retry = {"max_attempts": 3, "backoff": 60, "jitter": False}
    duecourse.add(kind="report", payload={}, retry=retry, id="r1")
    assert duecourse.advance("1h") == 3
    assert seen == [(at(), 1), (at(minutes=1), 2), (at(minutes=3), 3)]
    [dead] = duecourse.tasks(state="dead")
    assert dead.id == "r1"
    assert dead.error.startswith("LookupError: no such customer at ")


def test_jitter_is_the_same_in_each_run() -> None:
    def instants() -> list[datetime]:
        seen: list[datetime] = []

        def fail(_: Task) -> Retry:
            seen.append(duecourse.now)
            return Retry()

        with Duecourse() as duecourse:
            duecourse.handle("report", fail)
            duecourse.add(kind="report", payload={}, id="r1")
            duecourse.advance("1d")
        return seen

    first = instants()
    assert len(set(first)) == 10
    assert instants() == first


def test_again_keeps_its_state_and_a_checkpoint_reaches_the_next_attempt(duecourse: Duecourse) -> None:
    @task_handler
    def count(task: Task) -> Again | Done | Retry:
        number = task.state or 0
        if number == 2 and task.attempt == 1:
            save(task, 3)
            return Retry(after=10)
        return Done({"counted": number}) if number == 5 else Again(after="PT1M", state=number + 1)

    duecourse.handle("count", count)
    duecourse.add(kind="count", payload={}, id="c")
    assert duecourse.advance("1h") == 6
    assert duecourse.client.get("c").result == {"counted": 5}


def test_a_deadline_that_passes_makes_a_task_dead(duecourse: Duecourse) -> None:
    duecourse.handle("wait", lambda _: Again(after="1200"))
    duecourse.add(kind="wait", payload={}, deadline="PT1H", id="w")
    assert duecourse.advance("1d") == 3
    [dead] = duecourse.tasks(state="dead")
    assert "deadline" in dead.error


def test_a_poll_gets_the_answers_in_turn(duecourse: Duecourse) -> None:
    url = "https://slow.example.com/jobs/7"
    duecourse.answers(url, status=202, json={"state": "working"}, headers={"Retry-After": "90"})
    duecourse.answers(url, error="connection refused")
    duecourse.answers(url, json={"state": "done", "rows": 3})
    payload = {"url": url, "until": "state == 'done'", "interval": 60, "result": "rows"}
    duecourse.add(kind="poll", payload=payload, id="p", retry={"backoff": 30, "jitter": False})
    assert duecourse.advance("1h") == 3
    assert duecourse.client.get("p").result == 3
    assert [call.at for call in duecourse.sent.calls] == [at(), at(seconds=90), at(seconds=120)]
    assert [call.status for call in duecourse.sent.calls] == [202, 0, 200]
    assert duecourse.sent.webhooks == []


def test_a_poll_without_an_answer_says_how_to_set_one(duecourse: Duecourse) -> None:
    payload = {"url": "https://slow.example.com/", "until": "done", "interval": 60}
    duecourse.add(kind="poll", payload=payload, id="p", retry={"max_attempts": 1})
    duecourse.advance(0)
    [dead] = duecourse.tasks(state="dead")
    assert "duecourse.answers('https://slow.example.com/', json=…)" in dead.error


def test_a_webhook_is_signed_and_retried_until_it_is_taken(duecourse: Duecourse) -> None:
    duecourse.answers(HOOK, status=503)
    duecourse.answers(HOOK, status=503, headers={"retry-after": "120"})
    duecourse.answers(HOOK, status=204)
    body = {"order": 7, "text": "ü"}
    duecourse.add(
        kind="webhook",
        payload={"url": HOOK, "body": body, "headers": {"x-of": "us"}, "auth": "crm"},
        id="w",
        retry={"backoff": 10, "jitter": False},
    )
    duecourse.advance("1h")
    first, second, third = duecourse.sent.webhooks
    assert [one.status for one in (first, second, third)] == [503, 503, 204]
    assert [one.at for one in (first, second, third)] == [at(), at(seconds=10), at(seconds=130)]
    assert (first.method, first.url, first.json, first.auth) == ("POST", HOOK, body, "crm")
    assert first.headers["x-of"] == "us"
    [id] = {one.headers["webhook-id"] for one in (first, second, third)}
    for one in (first, second, third):
        now = one.at.timestamp()
        assert verify(one.body, one.headers, duecourse.signing_secret, now=lambda now=now: now) == id  # type: ignore[misc]
        assert one.signature.startswith("v1,")


def test_the_end_of_a_task_is_notified(duecourse: Duecourse) -> None:
    told: list[Any] = []
    duecourse.handle("report", lambda _: Drop("no use"))
    duecourse.handle("told", lambda task: told.append(task.payload))
    duecourse.add(kind="report", payload={}, delay=60, id="a", notify_done={"url": HOOK})
    duecourse.add(kind="report", payload={}, delay=60, id="b", notify_done={"target": "told"})
    duecourse.advance("1h")
    [call] = duecourse.sent.webhooks
    assert (call.json["data"]["id"], call.json["type"], call.at) == ("a", "task.dead", at(minutes=1))
    [content] = told
    assert "no use" in json.dumps(content)


def test_reminders_are_written_and_sent_at_their_leads(duecourse: Duecourse) -> None:
    duecourse.client.reminders.add(
        id="stand-up",
        subject="Stand-up",
        starts_at="2026-03-02T09:00:00+01:00",
        remind_before=["P1D", "PT10M"],
        recipients=[
            {"name": "Ada", "email": "ada@example.com", "time_zone": "Europe/Vienna"},
            {"name": "Bo", "phone": "+4366412345678"},
            {"name": "Cy", "webhook": HOOK},
        ],
        message="Hello {{ recipient.name }}, {{ subject }} is at {{ starts_at.time }}.",
    )
    duecourse.advance("2026-03-01T08:00:00Z")
    assert [mail.to for mail in duecourse.sent.emails] == ["ada@example.com"]
    duecourse.client.reminders.move("stand-up", starts_at="2026-03-03T09:00:00+01:00")
    duecourse.advance("30d")
    first, second, soon = duecourse.sent.emails  # the move has it said again how long there is
    march = [
        datetime(2026, 3, day, hour, minute, tzinfo=UTC) for day, hour, minute in ((1, 8, 0), (2, 8, 0), (3, 7, 50))
    ]
    assert [mail.at for mail in (first, second, soon)] == march
    assert "Hello Ada" in soon.text
    assert "09:00" in soon.text
    assert [sms.to for sms in duecourse.sent.sms] == ["+4366412345678"] * 3
    assert [call.json["type"] for call in duecourse.sent.webhooks] == ["reminder"] * 3


@pytest.mark.duecourse(environment={"DUECOURSE_TARGETS": '{"mail": "sqs:outbox"}'})
def test_a_task_for_a_broker_is_a_message(duecourse: Duecourse) -> None:
    duecourse.add(kind="mail", payload={"to": "ada"}, delay=5, id="m")
    duecourse.advance(10)
    [message] = duecourse.sent.messages
    assert (message.queue, message.body["tasks"][0]["payload"], message.at) == ("outbox", {"to": "ada"}, at(seconds=5))


def test_limits_and_pauses_of_a_queue_hold(duecourse: Duecourse) -> None:
    seen: list[datetime] = []
    duecourse.handle("call", lambda _: seen.append(duecourse.now))
    duecourse.client.set_queue("slow", create=True, rate={"count": 2, "per": "PT1M"})
    for number in range(5):
        duecourse.add(kind="call", payload={}, queue="slow", id=f"c{number}")
    duecourse.advance("10m")
    minutes = [round((one - START) / timedelta(minutes=1), 1) for one in seen]
    assert minutes == [0, 0, 1, 1, 2]
    duecourse.client.set_queue("slow", paused=True)
    duecourse.add(kind="call", payload={}, queue="slow", id="later")
    assert duecourse.advance("1d") == 0
    duecourse.client.set_queue("slow", paused=False)
    assert duecourse.advance(0) == 1


def test_a_handler_adds_moves_and_cancels_by_the_client_of_the_environment(duecourse: Duecourse) -> None:
    def plan(_: Task) -> None:
        client = Client.from_env()
        client.add(kind="step", payload={}, delay="PT10M", id="soon")
        client.move("later", delay="PT20M")
        client.cancel("never")

    seen: dict[str, datetime] = {}
    duecourse.handle("plan", plan)
    duecourse.handle("step", lambda task: seen.update({task.id: duecourse.now}))
    for name in ("later", "never"):
        duecourse.add(kind="step", payload={}, delay="P30D", id=name)
    duecourse.add(kind="plan", payload={}, delay="P1D", id="plan")
    duecourse.advance("60d")
    assert seen == {"soon": at(days=1, minutes=10), "later": at(days=1, minutes=20)}
    assert [task.id for task in duecourse.tasks(state="cancelled")] == []  # forgotten after a day, as in production


def test_a_kind_without_a_handler_is_rejected(duecourse: Duecourse) -> None:
    client = duecourse.client
    with pytest.raises(InvalidInput, match=r"poll, webhook. Give one by duecourse.handle\('report', …\)"):
        client.add(kind="report", payload={})
    with pytest.raises(InvalidInput, match=r"notify_done\.target: this test has no handler of 'report', only of: none"):
        client.add(kind="webhook", payload={"url": HOOK}, notify_done={"target": "report"})
    duecourse.handle("report", lambda _: None)
    assert client.add(kind="report", payload={}, notify_done={"target": "report"}).created


@pytest.mark.duecourse(environment={"DUECOURSE_TARGETS": '{"report": "lambda:reports"}'})
def test_a_function_of_the_settings_wants_its_handler_too(duecourse: Duecourse) -> None:
    duecourse.add(kind="report", payload={}, id="r")
    duecourse.advance(0)
    assert "this test has no reports: give its kind a handler" in duecourse.client.why("r").task.log[-1].detail
    duecourse.handle("report", lambda _: Done())
    assert duecourse.advance("1m") == 1


def test_handlers_are_found_in_modules_by_their_kinds(duecourse: Duecourse, monkeypatch: pytest.MonkeyPatch) -> None:
    @task_handler(kind="found")
    def handler(task: Task) -> Done:
        return Done(task.payload)

    module = ModuleType("kinds_of_this_test")
    vars(module)["handler"] = handler
    monkeypatch.setitem(sys.modules, module.__name__, module)
    duecourse.import_handlers(module.__name__)
    duecourse.add(kind="found", payload={"n": 1}, id="f")
    assert duecourse.advance(0) == 1
    assert duecourse.client.get("f").result == {"n": 1}
    with pytest.raises(InvalidSettings, match="has no handler"):
        duecourse.import_handlers("json")


def test_time_cannot_be_moved_from_within_a_task(duecourse: Duecourse) -> None:
    duecourse.handle("report", lambda _: duecourse.advance(5) and None)
    duecourse.add(kind="report", payload={}, retry={"max_attempts": 1}, id="r")
    duecourse.advance(0)
    assert "time passes between tasks only" in duecourse.client.get("r").error
    assert duecourse.now == START


def test_ctrl_c_in_a_handler_ends_the_test(duecourse: Duecourse) -> None:
    def interrupted(_: Task) -> None:
        raise KeyboardInterrupt

    duecourse.handle("report", interrupted)
    duecourse.add(kind="report", payload={})
    with pytest.raises(KeyboardInterrupt):
        duecourse.advance(0)


def test_a_handler_that_comes_again_at_once_does_not_hang_the_test(
    duecourse: Duecourse, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(product, "MAX_RUNS", 100)
    duecourse.handle("spin", lambda _: Again())
    duecourse.add(kind="spin", payload={})
    with pytest.raises(TooManyRuns, match="does a handler come again at once"):
        duecourse.advance("1d")


def lived() -> list[Any]:
    """What a month of everything leaves, in instants: of tasks and their logs, messages, calls and signatures."""
    with Duecourse(start="2091-01-01T00:00:00Z") as duecourse:
        seen: list[Any] = []

        @task_handler
        def work(task: Task) -> Again | Retry:
            seen.append((task.due_at, duecourse.now))
            return Retry() if task.run % 3 else Again(after="P1D")

        duecourse.handle("work", work)
        duecourse.answers("https://slow.example.com/", status=202, json={}, headers={"retry-after": "3600"})
        duecourse.add(kind="work", payload={}, id="work", notify_done={"url": HOOK})
        duecourse.add(kind="webhook", payload={"url": HOOK}, delay="PT1H", id="hook")
        duecourse.add(kind="poll", payload={"url": "https://slow.example.com/", "until": "a", "interval": 60}, id="p")
        person = {"name": "Ada", "email": "ada@example.com"}
        duecourse.client.reminders.add(
            id="r", subject="S", starts_at="2091-01-20T09:00:00Z", remind_before=["P1D"], recipients=[person]
        )
        duecourse.client.query(url="https://slow.example.com/", interval=600, until="a")
        duecourse.advance("2091-01-31T00:00:00Z")
        tasks = [(t.due_at, t.created_at, t.claimed_at, t.deadline_at, t.lease_expires_at) for t in duecourse.tasks()]
        logs = sorted((task.id, str(task.log)) for task in duecourse.tasks() if task.kind != "poll" or task.id == "p")
        calls = [(call.at, call.headers.get("webhook-timestamp")) for call in duecourse.sent.calls]
        return [sorted(tasks), logs, seen, calls, duecourse.sent.emails, duecourse.now]


def test_the_wall_clock_is_asked_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    first = lived()
    wall, nanoseconds, start = time.time, time.time_ns, datetime(2091, 1, 1, tzinfo=UTC).timestamp()
    monkeypatch.setattr(time, "time", lambda: wall() + 400 * 86_400)
    monkeypatch.setattr(time, "time_ns", lambda: nanoseconds() + 400 * 86_400 * 10**9)
    assert lived() == first
    instants = [int(number) / 1000 for number in re.findall(r"\b[12]\d{12}\b|\b3\d{12}\b", str(first[:2]))]
    assert len(instants) > 50
    assert all(start <= one for one in instants)
    assert all(start <= one.timestamp() for one, _ in first[3])
    assert all(int(mark) >= start for _, mark in first[3] if mark)


def test_the_process_is_as_before_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DUECOURSE_STORE", "nonsense")
    monkeypatch.setattr(PROCESS, "_app", None)  # another test may have read its environment
    with Duecourse() as duecourse:
        duecourse.add(kind="webhook", payload={"url": HOOK})
    with pytest.raises(InvalidSettings, match="DUECOURSE_STORE"):
        Client.from_env()


@pytest.mark.parametrize("minutes", in_turn(20, 1_000))
def test_a_hundred_tasks_that_come_again_each_minute_miss_none(duecourse: Duecourse, minutes: int) -> None:
    seen: Counter[tuple[str, datetime]] = Counter()

    def again(task: Task) -> Again:
        seen[task.id, duecourse.now] += 1
        return Again(after=60)

    duecourse.handle("poll-it", again)
    names = [f"t{number}" for number in range(100)]
    duecourse.client.add_many([{"kind": "poll-it", "payload": {}, "delay": 60, "id": name} for name in names])
    assert duecourse.advance(60 * minutes) == 100 * minutes
    instants = [at(minutes=minute) for minute in range(1, minutes + 1)]
    assert seen == Counter((name, instant) for name in names for instant in instants)
    assert {task.status for task in duecourse.tasks()} == {Status.SCHEDULED}


def test_as_many_tasks_of_a_month_run_each_at_its_own_time(duecourse: Duecourse) -> None:
    chance, seen = random.Random(7), list[tuple[str, datetime]]()
    due = {f"t{number}": at(seconds=round(chance.random() * 30 * 86_400, 3)) for number in range(500)}
    duecourse.handle("once", lambda task: seen.append((task.id, duecourse.now)))
    wanted: list[Any] = [{"kind": "once", "payload": {}, "due_at": moment, "id": id} for id, moment in due.items()]
    duecourse.client.add_many(wanted)
    assert duecourse.advance("30d") == 500
    assert seen == sorted(due.items(), key=lambda pair: pair[1])
