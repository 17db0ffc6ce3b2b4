"""JMESPath within bounds of steps, time and size: neither the expression nor its data can be trusted.

Thirty parts of an expression can double a value thirty times, or go over a million elements ten times.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from io import StringIO
from itertools import chain
from math import isfinite
from types import MappingProxyType
from typing import Any

from jmespath.functions import TYPES_MAP, Functions, signature
from jmespath.visitor import Options, TreeInterpreter

from duecourse.base.cpu_turns import Computation, OutOfTime
from duecourse.base.json_text import Json
from duecourse.guard.jmespath_check import parse_expression

MAX_CPU_S = 0.25
"""Maximum seconds of the processor to judge one answer; time in which other threads run is not counted."""
MAX_STEPS = 500_000
"""Maximum number of nodes applied, elements visited and values compared, in all searches of one answer together."""
MAX_MADE_BYTES = 8 * 1024 * 1024
"""Maximum size of all values that one search makes, in bytes: a character is one, an item of a list is ITEM_BYTES."""
ITEM_BYTES = 8
STEPS_PER_CLOCK_LOOK = 1_024
"""Steps between two looks at the clock."""
ITEMS_PER_STEP = 16
"""Elements that Python's own functions go over in the time of one step."""
CHARACTERS_PER_STEP = 1_024
"""Characters that Python compares in the time of one step."""
CONTAINER_STEPS = 3
"""Steps to make or compare a list or an object, besides those for its elements."""
NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
"""Number in JSON."""
ENCODER = json.JSONEncoder(separators=(",", ":"), allow_nan=False, check_circular=False)

compiled = lru_cache(maxsize=256)(parse_expression)
"""Tree of an expression, parsed once. Raises WrongExpression."""


class TooMuchWork(Exception):
    """The expression asks for more work than one answer is worth."""


class NotApplicable(Exception):
    """The expression cannot be applied to this answer; to another it may."""


def is_true(value: Json) -> bool:
    """True as in JMESPath: anything except false, null, and an empty text, list or object. 0 is true."""
    return bool(value) or (isinstance(value, int | float) and value is not False)


class Search:
    """Searches of one answer, whose work is counted together."""

    def __init__(self, answer: Json, computation: Computation) -> None:
        self._answer = answer
        self._meter = _Meter(computation)
        self._interpreter = _Interpreter(self._meter)

    def find(self, expression: str) -> Json:
        """Result of the expression. Raises WrongExpression, TooMuchWork or NotApplicable."""
        tree = compiled(expression)
        self._meter.begin()
        try:
            return self._interpreter.visit(tree, self._answer)
        except (TypeError, ValueError, LookupError, AttributeError, ArithmeticError, RecursionError) as error:
            raise NotApplicable(f"the expression cannot be applied to this answer: {type(error).__name__}") from None


class _Meter:
    """Work that the searches of one answer may still cost."""

    def __init__(self, computation: Computation) -> None:
        self._computation = computation
        self._steps = MAX_STEPS
        self._look_at = MAX_STEPS
        self._room = MAX_MADE_BYTES

    def begin(self) -> None:
        """Begin another search with the steps and the time that are left."""
        self._room = MAX_MADE_BYTES

    def spend(self, steps: int) -> None:
        """Count steps, and look at the clock now and then. Raises TooMuchWork, and Crowded."""
        self._steps -= steps
        if self._steps > self._look_at:
            return
        self._look_at = self._steps - STEPS_PER_CLOCK_LOOK
        if self._steps < 0:
            raise TooMuchWork(f"it takes more than {MAX_STEPS:,} steps for this answer: narrow it")
        try:
            self._computation.look()
        except OutOfTime as error:
            raise TooMuchWork(f"{error} for this answer: narrow it") from None

    def make(self, size: int) -> None:
        """Count the size of a value, before it is made where that is known. Raises TooMuchWork."""
        self._room -= size
        if self._room < 0:
            raise TooMuchWork(f"it makes more than {MAX_MADE_BYTES // 1024 // 1024} MiB of the answer")

    def copy(self, value: Any) -> Any:
        """Count a copy of a list, an object or a text, and return the value itself."""
        size = len(value or ())
        self.spend(CONTAINER_STEPS + size // ITEMS_PER_STEP)
        self.make(size if isinstance(value, str) else ITEM_BYTES * size)
        return value

    def compare(self, items: list[Any], times: int) -> None:
        """Count that Python compares each of the numbers or texts so many times."""
        self.spend(len(items) * times // (2 * ITEMS_PER_STEP))
        if items and isinstance(items[0], str):
            # A list may hold one long text many times, and each comparison goes over it.
            self.spend(sum(map(len, items)) * times // CHARACTERS_PER_STEP)

    def same(self, one: Json, other: Json) -> bool:
        """True if two values are equal as JSON: 1 is not true, at any depth. Each compared pair is a step."""
        # No recursion: an answer may be nested almost as deep as Python's stack.
        waiting: list[Iterator[tuple[Json, Json]]] = [iter(((one, other),))]
        while waiting:
            for left, right in waiting[-1]:
                if isinstance(left, list | dict):
                    inside = self._inside(left, right)
                    if inside is None:
                        return False
                    waiting.append(inside)
                    break
                if not self._alike(left, right):
                    return False
            else:
                waiting.pop()
        return True

    def _alike(self, left: Json, right: Json) -> bool:
        if isinstance(left, str) and isinstance(right, str) and len(left) == len(right):
            self.spend(len(left) // CHARACTERS_PER_STEP)
        return bool(left == right) and isinstance(left, bool) is isinstance(right, bool)

    def _inside(self, left: Json, right: Json) -> Iterator[tuple[Json, Json]] | None:
        """Pairs within two lists of one length, or two objects of the same keys; None for others, which differ."""
        if type(left) is not type(right) or len(left) != len(right):
            return None
        self.spend(CONTAINER_STEPS + len(left))
        if isinstance(left, list):
            return zip(left, right, strict=True)
        return zip(left.values(), map(right.__getitem__, left), strict=True) if left.keys() == right.keys() else None


class _Interpreter(TreeInterpreter):
    """The package's interpreter, which counts nodes, elements and new lists. Comparisons are those of JSON."""

    def __init__(self, meter: _Meter) -> None:
        super().__init__(Options(custom_functions=_Functions(meter)))
        self._meter = meter

    def visit(self, node: Any, value: Any) -> Any:
        """Result of one node on a value: a step."""
        self._meter.spend(1)
        return getattr(self, "visit_" + node["type"])(node, value)

    def visit_projection(self, node: Any, value: Any) -> Any:
        """`a[*].b` and `a[].b`."""
        base = self.visit(node["children"][0], value)
        return self._project(node["children"][1], base) if isinstance(base, list) else None

    def visit_value_projection(self, node: Any, value: Any) -> Any:
        """`a.*.b`."""
        base = self.visit(node["children"][0], value)
        return self._project(node["children"][1], list(base.values())) if isinstance(base, dict) else None

    def visit_filter_projection(self, node: Any, value: Any) -> Any:
        """`a[?c].b`."""
        base = self.visit(node["children"][0], value)
        if not isinstance(base, list):
            return None
        self._meter.spend(len(base))
        condition = node["children"][2]
        return self._project(node["children"][1], [item for item in base if is_true(self.visit(condition, item))])

    def _project(self, node: Any, items: list[Any]) -> list[Any]:
        # Elements are counted first, so that steps and not the speed of the machine end a hopeless search.
        self._meter.spend(len(items))
        if node["type"] != "identity":
            items = [self.visit(node, item) for item in items]
        found: list[Any] = self._meter.copy([item for item in items if item is not None])
        return found

    def visit_flatten(self, node: Any, value: Any) -> Any:
        """`a[]`."""
        base = self.visit(node["children"][0], value)
        if not isinstance(base, list):
            return None
        # Counted before it is made: one list may be within `base` a million times.
        size = sum(len(item) if isinstance(item, list) else 1 for item in base)
        self._meter.spend((len(base) + size) // ITEMS_PER_STEP)
        self._meter.make(ITEM_BYTES * size)
        return list(chain.from_iterable(item if isinstance(item, list) else (item,) for item in base))

    def visit_slice(self, node: Any, value: Any) -> Any:
        """`a[1:2]`."""
        return self._meter.copy(super().visit_slice(node, value))

    def visit_multi_select_list(self, node: Any, value: Any) -> Any:
        """`[a, b]`."""
        return self._meter.copy(super().visit_multi_select_list(node, value))

    def visit_multi_select_dict(self, node: Any, value: Any) -> Any:
        """`{x: a, y: b}`."""
        return self._meter.copy(super().visit_multi_select_dict(node, value))

    def visit_comparator(self, node: Any, value: Any) -> Any:
        """`a == b`; an ordering of anything except two numbers or two texts is null."""
        left, right = [self.visit(child, value) for child in node["children"]]
        if node["value"] in ("eq", "ne"):
            return self._meter.same(left, right) is (node["value"] == "eq")
        kinds = {type(left), type(right)}
        if not (kinds <= {int, float} or kinds == {str}):
            return None
        self._meter.compare([left, right], 1)
        return self.COMPARATOR_FUNC[node["value"]](left, right)


class _Functions(Functions):
    """The package's functions, which count before Python goes over, makes or compares something large.

    No function makes a number that JSON cannot carry, or reads one that JSON does not have.
    """

    def __init__(self, meter: _Meter) -> None:
        self._meter = meter

    def call_function(self, function_name: str, resolved_args: Any) -> Any:
        """Result of a function of FUNCTIONS. Raises NotApplicable and TooMuchWork."""
        known = self.FUNCTION_TABLE[function_name]
        for place, value in enumerate(resolved_args):
            takes = known["signature"][min(place, len(known["signature"]) - 1)]
            self._check(function_name, takes["types"], value)
        if count := COUNTED.get(function_name):
            count(self._meter, *resolved_args)
        found = known["function"](self, *resolved_args)
        is_beyond = function_name in SUMS and isinstance(found, float) and not isfinite(found)
        return None if is_beyond else found

    def _check(self, name: str, types: list[str], value: Any) -> None:
        kind = TYPES_MAP[type(value).__name__]
        if not types or kind in types:
            return
        inside = {each.removeprefix("array-") for each in types if each.startswith("array-")}
        if not (inside and kind == "array" and self._is_of_one(inside, value)):
            # The package's own error has the value, which may be long, and secret.
            raise NotApplicable(f"{name}() takes {', '.join(types)}, not {kind}")

    def _is_of_one(self, types: set[str], items: list[Any]) -> bool:
        """True if all items have one and the same of these types."""
        self._meter.spend(len(items) // ITEMS_PER_STEP)
        found = {TYPES_MAP[kind.__name__] for kind in set(map(type, items))}
        return len(found) < 2 and found <= types

    @signature({"types": ["array", "string"]}, {"types": []})
    def _func_contains(self, subject: Any, search: Any) -> bool:
        if isinstance(subject, str):
            self._check("contains", ["string"], search)
            return search in subject
        return any(self._meter.same(search, item) for item in subject)

    @signature({"types": []})
    def _func_to_number(self, arg: Any) -> Any:
        if isinstance(arg, str) and not NUMBER.fullmatch(arg):
            return None
        return super()._func_to_number(arg)  # type: ignore[misc]

    @signature({"types": []})
    def _func_to_string(self, arg: Any) -> str:
        if isinstance(arg, str):
            return arg
        text = StringIO()
        # Part by part, each counted: one list may be within this value a million times.
        text.writelines(map(self._meter.copy, ENCODER.iterencode(arg)))
        return text.getvalue()

    @signature({"types": ["array"]}, {"types": ["expref"]})
    def _func_sort_by(self, array: Any, expref: Any) -> Any:
        return [array[place] for place in self._by("sort_by", sorted, array, expref)]

    @signature({"types": ["array"]}, {"types": ["expref"]})
    def _func_max_by(self, array: Any, expref: Any) -> Any:
        return array[self._by("max_by", max, array, expref)] if array else None

    @signature({"types": ["array"]}, {"types": ["expref"]})
    def _func_min_by(self, array: Any, expref: Any) -> Any:
        return array[self._by("min_by", min, array, expref)] if array else None

    def _by(self, name: str, choose: Callable[..., Any], items: list[Any], expression: Any) -> Any:
        """Apply `choose` to the places of the items, by the key that the expression finds in each item."""
        keys = self.call_function("map", [expression, items])
        if not self._is_of_one({"number", "string"}, keys):
            raise NotApplicable(f"the expression of {name}() must find numbers alone or texts alone")
        self._meter.compare(keys, len(keys).bit_length())
        return choose(range(len(items)), key=keys.__getitem__)


def _count_search(meter: _Meter, subject: Any, search: Any) -> None:
    """Count what `contains` goes over: characters of a text, or elements and their characters."""
    if isinstance(subject, str):
        meter.spend(len(subject) // ITEMS_PER_STEP)
    else:
        meter.spend(len(subject) * (1 + (len(search) // CHARACTERS_PER_STEP if isinstance(search, str) else 0)))


COUNTED: Mapping[str, Callable[..., object]] = MappingProxyType({
    "contains": _count_search,
    "join": lambda meter, between, parts: meter.make(len(between) * len(parts) + sum(map(len, parts))),
    "keys": _Meter.copy,
    "map": lambda meter, _, items: meter.spend(len(meter.copy(items))),
    "max": lambda meter, items: meter.compare(items, 1),
    "merge": lambda meter, *parts: [meter.copy(part) for part in parts],
    "min": lambda meter, items: meter.compare(items, 1),
    "reverse": _Meter.copy,
    "sort": lambda meter, items: meter.compare(meter.copy(items), len(items).bit_length()),
    "to_number": lambda meter, value: meter.spend(len(value) // ITEMS_PER_STEP if isinstance(value, str) else 0),
    "values": _Meter.copy,
})  # fmt: skip
"""Work of functions, counted once the types of their arguments are known to fit."""
SUMS = {"avg", "sum", "to_number"}
"""Functions that may make an infinity or NaN: null then."""
