"""Public names of the package: all that callers are given can be imported from `duecourse`."""

import dataclasses
import enum
import inspect
import subprocess
import sys
import typing
from collections.abc import Iterator
from typing import Any

import pytest

import duecourse
import duecourse.testing

VERBS = [
    member
    for kind in (duecourse.Client, duecourse.ReminderClient, duecourse.ScheduleClient)
    for name, member in inspect.getmembers(kind, inspect.isfunction)
    if not name.startswith("_")
]


def types_in(annotation: Any) -> Iterator[type]:
    """The classes that an annotation names, and those of the fields of the ones that are ours."""
    for inside in typing.get_args(annotation):
        yield from types_in(inside)
    if isinstance(annotation, type) and annotation.__module__.startswith("duecourse"):
        yield annotation
        if dataclasses.is_dataclass(annotation):
            for one in typing.get_type_hints(annotation).values():
                yield from types_in(one)


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb.__qualname__)
def test_all_that_a_verb_answers_can_be_imported_from_the_package(verb: Any) -> None:
    answered = set(types_in(typing.get_type_hints(verb)["return"]))
    missing = {one for one in answered if getattr(duecourse, one.__name__, None) is not one}
    assert {one for one in missing if not issubclass(one, duecourse.errors.DuecourseError)} == set()
    for one in answered:
        is_value = dataclasses.is_dataclass(one) or issubclass(one, enum.Enum | Exception)
        assert is_value or one is duecourse.Lost, one


@pytest.mark.parametrize("name", duecourse.__all__)
def test_a_public_name_is_there_and_listed(name: str) -> None:
    assert getattr(duecourse, name) is not None
    assert name in dir(duecourse)


@pytest.mark.parametrize("name", duecourse.testing.__all__)
def test_a_public_name_of_the_test_kit_is_there(name: str) -> None:
    assert getattr(duecourse.testing, name) is not None


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Colour'"):
        _ = duecourse.Colour


def test_all_public_names_can_be_imported_at_once_in_a_fresh_process() -> None:
    code = "from duecourse import *; print(Client.__name__, errors.TaskDead.__name__, Why.__name__)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["Client", "TaskDead", "Why"]
