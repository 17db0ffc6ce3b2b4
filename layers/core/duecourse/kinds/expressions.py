"""JMESPath within bounds: an expression of thirty parts can double a value thirty times, and would take the process."""

from functools import lru_cache

import jmespath
from jmespath.exceptions import JMESPathError
from jmespath.parser import ParsedResult
from jmespath.visitor import TreeInterpreter

from duecourse.domain.task import Json

MAX_MADE = 8 * 1024 * 1024
"""How much all that one search makes may weigh, in bytes: a character is one, and whatever has a place PLACE more."""
PLACE = 8


class TooMuchMade(JMESPathError):
    """The expression makes too much of the answer."""


@lru_cache(maxsize=256)
def compiled(expression: str) -> ParsedResult:
    """A JMESPath expression, compiled once. Raises JMESPathError."""
    return jmespath.compile(expression)


def search(expression: str, value: Json) -> Json:
    """What the expression finds in `value`. Raises JMESPathError, TooMuchMade among it."""
    return _Bounded().visit(compiled(expression).parsed, value)


class _Bounded(TreeInterpreter):
    """Weighs whatever is made anew; what is only picked out of the answer costs nothing."""

    def __init__(self) -> None:
        super().__init__()
        self._left = MAX_MADE

    def visit_multi_select_list(self, node: Json, value: Json) -> Json:
        return self._weighed(super().visit_multi_select_list(node, value))

    def visit_multi_select_dict(self, node: Json, value: Json) -> Json:
        return self._weighed(super().visit_multi_select_dict(node, value))

    def visit_flatten(self, node: Json, value: Json) -> Json:
        return self._weighed(super().visit_flatten(node, value))

    def visit_function_expression(self, node: Json, value: Json) -> Json:
        return self._weighed(super().visit_function_expression(node, value))

    def _weighed(self, made: Json) -> Json:
        waiting = [made]
        while waiting:
            item = waiting.pop()
            self._left -= PLACE + (len(item) if isinstance(item, str) else 0)
            if self._left < 0:
                raise TooMuchMade(f"it makes more than {MAX_MADE // 1024 // 1024} MiB of the answer")
            if isinstance(item, list | dict):
                waiting.extend(item.values() if isinstance(item, dict) else item)
        return made
