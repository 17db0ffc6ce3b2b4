"""Requests for too much: copies of one text, messages to many, calls without a rest or an end, through each door."""

import json
from collections.abc import Callable
from typing import Any

import pytest
import redis

from duecourse.base.times import DAY_MS
from duecourse.client.client import Client
from duecourse.errors import InvalidInput
from duecourse.ledger.connect import connect
from duecourse.ledger.embedded.ledger import EmbeddedLedger
from duecourse.ledger.operations.ledger import Ledger
from duecourse.ledger.reminder import MAX_TASKS, QUEUE
from duecourse.reminders.one_off import MAX_BYTES
from duecourse.settings import Settings, parse
from tests.support.brokers import sqs_event
from tests.support.clock import HandClock
from tests.support.engine import ample
from tests.support.functions import invoke
from tests.support.kinds import Web, answer
from tests.support.redis_server import RedisServer
from tests.support.requests import MEETING, POLL, Answer, ask, wrong
from tests.support.wired import Wire, wired_with

LEADS = [f"PT{n}S" for n in range(1, MAX_TASKS + 1)]
LONG = {**MEETING, "message": "m" * 9_900, "html": "<p>" + "h" * 6_000, "remind_before": LEADS}
"""A request of 26 KB, whose messages would grow Redis by 16.7 MB."""
LARGEST = {
    **MEETING,
    "subject": "{# " + "s" * 900 + " #}Review",
    "message": "m" * 10_000,
    "html": "h" * 50_000,
    "data": {"text": "d" * 16_000},
    "remind_before": LEADS[:100],
}
"""The most messages of a default deployment, with the largest texts."""
GROWTH = 200_000
"""Bytes that records of messages and their places may take, beside the payloads."""
PREMIUM = ["+439001234567", "+19005550123", "+33899123456", "+39899123456", "+449098790000", "+979123456789"]
"""Numbers whose callers pay their owners: of Austria, the US, France, Italy, the UK, and of no country."""


@pytest.fixture
def ledger(wire: Wire) -> EmbeddedLedger:
    """A ledger in memory, with the settings of a stack that sets none."""
    made = EmbeddedLedger()
    wire(Settings(), ledger=made)
    return made


def test_a_long_text_for_a_thousand_messages_is_rejected(wire: Wire) -> None:
    ledger = EmbeddedLedger()
    wire(Settings(reminder_messages=MAX_TASKS), ledger=ledger)
    problems = wrong(ask("POST", "/reminders", LONG))
    assert problems.keys() == {"message"}
    assert "in each of 1,000 messages" in problems["message"]
    assert ledger.shards() == []


def test_the_largest_reminder_is_taken_and_grows_redis_by_its_bound(redis_server: RedisServer) -> None:
    with (
        connect(redis_server.url) as client,
        wired_with(Settings(), ledger=Ledger(client, "duecourse")),
        redis.Redis.from_url(redis_server.url) as seen,
    ):
        assert ask("POST", "/reminders", {**MEETING, "id": "first"}).status == 201  # which loads the scripts
        before = used(seen)
        added = ask("POST", "/reminders", LARGEST)
        assert (added.status, len(added.body["tasks"])) == (201, 100)
        assert used(seen) - before < MAX_BYTES + GROWTH
        assert ask("PATCH", "/reminders/standup", {"starts_at": "2099-03-03T08:00:00Z"}).status == 200
        assert ask("GET", "/reminders/standup").body["message"] == LARGEST["message"]
        assert used(seen) - before < MAX_BYTES + GROWTH


def used(client: redis.Redis) -> int:
    """Bytes of all keys: without buffers of connections, which come and go."""
    return sum(int(client.memory_usage(key, samples=0) or 0) for key in client.keys("*"))


MANY = {
    "lead times": {"remind_before": LEADS[:101]},
    "recipients": {"recipients": [{"email": f"a{n}@example.com"} for n in range(101)]},
    "channels": {"recipients": [{"email": f"a{n}@example.com", "phone": f"+4366412345{n:02}"} for n in range(51)]},
    "premium numbers": {"recipients": [{"phone": f"+1900555{n:04}"} for n in range(1_000)]},
}


@pytest.mark.parametrize("many", MANY)
@pytest.mark.parametrize("path", ["/reminders", "/reminders/preview"])
def test_a_reminder_has_a_hundred_messages_unless_the_operator_allows_more(
    ledger: EmbeddedLedger, path: str, many: str
) -> None:
    problems = wrong(ask("POST", path, MEETING | MANY[many]))
    assert problems.keys() == {"remind_before", "recipients"}
    assert all("quota of 100 (DUECOURSE_REMINDER_MESSAGES)" in problem for problem in problems.values())
    with pytest.raises(InvalidInput, match="DUECOURSE_REMINDER_MESSAGES"):
        Client.from_env().reminders.add(**(MEETING | MANY[many]))
    assert ledger.shards() == []


@pytest.mark.parametrize("many", ["lead times", "recipients", "channels"])
def test_an_operator_may_allow_a_thousand(wire: Wire, many: str) -> None:
    wire(parse({"DUECOURSE_REMINDER_MESSAGES": "1000"}), ledger=EmbeddedLedger())
    assert ask("POST", "/reminders", MEETING | MANY[many]).status == 201


def phone(*numbers: str) -> dict[str, Any]:
    return MEETING | {"recipients": [{"email": "a@example.com"}, *({"phone": number} for number in numbers)]}


@pytest.mark.parametrize("number", PREMIUM)
def test_no_sms_goes_to_a_number_whose_callers_pay_its_owner(ledger: EmbeddedLedger, number: str) -> None:
    for path in ("/reminders", "/reminders/preview"):
        problems = wrong(ask("POST", path, phone("+436641234567", number)))
        assert problems == {"recipients.2.phone": "is a premium-rate number, to which no SMS is sent"}
    with pytest.raises(InvalidInput, match=r"recipients\.2\.phone: is a premium-rate number"):
        Client.from_env().reminders.add(**phone("+436641234567", number))
    assert ledger.shards() == []


@pytest.mark.parametrize(
    ("number", "country"),
    [
        ("+18765551234", "JM"),  # which has the calling code of the US
        ("+447911123456", "GG"),
        ("+15555550100", "no known country"),
        ("+8835100012345", "001"),
    ],
)
def test_sms_go_to_the_countries_that_the_operator_lists_alone(wire: Wire, number: str, country: str) -> None:
    ledger = EmbeddedLedger()
    wire(parse({"DUECOURSE_SMS_COUNTRIES": "AT, US"}), ledger=ledger)
    problems = wrong(ask("POST", "/reminders", phone("+436641234567", "+12125550100", number)))
    assert problems == {"recipients.3.phone": f"is a number of {country}: DUECOURSE_SMS_COUNTRIES allows AT, US"}
    assert ledger.shards() == []
    assert ask("POST", "/reminders", phone("+436641234567", "+12125550100")).status == 201


def test_a_number_that_no_longer_is_allowed_is_not_dialled(wire: Wire) -> None:
    ledger = EmbeddedLedger()
    wire(Settings(), ledger=ledger)
    assert ask("POST", "/reminders", MEETING | {"recipients": [{"phone": "+18765551234"}]}).status == 201
    app = wire(parse({"DUECOURSE_SMS_COUNTRIES": "AT"}), ledger=ledger, senders={})
    [task] = ledger.group(QUEUE, "standup")
    outcome = app.reminder_kind(task)
    assert "+18765551234 is a number of JM" in str(outcome)


POLLS: dict[str, Callable[[dict[str, Any]], dict[str, str]]] = {
    "POST /tasks": lambda body: wrong(ask("POST", "/tasks", body)),
    "POST /tasks/batch": lambda body: _first_of(ask("POST", "/tasks/batch", {"tasks": [body]})),
    "Client.add": lambda body: _by_client(lambda client: client.add(**body)),
}


def _first_of(answer: Answer) -> dict[str, str]:
    return {field.removeprefix("tasks.0."): problem for field, problem in wrong(answer).items()}


def _by_client(act: Callable[[Client], object]) -> dict[str, str]:
    with pytest.raises(InvalidInput) as caught:
        act(Client.from_env())
    return {problem.field: problem.problem for problem in caught.value.problems}


@pytest.mark.parametrize("door", POLLS)
@pytest.mark.parametrize("interval", [0.1, "PT0.1S", "PT0.999S"])
def test_a_poll_asks_once_a_second_at_most(ledger: EmbeddedLedger, door: str, interval: Any) -> None:
    found = POLLS[door]({"kind": "poll", "payload": {**POLL, "interval": interval}})
    assert found == {"payload.interval": "must be at least PT1S, which DUECOURSE_POLL_INTERVAL sets"}
    assert ledger.shards() == []


@pytest.mark.parametrize("door", POLLS)
@pytest.mark.parametrize("deadline", ["P36525D", "P367D", "2126-01-01T00:00:00Z", 3_162_240_000])
def test_a_poll_ends_within_a_year(ledger: EmbeddedLedger, door: str, deadline: Any) -> None:
    found = POLLS[door]({"kind": "poll", "payload": POLL, "deadline": deadline})
    assert found == {"deadline": "must be at most P366D after the due time of a poll"}
    assert ledger.shards() == []


@pytest.mark.parametrize("door", POLLS)
def test_an_error_of_a_poll_names_its_url_and_its_interval(ledger: EmbeddedLedger, door: str) -> None:
    found = POLLS[door]({"kind": "poll", "payload": {**POLL, "url": "http://127.0.0.1/", "interval": 0.1}})
    assert found.keys() == {"payload.url", "payload.interval"}
    assert ledger.shards() == []


@pytest.mark.parametrize(
    "wrong_part", [{"payload": {**POLL, "interval": 0.1}}, {"payload": POLL, "deadline": "P9999D"}]
)
def test_a_queues_message_may_not_ask_more_than_a_request(ledger: EmbeddedLedger, wrong_part: dict[str, Any]) -> None:
    answer = invoke("enqueue_message", sqs_event(json.dumps({"kind": "poll", **wrong_part})))
    assert answer == {"batchItemFailures": [{"itemIdentifier": "m-0"}]}
    assert ledger.shards() == []


def test_a_poll_without_a_deadline_ends_after_a_day_and_one_of_a_year_is_taken(ledger: EmbeddedLedger) -> None:
    assert ask("POST", "/tasks", {"id": "day", "kind": "poll", "payload": POLL}).status == 201
    assert ask("POST", "/tasks", {"id": "year", "kind": "poll", "payload": POLL, "deadline": "P366D"}).status == 201
    lasts_ms = [task.deadline_at - task.due_at for id in ("day", "year") if (task := ledger.get("default", id))]
    assert lasts_ms == [DAY_MS, 366 * DAY_MS]


def test_other_kinds_may_have_deadlines_of_years(ledger: EmbeddedLedger) -> None:
    webhook = {"id": "a", "kind": "webhook", "payload": {"url": POLL["url"]}, "deadline": "P3650D"}
    assert ask("POST", "/tasks", webhook).status == 201
    assert ledger.get("default", "a")


def test_a_query_asks_once_a_second_at_most(ledger: EmbeddedLedger) -> None:
    query = {**POLL, "interval": "PT0.1S"}
    problem = {"interval": "must be at least PT1S, which DUECOURSE_POLL_INTERVAL sets"}
    assert wrong(ask("POST", "/queries", query)) == problem
    assert _by_client(lambda client: client.query(**query)) == problem
    assert ledger.shards() == []


def test_an_operator_may_allow_polls_to_ask_more_often(wire: Wire) -> None:
    wire(parse({"DUECOURSE_POLL_INTERVAL": "0.1"}), ledger=EmbeddedLedger())
    assert ask("POST", "/tasks", {"kind": "poll", "payload": {**POLL, "interval": 0.1}}).status == 201
    assert wrong(ask("POST", "/tasks", {"kind": "poll", "payload": {**POLL, "interval": 0.09}})).keys() == {
        "payload.interval"
    }


@pytest.mark.parametrize("kind", ["poll", "webhook"])
def test_a_host_that_fails_is_not_called_a_thousand_times_in_a_row(wire: Wire, clock: HandClock, kind: str) -> None:
    ledger, web = EmbeddedLedger(clock), Web(*[answer(500)] * 1_000)
    app = wire(Settings(), ledger=ledger, http=web)
    hasty = {"max_attempts": 1_000, "backoff": 0, "jitter": False}
    payload = POLL if kind == "poll" else {"url": POLL["url"]}
    assert ask("POST", "/tasks", {"kind": kind, "payload": payload, "retry": hasty}).status == 201
    for _ in range(60):
        app.drainer.drain(ledger.shards(), ample)
        clock.advance(1_000)
    assert len(web.asked) == 10 + 59
