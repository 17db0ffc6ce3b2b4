"""Many tasks in one request: all well-formed or none, each answered for itself."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from duecourse.api.request import MAX_BATCH_BYTES, MAX_VALUES, has_more_values
from duecourse.ledger.embedded.ledger import EmbeddedLedger
from duecourse.ledger.task import Status
from duecourse.tasks.http import MAX_BATCH
from tests.support.clock import HandClock
from tests.support.cpu import LINEAR, growth
from tests.support.ledger import bring, stored_task
from tests.support.requests import WEBHOOK, ask, wrong
from tests.support.wired import Wire


def batch(*tasks: dict[str, Any]) -> dict[str, Any]:
    return {"tasks": [{**WEBHOOK, **task} for task in tasks]}


def test_each_task_is_answered_in_its_order(ledger: EmbeddedLedger) -> None:
    answer = ask("POST", "/tasks/batch", batch({"id": "a"}, {"id": "b", "delay": "PT2H"}, {"id": "a"}, {}))
    first, second, again, made = answer.body["tasks"]
    assert answer.status == 200
    assert first == {"id": "a", "created": True, "due_at": "2026-09-21T15:13:20.000Z"}
    assert second == {"id": "b", "created": True, "due_at": "2026-09-21T16:13:20.000Z"}
    assert again == {"id": "a", "created": False, "due_at": "2026-09-21T15:13:20.000Z"}
    assert made["created"]
    assert stored_task(ledger, made["id"]).status is Status.SCHEDULED


@pytest.mark.parametrize("state", ["scheduled", "leased", "dead"])
def test_one_that_its_ids_state_refuses_is_refused_alone(ledger: EmbeddedLedger, state: str) -> None:
    bring(ledger, state)
    refused, added = ask("POST", "/tasks/batch", batch({"id": "a", "on_duplicate": "reject"}, {"id": "b"})).body[
        "tasks"
    ]
    assert (refused["id"], refused["created"], refused["refused"]) == ("a", False, state)
    assert refused["detail"].startswith("The task is")
    assert added["created"]


def test_one_that_is_wrong_keeps_all_out_and_every_wrong_field_is_named(ledger: EmbeddedLedger) -> None:
    answer = ask("POST", "/tasks/batch", batch({}, {"delay": "soon", "colour": "red"}, {}, {"payload": {}}))
    assert wrong(answer).keys() == {"tasks.1.delay", "tasks.1.colour", "tasks.3.payload.url"}
    late = {"due_at": "2027-01-01T00:00:00Z", "delay": None, "deadline": "2026-12-31T00:00:00Z"}
    answer = ask("POST", "/tasks/batch", batch({}, {"kind": "strange"}, late))
    assert wrong(answer).keys() == {"tasks.1.kind", "tasks.2.deadline"}
    assert ledger.shards() == []


@pytest.mark.parametrize(("tasks", "problem"), [([], "at least 1"), ([WEBHOOK] * (MAX_BATCH + 1), "at most 1000")])
def test_a_batch_has_bounds(tasks: list[Any], problem: str, ledger: EmbeddedLedger) -> None:
    assert problem in wrong(ask("POST", "/tasks/batch", {"tasks": tasks}))["tasks"]
    assert ledger.shards() == []


def test_a_full_batch_is_one_change_of_the_ledger(ledger: EmbeddedLedger) -> None:
    heard: list[int] = []
    ledger.listen(lambda _shard, at: heard.append(at))
    answer = ask("POST", "/tasks/batch", {"tasks": [WEBHOOK] * MAX_BATCH})
    assert sum(item["created"] for item in answer.body["tasks"]) == MAX_BATCH
    assert len(heard) == 1
    assert heard[0] == ledger.now() + 3_600_000


class CountingClock(HandClock):
    asked = 0

    def now(self) -> int:
        self.asked += 1
        return super().now()


def test_the_time_is_asked_for_once_however_many_have_a_deadline(wire: Wire) -> None:
    clock = CountingClock()
    wire(ledger=EmbeddedLedger(clock))

    def asked(tasks: int) -> int:
        before = clock.asked
        task = WEBHOOK | {"deadline": "2099-01-01T00:00:00Z"}
        assert ask("POST", "/tasks/batch", {"tasks": [task] * tasks}).status == 200
        return clock.asked - before

    asked(1)  # which registers the queue
    assert asked(2) == asked(100)


@pytest.mark.slow
def test_a_batch_may_be_six_megabytes_and_each_payload_what_it_may_elsewhere(ledger: EmbeddedLedger) -> None:
    def sized(size: int, count: int) -> dict[str, Any]:
        payload = {"url": "https://hooks.example.com", "body": "x" * size}
        return {"tasks": [{"kind": "webhook", "payload": payload}] * count}

    assert ask("POST", "/tasks/batch", sized(250_000, 24)).status == 200
    assert wrong(ask("POST", "/tasks/batch", sized(262_144, 1))) == {
        "tasks.0.payload": "must be at most 256 KiB of JSON"
    }
    before = len(ledger.shards())
    answer = ask("POST", "/tasks/batch", json.dumps(sized(1, 1)) + " " * MAX_BATCH_BYTES)
    assert (answer.status, answer.body["detail"]) == (413, "The body is over 6144 KiB.")
    assert ask("POST", "/tasks", json.dumps(WEBHOOK) + " " * 262_144).status == 413
    assert len(ledger.shards()) == before


def with_strangers(task: dict[str, Any], count: int) -> str:
    """A task with so many fields that nobody knows, in JSON."""
    return json.dumps(task, separators=(",", ":"))[:-1] + "".join(f',"x{i}":1' for i in range(count)) + "}"


LARGE: dict[str, tuple[Callable[[int], str], int, int]] = {
    "too many": (lambda size: '{"tasks":[' + "{}," * size + "{}]}", 190_000, 2_000_000),
    "too deep": (
        lambda size: '{"tasks":[{"kind":"poll","payload":{"url":' + "[" * size + "]" * size + "}}]}",
        390_000,
        2_000_000,
    ),
    "too many fields": (lambda size: '{"tasks":[' + with_strangers(WEBHOOK, size) + "]}", 390_000, 500_000),
    "too many fields in each": (
        lambda size: (
            '{"tasks":['
            + ",".join(['{"kind":"webhook","payload":' + with_strangers({"x": 1}, size) + "}"] * 1_000)
            + "]}"
        ),
        390,
        500,
    ),
}
"""Bodies of a size: one of about as many values as a batch may have, and one of about as many bytes."""


@pytest.mark.slow
@pytest.mark.parametrize("case", LARGE)
def test_what_is_refused_is_refused_soon(case: str) -> None:
    made, read, most = LARGE[case]
    quarter = read // 4
    bodies = {size: made(size) for size in (quarter, 2 * quarter, read, most)}
    assert MAX_BATCH_BYTES / 2 < len(bodies[most]) <= MAX_BATCH_BYTES
    assert has_more_values(bodies[read], MAX_VALUES * 9 // 10)

    def refused(size: int) -> None:
        answer = ask("POST", "/tasks/batch", bodies[size])
        assert answer.status in ({413} if size == most else {400, 422})
        assert len(answer.text) < 50_000

    refused(most)
    refused(read)
    assert growth(refused, quarter) < LINEAR


def test_too_many_are_told_in_words_of_ours() -> None:
    assert wrong(ask("POST", "/tasks/batch", {"tasks": [1] * 1_001})) == {
        "tasks": "must have at most 1000 items, not 1001"
    }
    assert wrong(ask("POST", "/tasks/batch", {"tasks": 1})) == {"tasks": "must be a valid list"}
