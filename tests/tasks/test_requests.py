"""POST and PATCH /tasks: what is taken, and which field of what is refused."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

from duecourse.api.fields import field_errors
from duecourse.api.problems import BodyTooLarge, MalformedBody
from duecourse.api.request import parse_body
from duecourse.base.ids import ID_PATTERN
from duecourse.errors import InvalidInput
from duecourse.ledger.record import pack_rest
from duecourse.ledger.task import OnDuplicate, RetryPolicy, Run, Status
from duecourse.tasks.http import AddBatch, AddTask, MoveTask, show_task
from tests.support.clock import START
from tests.support.kinds import leased

WORK = {"kind": "report", "payload": {}}


def refused(model: type[BaseModel], body: dict[str, object]) -> dict[str, str]:
    """The problems by field."""
    with pytest.raises(ValidationError) as caught:
        model.model_validate(body)
    return {error.field: error.problem for error in field_errors(caught.value.errors())}


def test_a_task_needs_a_kind_and_a_payload_and_nothing_else() -> None:
    task = AddTask.model_validate(WORK).task()
    assert (task.kind, task.payload, task.queue, task.tenant) == ("report", "{}", "default", "-")
    assert (task.due_at, task.delay_ms, task.deadline_at, task.deadline_ms) == (None, 0, None, None)
    assert task.retry == RetryPolicy()
    assert task.on_duplicate is OnDuplicate.KEEP
    assert re.fullmatch(ID_PATTERN, task.id)
    assert task.id != AddTask.model_validate(WORK).task().id


def test_every_field_arrives_in_the_ledgers_units() -> None:
    retry = {"max_attempts": 3, "backoff": "PT2S", "factor": 3, "max_backoff": 60, "jitter": False}
    body = WORK | {"id": "a:1", "queue": "slow", "due_at": "2026-03-29T01:30:00+01:00", "retry": retry}
    body |= {"deadline": "PT1H", "on_duplicate": "debounce", "max_wait": "90"}
    task = AddTask.model_validate(body).task()
    assert (task.id, task.queue, task.due_at) == ("a:1", "slow", 1_774_744_200_000)
    assert task.retry == RetryPolicy(3, 2_000, 3.0, 60_000, False)
    assert (task.deadline_ms, task.max_wait_ms, task.on_duplicate) == (3_600_000, 90_000, OnDuplicate.DEBOUNCE)


@pytest.mark.parametrize("delay", [90, 90.0, "90", "PT90S", "PT1M30S"])
def test_a_delay_is_seconds_or_iso_8601(delay: object) -> None:
    assert AddTask.model_validate(WORK | {"delay": delay}).task().delay_ms == 90_000


def test_a_deadline_may_be_an_instant() -> None:
    task = AddTask.model_validate(WORK | {"deadline": "2026-03-29T01:30:00Z"}).task()
    assert (task.deadline_at, task.deadline_ms) == (1_774_747_800_000, None)


def test_every_wrong_field_is_named_at_once() -> None:
    body = {
        "id": "no spaces",
        "queue": "a/b",
        "kind": "x{y}",
        "payload": [],
        "due_at": "2026-03-29T01:30:00",
        "delay": [1],
        "retry": {"max_attempts": 0, "factor": 101, "backoff": "soon", "more": 1},
        "deadline": "whenever",
        "on_duplicate": "perhaps",
        "colour": "red",
    }
    problems = refused(AddTask, body)
    nested = {"retry.max_attempts", "retry.factor", "retry.backoff", "retry.more"}
    assert problems.keys() == (body.keys() - {"retry"}) | nested
    assert problems["colour"] == "is not a known field"
    assert problems["due_at"] == "must have an offset, such as Z or +02:00"


def test_missing_fields_are_named() -> None:
    assert refused(AddTask, {}) == {"kind": "is required", "payload": "is required"}


def test_due_at_and_delay_together_are_both_named() -> None:
    body = WORK | {"due_at": "2026-03-29T01:30:00Z", "delay": 5}
    assert refused(AddTask, body).keys() == {"due_at", "delay"}
    assert refused(MoveTask, {"due_at": "2026-03-29T01:30:00Z", "delay": 5}).keys() == {"due_at", "delay"}


def test_a_move_needs_a_due_time() -> None:
    assert refused(MoveTask, {"force": True}).keys() == {"due_at", "delay"}


@pytest.mark.parametrize("body", [{"delay": True}, {"delay": -1}, {"delay": "1e400"}, {"delay": None, "due_at": 5}])
def test_odd_due_times_are_refused(body: dict[str, object]) -> None:
    assert refused(AddTask, WORK | body)


def test_a_cap_below_the_first_backoff_is_refused() -> None:
    assert refused(AddTask, WORK | {"retry": {"backoff": "PT2H"}}) == {"retry.max_backoff": "must not be below backoff"}


@pytest.mark.parametrize("field", ["backoff", "max_backoff"])
def test_a_backoff_that_no_record_holds_is_named(field: str) -> None:
    longest = {"backoff": "P49D", "max_backoff": "P49D"}
    assert refused(AddTask, WORK | {"retry": longest | {field: "P50D"}}) == {
        f"retry.{field}": "must be between PT0S and P49D"
    }
    task = AddTask.model_validate(WORK | {"retry": longest}).task()
    assert pack_rest(task, bytes(8))


@pytest.mark.parametrize(
    ("field", "name", "trigger"),
    [("kind", "reminder", "/reminders"), ("queue", "reminders", "/reminders"), ("queue", "query:h", "/queries")],
)
def test_what_is_made_in_another_way_is_named_with_that_way(field: str, name: str, trigger: str) -> None:
    problem = refused(AddTask, WORK | {field: name})[field]
    assert f"POST {trigger}" in problem
    assert problem.endswith(f"choose another {field}")


def test_what_json_cannot_carry_is_refused() -> None:
    for value in (float("inf"), "\ud800"):
        assert "payload" in refused(AddTask, {"kind": "report", "payload": {"a": value}})


def test_a_payload_nests_a_hundred_deep_and_no_deeper() -> None:
    def nested(depth: int) -> dict[str, object]:
        return {} if depth == 0 else {"a": nested(depth - 1)}

    AddTask.model_validate({"kind": "report", "payload": nested(100)})
    assert "payload" in refused(AddTask, {"kind": "report", "payload": nested(101)})


@pytest.mark.slow
@given(
    st.dictionaries(st.text(max_size=8), st.recursive(st.integers() | st.text() | st.none(), st.lists, max_leaves=5))
)
def test_any_body_is_taken_or_refused_by_field(body: dict[str, object]) -> None:
    assert refused(AddTask, body).keys()


@pytest.mark.parametrize("text", ["", "{", "{'a': 1}", '{"a": NaN}', '{"a": Infinity}', "[" * 100_000, "9" * 5_000])
def test_what_is_not_json_is_malformed(text: str) -> None:
    with pytest.raises(MalformedBody):
        parse_body(text)


@pytest.mark.parametrize("text", ["[]", "null", "1", '"a"', '[{"kind": "report"}]'])
def test_a_body_is_an_object(text: str) -> None:
    with pytest.raises(InvalidInput):
        parse_body(text)


def test_a_body_may_be_256_kib_and_no_more() -> None:
    room = 256 * 1024 - len('{"a":""}')
    assert parse_body('{"a":"' + "x" * room + '"}')
    for longer in ("x" * (room + 1), "ü" * (room // 2 + 1)):
        with pytest.raises(BodyTooLarge):
            parse_body('{"a":"' + longer + '"}')


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ('{"delay": 1, "kind": "a", "delay": 1}', {"delay"}),
        ('{"kind": "report", "payload": {"rows": [{}, {"a": {"b": 1, "b": [], "b": 2}}]}}', {"payload.rows.1.a.b"}),
        ('{"payload": {"a": 1, "a": 1}, "payload": {}}', {"payload"}),
        ('{"a": {"": 1, "": 2}, "b": {"c": 1, "c": 2}}', {"a.", "b.c"}),
        ('{"id": 1, "\\u0069d": 2}', {"id"}),
        ('{"' + "x" * 900 + '": {"a": 1, "a": 2}}', {"x" * 200}),
    ],
)
def test_a_name_that_stands_twice_in_an_object_is_refused_by_name(text: str, named: set[str]) -> None:
    with pytest.raises(InvalidInput, match="stands twice in its object") as caught:
        parse_body(text)
    assert {problem.field for problem in caught.value.problems} == named


def test_of_many_doubled_names_a_hundred_are_told() -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_body('{"payload": [' + ",".join(['{"a": 1, "a": 2}'] * 10_000) + "]}")
    assert len(caught.value.problems) == 100


def test_a_task_is_shown_in_the_words_of_the_api() -> None:
    run = Run(run=1, fence=8, claimed_at=START, ended_at=START + 5, outcome="retry", detail="HTTP 500")
    expired = Run(run=1, fence=0, claimed_at=0, ended_at=START, outcome="expired")
    task = leased("report", {"a": 1}, status=Status.DONE, result_json='{"ok":true}', log=(run, expired))
    assert show_task(task) == {
        "id": "t-1",
        "queue": "default",
        "kind": "report",
        "state": "done",
        "due_at": "2026-09-21T14:13:20.000Z",
        "run": 1,
        "attempt": 1,
        "max_attempts": 10,
        "created_at": "2026-09-21T14:13:19.000Z",
        "payload": {"a": 1},
        "history": [
            {
                "run": 1,
                "outcome": "retry",
                "claimed_at": "2026-09-21T14:13:20.000Z",
                "ended_at": "2026-09-21T14:13:20.005Z",
                "detail": "HTTP 500",
            },
            {"run": 1, "outcome": "expired", "claimed_at": None, "ended_at": "2026-09-21T14:13:20.000Z"},
        ],
        "result": {"ok": True},
    }


def test_an_error_is_shown_once_there_is_one_and_a_result_even_if_it_is_null() -> None:
    failed = Run(run=1, fence=8, claimed_at=START, ended_at=START, outcome="drop", detail="no use")
    view = show_task(leased("report", {}, result_json="null", log=(failed,)))
    assert (view["error"], view["result"]) == ("no use", None)


def test_what_is_too_deep_for_the_answer_is_shown_as_its_text() -> None:
    deep = "[" * 300 + "]" * 300
    view = show_task(leased("report", {}, payload_json='{"a":1}', result_json=deep))
    assert (view["payload"], view["result"]) == ({"a": 1}, deep)


@pytest.mark.parametrize(("field", "most"), [("id", 128), ("queue", 64), ("kind", 64)])
def test_a_name_is_refused_in_words_and_not_by_a_pattern(field: str, most: int) -> None:
    wanted = {field: f"must be 1 to {most} characters of A-Z a-z 0-9 . _ : @ -"}
    assert refused(AddTask, WORK | {field: "a b"}) == wanted
    assert refused(AddTask, WORK | {field: "x" * (most + 1)}) == wanted


def test_a_task_cannot_take_the_place_of_a_reminders() -> None:
    assert set(refused(AddTask, WORK | {"queue": "reminders", "id": "standup:300:0"})) == {"queue"}


def test_a_refusal_is_not_many_times_the_size_of_what_it_refuses() -> None:
    problems = refused(AddBatch, {"tasks": [WORK | {f"field-{number}": 1 for number in range(20)}] * 250})
    assert len(problems) == 101
    assert problems["body"] == "has 4900 more wrong fields"
    assert refused(AddTask, WORK | {f"field-{number}": 1 for number in range(5_000)}) == {
        "body": "has 5002 fields; only 11 are known"
    }
    assert max(map(len, refused(AddTask, WORK | {"x" * 9_000: 1}))) == 200


def test_a_number_with_too_many_digits_is_refused_without_a_word_of_python() -> None:
    with pytest.raises(MalformedBody, match="holds a number with too many digits"):
        parse_body('{"delay": ' + "9" * 5_000 + "}")


def test_a_deadline_is_told_from_a_duration_by_its_year() -> None:
    assert AddTask.model_validate(WORK | {"deadline": "2026-03-29t01:30:00z"}).task().deadline_at == 1_774_747_800_000
    assert refused(AddTask, WORK | {"deadline": "2026-03-29"}) == {
        "deadline": "must have an offset, such as Z or +02:00"
    }
    assert set(refused(AddTask, WORK | {"deadline": "tomorrow"}).values()) == {
        "must be a duration such as 5m, PT5M or 300 (seconds), or an RFC 3339 instant"
    }
