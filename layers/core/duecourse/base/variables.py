"""Texts of environment variables, read without pydantic: every function reads its settings at a cold start.

A reader takes the text and returns its value. A wrong text raises ValueError with a text fit for a user, or
InvalidInput if the reader can name the part that is wrong.
"""

import re
from collections.abc import Callable
from math import isfinite
from typing import TypeVar

from duecourse.base import json_text
from duecourse.base.ids import NAME_PATTERN
from duecourse.base.json_text import Json
from duecourse.base.times import format_duration, parse_duration
from duecourse.errors import FieldError, InvalidInput

T = TypeVar("T")

NUMBER = re.compile(r"\s*([+-]?[0-9]+(?:_[0-9]+)*)(?:\.0+)?\s*")
NOT_A_NUMBER = "must be a valid integer, unable to parse string as an integer"
NAME = re.compile(NAME_PATTERN)
WRONG_NAME = "must be 1 to 64 characters of A-Z a-z 0-9 . _ : @ -"


def number(least: int, most: int) -> Callable[[Json], int]:
    """A whole number within bounds, as text or as JSON has it."""

    def read(value: Json) -> int:
        found = _whole(value)
        if found < least:
            raise ValueError(f"must be greater than or equal to {least}")
        if found > most:
            raise ValueError(f"must be less than or equal to {most}")
        return found

    return read


def _whole(value: Json) -> int:
    if isinstance(value, str):
        match = NUMBER.fullmatch(value)
        if not match or len(value) > 100:
            raise ValueError(NOT_A_NUMBER)
        return int(match[1])
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError("must be a valid integer")  # noqa: TRY004 - a wrong value, to its reader
    if not isfinite(value):
        raise ValueError("must be a finite number")
    if value % 1:
        raise ValueError("must be a valid integer, got a number with a fractional part")
    return int(value)


def duration(least_ms: int = 0) -> Callable[[str], int]:
    """Milliseconds of a duration, of so many at least."""

    def read(value: str) -> int:
        found = parse_duration(value)
        if found < least_ms:
            raise ValueError(f"must be at least {format_duration(least_ms)}")
        return found

    return read


def off_or_duration(value: str) -> int:
    """Milliseconds of a duration; 0 for an empty text."""
    return parse_duration(value) if value else 0


def written_as(pattern: re.Pattern[str], problem: str) -> Callable[[str], str]:
    """Text that the whole of `pattern` fits, and what to say of any other."""

    def read(value: str) -> str:
        if not pattern.fullmatch(value):
            raise ValueError(problem)
        return value

    return read


read_name = written_as(NAME, WRONG_NAME)
on_or_off = written_as(re.compile("on|off"), "must be 'on' or 'off'")


def json_such_as(example: str, read_value: Callable[[Json], T]) -> Callable[[str], T]:
    """A reader of JSON text, whose value `read_value` takes; a name that occurs twice in one object is an error."""

    def read(value: str) -> T:
        try:
            found, twice = json_text.load(value)
        except (ValueError, RecursionError):
            raise ValueError(f"must be JSON such as {example}") from None
        if twice:
            raise InvalidInput(twice)
        return read_value(found)

    return read


def table_of(read_value: Callable[[Json], T]) -> Callable[[Json], dict[str, T]]:
    """A JSON object by queue or kind; each wrong name and value in it is named."""

    def read(table: Json) -> dict[str, T]:
        if not isinstance(table, dict):
            raise ValueError("must be a JSON object")  # noqa: TRY004 - the same
        found, problems = dict[str, T](), list[FieldError]()
        for name, value in table.items():
            try:
                found[read_name(name)] = read_value(value)
            except (ValueError, InvalidInput) as error:
                problems += problems_at(name, error)
        if problems:
            raise InvalidInput(problems)
        return found

    return read


def problems_at(path: str, error: ValueError | InvalidInput) -> list[FieldError]:
    """A reader's error as field errors, under the path of the value that it read."""
    if isinstance(error, InvalidInput):
        return [FieldError(f"{path}.{problem.field}", problem.problem) for problem in error.problems]
    return [FieldError(path, str(error))]
