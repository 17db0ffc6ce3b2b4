"""Reading tasks past the model: whatever is taken is what the model would have made, and the rest is left to it."""

from collections import OrderedDict
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter

from duecourse.api.fields import read
from duecourse.base.json_text import MAX_DEPTH
from duecourse.errors import InvalidInput
from duecourse.ledger.task import MAX_PAYLOAD_BYTES, NewTask, OnDuplicate
from duecourse.tasks.fast_parse import (
    FIELD_READERS,
    BatchBody,
    TaskBody,
    parse_fast,
    read_task,
    read_tasks,
)
from duecourse.tasks.http import MAX_BATCH, AddBatch, AddTask
from duecourse.tasks.routes import assign_tenant

WEBHOOK = {"url": "https://hooks.example.com/orders", "body": {"order": 7}}
POLL = {"url": "https://api.example.com/exports/42", "interval": "PT30S", "until": "state == 'done'"}
USUAL: dict[str, dict[str, Any]] = {
    "as little as can be": {"kind": "report", "payload": {}},
    "an id and a queue": {"id": "order-7", "queue": "mail", "kind": "report", "payload": {"a": [1, {"b": None}]}},
    "a delay in words": {"kind": "report", "payload": {}, "delay": "PT10M"},
    "a delay in seconds": {"kind": "report", "payload": {}, "delay": 1.5},
    "a delay of Python's": {"kind": "report", "payload": {}, "delay": timedelta(minutes=1)},
    "an instant": {"kind": "report", "payload": {}, "due_at": "2026-03-29T01:30:00+02:00"},
    "an instant of Python's": {"kind": "report", "payload": {}, "due_at": datetime(2030, 1, 1, tzinfo=UTC)},
    "a deadline": {"kind": "report", "payload": {}, "deadline": "PT24H"},
    "a deadline at an instant": {"kind": "report", "payload": {}, "deadline": "2030-01-01T00:00:00Z"},
    "a policy": {"kind": "report", "payload": {}, "retry": {"max_attempts": 3, "backoff": "PT5S", "jitter": False}},
    "a duplicate": {"id": "a", "kind": "report", "payload": {}, "on_duplicate": "debounce", "max_wait": "PT5M"},
    "a notification": {"kind": "report", "payload": {}, "notify_done": {"target": "audit"}},
    "a webhook": {"kind": "webhook", "payload": WEBHOOK},
    "a poll": {"kind": "poll", "payload": POLL},
    "text of many scripts": {"kind": "report", "payload": {"ключ": "значение 🙂"}},
    "nulls": {"kind": "report", "payload": {}, "due_at": None, "delay": None, "deadline": None, "notify_done": None},
}


def deep(levels: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(levels - 1):
        value = {"a": value}
    return value


class Text(str):
    """Text, and yet not quite."""


ODD: list[Any] = [
    None, True, False, 0, 1, -1, 1.0, 2.0, 1e300, float("nan"), float("inf"), 10**30, "", "a", "a\n", "a b", "é",
    "\ud800", "reminder", "reminders", "query:x", "default", "PT1H", "PT0S", "P1Y", "5", "-1", "2026-03-29T01:30:00Z",
    "2026-03-29", "keep", "debounce", "KEEP", OnDuplicate.REPLACE, Text("report"), b"report", [], [1], (), {}, {"a": 1},
    {1: 2},
    {"a": float("nan")}, {"a": "\ud800"}, {"\ud800": 1}, {"a": {1: 2}}, {"a": {(1, 2): 3}}, {"a": {1, 2}},
    {Text("a"): 1},
    {"a": "x" * MAX_PAYLOAD_BYTES}, {"a": "é" * (MAX_PAYLOAD_BYTES // 2)}, {"a": "{" * 2 * MAX_DEPTH},
    {"a": "x" * (MAX_PAYLOAD_BYTES - len('{"a":""}'))}, deep(MAX_DEPTH), deep(MAX_DEPTH + 1), deep(2_000),
    timedelta(seconds=1), timedelta(seconds=-1), datetime(2030, 1, 1), datetime(2030, 1, 1, tzinfo=UTC), WEBHOOK, POLL,
    {**WEBHOOK, "method": "PUSH"}, {**POLL, "until": "("}, {"url": "https://example.com"}, {"target": "audit"},
    {"url": "https://example.com", "target": "audit"}, {"target": None}, {"max_attempts": 1}, {"max_attempts": True},
    {"max_attempts": 1.0}, {"factor": 1}, {"factor": True}, {"factor": float("nan")}, {"jitter": 1}, {"jitter": True},
    {"backoff": "PT2H"}, {"backoff": 5, "max_backoff": 4}, {"backoff": timedelta(seconds=1)}, {"backof": 1}, {1: 1},
]  # fmt: skip
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inside: st.lists(inside, max_size=3) | st.dictionaries(st.text(), inside, max_size=3),
    max_leaves=8,
)
VALUE = st.sampled_from(ODD) | JSON
FIELDS = st.fixed_dictionaries(
    {},
    optional={
        name: st.sampled_from([f[name] for f in USUAL.values() if name in f]) | VALUE for name in AddTask.model_fields
    },
)
STRANGE = st.dictionaries(st.sampled_from([*AddTask.model_fields, "knd", "due-at", "\ud800"]) | st.integers(), VALUE)


def by_the_model(fields: Any) -> NewTask | None:
    try:
        return read(AddTask, fields).task()
    except InvalidInput:
        return None


def check(fields: Any) -> None:
    told = parse_fast(fields)
    if told is not None:
        made = by_the_model(fields)
        assert made is not None
        assert told == made._replace(id=told.id if "id" not in fields else made.id)
        assert [type(one) for one in told] == [type(one) for one in made]


def test_every_field_of_the_model_is_read() -> None:
    """One that is not leaves each task that has it to the model: right, and six times as slow."""
    assert AddTask.model_fields.keys() == FIELD_READERS.keys()


@pytest.mark.parametrize("fields", USUAL.values(), ids=USUAL)
def test_what_is_usual_needs_no_model(fields: dict[str, Any]) -> None:
    assert parse_fast(fields) is not None
    check(fields)


@pytest.mark.parametrize("base", [USUAL["a duplicate"], USUAL["a webhook"], USUAL["nulls"]])
@pytest.mark.parametrize("name", [*AddTask.model_fields, "stranger"])
def test_each_field_with_each_odd_value_is_left_to_the_model_or_read_as_it_does(
    base: dict[str, Any], name: str
) -> None:
    check({key: value for key, value in base.items() if key != name})
    for value in ODD:
        check({**base, name: value})


@pytest.mark.slow
@settings(max_examples=400, deadline=None)
@given(FIELDS.map(lambda fields: {"kind": "report", "payload": {}, **fields}) | FIELDS | STRANGE | VALUE)
def test_whatever_is_taken_is_what_the_model_makes(fields: Any) -> None:
    check(fields)


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(st.lists(st.sampled_from(list(USUAL.values())) | FIELDS, max_size=4))
def test_a_batch_is_read_as_the_model_reads_it_and_refused_in_the_same_words(tasks: list[Any]) -> None:
    def answer(read_it: Any) -> Any:
        try:
            return [task._replace(id="") if task.id not in ids else task for task in read_it()]
        except InvalidInput as error:
            return error.problems

    ids = {fields["id"] for fields in tasks if isinstance(fields.get("id"), str)}
    assert answer(lambda: read_tasks({"tasks": tasks})) == answer(lambda: read(AddBatch, {"tasks": tasks}).new_tasks())
    for fields in tasks:
        assert answer(lambda: [read_task(fields)]) == answer(lambda: [read(AddTask, fields).task()])  # noqa: B023


@pytest.mark.parametrize("shape", [dict, OrderedDict])
@pytest.mark.parametrize("kind", ["report", Text("report")], ids=["past the model", "by the model"])
def test_a_body_without_an_id_has_one_of_its_request_however_it_is_read(kind: str, shape: type) -> None:
    fields, names = {"kind": kind, "payload": {}}, map(str, count())
    asked = TypeAdapter(TaskBody).validate_python(fields)
    assert assign_tenant(asked, "acme", names.__next__).id == "0"
    batch = TypeAdapter(BatchBody).validate_python(shape({"tasks": [fields, fields | {"id": "own"}, fields]}))
    mine = [assign_tenant(task, "acme", names.__next__) for task in batch]
    assert [(task.id, task.tenant) for task in mine] == [("1", "acme"), ("own", "acme"), ("2", "acme")]


@pytest.mark.parametrize(
    "batch",
    [None, [], {}, {"tasks": []}, {"tasks": {}}, {"tasks": None}, {"tasks": [None]}, {"tasks": [], "more": 1},
     {"tasks": [{"kind": "report", "payload": {}}] * (MAX_BATCH + 1)}],
)  # fmt: skip
def test_a_batch_of_another_shape_is_left_to_the_model(batch: Any) -> None:
    with pytest.raises(InvalidInput) as told:
        read(AddBatch, batch)
    with pytest.raises(InvalidInput) as refused:
        read_tasks(batch)
    assert refused.value.problems == told.value.problems


@pytest.mark.parametrize("name", AddTask.model_fields)
def test_what_nests_deep_is_refused_by_name_wherever_it_stands(name: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        read_task({"kind": "report", "payload": {}, name: deep(2_000)})
    assert {problem.field.split(".")[0] for problem in refused.value.problems} == {name}


def test_a_payload_that_holds_itself_is_left_to_the_model() -> None:
    payload: dict[str, Any] = {}
    payload["a"] = payload
    assert parse_fast({"kind": "report", "payload": payload}) is None
