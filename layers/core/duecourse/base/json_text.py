"""JSON: compact text as the ledger has it, and text from outside, checked for names that occur twice."""

import json
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from math import isfinite
from typing import Any, TypeAlias

from duecourse.errors import MAX_ERRORS, MAX_FIELD, FieldError, TaskDamaged

Json: TypeAlias = Any
"""A value that JSON can carry."""

MAX_DEPTH = 100
"""Maximum depth of a payload, a result or a state: well within what every JSON library carries."""

_ENCODER = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, allow_nan=False)
"""Encoder, made once: `json.dumps` makes one for each text, which takes as long as a small payload itself."""

_make: Any = getattr(json.encoder, "c_make_encoder", None)

_rest: Any = (None, _ENCODER.default, json.encoder.encode_basestring, None, ":", ",", False, False, False)

_encode: Any = _make(*_rest) if _make else _ENCODER.iterencode
"""Inner encoder of `encode`, made once: to make it takes as long as three small payloads. No circle is detected."""


def dump_json(value: Json) -> str:
    """`value` as compact JSON text, the one form in which payload, state and result are kept.

    Raises TypeError or ValueError for what JSON cannot carry, NaN included.
    """
    try:
        return "".join(_encode(value, 0))
    except RecursionError:
        return _ENCODER.encode(value)  # which tells of a circle


def _no_constant(name: str) -> Json:
    raise ValueError(f"JSON has no {name}")


def _finite(text: str) -> float:
    return number if isfinite(number := float(text)) else _no_constant(text)


_DECODER = json.JSONDecoder(parse_constant=_no_constant, parse_float=_finite)


def load_json(text: str, name: str) -> Json:
    """The value of a text that a ledger keeps; `name` is that of its field. Raises TaskDamaged.

    A value that `dump_json` could not have written is damaged too: every reader would stumble over it later.
    """
    try:
        value = _DECODER.decode(text)
        if "\\ud" in text or "\\uD" in text:
            dump_json(value).encode()  # half of a surrogate pair is no text
    except (ValueError, RecursionError) as error:
        raise TaskDamaged(f"the {name} of this task is damaged: it is no JSON that can be kept") from error
    return value


def is_too_deep(text: str, value: Json) -> bool:
    """True if the value of a JSON text nests deeper than MAX_DEPTH."""
    # It nests no deeper than the text has brackets, those in its own texts among them.
    return text.count("{") + text.count("[") > MAX_DEPTH and deeper_than(MAX_DEPTH, value)


def deeper_than(depth: int, value: Json) -> bool:
    """True if objects and lists nest deeper than `depth` within `value`."""
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    return depth < 0 or any(deeper_than(depth - 1, item) for item in inside)


# JSON text with a check for names that occur twice in one of its objects: parsers differ in which value they take.

PROBLEM = "stands twice in its object"
TOO_MANY = f"has more than {MAX_ERRORS} objects in which a name stands twice"


def load(text: str | bytes, parse_constant: Callable[[str], Any] | None = None) -> tuple[Any, list[FieldError]]:
    """The value of a JSON text, and each name that is doubled, dotted, the first MAX_ERRORS of them.

    Raises ValueError and RecursionError, as `json.loads` does.
    """
    doubled: list[_DuplicateName] = []
    value = json.loads(text, parse_constant=parse_constant, object_pairs_hook=partial(_table, doubled))
    if not doubled:
        return value, []
    named = [FieldError(name, PROBLEM) for name in islice(_named("", value), MAX_ERRORS)]
    return value, named or [FieldError("body", TOO_MANY)]


class _DuplicateName(dict[str, Any]):
    """An object that has `names` more than once: parsers differ in the value that they take."""

    names: list[str]


def _table(doubled: list[_DuplicateName], pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) == len(pairs) or len(doubled) == MAX_ERRORS:
        return table
    doubled.append(_DuplicateName(table))
    doubled[-1].names = [name for name, times in Counter(name for name, _ in pairs).items() if times > 1]
    return doubled[-1]


def _named(path: str, value: Any) -> Iterator[str]:
    """Dotted names that occur twice. It may find none: a name that occurs twice hides what is in its first value.

    A name is made where it is asked for: those of all values of a body would fill a function's memory.
    """
    if isinstance(value, _DuplicateName):
        yield from (f"{path}{name}"[:MAX_FIELD] for name in value.names)
    inside = value.items() if isinstance(value, dict) else enumerate(value)
    for key, one in inside:
        if isinstance(one, dict | list):
            yield from _named(f"{path}{key}."[:MAX_FIELD], one)
