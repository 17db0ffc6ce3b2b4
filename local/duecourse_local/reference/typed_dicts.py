"""The module `client/typed_dicts.py`, written from the OpenAPI document: fields of requests, as mypy knows them."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from duecourse.base.times import DURATION_PATTERN

from ..project.bundle import REPOSITORY

MODULE: Path = REPOSITORY / "layers/core/duecourse/client/typed_dicts.py"
HEAD = '''\
"""Fields of the verbs from Python, as mypy and editors know them.

Written from the API's document by `make reference`: change the models, or `reference/typed_dicts.py`, not this file.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Literal, Required, TypedDict

from duecourse.base.json_text import Json
from duecourse.ledger.task import Span
'''
Schema = Mapping[str, Any]
REF = "#/components/schemas/"
TYPES = {"Duration": "Span", "Instant": "datetime | str", "Deadline": "datetime | Span", "Rate": "RateFields"}
"""Types in Python of parts of the document; a caller in Python may have datetime and timedelta."""
PLAIN = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "null": "None"}
UNSETTABLE = {"if_version", "repeat"}
"""Fields of changes that no None takes away."""


class Fields(NamedTuple):
    """One class: its name, the request that it is for, what it says of itself, and its fields, by default all.

    With `nulls`, a field may be None where the API takes null.
    """

    name: str
    request: str
    text: str
    only: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    base: str = "TypedDict"
    nulls: bool = False


KEY = ("queue", "kind", "payload")
CLASSES = (
    Fields("KindFields", "AddTask", "Optional fields of POST /tasks for a kind that has its queue.", without=KEY),
    Fields("AddFields", "AddTask", "Optional fields of POST /tasks.", only=KEY[:1], base="KindFields"),
    Fields(
        "TaskFields", "AddTask", "One task for `add_many`, in the form of POST /tasks.", only=KEY[1:], base="AddFields"
    ),
    Fields("RateFields", "Rate", "Rate: `count` tasks in each `per`."),
    Fields(
        "QueueFields",
        "SetQueue",
        "Fields of PATCH /queues/{queue}: given ones change, None restores the default, others stay.",
        nulls=True,
    ),
    Fields("QueryFields", "AskQuery", "Fields of POST /queries."),
    Fields("ReminderFields", "AddReminder", "Fields of POST /reminders; times may be datetime and timedelta too."),
    Fields(
        "ReminderChanges",
        "ChangeReminder",
        "Fields of PATCH /reminders/{id}, all but `starts_at` for one that comes again; None takes an end away.",
        nulls=True,
    ),
    Fields("ScheduleFields", "AddSchedule", "Fields of POST /schedules; times may be datetime and timedelta too."),
    Fields(
        "ScheduleChanges",
        "ChangeSchedule",
        "Fields of PATCH /schedules/{id}; None takes a limit, an end, a deadline or a notification away.",
        nulls=True,
    ),
    Fields("TimesFields", "PreviewSchedule", "Fields of POST /schedules/preview, beside `since`.", without=("from",)),
    Fields(
        "BackfillFields",
        "BackfillSchedule",
        "Optional fields of POST /schedules/{id}/backfill.",
        without=("from", "to"),
    ),
    Fields("PurgeFields", "PurgeTasks", "Fields of POST /queues/{queue}/purge."),
    Fields(
        "PurgeSchedulesFields",
        "PurgeSchedules",
        "Fields of POST /schedules/purge: a kind, a beginning of the ids, or all; the others are optional.",
    ),
    Fields("CancelFields", "CancelTasks", "Fields of POST /queues/{queue}/cancel."),
)


def module(document: Schema) -> str:
    """The module's text."""
    schemas = document["components"]["schemas"]
    return HEAD + "".join(f"\n\n{_class(one, schemas)}" for one in CLASSES)


def _class(one: Fields, schemas: Mapping[str, Schema]) -> str:
    schema = schemas[one.request]
    names = [name for name in schema["properties"] if name not in one.without and (not one.only or name in one.only)]
    required = set(schema.get("required", ()))
    head = one.base if required >= set(names) else f"{one.base}, total=False"
    lines = [f"class {one.name}({head}):", f'    """{one.text}"""', ""]
    for name in names:
        kind = _kind(schema["properties"][name], schemas, nulls=one.nulls and name not in UNSETTABLE)
        is_marked = name in required and "total" in head
        lines.append(f"    {name}: {f'Required[{kind}]' if is_marked else kind}")
    return "\n".join(lines) + "\n"


def _kind(schema: Schema, schemas: Mapping[str, Schema], *, nulls: bool) -> str:
    """The type in Python of a part of the document."""
    kinds = list(dict.fromkeys(_kinds(schema, schemas)))
    if "Json" in kinds:
        return "Json"
    return " | ".join(kind for kind in kinds if nulls or kind != "None")


def _kinds(schema: Schema, schemas: Mapping[str, Schema]) -> Iterator[str]:
    if "$ref" in schema:
        name = schema["$ref"].removeprefix(REF)
        yield from [TYPES[name]] if name in TYPES else _kinds(schemas[name], schemas)
    elif "properties" in schema:
        yield "dict[str, Any]"
    elif "enum" in schema:
        yield f"Literal[{', '.join(map(json.dumps, schema['enum']))}]"
    elif any(one.get("pattern") == DURATION_PATTERN for one in schema.get("anyOf", ())):
        yield TYPES["Duration"]
    elif "anyOf" in schema:
        for one in schema["anyOf"]:
            yield from _kinds(one, schemas)
    elif schema.get("type") == "array":
        yield f"Sequence[{_kind(schema['items'], schemas, nulls=False)}]"
    elif schema.get("type") == "object":
        yield _mapping(schema, schemas)
    else:
        yield PLAIN.get(schema.get("type", ""), "Json")


def _mapping(schema: Schema, schemas: Mapping[str, Schema]) -> str:
    values = schema.get("additionalProperties")
    if isinstance(values, Mapping):
        return f"dict[str, {_kind(values, schemas, nulls=False)}]"
    return "Json"
