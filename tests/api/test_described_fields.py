"""Fields that plain values describe: requests, changes, answers and the client follow from them."""

import ast
import inspect
from collections.abc import Iterator
from enum import StrEnum
from types import ModuleType, SimpleNamespace
from typing import Annotated, Any, NamedTuple, get_args, get_type_hints

import pytest
from pydantic import BaseModel

from duecourse.api.derived_models import (
    Change,
    Form,
    VersionedChange,
    api_fields,
    asked,
    changed,
    changed_if_version,
    read_fields,
    show_fields,
    shown,
    with_fields,
)
from duecourse.api.fields import JsonObject, Strict, read
from duecourse.base.described_fields import About, fields_of
from duecourse.base.value_classes import value
from duecourse.client.typed_dicts import KindFields, ReminderChanges, ReminderFields, ScheduleChanges, ScheduleFields
from duecourse.errors import InvalidInput
from duecourse.ledger.reminder import Series
from duecourse.ledger.schedule import Rule, Schedule
from duecourse.ledger.task import NewTask
from duecourse.queues import http as queues_http
from duecourse.queues.http import SetQueue
from duecourse.reminders import http as reminders_http
from duecourse.reminders.http import AddReminder, ChangeReminder
from duecourse.schedules import http as schedules_http
from duecourse.schedules.http import AddSchedule, ChangeSchedule, ScheduleView
from duecourse.tasks import http as tasks_http
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
class AddKettle(Strict):
    """Body of an add."""


@with_fields(changed(FIELDS))
class ChangeKettle(Change):
    """Body of a change."""


class Lid(NamedTuple):
    """Value with a field that has no default."""

    shape: Annotated[str, About("Shape.")]
    weight: Annotated[int, About("Weight.", high=9)] = 1


LID = api_fields(Lid, shape=Form(JsonObject, Any, unset=None)).values()


@with_fields(changed_if_version("the lid", LID))
class ChangeLid(VersionedChange):
    """Body of a change of one version."""


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
    assert request.read_given(FIELDS) == {"size": None, "wait_ms": 1_000}
    assert ChangeKettle.model_json_schema()["properties"]["size"]["description"] == "New size."
    with pytest.raises(InvalidInput, match=r"^wait: "):
        read(ChangeKettle, {"wait": None})


def test_a_change_of_a_version_needs_a_field_beside_the_version() -> None:
    request = read(ChangeLid, {"weight": 2, "if_version": 7})
    assert (request.named, request.if_version, request.read_given(LID)) == (("weight",), 7, {"weight": 2})
    schema = ChangeLid.model_json_schema()["properties"]
    assert list(schema) == ["if_version", "shape", "weight"]
    assert schema["if_version"]["description"].startswith("Version that the lid must have")
    for empty in ({}, {"if_version": 7}):
        with pytest.raises(InvalidInput, match="needs a field to change"):
            read(ChangeLid, empty)


def test_a_change_takes_no_null_for_an_object_without_a_default() -> None:
    for wrong in ({"shape": None}, {"shape": None, "weight": 2}):
        with pytest.raises(InvalidInput, match=r"^shape: must be a JSON object$"):
            read(ChangeLid, wrong)


@pytest.mark.parametrize("model", [ChangeSchedule, ChangeReminder])
def test_no_change_takes_the_rule_away(model: type[VersionedChange]) -> None:
    with pytest.raises(InvalidInput, match=r"^repeat: must be a JSON object$"):
        read(model, {"repeat": None, "if_version": 1})


def test_mypy_is_told_the_types_that_derived_fields_have() -> None:
    checked = set()
    for module in (tasks_http, schedules_http, reminders_http, queues_http):
        for model, told in told_to_mypy(module):
            added = {name: model.model_fields[name].annotation for name in told}
            assert types_of(told, module) == types_of(added, module), model
            checked.add(model)
    assert checked >= {AddTask, AddReminder, SetQueue}


def told_to_mypy(module: ModuleType) -> Iterator[tuple[type[BaseModel], dict[str, str]]]:
    """Each model of a module that states fields under TYPE_CHECKING, and their types as text."""
    for node in ast.parse(inspect.getsource(module)).body:
        blocks = [one.body for one in getattr(node, "body", ()) if isinstance(one, ast.If)]
        told = [one for block in blocks for one in block if isinstance(one, ast.AnnAssign)]
        if isinstance(node, ast.ClassDef) and told:
            yield getattr(module, node.name), {ast.unparse(one.target): ast.unparse(one.annotation) for one in told}


def types_of(annotations: dict[str, Any], module: ModuleType) -> dict[str, Any]:
    """Types without what else is annotated, at any depth."""
    return get_type_hints(SimpleNamespace(__annotations__=annotations), vars(module))


def test_an_answer_has_null_where_its_form_shows_it() -> None:
    fields = [one._replace(form=one.form._replace(unset=None, shows_null=True)) for one in FIELDS]
    assert show_fields(fields, Kettle(7)) == {"size": None, "wait": "PT5S", "color": "red", "is_on": False}
    [kind, about] = get_args(shown(fields)["size"])
    assert (kind, about.examples) == (int | None, [None])
    assert read(with_fields(changed(fields))(ChangeKettle), {"wait": None}).read_given(fields) == {"wait_ms": None}


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
