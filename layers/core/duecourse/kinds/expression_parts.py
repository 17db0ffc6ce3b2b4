"""A parsed JMESPath expression as Python functions, a part for each node: many times as fast as to visit the tree.

A part says how many nodes it applies to one value; a caller that applies it to many counts that many steps for each.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

from duecourse.domain.expression import EXPRESSION, FUNCTIONS
from duecourse.domain.task import Json
from duecourse.kinds.expression_functions import by_keys, call, fit
from duecourse.kinds.expression_meter import AT_ONCE, BETWEEN_LOOKS, CONTAINER, PLACE, Meter

Run: TypeAlias = Callable[[Json, Meter], Json]
Tree: TypeAlias = Mapping[str, Any]


class Part(NamedTuple):
    """One node with those below it: what it finds of a value, and how many nodes that applies."""

    run: Run
    nodes: int


def part_of(tree: Tree) -> Part:
    """Part for a parsed expression in which `problem_of_tree` finds no problem."""
    return BY_TYPE[tree["type"]](tree)


def is_number(value: Json) -> bool:
    """True for a JSON number: Python's booleans are numbers too."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def is_true(value: Json) -> bool:
    """True as JMESPath has it: anything except false, null, and an empty text, list or object. 0 is true."""
    return bool(value) or is_number(value)


def _apply(part: Part, items: list[Json], meter: Meter) -> Iterable[Json]:
    """Results of a part on each item, counted before they are found."""
    run, each = part.run, 1 + part.nodes
    if each * len(items) > BETWEEN_LOOKS:
        return _apply_to_many(part, items, meter)
    meter.spend(each * len(items))
    return [run(item, meter) for item in items]


def _apply_to_many(part: Part, items: list[Json], meter: Meter) -> Iterator[Json]:
    at_once = max(1, BETWEEN_LOOKS // (1 + part.nodes))
    for start in range(0, len(items), at_once):
        some = items[start : start + at_once]
        meter.spend((1 + part.nodes) * len(some))
        for item in some:
            yield part.run(item, meter)


def _collect(part: Part, items: list[Json], meter: Meter) -> list[Json]:
    found = [value for value in _apply(part, items, meter) if value is not None]
    meter.make(PLACE * len(found))
    return found


def _children(tree: Tree) -> tuple[list[Run], int]:
    parts = [part_of(child) for child in tree["children"]]
    return [part.run for part in parts], 1 + sum(part.nodes for part in parts)


def _field(tree: Tree) -> Part:
    name = tree["value"]
    return Part(lambda value, _: value.get(name) if isinstance(value, dict) else None, 1)


def _index(tree: Tree) -> Part:
    place = tree["value"]

    def run(value: Json, _: Meter) -> Json:
        return value[place] if isinstance(value, list) and -len(value) <= place < len(value) else None

    return Part(run, 1)


def _slice(tree: Tree) -> Part:
    chosen = slice(*tree["children"])

    def run(value: Json, meter: Meter) -> Json:
        if not isinstance(value, list):
            return None
        meter.go_over(value)
        meter.make(PLACE * len(range(*chosen.indices(len(value)))))
        return value[chosen]

    return Part(run, 1)


def _itself(_: Tree) -> Part:
    return Part(lambda value, _: value, 1)


def _nothing(_: Tree) -> Part:
    """Part that the parser puts where an expression says nothing."""
    return Part(lambda value, _: value, 0)


def _literal(tree: Tree) -> Part:
    literal = tree["value"]
    return Part(lambda _, __: literal, 1)


def _chain(tree: Tree) -> Part:
    runs, nodes = _children(tree)

    def run(value: Json, meter: Meter) -> Json:
        for each in runs:
            value = each(value, meter)
        return value

    return Part(run, nodes)


def _only(tree: Tree) -> Part:
    [child] = tree["children"]
    return part_of(child)


def _flatten(tree: Tree) -> Part:
    below = _only(tree)

    def run(value: Json, meter: Meter) -> Json:
        base = below.run(value, meter)
        if not isinstance(base, list):
            return None
        meter.go_over(base)
        size = sum(len(item) if isinstance(item, list) else 1 for item in base)
        meter.spend(size // AT_ONCE)
        meter.make(PLACE * size)
        return list(chain.from_iterable(item if isinstance(item, list) else (item,) for item in base))

    return Part(run, 1 + below.nodes)


def _projection(tree: Tree) -> Part:
    below, each = map(part_of, tree["children"])

    def run(value: Json, meter: Meter) -> Json:
        base = below.run(value, meter)
        return _collect(each, base, meter) if isinstance(base, list) else None

    return Part(run, CONTAINER + below.nodes)


def _value_projection(tree: Tree) -> Part:
    below, each = map(part_of, tree["children"])

    def run(value: Json, meter: Meter) -> Json:
        base = below.run(value, meter)
        return _collect(each, list(base.values()), meter) if isinstance(base, dict) else None

    return Part(run, CONTAINER + below.nodes)


def _filter_projection(tree: Tree) -> Part:
    below, each, wanted = map(part_of, tree["children"])

    def run(value: Json, meter: Meter) -> Json:
        base = below.run(value, meter)
        if not isinstance(base, list):
            return None
        chosen = [item for item, holds in zip(base, _apply(wanted, base, meter), strict=True) if is_true(holds)]
        return _collect(each, chosen, meter)

    return Part(run, CONTAINER + below.nodes)


def _multi_select_list(tree: Tree) -> Part:
    runs, nodes = _children(tree)

    def run(value: Json, meter: Meter) -> Json:
        if value is None:
            return None
        meter.make(PLACE * len(runs))
        return [each(value, meter) for each in runs]

    return Part(run, CONTAINER + nodes)


def _multi_select_dict(tree: Tree) -> Part:
    runs, nodes = _children(tree)
    named = list(zip([child["value"] for child in tree["children"]], runs, strict=True))

    def run(value: Json, meter: Meter) -> Json:
        if value is None:
            return None
        meter.make(2 * PLACE * len(named))
        return {name: each(value, meter) for name, each in named}

    return Part(run, CONTAINER + nodes)


def _or(tree: Tree) -> Part:
    (left, right), nodes = _children(tree)

    def run(value: Json, meter: Meter) -> Json:
        found = left(value, meter)
        return found if is_true(found) else right(value, meter)

    return Part(run, nodes)


def _and(tree: Tree) -> Part:
    (left, right), nodes = _children(tree)

    def run(value: Json, meter: Meter) -> Json:
        found = left(value, meter)
        return right(value, meter) if is_true(found) else found

    return Part(run, nodes)


def _not(tree: Tree) -> Part:
    below = _only(tree)
    return Part(lambda value, meter: not is_true(below.run(value, meter)), 1 + below.nodes)


def _comparator(tree: Tree) -> Part:
    (left, right), nodes = _children(tree)
    compare = COMPARED[tree["value"]]
    return Part(lambda value, meter: compare(left(value, meter), right(value, meter), meter), nodes)


def _ordering(compare: Callable[[Any, Any], bool]) -> Callable[[Json, Json, Meter], Json]:
    """Orderings are of two numbers or two texts; null for anything else."""

    def ordered(left: Json, right: Json, meter: Meter) -> Json:
        if is_number(left) and is_number(right):
            return compare(left, right)
        if not (isinstance(left, str) and isinstance(right, str)):
            return None
        meter.compare([left, right], 1)
        return compare(left, right)

    return ordered


COMPARED: Mapping[str, Callable[[Json, Json, Meter], Json]] = MappingProxyType({
    "eq": lambda left, right, meter: meter.same(left, right),
    "ne": lambda left, right, meter: not meter.same(left, right),
    "lt": _ordering(lambda left, right: left < right),
    "lte": _ordering(lambda left, right: left <= right),
    "gt": _ordering(lambda left, right: left > right),
    "gte": _ordering(lambda left, right: left >= right),
})  # fmt: skip


def _function(tree: Tree) -> Part:
    name = tree["value"]
    if EXPRESSION in FUNCTIONS[name].takes:
        return _function_of_expression(tree)
    runs, nodes = _children(tree)
    return Part(lambda value, meter: call(name, [each(value, meter) for each in runs], meter), CONTAINER + nodes)


def _function_of_expression(tree: Tree) -> Part:
    """Part of `map`, `sort_by`, `max_by` or `min_by`: the expression is applied to each item of the other argument."""
    name = tree["value"]
    expression = FUNCTIONS[name].takes.index(EXPRESSION)
    each = _only(tree["children"][expression])
    among = part_of(tree["children"][1 - expression])

    def run(value: Json, meter: Meter) -> Json:
        items = among.run(value, meter)
        fit(name, 1 - expression, items)
        found = list(_apply(each, items, meter))
        meter.make(PLACE * len(found))
        return found if name == "map" else by_keys(name, items, found, meter)

    return Part(run, CONTAINER + among.nodes)


BY_TYPE: Mapping[str, Callable[[Tree], Part]] = MappingProxyType({
    "and_expression": _and, "comparator": _comparator, "current": _itself, "field": _field,
    "filter_projection": _filter_projection, "flatten": _flatten, "function_expression": _function,
    "identity": _nothing, "index": _index, "index_expression": _chain, "key_val_pair": _only, "literal": _literal,
    "multi_select_dict": _multi_select_dict, "multi_select_list": _multi_select_list, "not_expression": _not,
    "or_expression": _or, "pipe": _chain, "projection": _projection, "slice": _slice, "subexpression": _chain,
    "value_projection": _value_projection,
})  # fmt: skip
"""Types of a node that JMESPath's parser makes."""
