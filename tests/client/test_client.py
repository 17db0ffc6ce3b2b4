"""Tasks from Python: the checks that HTTP makes, the ledger that the environment names."""

import random
import sys
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import duecourse
from duecourse import Client, errors
from duecourse.app import App
from duecourse.client.typed_dicts import QueueFields
from duecourse.ledger.api_query import Known, QueryState, queue_of
from duecourse.ledger.embedded.ledger import EmbeddedLedger
from duecourse.ledger.queue import SETTINGS, QueueSettings, Rate
from duecourse.ledger.task import MAX_PAYLOAD_BYTES, AddResult, Done, DueTask, Ending, RetryPolicy, Shard, Status
from duecourse.running.run import Runner
from duecourse.settings import Settings
from tests.support.clock import START, HandClock
from tests.support.engine import ResultsInMemory
from tests.support.kinds import Web, answer
from tests.support.ledger import SHARD, bring, claim, settle, stored_task
from tests.support.wired import wired_with

PAYLOAD = {"month": "2026-09"}


@pytest.fixture
def client(ledger: EmbeddedLedger) -> Iterator[Client]:
    with wired_with(settings=Settings(targets={"report": "lambda:Report"}), ledger=ledger):
        yield Client.from_env()


def test_a_task_is_scheduled_as_asked_for(client: Client, ledger: EmbeddedLedger) -> None:
    taken = client.add(kind="report", payload=PAYLOAD, delay="PT5M", id="report-42", retry={"max_attempts": 3})
    assert (taken.created, taken.task.id, taken.task.due_at) == (True, "report-42", START + 300_000)
    assert stored_task(ledger, "report-42").payload == PAYLOAD
    assert stored_task(ledger, "report-42").retry == RetryPolicy(max_attempts=3)


def test_times_may_be_pythons_own(client: Client) -> None:
    at = datetime(2027, 1, 1, tzinfo=UTC)
    assert client.add(kind="report", payload={}, due_at=at).task.due_at == at.timestamp() * 1000
    assert client.add(kind="report", payload={}, delay=timedelta(minutes=1)).task.due_at == START + 60_000
    assert client.add(kind="report", payload={}, delay=1.5).task.due_at == START + 1_500
    assert client.add(kind="report", payload={}, deadline=at).task.deadline_at == at.timestamp() * 1000


def test_without_an_id_each_add_makes_a_task_and_with_one_the_second_keeps_the_first(client: Client) -> None:
    assert client.add(kind="report", payload={}).task.id != client.add(kind="report", payload={}).task.id
    assert [client.add(kind="report", payload={}, id="a").created for _ in range(2)] == [True, False]


def test_many_are_added_at_once_each_with_what_add_would_have_answered(client: Client, ledger: EmbeddedLedger) -> None:
    bring(ledger, "dead")
    dead, added, again = client.add_many(
        [
            {"kind": "report", "payload": {}, "id": "a"},
            {"kind": "report", "payload": PAYLOAD, "id": "b", "delay": timedelta(minutes=1)},
            {"kind": "report", "payload": {}, "id": "b"},
        ]
    )
    assert isinstance(dead, errors.TaskDead)
    assert isinstance(added, AddResult)
    assert isinstance(again, AddResult)
    assert (added.created, added.task.due_at, again.created) == (True, START + 60_000, False)
    assert stored_task(ledger, "b").payload == PAYLOAD


def test_of_many_all_are_well_formed_or_none_is_added(client: Client, ledger: EmbeddedLedger) -> None:
    with pytest.raises(errors.InvalidInput) as caught:
        client.add_many(
            [
                {"kind": "report", "payload": {}},
                {"kind": "strange", "payload": {}},
                {"kind": "report", "payload": {}, "deadline": 0},
            ]
        )
    assert {problem.field for problem in caught.value.problems} == {"tasks.1.kind", "tasks.2.deadline"}
    with pytest.raises(errors.InvalidInput, match=r"tasks\.0\.delay: must be a duration"):
        client.add_many([{"kind": "report", "payload": {}, "delay": "soon"}])
    assert ledger.shards() == []


def test_every_wrong_field_is_named_and_nothing_added(client: Client, ledger: EmbeddedLedger) -> None:
    with pytest.raises(errors.InvalidInput) as caught:
        client.add(kind="report", payload=[], id="no spaces", delay="soon", colour="red")
    assert {problem.field for problem in caught.value.problems} == {"payload", "id", "delay", "colour"}
    assert ledger.shards() == []


def test_a_payload_has_the_bound_that_a_request_has(client: Client) -> None:
    most = MAX_PAYLOAD_BYTES - len('{"text":""}')
    assert client.add(kind="report", payload={"text": "x" * most}).created
    with pytest.raises(errors.InvalidInput, match="payload: must be at most 256 KiB of JSON"):
        client.add(kind="report", payload={"text": "x" * (most + 1)})


def test_a_kind_that_nothing_runs_is_refused(client: Client) -> None:
    said = r"no target here runs strange; known kinds: .*report.* `duecourse new strange` .*{\"strange\": \"worker\"}"
    with pytest.raises(errors.InvalidInput, match=said):
        client.add(kind="strange", payload={})


def finished_elsewhere(
    client: Client, ledger: EmbeddedLedger, table: ResultsInMemory, *ids: str, result: object = None
) -> None:
    """Tasks that a function with a results table has worked."""
    runner = Runner(lambda _kind: lambda _task: Done(result), table, ledger.now, random.Random(7))
    for id in ids:
        client.add(kind="report", payload={}, id=id)
        ledger.settle(SHARD, [runner.run(claim(ledger)[0])])


def test_a_result_in_a_table_that_the_client_does_not_name_is_read_where_its_task_says(
    client: Client, ledger: EmbeddedLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, asked = ResultsInMemory(), list[str]()
    monkeypatch.setattr(App, "results_at", lambda _app, place: asked.append(place) or table)
    with wired_with(settings=Settings(targets={"report": "lambda:Report"}), ledger=ledger):
        client = Client.from_env()
        finished_elsewhere(client, ledger, table, "a", result={"pages": 3})
        finished_elsewhere(client, ledger, table, "b")
        assert (client.get("a").result, asked) == ({"pages": 3}, [table.place])
        assert (client.get("b").result, asked) == (None, [table.place]), "it has none, and no table is asked"
        table.results.clear()
        assert client.get("a").result_json == "", "its time in the table is over"


def test_a_result_in_a_table_without_boto3_names_the_table_and_what_to_install(
    client: Client, ledger: EmbeddedLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    finished_elsewhere(client, ledger, ResultsInMemory(), "a", result=7)
    finished_elsewhere(client, ledger, ResultsInMemory(), "b")
    monkeypatch.setitem(sys.modules, "boto3", None)
    with pytest.raises(errors.ResultsUnavailable, match=r"table@eu-west-1 of DynamoDB.*pip install 'duecourse\[aws\]'"):
        client.get("a")
    assert client.get("b").status is Status.DONE
    assert {task.result for task in client.list(state="done").tasks} == {None}


def test_a_result_in_a_table_without_credentials_says_so(
    client: Client, ledger: EmbeddedLedger, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_PROFILE", "AWS_ENDPOINT_URL"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setattr("boto3.DEFAULT_SESSION", None)  # another test's has its credentials
    finished_elsewhere(client, ledger, ResultsInMemory(), "a", result=7)
    with pytest.raises(errors.ResultsUnavailable, match="table@eu-west-1 did not answer: Unable to locate credentials"):
        client.get("a")


def test_an_answer_of_a_query_in_a_table_is_read_where_the_ledger_says(
    client: Client, ledger: EmbeddedLedger, clock: HandClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = ResultsInMemory()
    with wired_with(settings=Settings(), ledger=ledger, results=table, http=Web(answer(200, {"ready": False}))) as app:
        asked = Client.from_env().query(url="https://api.example.com/r", interval="PT10S", until="ready")
        app.write_deployed()
    clock.advance(10_000)
    queue = queue_of(asked.id)
    [task] = ledger.claim(Shard(queue), 1, lease_ms=30_000).tasks
    runner = Runner(lambda _kind: lambda _task: Done("rows"), table, ledger.now, random.Random(7))
    ledger.settle(Shard(queue), [runner.run(task)])
    monkeypatch.setitem(sys.modules, "boto3", None)
    with pytest.raises(errors.ResultsUnavailable, match="table@eu-west-1"):
        client.get_query(asked.id)
    monkeypatch.setattr(App, "results_at", lambda _app, _place: table)
    with wired_with(settings=Settings(), ledger=ledger):
        assert Client.from_env().get_query(asked.id).known == Known("rows", START + 10_000)


def test_a_task_is_shown_with_its_result(client: Client, ledger: EmbeddedLedger) -> None:
    client.add(kind="report", payload={}, id="a")
    settle(ledger, claim(ledger)[0], Ending.DONE, result='{"pages":3}')
    assert (client.get("a").status, client.get("a").result) == (Status.DONE, {"pages": 3})
    with pytest.raises(errors.TaskNotFound):
        client.get("b")


def test_a_task_is_moved_to_an_instant_or_by_a_delay(client: Client) -> None:
    client.add(kind="report", payload={}, id="a", delay=60)
    assert client.move("a", delay=timedelta(hours=1)).due_at == START + 3_600_000
    assert client.move("a", due_at="2027-01-01T01:00:00+01:00").due_at == 1_798_761_600_000


def test_a_running_task_is_moved_and_cancelled_by_force_alone(client: Client, ledger: EmbeddedLedger) -> None:
    bring(ledger, "leased")
    with pytest.raises(errors.TaskLeased):
        client.move("a", delay=60)
    with pytest.raises(errors.TaskLeased):
        client.cancel("a")
    assert client.move("a", delay=60, force=True).status is Status.SCHEDULED
    client.cancel("a", force=True)
    assert client.get("a").status is Status.CANCELLED


def test_a_dead_task_is_replayed(client: Client, ledger: EmbeddedLedger) -> None:
    bring(ledger, "dead")
    assert client.replay("a").status is Status.SCHEDULED


@pytest.mark.parametrize("fields", [{}, {"delay": 1, "due_at": "2027-01-01T00:00:00Z"}, {"delay": -1}])
def test_a_move_that_says_no_one_time_is_refused(client: Client, fields: dict[str, object]) -> None:
    client.add(kind="report", payload={}, id="a", delay=60)
    with pytest.raises(errors.InvalidInput):
        client.move("a", **fields)  # type: ignore[arg-type]


def test_the_packages_front_shows_what_a_user_needs() -> None:
    assert duecourse.Client is Client
    assert all(getattr(duecourse, name) for name in duecourse.__all__)
    with pytest.raises(AttributeError, match="nothing"):
        duecourse.nothing  # noqa: B018


@pytest.mark.parametrize("value", [datetime(2027, 1, 1, tzinfo=UTC), {1}, b"x", {(1,): 2}, float("nan")])
def test_a_payload_that_is_no_json_is_refused_by_name(client: Client, value: object) -> None:
    with pytest.raises(errors.InvalidInput) as caught:
        client.add(kind="report", payload={"a": value})
    assert [problem.field for problem in caught.value.problems] == ["payload"]


def test_what_names_no_task_is_refused_by_field(client: Client) -> None:
    verbs = (client.get, client.cancel, client.replay, partial(client.move, delay=1))
    for verb in verbs:
        with pytest.raises(errors.InvalidInput) as caught:
            verb("a/b", "no spaces")
        assert {problem.field for problem in caught.value.problems} == {"id", "queue"}


def test_the_dead_are_replayed_and_a_dry_run_replays_none(client: Client, ledger: EmbeddedLedger) -> None:
    for id in "ab":
        bring(ledger, "dead", id)
    told = client.replay_dead(limit=1, dry_run=True)
    assert ([task.id for task in told.tasks], told.more, ledger.stats(SHARD).dead) == (["a"], True, 2)
    told = client.replay_dead(rate={"count": 1, "per": "PT2S"})
    assert [task.due_at - START for task in told.tasks] == [0, 2_000]
    assert (told.more, ledger.stats(SHARD).dead) == (False, 0)
    with pytest.raises(errors.InvalidInput, match=r"rate\.count"):
        client.replay_dead(rate={"count": 0, "per": 1})


def test_why_tells_who_did_what(client: Client) -> None:
    client.add(kind="report", payload={}, id="a", delay=60)
    client.move("a", delay=70)
    client.cancel("a")
    why = client.why("a")
    assert [(one.event, one.by) for one in why.timeline] == [
        ("added", "client"),
        ("moved", "client"),
        ("cancelled", "client"),
    ]
    assert why.waits.what == "nothing"
    with pytest.raises(errors.TaskNotFound, match=r"^Queue default has no task b\.$") as absent:
        client.why("b")
    assert (absent.value.id, absent.value.queue, absent.value.tenant) == ("b", "default", "-")


def test_tasks_are_listed_page_by_page(client: Client) -> None:
    for n in range(3):
        client.add(kind="report", payload={}, id=f"t{n}", delay=60 + n)
    first = client.list(limit=2)
    second = client.list(limit=2, cursor=first.next_cursor)
    assert [task.id for task in [*first.tasks, *second.tasks]] == ["t0", "t1", "t2"]
    with pytest.raises(errors.InvalidInput, match="cursor"):
        client.list(cursor="nonsense")


STANDUP: dict[str, Any] = {
    "id": "standup",
    "subject": "{{ data.what }}",
    "starts_at": datetime(2027, 1, 1, 9, tzinfo=UTC),
    "remind_before": [timedelta(minutes=5), "PT1H"],
    "recipients": [{"name": "Ada", "email": "ada@example.com", "phone": "+436641234567"}],
    "message": "{{ recipient.name }}: {{ starts_at.time }} {{ starts_at.zone }}",
    "data": {"what": "Stand-up"},
    "time_zone": "Europe/Vienna",
}


def test_a_reminder_is_previewed_added_moved_and_cancelled(client: Client, ledger: EmbeddedLedger) -> None:
    previewed = client.reminders.preview(**STANDUP)
    assert ledger.shards() == []
    made = client.reminders.add(**STANDUP)
    assert [DueTask(each.id, each.due_at) for each in previewed] == made.tasks
    assert [each.recipient.channel for each in previewed] == ["email", "phone"] * 2
    assert {(each.subject, each.text.strip()) for each in previewed} == {("Stand-up", "Ada: 10:00 CET")}
    assert client.reminders.get("standup").starts_at == STANDUP["starts_at"].timestamp() * 1000
    moved = client.reminders.move("standup", starts_at="2027-07-01T09:00:00Z")
    assert len(moved.tasks) == 4
    assert client.reminders.preview_standing("standup")[0].text == "Ada: 11:00 CEST\n"
    client.reminders.cancel("standup")
    with pytest.raises(errors.TaskCancelled):
        client.reminders.cancel("standup")


def test_a_reminders_wrong_fields_are_named_as_http_names_them(client: Client, ledger: EmbeddedLedger) -> None:
    broken = {
        **STANDUP,
        "id": "a/b",
        "recipients": [{"phone": "1"}],
        "time_zone": "Vienna",
        "data": [],
        "remind_before": [],
    }
    for verb in (client.reminders.add, client.reminders.preview):
        with pytest.raises(errors.InvalidInput) as caught:
            verb(**broken)
        assert {p.field for p in caught.value.problems} == {
            "id",
            "recipients.0.phone",
            "time_zone",
            "data",
            "remind_before",
        }
        with pytest.raises(errors.InvalidInput, match="subject: line 1: why is not known; known here: what"):
            verb(**{**STANDUP, "subject": "{{ data.why }}"})
    verbs = (client.reminders.get, client.reminders.cancel, client.reminders.preview_standing)
    for named in (*verbs, partial(client.reminders.move, starts_at="2027-07-01T09:00:00Z")):
        with pytest.raises(errors.InvalidInput, match="id: "):
            named("a/b")
    with pytest.raises(errors.InvalidInput, match="starts_at: "):
        client.reminders.move("standup", starts_at="soon")
    assert ledger.shards() == []


def test_the_body_of_a_preview_over_http_gives_the_same_times(client: Client) -> None:
    body: dict[str, Any] = {"repeat": {"cron": "@daily"}, "from": "2100-01-01T00:00:00Z", "count": 1}
    assert client.schedules.preview(**body) == client.schedules.preview(
        repeat=body["repeat"], since=body["from"], count=1
    )


def test_a_queue_is_set_and_shown_as_over_http(client: Client, ledger: EmbeddedLedger) -> None:
    with pytest.raises(errors.QueueNotFound):
        client.get_queue("slow")
    with pytest.raises(errors.QueueNotFound, match="with `create` true"):
        client.set_queue("slow", max_running=3)
    assert ledger.shards() == []
    shown = client.set_queue(
        "slow", create=True, max_running=3, rate={"count": 5, "per": timedelta(seconds=2)}, lease=90
    )
    expected = QueueSettings(max_running=3, rate=Rate(5, 2_000), lease_ms=90_000)
    assert shown.settings == expected == ledger.settings_of(["slow"])[0]
    client.set_queue("slow", max_running=None)
    assert client.get_queue("slow").settings == replace(expected, max_running=None)
    assert [queue.name for queue in client.list_queues()] == ["slow"]


def test_each_setting_of_a_queue_can_be_named() -> None:
    assert sorted(QueueFields.__annotations__) == sorted(["create", *(one.name for one in SETTINGS)])


def test_a_wrong_setting_of_a_queue_is_named(client: Client, ledger: EmbeddedLedger) -> None:
    with pytest.raises(errors.InvalidInput, match=r"rate\.count: is required; priority: "):
        client.set_queue("slow", rate={"per": 1}, priority=10)  # type: ignore[typeddict-item]
    with pytest.raises(errors.InvalidInput, match="queue: must be 1 to 64 characters"):
        client.set_queue("a/b", paused=True)
    assert ledger.shards() == []


def test_a_query_is_checked_asked_and_found_again(ledger: EmbeddedLedger) -> None:
    web = Web(answer(200, {"ready": True, "rows": 3}))
    with wired_with(ledger=ledger, http=web):
        client = Client.from_env(tenant="team")
        seen = client.query(
            url="https://api.example.com/a", interval=timedelta(seconds=5), until="ready", result="rows"
        )
        assert (seen.status, seen.known) == (QueryState.DONE, Known(3, START))
        assert client.get_query(seen.id) == seen
        with pytest.raises(errors.QueryNotFound):
            Client.from_env().get_query(seen.id)
        with pytest.raises(errors.InvalidInput, match="interval: must be between"):
            client.query(url="https://api.example.com/a", interval=0, until="ready")
        with pytest.raises(errors.InvalidInput, match="id: must be the id of a query"):
            client.get_query("a")
    task = ledger.get(seen.queue, seen.id, "team")
    assert task is not None
    assert task.by == "client"
