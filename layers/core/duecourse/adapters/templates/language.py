"""Language of the templates: a few of Jinja2's nodes, checked and then made to count their work."""

from collections.abc import Iterator
from math import isfinite
from typing import Any, NoReturn

from jinja2 import Environment, nodes
from jinja2.exceptions import TemplateSyntaxError
from jinja2.visitor import NodeTransformer

from duecourse.adapters.templates.filters import COMPARED, COUNTED, CUT, JOINED, NAMES
from duecourse.adapters.templates.meter import in_time
from duecourse.adapters.templates.parser import MAX_DEPTH, MAX_NODES, TOO_DEEP, TOO_LONG, BoundedParser

RANGE = "range"
KNOWN = (
    nodes.Template, nodes.Output, nodes.TemplateData, nodes.If, nodes.For, nodes.Assign,
    nodes.Name, nodes.Const, nodes.List, nodes.Tuple, nodes.Getattr, nodes.Getitem, nodes.Slice,
    nodes.Filter, nodes.Test, nodes.Keyword, nodes.Call, nodes.CondExpr, nodes.Compare, nodes.Operand,
    nodes.And, nodes.Or, nodes.Not, nodes.Neg, nodes.Pos, nodes.Concat,
    nodes.Add, nodes.Sub, nodes.Mul, nodes.Div, nodes.FloorDiv, nodes.Mod,
)  # fmt: skip
"""All that there is: what is not here could repeat itself, grow, or call."""
SPOKEN = {
    nodes.Dict: "an object cannot be made here: give it in data",
    nodes.Pow: "** is not known here",
    nodes.AssignBlock: "{% set %} takes a value: {% set name = value %}",
}
INSTEAD = "is not known here: there are {{ }}, {# #}, {% if %}, {% for %} and {% set name = value %}"


def checked(environment: Environment, source: str) -> nodes.Template:
    """A template's tree, its work counted. Raises TemplateSyntaxError, with the line, for what is not known here.

    Raises Rejected where the time is over: all of this, too, is work of the template's making.
    """
    in_time()
    tree = BoundedParser(environment, source).parse()
    for count, (node, depth) in enumerate(_nodes(tree)):
        in_time()
        _check(environment, node)
        if count > MAX_NODES:
            _reject(node, TOO_LONG)
        if depth > MAX_DEPTH:
            _reject(node, TOO_DEEP)
    bounded: nodes.Template = _Counted().visit(tree)
    return bounded


def check_names(tree: nodes.Template, undeclared: frozenset[str], known: frozenset[str]) -> None:
    """Return if each name that the template does not set is known. Raises TemplateSyntaxError, with the line."""
    unknown = undeclared - known - {RANGE}
    for node, _ in _nodes(tree) if unknown else ():
        if isinstance(node, nodes.Name) and node.name in unknown:
            _reject(node, f"{node.name} is not known; known are: {', '.join(sorted(known))}")


def _nodes(tree: nodes.Node) -> Iterator[tuple[nodes.Node, int]]:
    """All nodes and how deep each is, in time that only grows with their number: a chain of filters is a deep tree."""
    waiting = [(tree, 0)]
    while waiting:
        node, depth = waiting.pop()
        yield node, depth
        waiting += [(child, depth + 1) for child in reversed(list(node.iter_child_nodes()))]


def _check(environment: Environment, node: nodes.Node) -> None:
    if not isinstance(node, KNOWN):
        _reject(node, SPOKEN.get(type(node)) or f"{{% {type(node).__name__.lower()} %}} {INSTEAD}")
    if isinstance(node, nodes.Call) and not (isinstance(node.node, nodes.Name) and node.node.name == RANGE):
        _reject(node, "nothing can be called but range(): use a filter, such as {{ text|upper }}")
    if isinstance(node, nodes.Filter) and node.name not in environment.filters:
        _reject(node, f"there is no filter {node.name}; there are: {', '.join(NAMES)}")
    if isinstance(node, nodes.Test) and node.name not in environment.tests:
        _reject(node, f"there is no test {node.name}")
    if isinstance(node, nodes.Const) and isinstance(node.value, float) and not isfinite(node.value):
        _reject(node, "the number is too large")
    if isinstance(node, nodes.List | nodes.Tuple) and not _plain(node):
        _reject(node, "a list here holds plain texts and numbers: give others in data")


def _plain(node: nodes.List | nodes.Tuple) -> bool:
    # A list of lists could double itself in each line.
    stored = isinstance(node, nodes.Tuple) and node.ctx == "store"
    return all(isinstance(item, nodes.Name if stored else nodes.Const) for item in node.items)


def _reject(node: nodes.Node, problem: str) -> NoReturn:
    raise TemplateSyntaxError(problem, node.lineno)


class _Counted(NodeTransformer):
    """Every loop is over items that are counted; what is compared is; `~` tells its size first, a slice at once."""

    def visit_For(self, node: nodes.For) -> nodes.Node:  # noqa: N802
        turn = sum(1 for part in (*node.body, node.test) if part for _ in _nodes(part))
        self.generic_visit(node)
        node.iter = _filter(node.iter, COUNTED, [nodes.Const(turn)])
        return node

    def visit_Compare(self, node: nodes.Compare) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        node.expr = _filter(node.expr, COMPARED, [])
        for operand in node.ops:
            operand.expr = _filter(operand.expr, COMPARED, [])
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        return _filter(node.nodes[0], JOINED, node.nodes[1:])

    def visit_Getitem(self, node: nodes.Getitem) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        # Jinja2 compiles these to Python's own, past the sandbox: hundreds of copies would fill the memory.
        return _filter(node, CUT, []) if isinstance(node.arg, nodes.Slice) else node


def _filter(value: Any, name: str, args: list[Any]) -> nodes.Filter:
    made = nodes.Filter(value, name, args, [], None, None, lineno=value.lineno)
    return made.set_environment(value.environment)  # type: ignore[return-value]
