"""Values that callers get: equal to their own kind alone, shown in few words and without credentials."""

import copy
import pickle
from dataclasses import fields, is_dataclass, replace
from typing import Any

import pytest

from duecourse.base.times import format_instant
from duecourse.base.value_classes import as_dict
from duecourse.client.client import Listed, Many
from duecourse.errors import FieldError, Part
from duecourse.ledger.api_query import Known, QueryState, QueryStatus
from duecourse.ledger.many_tasks import Replayed
from duecourse.ledger.queue import QueueSettings, QueueStatus, Rate, ShardStatus
from duecourse.ledger.reminder import (
    Channel,
    Made,
    Moved,
    MovedTask,
    Recipient,
    Reminder,
    ReminderStatus,
    Series,
    Shown,
)
from duecourse.ledger.schedule import Every, Rule
from duecourse.ledger.task import (
    Action,
    AddResult,
    Again,
    Change,
    Done,
    Drop,
    DueTask,
    NewTask,
    Retry,
    RetryPolicy,
    Run,
    Status,
)
from duecourse.ledger.timeline import Happened, Waiting, Why
from tests.support.clock import START
from tests.support.kinds import leased

SECRET = "hunter2-9f2e"
RUN = Run(1, 7, START, START, "retry", "no answer")
TASK = replace(leased("report", {"password": SECRET}), id="report-42", state_json=f'"{SECRET}"', log=(RUN,))
HOOK = Recipient("Ada", Channel.WEBHOOK, f"https://ada:{SECRET}@example.com/?key={SECRET}")
MEETING = Reminder("standup", "Stand-up", (60_000,), (HOOK,), SECRET, starts_at=START)
WEEKLY = Series("standup", "Stand-up", (60_000,), (HOOK,), SECRET, rule=Rule(Every(60_000), START))
SETTINGS = QueueSettings(paused=True, rate=Rate(100, 60_000))
VALUES: list[Any] = [
    Done({"pages": 3}),
    Again(5),
    Retry(5),
    Drop("gone"),
    TASK,
    RUN,
    Change(START, Action.MOVED, "http", START, START),
    RetryPolicy(),
    DueTask("a", START),
    AddResult(TASK, True),
    AddResult.deferred(AddResult(replace(TASK, id="report-43"), False), created=True),
    Listed([TASK], None),
    Many(3, None),
    SETTINGS,
    Rate(1, 60_000),
    ShardStatus(0, 1, SETTINGS),
    QueueStatus("default", SETTINGS, 1, 2, 3, 4, 0, None, None, []),
    Known({"token": SECRET}, START),
    QueryStatus("q-1@host", "query:host", QueryState.DONE, Known({"token": SECRET}, START)),
    HOOK,
    MEETING,
    WEEKLY,
    Made(True, [DueTask("a", START)]),
    MovedTask("a", START, Status.DONE),
    Moved("a", START, [MovedTask("a", START, Status.DONE)], [], []),
    Shown("a", START, 60_000, HOOK, "Stand-up", SECRET, SECRET),
    ReminderStatus("standup", START, [TASK], {"message": SECRET}),
    Replayed([DueTask("a", START)], False),
    Happened(START, "retry", "Failed: no answer."),
    Waiting("nothing", "It is done."),
    Why(TASK, [Happened(START, "retry", "Failed: no answer.")], Waiting("nothing", "It is done.")),
    FieldError("kind", "is unknown"),
    Part("a", True),
]
each_value = pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)


def tuple_of(value: Any) -> tuple[Any, ...]:
    return tuple(getattr(value, one.name) for one in fields(value))


@each_value
def test_a_value_is_equal_to_its_own_kind_alone(value: Any) -> None:
    assert is_dataclass(value)
    assert not hasattr(value, "__dict__")
    assert value == copy.copy(value)
    assert value != tuple_of(value)
    assert [other for other in VALUES if other == value] == [value]
    with pytest.raises(TypeError):
        iter(value)


@each_value
def test_a_value_is_shown_in_few_words_without_credentials_and_payloads(value: Any) -> None:
    shown = repr(value)
    assert shown.startswith(f"{type(value).__name__}(")
    assert len(shown) <= 250
    assert SECRET not in shown


@each_value
def test_a_value_goes_to_another_process_and_back(value: Any) -> None:
    assert pickle.loads(pickle.dumps(value)) == value  # noqa: S301 - a value of our own


def test_a_task_is_shown_by_what_tells_it_from_others() -> None:
    known = (
        f"Task(id='report-42', kind='report', queue='default', status=done, due_at={format_instant(START)}, attempt=1)"
    )
    assert repr(replace(TASK, status=Status.DONE, due_at=START)) == known
    assert "error='no answer'" in repr(TASK)
    assert repr(NewTask("a", "report", '{"card": 4111}')) == "NewTask(id='a', kind='report', queue='default')"
    assert repr(Listed([TASK, TASK], None)) == "Listed(tasks=<2 tasks>)"
    assert repr(Made(False, [])) == "Made(created=False)"
    assert repr(SETTINGS) == "QueueSettings(paused=True, rate=Rate(most=100, per_ms=60000))"


@pytest.mark.parametrize("value", [TASK, RUN, SETTINGS, HOOK], ids=lambda value: type(value).__name__)
def test_equal_values_are_one_key_and_an_altered_one_is_another(value: Any) -> None:
    name = fields(value)[0].name
    assert {value, copy.copy(value)} == {value}
    assert value != replace(value, **{name: "other"})


@pytest.mark.parametrize(("value", "own"), [(MEETING, {"starts_at": START + 1}), (WEEKLY, {"limit": 7})])
def test_a_value_has_the_fields_of_the_one_it_extends(value: Any, own: dict[str, Any]) -> None:
    assert as_dict(value).keys() == {one.name for one in fields(value)} > {"subject", *own}
    for change in ({"subject": "Other"}, own):
        assert value != replace(value, **change)
        assert hash(value) != hash(replace(value, **change))


def test_a_value_has_no_fields_but_its_own() -> None:
    with pytest.raises(AttributeError, match="colour"):
        TASK.colour = "red"
    with pytest.raises(TypeError, match="colour"):
        replace(TASK, colour="red")
    with pytest.raises(TypeError, match="id"):
        DueTask()
