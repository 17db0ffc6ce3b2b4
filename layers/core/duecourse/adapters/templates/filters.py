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

from duecourse.adapters.templates.meter import Rejected, counted, expect, made
from duecourse.domain.spoken import Moment

AS_THEY_ARE = (
    "abs", "capitalize", "count", "d", "default", "dictsort", "e", "escape", "first", "float", "groupby", "int",
    "items", "last", "length", "list", "lower", "map", "max", "min", "reject", "rejectattr", "reverse", "safe",
    "select", "selectattr", "sort", "string", "title", "trim", "truncate", "unique", "upper", "urlencode", "wordcount",
)  # fmt: skip
COUNTED, JOINED, CUT = "turn by turn", "side by side", "cut out"
"""Filters that loops, `~` and slices become: no template can write these names."""
MAX_DIGITS = 10


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
    items = [scalar(item) for item in value]
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


ALL: dict[str, Callable[..., Any]] = {
    **{name: _counting(FILTERS[name]) for name in AS_THEY_ARE},
    "join": _join,
    "replace": _counting(_replace),
    "round": _round,
    "tojson": _counting(_tojson),
    COUNTED: counted,
    JOINED: _joined,
    CUT: made,
}
NAMES = sorted(ALL.keys() - {COUNTED, JOINED, CUT})
