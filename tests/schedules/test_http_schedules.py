"""Schedules over HTTP: each tenant's own, what is rejected and why, and what becomes of the occurrences."""

from typing import Any

import pytest

from duecourse.app import PROCESS
from duecourse.ledger.embedded.ledger import EmbeddedLedger
from duecourse.ledger.task import Shard
from duecourse.settings import Settings
from duecourse_local.harness.environment import TENANTS
from tests.support.clock import HandClock
from tests.support.engine import ample
from tests.support.kinds import Ready
from tests.support.requests import DAILY, Answer, ask, wrong
from tests.support.wired import Wire

HOURLY = DAILY | {"id": "hourly", "repeat": {"every": "PT1H"}}
HOUR = 3_600_000
SPAN = {"from": "2026-09-01T00:00:00Z", "to": "2026-09-02T00:00:00Z"}
OF_ONE: list[tuple[str, str, Any]] = [
    ("GET", "", None),
    ("PATCH", "", {"paused": True}),
    ("DELETE", "", None),
    ("POST", "/run", None),
    ("POST", "/backfill", SPAN),
]


@pytest.fixture(autouse=True)
def by_header(ledger: EmbeddedLedger, wire: Wire) -> None:
    """The tenant is the header's, as in the harness, and the web takes every webhook."""
    wire(settings=Settings(tenant_header=TENANTS["DUECOURSE_TENANT_HEADER"]), ledger=ledger, http=Ready())


def of(tenant: str, method: str, path: str, body: Any = None, query: str = "") -> Answer:
    return ask(method, path, body, query=query, x_tenant=tenant)


def ids(answer: Answer) -> list[str]:
    return [one["id"] for one in answer.body["schedules"]]


def shown(id: str = "daily") -> dict[str, Any]:
    """A schedule as it is shown."""
    answer = ask("GET", f"/schedules/{id}")
    assert answer.status == 200
    found: dict[str, Any] = answer.body["schedule"]
    return found


def work(clock: HandClock, ms: int = 0) -> None:
    """Let time pass, and work all that is due then."""
    clock.advance(ms)
    PROCESS.app().drainer.drain([Shard()], ample)


def kind_of(answer: Answer) -> tuple[int, str]:
    return answer.status, answer.body["type"].rpartition(":")[2]


def test_each_tenant_has_schedules_of_its_own_under_one_id() -> None:
    for tenant, kind in (("acme", {"cron": "0 9 * * *"}), ("globex", {"every": "PT1H"})):
        assert of(tenant, "POST", "/schedules", DAILY | {"repeat": kind}).status == 201
    of("acme", "POST", "/schedules", HOURLY)
    assert ids(of("acme", "GET", "/schedules")) == ["daily", "hourly"]
    assert ids(of("globex", "GET", "/schedules")) == ["daily"]
    assert ids(ask("GET", "/schedules")) == []
    assert of("globex", "GET", "/schedules/daily").body["schedule"]["repeat"] == {"every": "PT1H"}
    assert of("globex", "DELETE", "/schedules/daily").status == 204
    assert of("acme", "GET", "/schedules/daily").status == 200


@pytest.mark.parametrize(("method", "path", "body"), OF_ONE)
def test_anothers_schedule_is_not_there(method: str, path: str, body: Any) -> None:
    of("acme", "POST", "/schedules", DAILY)
    before = of("acme", "GET", "/schedules/daily").body
    for answer in (
        of("globex", method, f"/schedules/daily{path}", body),
        ask(method, f"/schedules/daily{path}", body),
        of("acme", method, f"/schedules/nobody{path}", body),
        of("acme", method, f"/schedules/daily{path}", body, query="queue=mail"),
    ):
        assert kind_of(answer) == (404, "task-not-found")
        assert "schedule" in answer.body["detail"]
    assert of("acme", "GET", "/schedules/daily").body == before


def test_a_tenants_occurrences_are_its_own_tasks(clock: HandClock) -> None:
    of("acme", "POST", "/schedules", HOURLY)
    work(clock, HOUR)
    [last] = of("acme", "GET", "/schedules/hourly").body["schedule"]["recent"]
    assert last["state"] == "done"
    assert of("acme", "GET", f"/tasks/{last['id']}").body["task"]["state"] == "done"
    assert of("globex", "GET", f"/tasks/{last['id']}").status == 404


def test_the_same_schedule_again_is_taken_and_another_of_its_id_is_rejected() -> None:
    asked = DAILY | {"retry": {"factor": 1.234}}  # of which the ledger keeps hundredths
    first = ask("POST", "/schedules", asked)
    assert (first.status, first.body["created"]) == (201, True)
    again = ask("POST", "/schedules", asked)
    assert (again.status, again.body) == (200, {**first.body, "created": False})
    for change in ({"repeat": {"cron": "1 9 * * *"}}, {"payload": {"url": "https://b.example/"}}, {"paused": True}):
        assert kind_of(ask("POST", "/schedules", DAILY | change)) == (409, "schedule-exists")
    assert shown() == first.body["schedule"]


def test_the_epoch_is_a_start_as_any_other() -> None:
    every = {"repeat": {"every": "PT168H"}, "starts_at": "1970-01-01T00:00:00Z"}  # each Thursday
    asked = HOURLY | every
    for created in (True, False):
        answer = ask("POST", "/schedules", asked)
        assert answer.body["created"] is created
        schedule = answer.body["schedule"]
        assert schedule["starts_at"] == "1970-01-01T00:00:00.000Z"
        assert schedule["next"][0]["at"] == "2026-09-24T00:00:00.000Z"
    times = ask("POST", "/schedules/preview", every | {"count": 1}).body["times"]
    assert times[0]["at"] == "2026-09-24T00:00:00.000Z"
    times = ask("POST", "/schedules/preview", {"repeat": every["repeat"], "from": every["starts_at"]}).body["times"]
    assert times[0]["at"] == "1970-01-01T00:00:00.000Z"
    ask("POST", "/schedules", DAILY)
    assert ask("PATCH", "/schedules/daily", every).body["schedule"]["next"][0]["at"] == "2026-09-24T00:00:00.000Z"


def test_a_late_writer_loses() -> None:
    ask("POST", "/schedules", DAILY)
    for body, status, version in (({"limit": 5, "if_version": 1}, 200, 2), ({"limit": 6, "if_version": 1}, 409, 2)):
        answer = ask("PATCH", "/schedules/daily", body)
        assert answer.status == status
        assert (shown()["version"], shown()["limit"]) == (version, 5)
    assert kind_of(answer) == (409, "version-conflict")


def test_every_wrong_field_is_named_at_once() -> None:
    bad: dict[str, Any] = {
        "id": "a b",
        "kind": "",
        "payload": 1,
        "repeat": {"every": "PT0.5S"},
        "time_zone": 1,
        "starts_at": "soon",
        "until": "never",
        "limit": 0,
        "jitter": "P2D",
        "gap": "jump",
        "fold": "third",
        "missed": "some",
        "catch_up": -1,
        "overlap": "stop",
        "retry": {"max_attempts": 0},
        "deadline": "PT-1S",
        "notify_done": {},
        "paused": "yes",
        "queue": "a b",
        "colour": "red",
    }
    found = wrong(ask("POST", "/schedules", bad))
    assert {name.partition(".")[0] for name in found} == set(bad)
    changed = {name: value for name, value in bad.items() if name not in {"id", "kind", "queue"}}
    ask("POST", "/schedules", DAILY)
    found = wrong(ask("PATCH", "/schedules/daily", changed | {"if_version": 0}))
    assert {name.partition(".")[0] for name in found} == {*changed, "if_version"}


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"repeat": {"cron": "0 0 30 2 *"}}, {"repeat.cron"}),
        ({"repeat": {"cron": "* * * *"}, "time_zone": "Europe/Wien"}, {"repeat.cron", "time_zone"}),
        ({"repeat": {"rrule": "FREQ=SECONDLY"}}, {"repeat.rrule"}),
        ({"repeat": {"every": "PT0S"}}, {"repeat.every"}),
        ({"repeat": {"every": 60, "cron": "@daily"}}, {"repeat.every", "repeat.cron", "repeat.rrule"}),
        ({"repeat": {"cron": "@daily", "exdates": []}, "starts_at": "2100-01-02T00:00:00Z"}, set()),
        ({"repeat": {"cron": "@daily", "exdates": ["2100-01-02T00:00:00Z"]}}, {"repeat.exdates"}),
        ({"starts_at": "2100-01-02T00:00:00Z", "until": "2100-01-01T00:00:00Z"}, {"until"}),
        ({"kind": "nobody"}, {"kind"}),
        ({"payload": {"url": "nowhere"}}, {"payload.url"}),
        ({"payload": DAILY["payload"] | {"headers": {"authorization": "Bearer 1234567890abcdef"}}}, {"payload"}),
        ({"notify_done": {"url": "https://me:passw0rd@a.example/"}}, {"notify_done.url"}),
    ],
)
def test_what_cannot_be_is_rejected_by_its_name_when_it_is_added_and_when_it_is_changed(
    fields: dict[str, Any], named: set[str]
) -> None:
    if not named:
        assert ask("POST", "/schedules", DAILY | fields).status == 201
        return
    assert wrong(ask("POST", "/schedules", DAILY | fields)).keys() == named
    ask("POST", "/schedules", DAILY)
    before = shown()
    if "kind" not in fields:
        assert wrong(ask("PATCH", "/schedules/daily", fields)).keys() == named
    assert shown() == before


@pytest.mark.parametrize(
    ("method", "path", "body", "named"),
    [
        ("POST", "/backfill", {"from": SPAN["to"], "to": SPAN["from"]}, {"to"}),
        ("POST", "/backfill", {"from": "soon", "overlap": "x"}, {"from", "to", "overlap"}),
        ("PATCH", "", {"kind": "poll"}, {"kind"}),
        ("PATCH", "", {"queue": "mail"}, {"queue"}),
        ("PATCH", "", {"repeat": None}, {"repeat"}),
    ],
)
def test_what_cannot_be_asked_of_a_schedule_is_rejected(method: str, path: str, body: Any, named: set[str]) -> None:
    ask("POST", "/schedules", DAILY)
    assert wrong(ask(method, f"/schedules/daily{path}", body)).keys() == named


def test_a_preview_is_bounded_and_keeps_nothing(ledger: EmbeddedLedger) -> None:
    every = {"repeat": {"every": 60}}
    assert len(ask("POST", "/schedules/preview", every).body["times"]) == 10
    assert len(ask("POST", "/schedules/preview", every | {"count": 1_000}).body["times"]) == 1_000
    for count in (0, 1_001, 1.5, "3"):
        assert wrong(ask("POST", "/schedules/preview", every | {"count": count})).keys() == {"count"}
    assert ledger.shards() == []
    assert ids(ask("GET", "/schedules")) == []


def test_a_backfill_has_bounds_and_is_not_begun_twice(clock: HandClock) -> None:
    ask("POST", "/schedules", HOURLY)
    assert wrong(ask("POST", "/schedules/hourly/backfill", SPAN | {"from": "2020-01-01T00:00:00Z"})).keys() == {"to"}
    assert ask("POST", "/schedules/hourly/backfill", SPAN).body == {"occurrences": 24}
    assert kind_of(ask("POST", "/schedules/hourly/backfill", SPAN)) == (409, "schedule-exists")
    assert ids(ask("GET", "/schedules")) == ["hourly"]
    for _ in range(4):
        work(clock, 1_000)
    tasks = ask("GET", "/tasks", query="group=hourly&state=done&limit=100").body["tasks"]
    assert len(tasks) == 24


def test_what_becomes_of_the_occurrences_is_shown_newest_first(clock: HandClock) -> None:
    ask("POST", "/schedules", HOURLY | {"overlap": "skip"})
    work(clock, HOUR)
    work(clock, 3 * HOUR)
    id = ask("POST", "/schedules/hourly/run").body["id"]
    last = shown("hourly")
    assert [(one["state"], one.get("stands_for", 1)) for one in last["recent"]] == [
        ("scheduled", 1),
        ("done", 3),
        ("done", 1),
    ]
    assert last["recent"][0]["id"] == id
    assert (last["fired"], last["times_missed"], last["skipped"]) == (2, 2, 0)
    assert len(last["next"]) == 10


def test_a_page_of_schedules_goes_on_after_its_last_id() -> None:
    for n in range(5):
        ask("POST", "/schedules", DAILY | {"id": f"s-{n}"})
    first = ask("GET", "/schedules", query="limit=3")
    assert (ids(first), first.body["next_after"]) == (["s-0", "s-1", "s-2"], "s-2")
    rest = ask("GET", "/schedules", query="limit=3&after=s-2")
    assert (ids(rest), "next_after" in rest.body) == (["s-3", "s-4"], False)


def test_auto_is_shown_with_what_it_means_and_what_is_named_wins() -> None:
    def clocks(answer: Answer) -> list[str]:
        one = answer.body["schedule"]
        return [one[name] for name in ("gap", "fold", "gap_used", "fold_used")]

    rule = {"repeat": {"cron": "0 * * * *"}, "time_zone": "America/Los_Angeles"}
    assert clocks(ask("POST", "/schedules", HOURLY | rule)) == ["auto", "auto", "skip", "both"]
    assert clocks(ask("POST", "/schedules", DAILY)) == ["auto", "auto", "shift", "first"]
    assert clocks(ask("PATCH", "/schedules/hourly", {"fold": "first"})) == ["auto", "first", "skip", "first"]
    assert clocks(ask("PATCH", "/schedules/hourly", {"fold": "auto"})) == ["auto", "auto", "skip", "both"]
    assert clocks(ask("PATCH", "/schedules/hourly", {"repeat": {"cron": "0 9 * * *"}}))[2:] == ["shift", "first"]


@pytest.mark.parametrize("gap", [{}, {"gap": "auto", "fold": "auto"}])
def test_a_preview_of_an_hourly_rule_has_every_hour_of_an_autumn_night(gap: dict[str, str]) -> None:
    rule = {"repeat": {"cron": "0 * * * *"}, "time_zone": "America/Los_Angeles", "from": "2026-11-01T08:00:00Z"}
    times = ask("POST", "/schedules/preview", rule | gap | {"count": 3}).body["times"]
    assert [one["at"][11:13] for one in times] == ["08", "09", "10"]


@pytest.mark.parametrize(
    ("method", "path", "body", "field"),
    [
        ("POST", "/tasks", {"kind": "webhook", "payload": {"url": "https://a.example/"}}, "due_at"),
        ("POST", "/tasks", {"kind": "webhook", "payload": {"url": "https://a.example/"}}, "deadline"),
        ("POST", "/schedules", DAILY, "starts_at"),
        ("POST", "/schedules", DAILY, "until"),
        ("POST", "/schedules/preview", {"repeat": DAILY["repeat"]}, "from"),
        ("POST", "/schedules/daily/backfill", {"to": "2100-01-01T00:00:00Z"}, "from"),
        ("POST", "/reminders", {}, "starts_at"),
        ("PATCH", "/reminders/standup/occurrences/2100-01-11T08:30:00Z", {}, "starts_at"),
        ("PATCH", "/reminders/standup", {}, "until"),
    ],
)
@pytest.mark.parametrize("offset", ["+01:60", "+01:99", "-24:00"])
def test_an_offset_that_no_clock_has_is_rejected_by_field(
    method: str, path: str, body: dict[str, Any], field: str, offset: str
) -> None:
    answer = ask(method, path, body | {field: f"2099-12-31T23:00:00{offset}"})
    assert "offset" in wrong(answer)[field]
    rrule = DAILY | {"repeat": {"rrule": "FREQ=DAILY", "exdates": [f"2099-12-31T23:00:00{offset}"]}}
    assert "offset" in wrong(ask("POST", "/schedules", rrule))["repeat.exdates.0"]
