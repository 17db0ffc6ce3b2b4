"""JMESPath's functions, each counting what Python goes over, compares and makes for it."""

import json
import math
import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NoReturn

from duecourse.domain.expression import FUNCTIONS, Signature
from duecourse.domain.task import Json
from duecourse.kinds.expression_meter import ALIKE, PLACE, DoesNotFit, Meter

TYPES: Mapping[type, str] = MappingProxyType({
    str: "string", bool: "boolean", list: "array", dict: "object", type(None): "null", int: "number", float: "number",
})  # fmt: skip
NUMBERS, STRINGS = frozenset({int, float}), frozenset({str})

NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
"""A number in JSON."""
MAX_DIGITS = 4_000
"""Maximum length of a whole number that Python reads as one; the time grows with its square."""

Values = list[Json]
"""Arguments of a call."""


def call(name: str, given: Values, meter: Meter) -> Json:
    """Result of one of JMESPath's functions. Raises DoesNotFit, TooMuchWork."""
    _check(name, FUNCTIONS[name], given, meter)
    return BY_NAME[name](meter, *given)


def by_keys(name: str, items: Values, keys: Values, meter: Meter) -> Json:
    """Result of `sort_by`, `max_by` or `min_by`, with the key of each item. Raises DoesNotFit, TooMuchWork."""
    if not items:
        return items if name == "sort_by" else None
    meter.go_over(keys)
    kinds = set(map(type, keys))
    if not (kinds <= NUMBERS or kinds <= STRINGS):
        _reject(f"the expression of {name}", ("string", "number"), next(iter(kinds - {type(keys[0])} or kinds)))
    meter.compare(keys, len(keys).bit_length() if name == "sort_by" else 1)
    places = range(len(items))
    if name == "sort_by":
        meter.make(PLACE * len(items))
        return [items[place] for place in sorted(places, key=keys.__getitem__)]
    return items[(max if name == "max_by" else min)(places, key=keys.__getitem__)]


def fit(name: str, place: int, value: Json) -> None:
    """Return if an argument has the type that the function takes there. Raises DoesNotFit."""
    takes = FUNCTIONS[name].takes[place]
    if TYPES[type(value)] not in takes:
        _reject(name, takes, type(value))


def _check(name: str, signature: Signature, given: Values, meter: Meter) -> None:
    for place, value in enumerate(given):
        takes = signature.takes[min(place, len(signature.takes) - 1)]
        if not takes or TYPES[type(value)] in takes:
            continue
        if not isinstance(value, list) or not _items_fit(takes, value, meter):
            _reject(name, takes, type(value))


def _items_fit(takes: tuple[str, ...], items: Values, meter: Meter) -> bool:
    meter.go_over(items)
    kinds = set(map(type, items))
    return ("array-number" in takes and kinds <= NUMBERS) or ("array-string" in takes and kinds <= STRINGS)


def _reject(name: str, takes: tuple[str, ...], kind: type) -> NoReturn:
    # The value itself may be long, and secret.
    raise DoesNotFit(f"{name}() takes {', '.join(takes)}, not {TYPES[kind]}")


def _abs(_: Meter, number: Any) -> Json:
    return abs(number)


def _avg(meter: Meter, numbers: Values) -> Json:
    total = _sum(meter, numbers)
    return _finite(total / len(numbers)) if numbers and total is not None else None


def _ceil(_: Meter, number: Any) -> Json:
    return math.ceil(number)


def _contains(meter: Meter, among: list[Json] | str, sought: Json) -> Json:
    if isinstance(among, str):
        if not isinstance(sought, str):
            _reject("contains", ("string",), type(sought))
        meter.go_over(among)
        return sought in among
    if isinstance(sought, list | dict):
        meter.spend(len(among))
        return any(meter.same(sought, each) for each in among)
    meter.go_over(among)
    meter.spend(len(among) * len(sought) // ALIKE if isinstance(sought, str) else 0)
    if sought not in among:  # Python's equality is JSON's, but for 1 and true
        return False
    meter.spend(len(among))
    return any(meter.alike(sought, each) for each in among)


def _ends_with(_: Meter, text: str, end: str) -> Json:
    return text.endswith(end)


def _floor(_: Meter, number: Any) -> Json:
    return math.floor(number)


def _join(meter: Meter, between: str, parts: list[str]) -> Json:
    meter.go_over(parts)
    meter.make(len(between) * len(parts) + sum(map(len, parts)))  # before it is made: this may be gigabytes
    return between.join(parts)


def _keys(meter: Meter, among: dict[str, Json]) -> Json:
    return _listed(meter, among.keys())


def _length(_: Meter, among: str | Values | dict[str, Json]) -> Json:
    return len(among)


def _max(meter: Meter, items: Values) -> Json:
    meter.compare(items, 1)
    return max(items) if items else None


def _merge(meter: Meter, *parts: dict[str, Json]) -> Json:
    meter.go_over(*parts)
    meter.make(PLACE * sum(map(len, parts)))
    merged: dict[str, Json] = {}
    for part in parts:
        merged.update(part)
    return merged


def _min(meter: Meter, items: Values) -> Json:
    meter.compare(items, 1)
    return min(items) if items else None


def _not_null(_: Meter, *values: Json) -> Json:
    return next((value for value in values if value is not None), None)


def _reverse(meter: Meter, among: str | Values) -> Json:
    meter.go_over(among)
    meter.make(len(among) * (1 if isinstance(among, str) else PLACE))
    return among[::-1]


def _sort(meter: Meter, items: Values) -> Json:
    meter.compare(items, len(items).bit_length())
    return _listed(meter, sorted(items))


def _starts_with(_: Meter, text: str, begin: str) -> Json:
    return text.startswith(begin)


def _sum(meter: Meter, numbers: Values) -> Any:
    meter.go_over(numbers)
    return _finite(sum(numbers))


def _finite(number: Any) -> Any:
    """The number, or null for one that JSON cannot carry: no infinity, and no NaN, is taken for true."""
    return None if isinstance(number, float) and not math.isfinite(number) else number


def _to_array(_: Meter, value: Json) -> Json:
    return value if isinstance(value, list) else [value]


def _to_number(meter: Meter, value: Json) -> Json:
    if isinstance(value, str):
        meter.go_over(value)
        return _number(value)
    return None if isinstance(value, list | dict | bool) else value


def _number(text: str) -> Json:
    """Number of a text that is a number in JSON; null for any other, though Python may read it."""
    if not NUMBER.fullmatch(text):
        return None
    is_whole = text.removeprefix("-").isdigit() and len(text) <= MAX_DIGITS
    return int(text) if is_whole else _finite(float(text))


def _to_string(meter: Meter, value: Json) -> Json:
    if isinstance(value, str):
        return value
    meter.make(meter.weigh(value))
    return json.dumps(value, separators=(",", ":"), allow_nan=False)


def _type(_: Meter, value: Json) -> Json:
    return TYPES[type(value)]


def _values(meter: Meter, among: dict[str, Json]) -> Json:
    return _listed(meter, among.values())


def _listed(meter: Meter, items: Any) -> Json:
    meter.go_over(items)
    meter.make(PLACE * len(items))
    return list(items)


BY_NAME: Mapping[str, Callable[..., Json]] = MappingProxyType({
    "abs": _abs, "avg": _avg, "ceil": _ceil, "contains": _contains, "ends_with": _ends_with, "floor": _floor,
    "join": _join, "keys": _keys, "length": _length, "max": _max, "merge": _merge, "min": _min,
    "not_null": _not_null, "reverse": _reverse, "sort": _sort, "starts_with": _starts_with, "sum": _sum,
    "to_array": _to_array, "to_number": _to_number, "to_string": _to_string, "type": _type, "values": _values,
})  # fmt: skip
"""Functions of values; those that take an expression are `map` and the three of `by_keys`."""
