"""JSON text with a check for names that occur twice in one of its objects: parsers differ in which value they take."""

import json
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

from duecourse.errors import MAX_ERRORS, MAX_FIELD, FieldError

PROBLEM = "stands twice in its object"
TOO_MANY = f"has more than {MAX_ERRORS} objects in which a name stands twice"


def load(text: str | bytes, parse_constant: Callable[[str], Any] | None = None) -> tuple[Any, list[FieldError]]:
    """The value of a JSON text, and each name that is doubled, dotted, the first MAX_ERRORS of them.

    Raises ValueError and RecursionError, as `json.loads` does.
    """
    doubled: list[_Doubled] = []
    value = json.loads(text, parse_constant=parse_constant, object_pairs_hook=lambda pairs: _table(pairs, doubled))
    if not doubled:
        return value, []
    named = [FieldError(name, PROBLEM) for name in islice(_named("", value), MAX_ERRORS)]
    return value, named or [FieldError("body", TOO_MANY)]


class _Doubled(dict[str, Any]):
    """An object that has `names` more than once: of which value others take, nobody can be sure."""

    names: list[str]


def _table(pairs: list[tuple[str, Any]], doubled: list[_Doubled]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) == len(pairs) or len(doubled) == MAX_ERRORS:
        return table
    doubled.append(_Doubled(table))
    doubled[-1].names = [name for name, times in Counter(name for name, _ in pairs).items() if times > 1]
    return doubled[-1]


def _named(path: str, value: Any) -> Iterator[str]:
    """Dotted names that occur twice. It may find none: a name that occurs twice hides what is in its first value.

    A name is made where it is asked for: those of all values of a body would fill a function's memory.
    """
    if isinstance(value, _Doubled):
        yield from (f"{path}{name}"[:MAX_FIELD] for name in value.names)
    inside = value.items() if isinstance(value, dict) else enumerate(value)
    for key, one in inside:
        if isinstance(one, dict | list):
            yield from _named(f"{path}{key}."[:MAX_FIELD], one)
