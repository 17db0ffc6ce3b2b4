"""The filters that templates have: Jinja2's own, less those that grow without bound, each one's work counted."""

import functools
import json
from collections.abc import Callable
from typing import Any

from jinja2 import Undefined, filters
from jinja2.filters import FILTERS
from jinja2.nodes import EvalContext
from jinja2.runtime import markup_join, str_join
from jinja2.utils import htmlsafe_json_dumps, pass_eval_context
from markupsafe import Markup

from duecourse.adapters.templates.meter import Rejected, counted, expect, gone_over, looked_at, made
from duecourse.domain.spoken import Moment

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
