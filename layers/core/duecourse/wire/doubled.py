"""JSON text with a check for names that occur twice in one of its objects: parsers differ in which value they take."""

import json
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

from duecourse.errors import MAX_ERRORS, MAX_FIELD, FieldError

PROBLEM = "stands twice in its object"


def load(text: str | bytes, parse_constant: Callable[[str], Any] | None = None) -> tuple[Any, list[FieldError]]:
    """The value of a JSON text, and each name that is doubled, dotted, the first MAX_ERRORS of them.

    Raises ValueError and RecursionError, as `json.loads` does.
    """
    doubled: list[_Doubled] = []
    value = json.loads(text, parse_constant=parse_constant, object_pairs_hook=lambda pairs: _table(pairs, doubled))
    named = islice(_named(value), MAX_ERRORS) if doubled else ()
    return value, [FieldError(name, PROBLEM) for name in named]


class _Doubled(dict[str, Any]):
    """An object that has `names` more than once: of which value others take, nobody can be sure."""

    names: list[str]


def _table(pairs: list[tuple[str, Any]], doubled: list[_Doubled]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) == len(pairs):
        return table
    doubled.append(_Doubled(table))
    doubled[-1].names = [name for name, times in Counter(name for name, _ in pairs).items() if times > 1]
    return doubled[-1]


def _named(value: Any) -> Iterator[str]:
    """Dotted names that occur twice, at least one of them if there are any: the outermost are all in `value`."""
    todo: list[tuple[str, Any]] = [("", value)]
    while todo:
        path, value = todo.pop()
        if isinstance(value, _Doubled):
            yield from (f"{path}{name}"[:MAX_FIELD] for name in value.names)
        inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        todo += [(f"{path}{key}."[:MAX_FIELD], one) for key, one in inside]
