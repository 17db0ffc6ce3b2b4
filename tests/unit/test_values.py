"""Values that callers get: frozen, equal to their own kind alone, shown in few words and without credentials."""

import copy
import pickle
from dataclasses import FrozenInstanceError, fields, is_dataclass, replace
from typing import Any

import pytest

from duecourse.client import Listed, Many
from duecourse.domain.history import Action, Change, Run
from duecourse.domain.order import AddResult
from duecourse.domain.outcomes import Again, Done, Drop, Retry
from duecourse.domain.query import Known, QueryState, QueryStatus
from duecourse.domain.queues import QueueSettings, QueueStatus, Rate, ShardStatus
from duecourse.domain.reminder import Channel, Recipient
from duecourse.domain.reminder_status import Made, Moved, MovedTask, ReminderStatus, Shown
from duecourse.domain.replay import Replayed
from duecourse.domain.task import DueTask, RetryPolicy, Status, Task
from duecourse.domain.timeline import Happened, Waiting, Why
from duecourse.domain.times import format_instant
from duecourse.domain.values import maker, replaced
from duecourse.errors import FieldError, Part
from tests.support.clock import START
from tests.support.kinds import leased

SECRET = "hunter2-9f2e"
RUN = Run(1, 7, START, START, "retry", "no answer")
TASK = replace(leased("report", {"password": SECRET}), id="report-42", state_json=f'"{SECRET}"', log=(RUN,))
HOOK = Recipient("Ada", Channel.WEBHOOK, f"https://ada:{SECRET}@example.com/?key={SECRET}")
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
    Listed([TASK], None),
    Many(3, None),
    SETTINGS,
    Rate(1, 60_000),
    ShardStatus(0, 1, SETTINGS),
    QueueStatus("default", SETTINGS, 1, 2, 3, 4, 0, None, None, []),
    Known({"token": SECRET}, START),
    QueryStatus("q-1@host", "query:host", QueryState.DONE, Known({"token": SECRET}, START)),
    HOOK,
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
def test_a_value_is_frozen_and_equal_to_its_own_kind_alone(value: Any) -> None:
    assert is_dataclass(value)
    assert not hasattr(value, "__dict__")
    assert value == copy.copy(value)
    assert value != tuple_of(value)
    assert [other for other in VALUES if other == value] == [value]
    with pytest.raises(FrozenInstanceError):
        setattr(value, fields(value)[0].name, "other")
    with pytest.raises(FrozenInstanceError):
        delattr(value, fields(value)[0].name)
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
    assert repr(Listed([TASK, TASK], None)) == "Listed(tasks=<2 tasks>)"
    assert repr(Made(False, [])) == "Made(created=False)"
    assert repr(SETTINGS) == "QueueSettings(paused=True, rate=Rate(most=100, per_ms=60000))"


@pytest.mark.parametrize("kind", [Task, Run, Change])
def test_what_is_made_quickly_is_as_it_would_be_made_by_its_class(kind: Any) -> None:
    usual = next(value for value in VALUES if type(value) is kind)
    quick = maker(kind)(*tuple_of(usual))
    assert (quick, type(quick), hash(quick), repr(quick)) == (usual, kind, hash(usual), repr(usual))
    with pytest.raises(FrozenInstanceError):
        setattr(quick, fields(kind)[0].name, 5)


def test_a_value_has_no_fields_but_its_own() -> None:
    with pytest.raises(FrozenInstanceError, match="colour"):
        TASK.colour = "red"
    with pytest.raises(TypeError, match="id"):
        DueTask()
    assert DueTask("a", 1) in {DueTask("a", 1)}


def test_a_field_with_a_default_may_be_left_out_of_what_is_made_quickly() -> None:
    assert maker(Run)(1, 7, START, START, "retry", detail="no answer") == RUN
    with pytest.raises(TypeError, match="outcome"):
        maker(Run)(1, 7, START, START)


def test_a_value_is_altered_as_dataclasses_would() -> None:
    assert replaced(TASK, run=9, token="ab") == replace(TASK, run=9, token="ab")
    assert type(replaced(TASK, run=9)) is Task
    with pytest.raises(KeyError):
        replaced(TASK, colour="red")
