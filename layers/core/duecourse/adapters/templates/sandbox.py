"""Jinja2's sandbox with less in it: no methods, no attributes, arithmetic on numbers that stay small."""

from collections.abc import Mapping
from typing import Any

from jinja2 import StrictUndefined, Undefined
from jinja2.filters import _GroupTuple
from jinja2.nodes import EvalContext
from jinja2.runtime import Context, LoopContext
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import pass_eval_context

from duecourse.adapters.templates.filters import ALL, looking, scalar
from duecourse.adapters.templates.language import RANGE
from duecourse.adapters.templates.meter import Rejected, made

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
