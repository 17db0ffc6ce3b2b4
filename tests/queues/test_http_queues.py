"""What operators see of queues over HTTP, and what they set there."""

import json
from dataclasses import replace
from typing import Any

import pytest

from duecourse.ledger.embedded.ledger import EmbeddedLedger
from duecourse.ledger.queue import QueueSettings, Rate
from duecourse.ledger.sharding import Sharding
from duecourse.ledger.task import Ending, Shard
from tests.support.clock import HandClock
from tests.support.ledger import add, claim, claim_one, ending, new, returned_without_a_settle
from tests.support.requests import replay
from tests.support.wired import Wire

NO_QUOTAS = dict.fromkeys(("tenant_max_pending", "tenant_max_bytes", "tenant_adds_per_minute", "tenant_max_schedules"))
SET = QueueSettings(False, 20, Rate(50, 1_000), 5, 7, 172_800_000, 120_000)


def set_queue(*, create: bool = True, **fields: Any) -> tuple[int, Any]:
    return replay("set_queue", body=json.dumps({"create": create} | fields))


def wrong(**fields: Any) -> dict[str, str]:
    status, problem = set_queue(**fields)
    assert status == 422
    return {error["field"]: error["problem"] for error in problem["errors"]}


def test_a_queue_is_shown_in_numbers(ledger: EmbeddedLedger, clock: HandClock) -> None:
    for id, how in (("done", Ending.DONE), ("dead", Ending.DROP)):
        task = claim_one(ledger, id)
        ledger.settle(Shard(), [ending(task, how).with_lateness(task, 7 if id == "dead" else 0)])
    ledger.add([new("running")])
    clock.advance(7)
    claim(ledger)
    add(ledger, "overdue")
    add(ledger, "later", delay_ms=60_000)
    clock.advance(1_500)
    assert replay("show_queue") == (
        200,
        {
            "queue": {
                "queue": "default",
                "paused": False,
                "priority": 5,
                "retention": None,
                "lease": None,
                "max_running": None,
                "tenant_max_running": None,
                "rate": None,
                **NO_QUOTAS,
                "split": [
                    {"shard": 0, "running": 1, "max_running": None, "tenant_max_running": None, "rate": None}
                    | NO_QUOTAS
                ],
                "tasks": {"scheduled": 2, "leased": 1, "done": 1, "dead": 1},
                "oldest_overdue": "PT1.5S",
                "lateness": {"p50": "PT0S", "p99": "PT0.007S"},
                "lapsed": {"runs": 0, "at_target": 0},
                "schedules": {"count": 0, "next_at": None},
            }
        },
    )


def test_a_queue_shows_runs_without_a_settle(ledger: EmbeddedLedger, clock: HandClock) -> None:
    returned_without_a_settle(ledger, clock)
    ledger.sweep(Shard(), retention_ms=60_000)
    assert replay("show_queue")[1]["queue"]["lapsed"] == {"runs": 1, "at_target": 1}


def test_a_queue_is_set_before_its_first_task_and_shown_so(ledger: EmbeddedLedger) -> None:
    status, shown = replay("set_queue")
    assert status == 200
    assert ledger.settings_of(["default"])[0] == SET
    assert replay("show_queue") == (200, shown)
    assert shown["queue"]["rate"] == {"count": 50, "per": "PT1S"}
    assert (shown["queue"]["retention"], shown["queue"]["lease"]) == ("P2D", "PT2M")


def test_a_queue_is_made_by_who_asks_for_it_alone(ledger: EmbeddedLedger) -> None:
    status, problem = set_queue(create=False, paused=True)
    assert (status, problem["type"]) == (404, "urn:duecourse:problem:queue-not-found")
    assert "with `create` true" in problem["detail"]
    assert (replay("show_queue")[0], ledger.shards()) == (404, [])
    assert set_queue(paused=True)[0] == set_queue(create=False, paused=False)[0] == 200
    assert ledger.settings_of(["default"])[0] == QueueSettings()


def test_what_is_given_changes_null_clears_and_the_rest_stays(ledger: EmbeddedLedger) -> None:
    replay("set_queue")
    assert set_queue(paused=True, rate=None)[0] == 200
    assert ledger.settings_of(["default"])[0] == replace(SET, paused=True, rate=None)
    assert set_queue()[0] == 200
    assert ledger.settings_of(["default"])[0] == replace(SET, paused=True, rate=None)


def test_all_queues_are_listed_by_name(ledger: EmbeddedLedger) -> None:
    assert replay("list_queues") == (200, {"queues": []})
    for queue in ("b", "a"):
        ledger.add([new(queue=queue)])
    ledger.configure("c", {"paused": True})
    status, shown = replay("list_queues")
    assert status == 200
    assert [(queue["queue"], queue["paused"]) for queue in shown["queues"]] == [("a", False), ("b", False), ("c", True)]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("10/s", {"count": 10, "per": "PT1S"}),
        ("600/m", {"count": 600, "per": "PT1M"}),
        ("10/PT1S", {"count": 10, "per": "PT1S"}),
        ("5/1h30m", {"count": 5, "per": "PT90M"}),
    ],
)
@pytest.mark.usefixtures("ledger")
def test_a_rate_may_be_a_text(text: str, shown: dict[str, Any]) -> None:
    status, answer = set_queue(rate=text)
    assert (status, answer["queue"]["rate"]) == (200, shown)


@pytest.mark.parametrize(
    ("fields", "problems"),
    [
        ({"max_running": 0}, {"max_running": "must be greater than or equal to 1"}),
        ({"max_running": "5"}, {"max_running": "must be a valid integer"}),
        ({"max_running": True}, {"max_running": "must be a valid integer"}),
        ({"paused": "yes"}, {"paused": "must be true or false"}),
        ({"rate": {"count": 1, "per": "PT0S"}}, {"rate.per": "must be between PT0.1S and P1D"}),
        ({"rate": {"count": 1}}, {"rate.per": "is required"}),
        ({"rate": 5}, {"rate": "must be a JSON object"}),
        ({"rate": "10"}, {"rate": "must be a rate such as 10/s, 600/m or 10/PT1S"}),
        ({"rate": "10/sec"}, {"rate": "must be a rate such as 10/s, 600/m or 10/PT1S: write 10/s"}),
        ({"rate": "0/s"}, {"rate.count": "must be greater than or equal to 1"}),
        ({"rate": "10/w"}, {"rate.per": "must be between PT0.1S and P1D"}),
        ({"priority": 10}, {"priority": "must be less than or equal to 9"}),
        ({"lease": "PT0.5S"}, {"lease": "must be between PT1S and P1D"}),
        ({"retention": -1}, {"retention": "must be between 0 and 100 years"}),
        ({"colour": 1}, {"colour": "is not a known field"}),
    ],
)
def test_a_wrong_setting_is_named_and_changes_nothing(
    ledger: EmbeddedLedger, fields: dict[str, Any], problems: dict[str, str]
) -> None:
    assert wrong(**fields) == problems
    assert ledger.shards() == []


def test_a_limit_below_the_number_of_shards_is_refused_and_the_split_is_told(clock: HandClock, wire: Wire) -> None:
    wire(ledger=EmbeddedLedger(clock, Sharding({"default": 3})))
    problem = "must be at least 3: the queue has 3 shards, and each gets its part"
    assert wrong(max_running=2, rate={"count": 1, "per": 1}) == {"max_running": problem, "rate.count": problem}
    status, shown = set_queue(max_running=7, rate={"count": 4, "per": 2})
    assert status == 200
    parts = [(part["shard"], part["max_running"], part["rate"]["count"]) for part in shown["queue"]["split"]]
    assert parts == [(0, 3, 2), (1, 2, 1), (2, 2, 1)]
    assert shown["queue"]["max_running"] == 7
