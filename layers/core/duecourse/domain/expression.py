"""Bounds on a JMESPath expression that hold before it is applied to anything: length, depth, and calls."""

from collections.abc import Iterator, Mapping
from math import isfinite
from types import MappingProxyType
from typing import Any, NamedTuple

MAX_LENGTH = 1_000
"""Maximum length, in characters."""
MAX_DEPTH = 100
"""Maximum depth of a parsed expression: each level takes a few levels of Python's own stack."""
EXPRESSION = ("expref",)
"""Types of an argument that is an expression, written &…"""


class Signature(NamedTuple):
    """Types that each argument of a function may have, () for any; with `more`, the last one may be repeated."""

    takes: tuple[tuple[str, ...], ...]
    more: bool = False


_NUMBER, _STRING, _ARRAY, _OBJECT, _ANY = ("number",), ("string",), ("array",), ("object",), ()
_NUMBERS, _STRINGS = ("array-number",), ("array-string",)
_ORDERED = (*_NUMBERS, *_STRINGS)

FUNCTIONS: Mapping[str, Signature] = MappingProxyType(
    {
        "abs": Signature((_NUMBER,)),
        "avg": Signature((_NUMBERS,)),
        "ceil": Signature((_NUMBER,)),
        "contains": Signature((("array", "string"), _ANY)),
        "ends_with": Signature((_STRING, _STRING)),
        "floor": Signature((_NUMBER,)),
        "join": Signature((_STRING, _STRINGS)),
        "keys": Signature((_OBJECT,)),
        "length": Signature((("string", "array", "object"),)),
        "map": Signature((EXPRESSION, _ARRAY)),
        "max": Signature((_ORDERED,)),
        "max_by": Signature((_ARRAY, EXPRESSION)),
        "merge": Signature((_OBJECT,), more=True),
        "min": Signature((_ORDERED,)),
        "min_by": Signature((_ARRAY, EXPRESSION)),
        "not_null": Signature((_ANY,), more=True),
        "reverse": Signature((("array", "string"),)),
        "sort": Signature((_ORDERED,)),
        "sort_by": Signature((_ARRAY, EXPRESSION)),
        "starts_with": Signature((_STRING, _STRING)),
        "sum": Signature((_NUMBERS,)),
        "to_array": Signature((_ANY,)),
        "to_number": Signature((_ANY,)),
        "to_string": Signature((_ANY,)),
        "type": Signature((_ANY,)),
        "values": Signature((_OBJECT,)),
    }
)
"""JMESPath's own functions."""

Tree = Mapping[str, Any]


def problem_of_tree(tree: Tree) -> str:
    """Reason why a parsed expression is not applied, or ""."""
    waiting = [(tree, 1)]
    while waiting:
        node, depth = waiting.pop()
        if depth > MAX_DEPTH:
            return f"nests deeper than {MAX_DEPTH} levels: write it shorter, or as several expressions"
        problem = next(_problems(node), "")
        if problem:
            return problem
        waiting += [(child, depth + 1) for child in node["children"] if isinstance(child, dict)]
    return "must not be an expression reference (&…) by itself" if tree["type"] == "expref" else ""


def _problems(node: Tree) -> Iterator[str]:
    if node["type"] == "function_expression":
        yield from _problems_of_call(node["value"], node["children"])
        return
    if node["type"] == "literal" and not _is_json(node["value"]):
        yield "must not have a literal number that JSON cannot carry, such as NaN or 1e999"
    if node["type"] == "slice" and node["children"][2] == 0:
        yield "must not have a slice whose step is 0"
    if any(isinstance(child, dict) and child["type"] == "expref" for child in node["children"]):
        yield "must have an expression reference (&…) only as an argument of map, sort_by, max_by or min_by"


def _is_json(literal: Any) -> bool:
    """False if a literal holds NaN or an infinity, which Python reads from JSON text all the same."""
    waiting = [literal]
    while waiting:
        value = waiting.pop()
        if isinstance(value, float) and not isfinite(value):
            return False
        waiting += value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return True


def _problems_of_call(name: str, given: list[Tree]) -> Iterator[str]:
    known, count = FUNCTIONS.get(name), len(given)
    if known is None:
        yield f"must call functions of JMESPath only: {name[:50]} is unknown"
        return
    least = len(known.takes)
    if count < least or (count > least and not known.more):
        takes = f"{'at least ' if known.more else ''}{least} argument{'' if least == 1 else 's'}"
        yield f"must call {name} with {takes}, not {count}"
    for place, types in enumerate(known.takes[:count], 1):
        if (types == EXPRESSION) != (given[place - 1]["type"] == "expref"):
            yield f"must call {name} with {'an' if types == EXPRESSION else 'no'} expression (&…) as argument {place}"
    if any(more["type"] == "expref" for more in given[least:]):
        yield f"must call {name} with values only, not with an expression (&…)"
