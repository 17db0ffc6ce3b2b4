"""The events that the functions are invoked with: what is read out of them, and what is refused."""

import json
from dataclasses import replace
from typing import Any

import pytest

from duecourse.base.event_reader import check_tick
from duecourse.errors import InvalidInput
from duecourse.ledger.task import RetryPolicy, Shard, Trigger
from duecourse.ledger.watched_keys import ExpiredKey
from duecourse.ringing.bridge_event import event as bridges_event
from duecourse.ringing.bridge_event import read_rings, shards_of
from duecourse.running.task_event import decode_tasks, tasks_event
from tests.support.kinds import leased


def wrong_field(event: Any) -> str:
    """The field that a tasks event is refused for."""
    with pytest.raises(InvalidInput) as caught:
        decode_tasks(event)
    return caught.value.problems[0].field


def sent() -> dict[str, Any]:
    """An event as it arrives, with one task."""
    task = leased("report", {"a": [1, "ü"]}, {"page": 2}, group="g", retry=RetryPolicy(3, 5, 1.5, 7, False))
    return dict(json.loads(json.dumps(tasks_event([task]))))


def test_an_event_has_the_shape_that_is_promised() -> None:
    [entry] = sent()["tasks"]
    promised = {"id", "queue", "tenant", "kind", "payload", "state", "run", "attempt", "due_at", "lease"}
    assert entry.keys() == promised | {"idempotency_key", "group", "retry"}
    assert (sent()["source"], sent()["version"]) == ("duecourse", "1")
    assert entry["idempotency_key"] == "t-1:7"
    assert entry["lease"].keys() == {"token", "expires_at", "delivery"}
    assert entry["lease"]["delivery"] is False


def test_a_task_that_is_to_be_begun_says_so() -> None:
    event = tasks_event([replace(leased("report", {}), target="lambda:x")])
    assert event["tasks"][0]["lease"]["delivery"] is True
    assert [bool(task.target) for task in decode_tasks(event)] == [True]
    event["tasks"][0]["lease"]["delivery"] = "yes"
    assert [bool(task.target) for task in decode_tasks(event)] == [False]


def test_a_task_arrives_as_it_was_sent() -> None:
    task = leased("report", {"a": [1, "ü"]}, {"page": 2}, group="g", retry=RetryPolicy(3, 5, 1.5, 7, False))
    [arrived] = decode_tasks(sent())
    assert arrived == replace(task, created_at=0, claimed_at=0)
    assert arrived.idempotency_key == task.idempotency_key


def test_an_event_of_the_published_shape_is_enough() -> None:
    event = sent()
    del event["tasks"][0]["retry"], event["tasks"][0]["group"], event["tasks"][0]["state"]
    [arrived] = decode_tasks(event)
    assert (arrived.retry, arrived.group, arrived.state) == (RetryPolicy(), "", None)


@pytest.mark.parametrize("field", ["id", "queue", "tenant", "kind", "payload", "run", "attempt", "due_at", "lease"])
def test_a_missing_field_is_named(field: str) -> None:
    event = sent()
    del event["tasks"][0][field]
    assert wrong_field(event) == f"tasks.0.{field}"


def test_wrong_events_are_refused_by_field() -> None:
    assert wrong_field(None) == "event"
    assert wrong_field({"source": "aws.events"}) == "event"
    assert wrong_field(sent() | {"source": "aws.events"}) == "source"
    assert wrong_field(sent() | {"version": "2"}) == "version"
    assert wrong_field(sent() | {"tasks": {}}) == "tasks"
    assert wrong_field(sent() | {"tasks": [7]}) == "tasks.0"


@pytest.mark.parametrize(
    ("field", "value", "named"),
    [
        ("run", "1", "tasks.0.run"),
        ("lease", {"token": 7, "expires_at": 1}, "tasks.0.lease.token"),
        ("lease", {"token": "7.a"}, "tasks.0.lease.expires_at"),
        ("idempotency_key", "t-1", "tasks.0.idempotency_key"),
        ("retry", {"tries": 3}, "tasks.0.retry"),
        ("retry", [3], "tasks.0.retry"),
        ("retry", {"backoff_ms": "soon"}, "tasks.0.retry.backoff_ms"),
        ("retry", {"jitter": None}, "tasks.0.retry.jitter"),
        ("retry", {"factor": -1}, "tasks.0.retry.factor"),
        ("retry", {"factor": float("nan")}, "tasks.0.retry.factor"),
        ("group", ["g"], "tasks.0.group"),
    ],
)
def test_a_wrong_field_is_named(field: str, value: object, named: str) -> None:
    event = sent()
    event["tasks"][0][field] = value
    assert wrong_field(event) == named


def ring(key: str) -> dict[str, object]:
    """A ring as the bridge sends it."""
    return {"key": key, "channel": "__keyevent@0__:expired", "heard_at": 1}


def rung(*keys: str) -> dict[str, object]:
    """The bridge's event."""
    return {"source": "duecourse.bridge", "version": "1", "rings": [ring(key) for key in keys]}


def test_rings_are_folded_into_shards_in_their_order() -> None:
    event = rung("ns:{b/3}:bell", "ns:{a.x@y:z-_/0}:bell", "ns:{b/3}:bell")
    doors = {Shard("b", 3): Trigger.RING, Shard("a.x@y:z-_", 0): Trigger.RING}
    assert shards_of(read_rings(event).bells, "ns") == ([Shard("b", 3), Shard("a.x@y:z-_", 0)], [], doors)


@pytest.mark.parametrize(
    "key", ["", "session:1", "ns:{a/0}:tasks", "other:{a/0}:bell", "nsx:{a/0}:bell", "ns:{a}:bell", "ns:{a/x}:bell"]
)
def test_a_key_that_is_no_bell_of_ours_is_left_out_and_told(key: str) -> None:
    assert shards_of(read_rings(rung(key, "ns:{a/0}:bell")).bells, "ns") == (
        [Shard("a", 0)],
        [key],
        {Shard("a", 0): Trigger.RING},
    )


def test_a_namespace_is_taken_literally() -> None:
    assert shards_of(read_rings(rung("nXs:{a/0}:bell")).bells, "n.s").shards == []


@pytest.mark.parametrize(
    ("change", "field"),
    [({"version": "2"}, "version"), ({"source": "x"}, "source"), ({"rings": [{"key": 7}]}, "rings.0.key")],
)
def test_a_wrong_ring_is_refused_by_field(change: dict[str, object], field: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        read_rings(rung() | change)
    assert field in {problem.field for problem in caught.value.problems}


@pytest.mark.parametrize("event", [None, {}, [], {"source": "aws.s3", "detail-type": "Object Created"}])
def test_only_a_schedule_makes_a_tick(event: object) -> None:
    with pytest.raises(InvalidInput):
        check_tick(event)


NAMES = [b"plain", "é\U0001f514\0".encode(), b"\xff\xfe", rb"\xff", "\ufffd".encode(), b"\xed\xa0\x80"]


@pytest.mark.parametrize("name", NAMES)
def test_an_expired_key_comes_to_the_function_as_the_bridge_heard_it(name: bytes) -> None:
    heard = [ExpiredKey(name, "__keyevent@0__:expired", 5, 7)]
    told = json.loads(json.dumps(bridges_event([], heard)))
    assert read_rings(told).expired == heard


@pytest.mark.parametrize(("since", "taken"), [({}, 7), ({"since": 5}, 5), ({"since": 9}, 7)])
def test_an_expiry_happened_when_it_was_heard_at_the_latest(since: dict[str, int], taken: int) -> None:
    told = {**rung(), "expired": [{"key": "a", "channel": "c", "heard_at": 7, **since}]}
    assert [one.since for one in read_rings(told).expired] == [taken]
