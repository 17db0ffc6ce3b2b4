"""One template rendered: compiled once, bounded in work, size and time, its errors with their line."""

import sys
from collections.abc import Mapping
from functools import lru_cache
from types import TracebackType
from typing import Any

from jinja2 import Environment, Template
from jinja2.compiler import CodeGenerator, Frame
from jinja2.exceptions import TemplateError, TemplateSyntaxError
from jinja2.nodes import Node

from duecourse.adapters.templates.language import check_names, checked
from duecourse.adapters.templates.meter import MAX_TEXT, Rejected, in_time, metered
from duecourse.adapters.templates.sandbox import Sandbox
from duecourse.turns import Computation

FILE = "<template>"
KEPT = 64
"""Number of compiled templates that are kept."""
FAULTS = (
    TemplateError, TypeError, ValueError, ArithmeticError, LookupError, AttributeError, RecursionError,
    AssertionError,
)  # fmt: skip
"""Errors by which a template's own fault shows while it is rendered.

AssertionError is Jinja2's answer to a wrong argument of `truncate`.
"""


class BrokenTemplate(Exception):
    """A template cannot be rendered: at a line, for a reason."""

    def __init__(self, line: int, problem: str) -> None:
        super().__init__(f"line {line}: {problem}")


class Renderer:
    """Renders templates; safe for threads."""

    def __init__(self) -> None:
        self._compiled = lru_cache(KEPT)(self._compile)
        self._sandboxes = {html: Sandbox(html=html) for html in (False, True)}

    def render(self, text: str, names: Mapping[str, Any], computation: Computation, *, html: bool = False) -> str:
        """A template's text with `names` in it; reading it is part of the computation. Raises BrokenTemplate."""
        with metered(computation):
            try:
                return _collect(self._compiled(text, frozenset(names), html), names)
            except FAULTS as error:
                raise BrokenTemplate(_line(error.__traceback__), _message(error)) from error

    def _compile(self, text: str, names: frozenset[str], html: bool) -> Template:
        sandbox = self._sandboxes[html]
        try:
            tree = checked(sandbox, text)
            generator = _Generator(sandbox)
            generator.visit(tree)
            check_names(tree, frozenset(generator.undeclared), names)
            in_time()
            code = compile(generator.stream.getvalue(), FILE, "exec")  # type: ignore[attr-defined]
        except TemplateSyntaxError as error:
            raise BrokenTemplate(error.lineno, str(error.message)) from error
        except (SyntaxError, RecursionError, MemoryError, OverflowError, ValueError) as error:
            raise BrokenTemplate(1, "it nests too deep, or holds too large a number") from error
        return Template.from_code(sandbox, code, dict(sandbox.globals))


class _Generator(CodeGenerator):
    """Jinja2's writer of Python, which notes the names that a template does not set itself."""

    def __init__(self, environment: Environment) -> None:
        super().__init__(environment, None, FILE, optimized=False)
        self.undeclared: set[str] = set()

    def visit(self, node: Node, *args: Any, **kwargs: Any) -> Any:
        in_time()
        return super().visit(node, *args, **kwargs)

    def enter_frame(self, frame: Frame) -> None:
        super().enter_frame(frame)
        self.undeclared |= {name for _, (action, name) in frame.symbols.loads.items() if action == "resolve" and name}


def _collect(template: Template, names: Mapping[str, Any]) -> str:
    pieces, length = [], 0
    for piece in template.generate(names):
        length += len(piece)
        if length > MAX_TEXT:
            raise Rejected(f"more than {MAX_TEXT:,} characters in all")
        pieces.append(piece)
    text = "".join(pieces)
    try:
        text.encode()
    except UnicodeEncodeError:
        raise Rejected("an unpaired surrogate, which no message can carry") from None
    return text


def _line(trace: TracebackType | None) -> int:
    """The template's line that an error came from: Jinja2 puts it into the traceback."""
    line = 1
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == FILE:
            line = trace.tb_lineno
        trace = trace.tb_next
    return line


def _message(error: BaseException) -> str:
    if isinstance(error, RecursionError):
        return f"it nests deeper than {sys.getrecursionlimit()} levels"
    return (str(error) or type(error).__name__)[:300]
