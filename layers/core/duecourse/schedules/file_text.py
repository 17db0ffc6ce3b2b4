"""The file `schedules.yaml` of a deployment: a number, and schedules as POST /schedules takes them."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from hashlib import blake2b
from itertools import islice
from typing import Annotated, Any

from pydantic import ConfigDict, Field

from duecourse.api.fields import Name, Strict, read
from duecourse.base.json_text import PROBLEM
from duecourse.errors import MAX_ERRORS, MAX_FIELD, FieldError, InvalidInput
from duecourse.ledger.schedule import Entry, Schedule, ScheduleFile, key_of
from duecourse.ledger.task import DEFAULT_TENANT
from duecourse.schedules.http import AddSchedule

NAME = "schedules.yaml"
MAX_SCHEDULES = 10_000

MAX_TEXT = 4_000_000
"""Maximum number of characters of a file."""
TEXT = "tag:yaml.org,2002:str"
NUMBERS = ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float")
TIMESTAMP = "tag:yaml.org,2002:timestamp"
NO_TIME = re.compile(r":[6-9][0-9](\.[0-9]*)?[ \t]*([-+Zz]|$)", re.ASCII)
"""Seconds of a time, or minutes of its offset, that YAML rejects without a reason, or adds up."""
PLAIN = re.compile(r"[-+]?(0|[1-9][0-9]*)?(\.[0-9]*)?([eE][-+]?[0-9]+)?", re.ASCII)
"""A number that YAML 1.1 reads as everyone does: to it, 010 is 8 and 1:30 is 90."""
UNQUOTED = re.compile("while scanning an alias|cannot start any token")
"""The parser's words of a value such as * * * * * or @daily."""


class FiledSchedule(AddSchedule):
    """One schedule of a file: a request of POST /schedules with an id, and a tenant."""

    id: Name
    tenant: Name = DEFAULT_TENANT


class File(Strict):
    """The whole file; each of its schedules is read by itself."""

    model_config = ConfigDict(extra="forbid", defer_build=True)

    number: Annotated[int, Field(ge=1, le=999_999_999, strict=True)]
    schedules: Annotated[list[Any], Field(max_length=MAX_SCHEDULES)]


def parse_file(text: str) -> ScheduleFile:
    """The file that a YAML text holds, with the problems of what is wrong within its schedules.

    Raises InvalidInput where it is no such file at all.
    """
    value = _value(text)
    if not isinstance(value, Mapping):
        raise InvalidInput([FieldError("file", "must have `number` and `schedules`")])
    file = read(File, value)
    found: dict[Entry, Schedule] = {}
    problems: list[FieldError] = []
    for place, one in enumerate(file.schedules):
        try:
            schedule = _schedule(one, file.number)
            if key_of(schedule) in found:
                raise InvalidInput([FieldError("id", "is there twice in this file")])  # noqa: TRY301 - one of its problems
            found[key_of(schedule)] = schedule
        except InvalidInput as error:
            problems += [FieldError(f"{_name(one, place)}.{each.field}", each.problem) for each in error.problems]
    digest = blake2b(text.encode(), digest_size=8).hexdigest()
    return ScheduleFile(file.number, tuple(found.values()), tuple(problems), digest)


def _value(text: str) -> Any:
    """The value of a YAML text. The parser takes a while to load: nobody else reads YAML here."""
    import yaml

    if len(text) > MAX_TEXT:
        raise InvalidInput([FieldError("file", f"must be at most {MAX_TEXT:,} characters")])
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        # A few names for lists of names, one within the other, would be a value that nothing can go through.
        if any(isinstance(token, yaml.AliasToken) for token in yaml.scan(text, Loader=loader)):
            raise InvalidInput([FieldError("file", "must not have an alias (*name): write each schedule out")])
        reader = loader(text)
        node = reader.get_single_node()
        wrong = list(islice(_misread(node), MAX_ERRORS))
        if wrong:
            raise InvalidInput(wrong)
        return reader.construct_document(node) if node else None
    except yaml.YAMLError as error:
        hint = "; put a value in quotes that begins with * or @" if UNQUOTED.search(str(error)) else ""
        raise InvalidInput([FieldError("file", f"is no YAML: {' '.join(str(error).split())}{hint}")]) from None
    except (ValueError, LookupError, AttributeError) as error:
        # So PyYAML tells of a date that does not exist, and of a value that its tag does not fit.
        raise InvalidInput([FieldError("file", f"has a value that cannot be read: {error}")]) from None
    except RecursionError:
        raise InvalidInput([FieldError("file", "nests too deep")]) from None


def _misread(node: Any, path: str = "") -> Iterator[FieldError]:
    """Keys and numbers of a YAML node that may be read as their writer did not mean them.

    Such a key is no text, or there twice: the later one would hide the one before. Such a number is not written in
    plain decimal.
    """
    names: set[str] = set()
    for place, one in enumerate(node.value if node and isinstance(node.value, list) else ()):
        key, value = one if isinstance(one, tuple) else (None, one)
        name = str(place) if key is None else key.value if isinstance(key.value, str) else "?"
        field = f"{path}{name}"[:MAX_FIELD]
        if key is not None and key.tag != TEXT:
            yield FieldError(field, f"must be text: put the key in quotes, in line {key.start_mark.line + 1}")
        elif key is not None and name in names:
            yield FieldError(field, f"{PROBLEM}, again in line {key.start_mark.line + 1}")
        names.add(name)
        if value.tag in NUMBERS and not (isinstance(value.value, str) and PLAIN.fullmatch(value.value)):
            line = value.start_mark.line + 1
            yield FieldError(field, f"must be a plain decimal number, or text in quotes, in line {line}")
        if value.tag == TIMESTAMP and NO_TIME.search(value.value):
            line = value.start_mark.line + 1
            problem = "must have seconds and minutes of an offset from 00 to 59"
            yield FieldError(field, f"{problem}, or be text in quotes, in line {line}")
        yield from _misread(value, f"{field}.")


def _schedule(value: Any, number: int) -> Schedule:
    asked = read(FiledSchedule, value)
    return replace(asked.schedule(asked.tenant), file=number)


def _name(value: Any, place: int) -> str:
    """Name of a schedule in a problem: its id, or else its place in the file."""
    id = value.get("id") if isinstance(value, Mapping) else None
    return id if isinstance(id, str) and id else f"schedules.{place}"
