"""Language of the templates: a few of Jinja2's nodes and filters, in a sandbox that counts their work.

A new node or filter needs its most expensive input in `tests/reminders/test_templates.py`: nothing may grow, or
continue, without being counted.
"""

import functools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from math import isfinite
from time import monotonic
from typing import Any, NoReturn

from jinja2 import Environment, StrictUndefined, Undefined, filters, nodes
from jinja2.exceptions import TemplateRuntimeError, TemplateSyntaxError
from jinja2.filters import FILTERS, _GroupTuple
from jinja2.lexer import Token, TokenStream
from jinja2.nodes import EvalContext
from jinja2.parser import Parser
from jinja2.runtime import Context, LoopContext, markup_join, str_join
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import htmlsafe_json_dumps, pass_eval_context
from jinja2.visitor import NodeTransformer
from markupsafe import Markup

from duecourse.base.cpu_turns import Computation, OutOfTime
from duecourse.base.times import Moment

# Cost of one message, bounded: turns of loops, steps, characters made on the way, and time.

MAX_TURNS = 10_000
MAX_STEPS = 100_000
"""Names, values and operations within loops, and items that filters go over, in one text."""
MAX_MADE = 2_000_000
MAX_TEXT = 256 * 1024
"""The longest text, in characters, that a template may make, on the way or in the end."""
MAX_ITEMS = 10_000
"""The longest list that a filter goes over; the characters of a text are one."""
TOO_LATE = "rendering takes too long"


class Rejected(TemplateRuntimeError):
    """A template asked for more than it may."""


@dataclass(slots=True)
class Meter:
    """Work that one text may still cost: turns of loops, steps, characters made; its time is the computation's."""

    computation: Computation
    turns: int = MAX_TURNS
    steps: int = MAX_STEPS
    made: int = MAX_MADE


_current: ContextVar[Meter] = ContextVar("meter")


@contextmanager
def metered(computation: Computation) -> Iterator[None]:
    """Bound what is done meanwhile in this thread."""
    token = _current.set(Meter(computation))
    try:
        yield
    finally:
        _current.reset(token)


def counted(items: Any, nodes: int) -> Iterator[Any]:
    """Items, each turn counted: what every loop of a template is over; `nodes` are those of a turn. Raises Rejected."""
    if isinstance(items, Undefined):
        str(items)  # raises, naming what is not known
    if not isinstance(items, Iterable):
        raise Rejected("a loop needs a list")
    meter = _current.get()
    for item in items:
        meter.turns -= 1
        if meter.turns < 0:
            raise Rejected(f"more than {MAX_TURNS:,} turns of loops")
        spend(1 + nodes)
        yield item


def gone_over(items: Any) -> Any:
    """Items for a filter that goes over them: a list as it is, and each of another as it is taken. Raises Rejected."""
    if hasattr(items, "__len__"):
        if len(items) > MAX_ITEMS:
            raise Rejected(f"a list of more than {MAX_ITEMS:,} items")
        spend(len(items))
        return items
    return _stepped(items) if isinstance(items, Iterator) else items


def _stepped(items: Iterator[Any]) -> Iterator[Any]:
    for count, item in enumerate(items):
        if count >= MAX_ITEMS:
            raise Rejected(f"a list of more than {MAX_ITEMS:,} items")
        spend(1)
        yield item


def looked_at(value: Any) -> Any:
    """A value that is compared, by what going over it may cost. Raises Rejected."""
    spend(1 + (len(value) // 16 if isinstance(value, str | list | tuple | dict) else 0))
    return value


def made(value: Any) -> Any:
    """A value, its size counted. Raises Rejected."""
    expect(len(value) if isinstance(value, str | list | tuple | dict) else 0)
    return value


def expect(length: int) -> None:
    """Count characters or items before they are made. Raises Rejected."""
    meter = _current.get()
    meter.made -= length + 1
    if length > MAX_TEXT or meter.made < 0:
        raise Rejected(f"more than {MAX_TEXT:,} characters in one text, or too many texts")
    _look(meter)


def spend(steps: int) -> None:
    """Count steps. Raises Rejected."""
    meter = _current.get()
    meter.steps -= steps
    if meter.steps < 0:
        raise Rejected(f"more than {MAX_STEPS:,} steps in loops and filters")
    _look(meter)


def in_time() -> None:
    """Look at the clock. Raises Rejected."""
    _look(_current.get())


def _look(meter: Meter) -> None:
    if monotonic() < meter.computation.look_at:
        return
    try:
        meter.computation.look()
    except OutOfTime as error:
        raise Rejected(f"{TOO_LATE}: {error}") from None


# Jinja2's parser within bounds: it counts words and levels as it goes, and the clock runs from the first of them.

MAX_NODES = 3_000
"""Maximum number of names, values and operations of a template."""
MAX_DEPTH = 50
"""Maximum nesting of names, values and operations: each filter of a chain is one level."""
TOO_LONG = f"it is over {MAX_NODES:,} names, values and operations long: make it shorter"
TOO_DEEP = f"it nests deeper than {MAX_DEPTH} levels: use {{% set %}} for a part of it"
MAX_TOKENS = 4 * MAX_NODES
"""Maximum number of words that are read at all: a name, a bracket, a comma, a text between tags."""
MAX_LEVELS = 3 * MAX_DEPTH
"""Maximum depth of the parser: it is three levels deep in each pair of brackets."""


class BoundedParser(Parser):
    """Parser that rejects a template where it becomes too long or too deep, in place of reading on."""

    def __init__(self, environment: Environment, source: str) -> None:
        super().__init__(environment, source)
        self.stream = TokenStream(self._counted(self.stream), None, None)
        self._level = 0

    def parse_statement(self) -> nodes.Node | list[nodes.Node]:
        """Parse a tag, with all that is within it."""
        self._descend()
        node = super().parse_statement()
        self._level -= 1
        return node

    def parse_condexpr(self) -> nodes.Expr:
        """Parse a choice, or an expression without one."""
        self._descend()
        node = super().parse_condexpr()
        self._level -= 1
        return node

    def parse_not(self) -> nodes.Expr:
        """Parse a negation, or an expression without one."""
        self._descend()
        node = super().parse_not()
        self._level -= 1
        return node

    def parse_unary(self, *args: Any, **kwargs: Any) -> nodes.Expr:
        """Parse a sign, or an expression without one."""
        self._descend()
        node = super().parse_unary(*args, **kwargs)
        self._level -= 1
        return node

    def _descend(self) -> None:
        self._level += 1
        if self._level > MAX_LEVELS:
            self.fail(TOO_DEEP)

    def _counted(self, stream: TokenStream) -> Iterator[Token]:
        for count, token in enumerate(stream):
            in_time()
            if count > MAX_TOKENS:
                self.fail(TOO_LONG, token.lineno)
            yield token


# The filters that templates have: Jinja2's own, less those that grow without bound, each one's work counted.

AS_THEY_ARE = (
    "abs", "capitalize", "count", "d", "default", "dictsort", "e", "escape", "first", "float", "groupby", "int",
    "items", "last", "length", "list", "lower", "map", "max", "min", "reject", "rejectattr", "reverse", "safe",
    "select", "selectattr", "sort", "string", "title", "truncate", "unique", "upper", "urlencode", "wordcount",
)  # fmt: skip
OVER_ITEMS = frozenset({
    "dictsort", "groupby", "list", "map", "max", "min", "reject", "rejectattr", "select", "selectattr", "sort",
    "unique",
})  # fmt: skip
"""Filters that go over each item of a list, or each character of a text."""
COUNTED, COMPARED, JOINED, CUT = "turn by turn", "one by one", "side by side", "cut out"
"""Filters that loops, comparisons, `~` and slices become: no template can write these names."""
MAX_DIGITS = 10
MAX_TRIMMED = 100
"""Maximum number of different characters that are trimmed: each is looked for at each place."""


def scalar(value: Any) -> Any:
    """A value that has one written form: nothing for null, JSON's own words for true and false. Raises Rejected."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Undefined):
        return str(value)  # raises, naming what is not known
    if isinstance(value, str | int | float | Moment):
        return value
    raise Rejected(f"{_kind(value)} cannot be rendered as text: name a part of it, or use |join(', ') or |tojson")


def _kind(value: Any) -> str:
    return "a list" if isinstance(value, list | tuple | range) else "an object" if isinstance(value, dict) else "this"


@pass_eval_context
def _join(context: EvalContext, value: Any, between: str = "", attribute: str | int | None = None) -> str:
    if attribute is not None:
        value = map(filters.make_attrgetter(context.environment, attribute), value)
    items = [scalar(item) for item in gone_over(value)]
    expect(sum(len(str(item)) for item in items) + len(items) * len(str(between)))
    joined: str = filters.sync_do_join(context, items, between)
    return joined


@pass_eval_context
def _replace(context: EvalContext, text: Any, old: str, new: str) -> str:
    text = str(scalar(text)) if not isinstance(text, str) else text
    expect(len(text) + text.count(old) * len(new))
    return filters.do_replace(context, text, old, new)


def _round(value: float, precision: int = 0, method: Any = "common") -> float:
    if not (isinstance(precision, int) and 0 <= precision <= MAX_DIGITS):
        raise Rejected(f"round takes 0 to {MAX_DIGITS} digits")
    return filters.do_round(value, precision, method)


def _trim(value: Any, chars: str | None = None) -> Any:
    if chars is not None and not (isinstance(chars, str) and len(chars) <= MAX_TRIMMED):
        raise Rejected(f"trim takes a text of at most {MAX_TRIMMED} characters")
    return filters.do_trim(value, chars)


def _tojson(value: Any) -> Markup:
    return htmlsafe_json_dumps(value, json.dumps)


@pass_eval_context
def _joined(context: EvalContext, *parts: Any) -> str:
    texts = [scalar(part) for part in parts]
    expect(sum(len(str(text)) for text in texts))
    return markup_join(texts) if context.autoescape else str_join(texts)


def _counting(work: Callable[..., Any]) -> Callable[..., Any]:
    # wraps() hands on what Jinja2 marks its filters with: whether they want the environment as well.
    @functools.wraps(work)
    def counting(*args: Any, **kwargs: Any) -> Any:
        return made(work(*args, **kwargs))

    return counting


def _stepping(work: Callable[..., Any]) -> Callable[..., Any]:
    """A filter whose items are counted; Jinja2 hands some the environment or the context before them."""
    place = 1 if hasattr(work, "jinja_pass_arg") else 0

    @functools.wraps(work)
    def stepping(*args: Any, **kwargs: Any) -> Any:
        return work(*args[:place], gone_over(args[place]), *args[place + 1 :], **kwargs)

    return stepping


def looking(test: Callable[..., Any]) -> Callable[..., Any]:
    """A test that is counted by what it is given: `select` does one for each item."""

    @functools.wraps(test)
    def looked(*args: Any, **kwargs: Any) -> Any:
        for value in (*args, *kwargs.values()):
            looked_at(value)
        return test(*args, **kwargs)

    return looked


ALL: dict[str, Callable[..., Any]] = {
    **{name: _counting(_stepping(FILTERS[name]) if name in OVER_ITEMS else FILTERS[name]) for name in AS_THEY_ARE},
    "join": _join,
    "replace": _counting(_replace),
    "round": _round,
    "tojson": _counting(_tojson),
    "trim": _counting(_trim),
    COUNTED: counted,
    COMPARED: looked_at,
    JOINED: _joined,
    CUT: made,
}
NAMES = sorted(ALL.keys() - {COUNTED, COMPARED, JOINED, CUT})


# Language of the templates: a few of Jinja2's nodes, checked and then made to count their work.

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


# Jinja2's sandbox with less in it: no methods, no attributes, arithmetic on numbers that stay small.

MAX_RANGE = 1_000
MAX_NUMBER = 10**18
MAX_LISTED = 20
"""Maximum number of names that an error lists."""


class Unknown(StrictUndefined):
    """A missing value: any use is an error, which lists the names that exist."""

    @property
    def _undefined_message(self) -> str:
        if self._undefined_hint:
            return self._undefined_hint
        if isinstance(self._undefined_obj, Mapping):
            known = ", ".join(list(map(str, self._undefined_obj))[:MAX_LISTED]) or "nothing"
            return f"{self._undefined_name} is not known; known here: {known}"
        return f"{self._undefined_name} is not known of {type(self._undefined_obj).__name__}"


class Sandbox(ImmutableSandboxedEnvironment):
    """An environment whose templates see what they are given and the filters of this package.

    `html`: what is put in is escaped.
    """

    intercepted_binops = frozenset({"+", "-", "*", "/", "//", "%", "**"})

    def __init__(self, *, html: bool) -> None:
        # Jinja2's optimiser goes over all that is within a node for each node: 200 filters in a row took 20 seconds.
        super().__init__(
            undefined=Unknown, autoescape=html, finalize=_written, trim_blocks=True, lstrip_blocks=True, optimized=False
        )
        self.filters = dict(ALL)
        self.tests = {name: looking(test) for name, test in self.tests.items()}  # type: ignore[arg-type]
        self.globals = {RANGE: _range}

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Arithmetic, and texts put together. Raises Rejected."""
        if operator == "+" and isinstance(left, str) and isinstance(right, str):
            return made(left + right)
        for operand in (left, right):
            if isinstance(operand, Undefined):
                str(operand)  # raises, naming what is not known
            if not isinstance(operand, int | float):
                raise Rejected(f"{operator} works on numbers: join texts with ~")
            if abs(operand) > MAX_NUMBER:
                raise Rejected("the number is too large")
        return super().call_binop(context, operator, left, right)

    def getattr(self, obj: Any, attribute: str) -> Any:
        """A part of an object by name; Python's own attributes and methods are not there."""
        if isinstance(obj, LoopContext | _GroupTuple):
            return super().getattr(obj, attribute)
        return self.getitem(obj, attribute)

    def getitem(self, obj: Any, argument: Any) -> Any:
        """A part of an object by name, or of a list or a text by number."""
        if isinstance(obj, Undefined):
            str(obj)  # raises, naming what is not known
        if isinstance(obj, Mapping) and isinstance(argument, str) and argument in obj:
            return obj[argument]
        if isinstance(obj, list | tuple | str) and isinstance(argument, int | slice):
            try:
                return obj[argument]
            except IndexError:
                pass
        return self.undefined(obj=obj, name=argument)


@pass_eval_context
def _written(_: EvalContext, value: Any) -> Any:
    # That it asks for a context keeps Jinja2 from writing out constants, with all their filters, as it compiles.
    return made(scalar(value))


def _range(*bounds: int) -> range:
    found = range(*bounds)
    if len(found) > MAX_RANGE:
        raise Rejected(f"range() has at most {MAX_RANGE:,} numbers")
    return found
