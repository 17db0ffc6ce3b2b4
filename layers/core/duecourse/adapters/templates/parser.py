"""Jinja2's parser within bounds: it counts words and levels as it goes, and the clock runs from the first of them."""

from collections.abc import Iterator
from typing import Any

from jinja2 import Environment, nodes
from jinja2.lexer import Token, TokenStream
from jinja2.parser import Parser

from duecourse.adapters.templates.meter import in_time

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
