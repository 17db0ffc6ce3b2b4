"""JMESPath within bounds of steps, time and size: neither the expression nor its data can be trusted.

An expression of thirty parts can double a value thirty times, or look at a million elements ten times over.
"""

import time
from functools import lru_cache

import jmespath
from jmespath.exceptions import ArityError, JMESPathError, JMESPathTypeError, UnknownFunctionError
from jmespath.functions import Functions
from jmespath.parser import ParsedResult
from jmespath.visitor import TreeInterpreter

from duecourse.domain.expression import MAX_LENGTH, problem_of_tree
from duecourse.domain.task import Json

MAX_STEPS = 500_000
"""Nodes of an expression that are applied to a value, and values compared, in all searches of one answer together."""
MAX_CPU_S = 1.0
"""Seconds of the processor's time for the same, of this thread alone: what others do meanwhile is not counted."""
MAX_MADE = 8 * 1024 * 1024
"""Maximum size of all values that one search makes, in bytes: a character is one, each value PLACE more."""
PLACE = 8
BETWEEN_LOOKS = 256
"""Steps between two looks at the clock."""
AT_ONCE = 16
"""Elements that the interpreter's library goes over in the time of one step."""


class WrongExpression(Exception):
    """The expression can be applied to no answer."""


class TooMuchWork(Exception):
    """The expression asks for more work than one answer is worth."""


class TooMuchMade(TooMuchWork):
    """The expression makes too much of the answer."""


class DoesNotFit(Exception):
    """The expression cannot be applied to this answer; to another it may."""


@lru_cache(maxsize=256)
def compiled(expression: str) -> ParsedResult:
    """A JMESPath expression, compiled once. Raises WrongExpression."""
    if len(expression) > MAX_LENGTH:
        raise WrongExpression(f"is {len(expression):,} characters long: at most {MAX_LENGTH:,} are taken")
    try:
        parsed = jmespath.compile(expression)
    except (JMESPathError, ValueError, RecursionError):
        raise WrongExpression("must be a JMESPath expression") from None
    problem = problem_of_tree(parsed.parsed)
    if problem:
        raise WrongExpression(problem)
    return parsed


class Search:
    """Searches of one answer, whose work is counted together."""

    def __init__(self, answer: Json) -> None:
        self._answer = answer
        self._interpreter = _Bounded()

    def find(self, expression: str) -> Json:
        """Result of the expression. Raises WrongExpression, TooMuchWork or DoesNotFit."""
        self._interpreter.begin()
        try:
            return self._interpreter.visit(compiled(expression).parsed, self._answer)
        except JMESPathTypeError as error:  # its own text holds the value, which may be long and secret
            takes = ", ".join(error.expected_types)
            raise DoesNotFit(f"{error.function_name}() takes {takes}, not {error.actual_type}") from None
        except (ArityError, UnknownFunctionError) as error:
            raise WrongExpression(str(error)) from None
        except (TypeError, ValueError, LookupError, AttributeError, ArithmeticError, RecursionError) as error:
            raise DoesNotFit(f"the expression cannot be applied to this answer: {type(error).__name__}") from None


class _Bounded(TreeInterpreter):
    """Interpreter that counts each node it applies, and the size of each value it makes; picked values have no size."""

    def __init__(self) -> None:
        super().__init__()
        self._calls = Functions()
        self._steps = MAX_STEPS
        self._look_at = MAX_STEPS - BETWEEN_LOOKS
        self._cpu_s = MAX_CPU_S
        self._until = 0.0
        self._left = MAX_MADE

    def begin(self) -> None:
        """Begin another search, with what the ones before it left of steps and time."""
        if self._until:
            self._cpu_s = max(0.0, self._until - time.thread_time())
        self._until = time.thread_time() + self._cpu_s
        self._left = MAX_MADE

    def visit(self, node: Json, *args: Json, **kwargs: Json) -> Json:
        self._spend(1)
        return super().visit(node, *args, **kwargs)

    def visit_comparator(self, node: Json, value: Json) -> Json:
        left, right = (self.visit(child, value) for child in node["children"])
        sort = node["value"]
        if sort in {"eq", "ne"}:
            return self._same(left, right) is (sort == "eq")
        numbers = _is_number(left) and _is_number(right)
        if not numbers and not (isinstance(left, str) and isinstance(right, str)):
            return None
        return self.COMPARATOR_FUNC[sort](left, right)

    def visit_slice(self, node: Json, value: Json) -> Json:
        self._look_over(value)
        return super().visit_slice(node, value)

    def visit_multi_select_list(self, node: Json, value: Json) -> Json:
        return self._weighed(super().visit_multi_select_list(node, value))

    def visit_multi_select_dict(self, node: Json, value: Json) -> Json:
        return self._weighed(super().visit_multi_select_dict(node, value))

    def visit_flatten(self, node: Json, value: Json) -> Json:
        merged = super().visit_flatten(node, value)
        self._look_over(merged)
        return self._weighed(merged)

    def visit_function_expression(self, node: Json, value: Json) -> Json:
        name, given = node["value"], [self.visit(child, value) for child in node["children"]]
        for each in given:
            self._look_over(each)
        match name, given:
            case "contains", [list() as among, sought]:
                return any(self._same(sought, each) for each in among)
            case "join", [str() as between, list() as parts]:
                self._make(len(between) * len(parts))  # before it is made: this may be gigabytes
            case "sort" | "sort_by", [list() as items, *_]:
                self._spend(len(items) * len(items).bit_length() // (2 * AT_ONCE))
        return self._weighed(self._calls.call_function(name, given))

    def _spend(self, steps: int) -> None:
        """Count steps. Raises TooMuchWork."""
        self._steps -= steps
        if self._steps > self._look_at:
            return
        self._look_at = self._steps - BETWEEN_LOOKS
        if self._steps < 0:
            raise TooMuchWork(f"it takes more than {MAX_STEPS:,} steps for this answer: narrow it")
        if time.thread_time() > self._until:
            raise TooMuchWork(f"it takes more than {MAX_CPU_S:g} s for this answer: narrow it")

    def _look_over(self, value: Json) -> None:
        """Count that the library goes over all elements of a value, in its own quick way."""
        self._spend(len(value) // AT_ONCE if isinstance(value, list | dict | str) else 0)

    def _make(self, weight: int) -> None:
        self._left -= weight
        if self._left < 0:
            raise TooMuchMade(f"it makes more than {MAX_MADE // 1024 // 1024} MiB of the answer")

    def _weighed(self, made: Json) -> Json:
        waiting = [made]
        while waiting:
            item = waiting.pop()
            self._make(PLACE + (len(item) if isinstance(item, str) else 0))
            if isinstance(item, list | dict):
                waiting.extend(item.values() if isinstance(item, dict) else item)
        return made

    def _same(self, one: Json, other: Json) -> bool:
        """True if two values are equal as JSON; each compared pair is a step."""
        waiting = [iter(((one, other),))]
        while waiting:
            pair = next(waiting[-1], None)
            if pair is None:
                waiting.pop()
                continue
            left, right = pair
            self._spend(1)
            if isinstance(left, list) and isinstance(right, list) and len(left) == len(right):
                waiting.append(zip(left, right, strict=True))
            elif isinstance(left, dict) and isinstance(right, dict) and self._same_keys(left, right):
                waiting.append(zip(left.values(), map(right.__getitem__, left), strict=True))
            elif (
                isinstance(left, list | dict) or isinstance(left, bool) is not isinstance(right, bool) or left != right
            ):
                return False
        return True

    def _same_keys(self, left: dict[str, Json], right: dict[str, Json]) -> bool:
        self._look_over(left)
        return left.keys() == right.keys()


def _is_number(value: Json) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
