"""Error on a text that is no JMESPath expression: the position, and the text with usual mistakes mended."""

import re
from collections.abc import Callable

WRONG = "must be a JMESPath expression"
MAX_FIXES = 10
"""Maximum number of mistakes that are mended in one expression."""
MAX_ADVICE = 200
"""Maximum length of a mended expression in an error."""
NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?(?![A-Za-z0-9_.-])")
OPERATOR = re.compile(r"(==|!=|<|>|<=|>=|&&|\|\||\(|,)\s*$")
"""Place at which a number may be meant as a value."""
WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
DASHED = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(-[A-Za-z0-9_]+)+", re.ASCII)
JSON_WORDS = {"true", "false", "null"}
OPERATORS = {"and": "&&", "or": "||"}


def problem_of_text(text: str, error: Exception, parse: Callable[[str], object]) -> str:
    """Error on a text that `parse` rejects with this error."""
    if isinstance(error, RecursionError):
        return f"{WRONG} that nests less deep"
    at = _index(text, error)
    if at >= len(text):
        return f"{WRONG}: it ends too early"
    right = _mended(text, at, parse)
    return f"{WRONG}: unexpected {text[at]!r} at character {at + 1}" + (f": write {right}" if right else "")


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
            return mended if len(mended) <= MAX_ADVICE else ""
        if mended == text or place >= len(mended):
            return ""
        text, at = mended, place
    return ""


def _fixed(text: str, at: int) -> str:
    """The text with the mistake at this place mended, or the text as it was."""
    before, after = text[:at], text[at:]
    if after[0] == "=":
        return _compared(before, after)
    number = NUMBER.match(after)
    if number and OPERATOR.search(before):
        return f"{before}`{number[0]}`{after[number.end() :]}"
    if after[0] == "-":
        return _quoted(text, at)
    if at == 0:
        return text.removeprefix("$.")
    return _with_operator(before, after)


def _with_operator(before: str, after: str) -> str:
    """Words and signs of other languages as operators of JMESPath."""
    word = WORD.match(after)
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
    found = next((one for one in DASHED.finditer(text) if one.start() < at < one.end()), None)
    return f'{text[: found.start()]}"{found[0]}"{text[found.end() :]}' if found else text
