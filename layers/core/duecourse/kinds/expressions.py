"""JMESPath within bounds of steps, time and size: neither the expression nor its data can be trusted.

An expression of thirty parts can double a value thirty times, or look at a million elements ten times over.
"""

from functools import lru_cache

from jmespath.parser import Parser

from duecourse.domain.expression import MAX_LENGTH, problem_of_tree
from duecourse.domain.task import Json
from duecourse.kinds.expression_meter import DoesNotFit, Meter
from duecourse.kinds.expression_parts import Part, part_of
from duecourse.turns import Computation

MAX_CPU_S = 0.25
"""Seconds of the processor to judge one answer, by this thread alone: what others do meanwhile is not counted."""


class WrongExpression(Exception):
    """The expression can be applied to no answer."""


@lru_cache(maxsize=256)
def compiled(expression: str) -> Part:
    """A JMESPath expression, compiled once. Raises WrongExpression."""
    if len(expression) > MAX_LENGTH:
        raise WrongExpression(f"is {len(expression):,} characters long: at most {MAX_LENGTH:,} are taken")
    parse = Parser().parse
    try:
        parsed = parse(expression).parsed
        problem = problem_of_tree(parsed)
    except (ValueError, RecursionError) as error:  # all of jmespath's own are ValueErrors
        from duecourse.domain.expression_text import problem_of_text  # for wrong ones alone

        problem = problem_of_text(expression, error, parse)
    finally:
        Parser.purge()  # it keeps 512 expressions, each of which may take 200 KB
    if problem:
        raise WrongExpression(problem)
    return part_of(parsed)


class Search:
    """Searches of one answer, whose work is counted together."""

    def __init__(self, answer: Json, computation: Computation) -> None:
        self._answer = answer
        self._meter = Meter(computation)

    def find(self, expression: str) -> Json:
        """Result of the expression. Raises WrongExpression, TooMuchWork or DoesNotFit."""
        part = compiled(expression)
        self._meter.begin()
        self._meter.spend(part.nodes)
        try:
            return part.run(self._answer, self._meter)
        except (TypeError, ValueError, LookupError, AttributeError, ArithmeticError, RecursionError) as error:
            raise DoesNotFit(f"the expression cannot be applied to this answer: {type(error).__name__}") from None
