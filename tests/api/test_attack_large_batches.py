"""Batches of the largest size: one that is rejected costs no more than one that is taken, in memory and in time."""

import json
import time
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest

from duecourse.api.request import MAX_BATCH_BYTES, MAX_VALUES, has_more_values
from duecourse.ledger.embedded.ledger import EmbeddedLedger
from duecourse.tasks.http import MAX_BATCH
from duecourse_local.harness.aws.events import HttpRequest, http_event
from duecourse_local.harness.aws.http_api import payload_of
from duecourse_local.harness.aws.invocation import MAX_SYNC_BYTES
from tests.support.requests import ask
from tests.support.wired import Wire

FITTING_BYTES = 3_000_000
"""Size of a body that every request may have, as the pages say: it fits into a Lambda event whatever its text."""

ROOM = MAX_BATCH_BYTES - 2_000
TWICE = '{"a":1,"a":2}'
URL = "https://hooks.example.com/orders"


def filled(item: str, size: int = ROOM) -> str:
    """Items with commas between them, as many as fit."""
    return ",".join([item] * (size // (len(item) + 1)))


def batch(inside: str, kind: str = "webhook") -> str:
    """A batch of one task whose payload has a list."""
    return f'{{"tasks":[{{"kind":"{kind}","payload":{{"url":"{URL}","body":[{inside}]}}}}]}}'


def tasks(task: dict[str, Any], last: dict[str, Any]) -> str:
    return json.dumps({"tasks": [task] * (MAX_BATCH - 1) + [last]}, separators=(",", ":"))


LARGE = {"kind": "webhook", "delay": 3_600, "payload": {"url": URL, "body": [{}] * 180}}
LONG = {"kind": "webhook", "delay": 3_600, "payload": {"url": URL, "body": "x" * 6_000}}
GOOD = [tasks(LARGE, LARGE), tasks(LONG, LONG)]
"""Batches that are taken: one of many values, one of long texts."""
REJECTED = {
    "objects": batch(filled("{}")),
    "lists": batch(filled("[]")),
    "members": batch(filled('{"a":1}')),
    "numbers": batch(filled("1")),
    "floats": batch(filled("1.5")),
    "texts": batch(filled('"ab"')),
    "texts with commas": batch(filled('",,"')),
    "one text": batch('"' + "\\u0001" * (ROOM // 6) + '"'),
    "quotes": batch('"' + '\\"' * (ROOM // 2)),
    "brackets": '{"tasks":' + "[" * ROOM,
    "tasks": f'{{"tasks":[{filled("{}")}]}}',
    "names": '{"tasks":[' + "{" + ",".join(f'"k{number}":1' for number in range(ROOM // 14)) + "}]}",
    "doubled names": f'{{"tasks":[{filled(TWICE)}]}}',
    "the last task": tasks(LARGE, {"kind": "webhook"}),
    "each task": tasks(LARGE | {"kind": "strange"}, LARGE | {"kind": "strange"}),
    "one payload": batch(filled("{}", MAX_VALUES)),
}


def peak_and_time(body: str) -> tuple[int, int, float]:
    """Status, and what a batch costs: the most memory that Python had for it, and the processor's seconds without that.

    The seconds are the best of two.
    """
    tracemalloc.start()
    try:
        status = ask("POST", "/tasks/batch", body).status
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    took = []
    for _ in range(2):
        began = time.thread_time()
        ask("POST", "/tasks/batch", body)
        took.append(time.thread_time() - began)
    return status, peak, min(took)


@pytest.fixture(scope="module")
def good() -> Callable[[], tuple[int, int, float]]:
    found: list[tuple[int, int, float]] = []

    def measure() -> tuple[int, int, float]:
        if not found:
            ask("POST", "/tasks/batch", GOOD[0])  # which loads what the first request loads
            statuses, peaks, seconds = zip(*map(peak_and_time, GOOD), strict=True)
            found.append((max(statuses), max(peaks), max(seconds)))
        return found[0]

    return measure


@pytest.mark.parametrize("body", REJECTED.values(), ids=REJECTED)
def test_a_batch_that_is_rejected_costs_no_more_than_one_that_is_taken(
    body: str, good: Callable[[], tuple[int, int, float]], ledger: EmbeddedLedger, wire: Wire
) -> None:
    wire(ledger=ledger)
    assert len(body) <= MAX_BATCH_BYTES
    taken, most_bytes, most_s = good()
    status, peak, took = peak_and_time(body)
    assert (taken, status in {400, 413, 422}) == (200, True)
    assert peak <= 1.2 * most_bytes
    assert took <= 1.5 * most_s


def test_wrong_fields_behind_the_first_hundred_are_not_looked_for(ledger: EmbeddedLedger, wire: Wire) -> None:
    wire(ledger=ledger)
    wrong = [{"kind": "webhook", "payload": {"url": 1}}] * 150
    answer = ask("POST", "/tasks/batch", {"tasks": wrong})
    assert [one["field"] for one in answer.body["errors"]][99:] == ["tasks.99.payload.url", "body"]
    assert answer.body["errors"][-1]["problem"] == "has more wrong fields"


@pytest.mark.parametrize(
    ("text", "values"),
    [("[1,2,3]", 3), ('{"a":[1,{"b":2}]}', 4), ('["a,b,[{","c\\",\\\\",","]', 3), ('["\\\\","\\\\\\",,"]', 2)],
)
def test_values_are_counted_and_texts_are_not(text: str, values: int) -> None:
    assert not has_more_values(text, values)
    assert has_more_values(text, values - 1)


@pytest.mark.parametrize("character", ['"', "\\", "\n", "é", "😀", "x"])
def test_a_batch_of_the_documented_size_fits_into_an_event_whatever_its_text(
    character: str, ledger: EmbeddedLedger, wire: Wire
) -> None:
    """Lambda counts the event, in which the body is a text: each quote and each backslash has a backslash before it."""
    wire(ledger=ledger)
    text = json.dumps(character, ensure_ascii=False)[1:-1]
    long = text * (200_000 // len(text.encode()))
    task = f'{{"kind":"webhook","delay":60,"payload":{{"url":"{URL}","body":"{long}"}}}}'
    count = FITTING_BYTES // (len(task.encode()) + 1)
    body = f'{{"tasks":[{",".join([task] * count)}]}}'
    assert 0 <= FITTING_BYTES - len(body.encode()) < 201_000
    assert ask("POST", "/tasks/batch", body).status == 200
    headers = [("content-type", "application/json"), ("x-long", "y" * 10_000)]  # the most that API Gateway takes
    request = HttpRequest("POST", "/tasks/batch", "", headers, body.encode(), "127.0.0.1", "HTTP/1.1")
    event = http_event(request, "POST /tasks/batch", {})
    room = FITTING_BYTES - len(body.encode())
    assert len(payload_of(event)) + 2 * room <= MAX_SYNC_BYTES
