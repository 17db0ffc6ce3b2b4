"""Fields that plain values describe: requests, changes, answers and the client follow from them."""

from enum import StrEnum
from typing import Annotated, Any

import pytest

from duecourse.api.derived_models import (
    Derived,
    api_fields,
    asked,
    changed,
    read_fields,
    show_fields,
    shown,
    with_fields,
)
from duecourse.api.fields import read
from duecourse.base.described_fields import About, fields_of
from duecourse.base.value_classes import value
from duecourse.client.typed_dicts import KindFields, ReminderChanges, ReminderFields, ScheduleChanges, ScheduleFields
from duecourse.errors import InvalidInput
from duecourse.ledger.reminder import Series
from duecourse.ledger.schedule import Rule, Schedule
from duecourse.ledger.task import NewTask
from duecourse.reminders.http import AddReminder, ChangeReminder
from duecourse.schedules.http import AddSchedule, ChangeSchedule, ScheduleView
from duecourse.tasks.fast_parse import FIELD_READERS
from duecourse.tasks.http import AddTask
from duecourse_local.cli.schedule_diff import COMPARED


class Colour(StrEnum):
    """Colour of a kettle."""

    RED = "red"
    BLUE = "blue"


@value
class Kettle:
    """Value with a field of each type."""

    serial: int
    size: Annotated[int | None, About("Size.", asked="Size, 1 to 3.", changed="New size.", low=1, high=3)] = None
    wait_ms: Annotated[int, About("Wait.", high=60_000)] = 5_000
    colour: Annotated[Colour, About("Colour.", name="color")] = Colour.RED
    is_on: Annotated[bool, About("True while it boils.")] = False


FIELDS = api_fields(Kettle).values()


@with_fields(asked(FIELDS))
class AddKettle(Derived):
    """Body of an add."""


@with_fields(changed(FIELDS))
class ChangeKettle(Derived):
    """Body of a change."""


def described(*owners: Any) -> set[str]:
    return {one.name for owner in owners for one in fields_of(owner)}


def test_a_request_has_the_described_fields_with_their_bounds_and_defaults() -> None:
    schema = AddKettle.model_json_schema()["properties"]
    assert list(schema) == ["size", "wait", "color", "is_on"]
    assert (schema["size"]["description"], schema["wait"]["default"]) == ("Size, 1 to 3.", "PT5S")
    assert read_fields(FIELDS, read(AddKettle, {"size": 2, "color": "blue"})) == {
        "size": 2,
        "wait_ms": 5_000,
        "colour": Colour.BLUE,
        "is_on": False,
    }


@pytest.mark.parametrize(
    ("field", "wrong"), [("size", 4), ("wait", "PT2M"), ("color", "green"), ("color", [1]), ("is_on", 1)]
)
def test_a_value_beyond_its_description_is_rejected(field: str, wrong: Any) -> None:
    for model in (AddKettle, ChangeKettle):
        with pytest.raises(InvalidInput, match=f"^{field}: "):
            read(model, {field: wrong})


def test_a_change_reads_the_given_fields_and_takes_null_where_there_may_be_none() -> None:
    request = read(ChangeKettle, {"size": None, "wait": "PT1S"})
    assert read_fields(FIELDS, request, given=request.model_fields_set) == {"size": None, "wait_ms": 1_000}
    assert ChangeKettle.model_json_schema()["properties"]["size"]["description"] == "New size."
    with pytest.raises(InvalidInput, match=r"^wait: "):
        read(ChangeKettle, {"wait": None})


def test_an_answer_leaves_out_what_has_no_value() -> None:
    assert show_fields(FIELDS, Kettle(7)) == {"wait": "PT5S", "color": "red", "is_on": False}
    assert show_fields(FIELDS, Kettle(7, 2))["size"] == 2
    assert shown(FIELDS).keys() == {"size", "wait", "color", "is_on"}


def test_each_described_field_of_a_schedule_is_wherever_callers_look() -> None:
    names = described(Rule, Schedule)
    for known in (AddSchedule.model_fields, ChangeSchedule.model_fields, ScheduleView.__annotations__, COMPARED):
        assert names <= set(known)
    assert names <= ScheduleFields.__annotations__.keys() & ScheduleChanges.__annotations__.keys()


def test_each_described_field_of_a_task_and_a_reminder_is_wherever_callers_look() -> None:
    assert described(NewTask) - {"payload"} <= KindFields.__annotations__.keys()
    assert described(NewTask) <= AddTask.model_fields.keys() & FIELD_READERS.keys()
    names = described(Rule, Series)
    for model, typed in ((AddReminder, ReminderFields), (ChangeReminder, ReminderChanges)):
        assert names <= model.model_fields.keys() & typed.__annotations__.keys()
