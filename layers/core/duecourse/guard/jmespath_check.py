"""Bounds on a JMESPath expression before it is applied: length, depth, calls; and errors that show the position."""

import re
from collections.abc import Callable, Iterator
from math import isfinite
from typing import Any

MAX_LENGTH = 1_000
"""Maximum length, in characters."""
MAX_DEPTH = 100
"""Maximum depth of a parsed expression: each level takes a few levels of Python's own stack."""
FUNCTIONS = frozenset({
    "abs", "avg", "ceil", "contains", "ends_with", "floor", "join", "keys", "length", "map", "max", "max_by", "merge",
    "min", "min_by", "not_null", "reverse", "sort", "sort_by", "starts_with", "sum", "to_array", "to_number",
    "to_string", "type", "values",
})  # fmt: skip
"""JMESPath's functions, whose work is bounded; a later release of the package may have more, whose work is not."""
NOT_AN_EXPRESSION = "must be a JMESPath expression"
MAX_FIXES = 10
"""Maximum number of mistakes that are mended in one expression."""
MAX_HINT = 200
"""Maximum length of a mended expression in an error."""
# Patterns are compiled at their first use: functions that start up have no wrong expression yet.
NUMBER = r"-?(0|[1-9][0-9]*)(\.[0-9]+)?(?![A-Za-z0-9_.-])"
OPERATOR = r"(==|!=|<|>|<=|>=|&&|\|\||\(|,)\s*$"
"""Place at which a number may be meant as a value."""
WORD = r"[A-Za-z_][A-Za-z0-9_]*"
DASHED = r"[A-Za-z_][A-Za-z0-9_]*(-[A-Za-z0-9_]+)+"
JSON_WORDS = {"true", "false", "null"}
OPERATORS = {"and": "&&", "or": "||"}


class WrongExpression(Exception):
    """The expression can be applied to no answer."""


def parse_expression(expression: str) -> Any:
    """Tree of a JMESPath expression, as the package's parser makes it. Raises WrongExpression with the reason."""
    from jmespath.parser import Parser

    if len(expression) > MAX_LENGTH:
        raise WrongExpression(f"is {len(expression):,} characters long: at most {MAX_LENGTH:,} are taken")
    parse = Parser().parse
    try:
        tree = parse(expression).parsed
        problem = _problem_of_tree(tree)
    except (ValueError, RecursionError) as error:  # all of jmespath's own are ValueErrors
        problem = _problem_of_text(expression, error, parse)
    finally:
        Parser.purge()  # it keeps 512 expressions, each of which may take 200 KB
    if problem:
        raise WrongExpression(problem)
    return tree


def _problem_of_tree(tree: Any) -> str:
    """Reason why a parsed expression is not applied, or ""."""
    waiting = [(tree, 1)]
    while waiting:
        node, depth = waiting.pop()
        if depth > MAX_DEPTH:
            return f"nests deeper than {MAX_DEPTH} levels: write it shorter, or as several expressions"
        problem = next(_problems(node), "")
        if problem:
            return problem
        waiting += [(child, depth + 1) for child in node["children"] if isinstance(child, dict)]
    return "must not be an expression reference (&…) by itself" if tree["type"] == "expref" else ""


def _problems(node: Any) -> Iterator[str]:
    if node["type"] == "function_expression":
        yield from _problems_of_call(node["value"], node["children"])
        return
    if node["type"] == "literal" and not _is_json(node["value"]):
        yield "must not have a literal number that JSON cannot carry, such as NaN or 1e999"
    if node["type"] == "slice" and node["children"][2] == 0:
        yield "must not have a slice whose step is 0"
    if any(isinstance(child, dict) and child["type"] == "expref" for child in node["children"]):
        yield "must have an expression reference (&…) only as an argument of map, sort_by, max_by or min_by"


def _is_json(literal: Any) -> bool:
    """False if a literal holds NaN or an infinity, which Python reads from JSON text all the same."""
    waiting = [literal]
    while waiting:
        value = waiting.pop()
        if isinstance(value, float) and not isfinite(value):
            return False
        waiting += value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return True


def _problems_of_call(name: str, given: list[Any]) -> Iterator[str]:
    from jmespath.functions import Functions

    if name not in FUNCTIONS:
        yield f"must call functions of JMESPath only: {name[:50]} is unknown"
        return
    takes = Functions.FUNCTION_TABLE[name]["signature"]
    least, count, more = len(takes), len(given), "variadic" in takes[-1]
    if count < least or (count > least and not more):
        arguments = f"{'at least ' if more else ''}{least} argument{'' if least == 1 else 's'}"
        yield f"must call {name} with {arguments}, not {count}"
    for place, argument in enumerate(given, 1):
        is_expression = takes[min(place, least) - 1]["types"] == ["expref"]
        if is_expression != (argument["type"] == "expref"):
            yield f"must call {name} with {'an' if is_expression else 'no'} expression (&…) as argument {place}"


def _problem_of_text(text: str, error: Exception, parse: Callable[[str], object]) -> str:
    """Error on a text that `parse` rejects with this error: the position, and the text with usual mistakes mended."""
    if isinstance(error, RecursionError):
        return f"{NOT_AN_EXPRESSION} that nests less deep"
    at = _index(text, error)
    if at >= len(text):
        return f"{NOT_AN_EXPRESSION}: it ends too early"
    right = _mended(text, at, parse)
    return f"{NOT_AN_EXPRESSION}: unexpected {text[at]!r} at character {at + 1}" + (f": write {right}" if right else "")


def _place(text: str, parse: Callable[[str], object]) -> int | None:
    """Index of the first character that does not fit, or None."""
    try:
        parse(text)
    except (ValueError, RecursionError) as error:
        return _index(text, error)
    return None


def _index(text: str, error: Exception) -> int:
    """Index that an error of jmespath names; the end of the text for any other error."""
    found = getattr(error, "lex_position", None)
    return found if isinstance(found, int) else len(text)


def _mended(text: str, at: int, parse: Callable[[str], object]) -> str:
    """The expression that was meant, as far as its mistakes are usual ones; or ""."""
    for _ in range(MAX_FIXES):
        mended = _fixed(text, at)
        place = _place(mended, parse) if mended != text else at
        if place is None:
            return mended if len(mended) <= MAX_HINT else ""
        if mended == text or place >= len(mended):
            return ""
        text, at = mended, place
    return ""


def _fixed(text: str, at: int) -> str:
    """The text with the mistake at this place mended, or the text as it was."""
    before, after = text[:at], text[at:]
    if after[0] == "=":
        return _compared(before, after)
    number = re.match(NUMBER, after)
    if number and re.search(OPERATOR, before):
        return f"{before}`{number[0]}`{after[number.end() :]}"
    if after[0] == "-":
        return _quoted(text, at)
    if at == 0:
        return text.removeprefix("$.")
    return _with_operator(before, after)


def _with_operator(before: str, after: str) -> str:
    """Words and signs of other languages as operators of JMESPath."""
    word = re.match(WORD, after, re.ASCII)
    if word and word[0].lower() in OPERATORS:
        return before + OPERATORS[word[0].lower()] + after[word.end() :]
    if negated := re.search(r"\bnot\s+$", before, re.IGNORECASE):
        return before[: negated.start()] + "!" + after
    if after[0] == ">" and before.endswith("<"):
        return f"{before[:-1]}!={after[1:]}"
    return f"{before}&{after}" if after[0] == "&" else before + after


def _compared(before: str, after: str) -> str:
    """A single equals sign, or one too many, as an operator; a bare word behind it becomes a text."""
    if before.endswith("=="):
        return before + after[1:]
    found = re.match(r"=\s*([A-Za-z_][A-Za-z0-9_]*)(?![A-Za-z0-9_.(\[])", after, re.ASCII)
    if after[1:2] in ("<", ">", "!"):
        return f"{before}{after[1]}={after[2:]}"
    if not found:
        return f"{before}={after}"
    mark = "`" if found[1] in JSON_WORDS else "'"
    return f"{before}== {mark}{found[1]}{mark}{after[found.end() :]}"


def _quoted(text: str, at: int) -> str:
    """The name around a dash in double quotes."""
    found = next((one for one in re.finditer(DASHED, text, re.ASCII) if one.start() < at < one.end()), None)
    return f'{text[: found.start()]}"{found[0]}"{text[found.end() :]}' if found else text
