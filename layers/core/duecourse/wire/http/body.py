"""The JSON object in a request's or a message's body."""

import json
import re
from typing import Any

from duecourse.errors import FieldError, InvalidInput
from duecourse.wire import doubled
from duecourse.wire.http.problems import BodyTooLarge, MalformedBody

MAX_BODY_BYTES = 256 * 1024
MAX_VALUES = 400_000
"""Maximum number of values in a body: as objects, they take many times the memory of their text."""
PIECE = 65_536
"""Characters of a body that are looked at together."""
QUOTED = re.compile(r'"[^"]*"?')
"""A text between quotes; one that does not end goes to the end, so that a search looks at each character once."""


def parse_body(text: str, most: int = MAX_BODY_BYTES) -> dict[str, Any]:
    """The JSON object in a body of at most `most` bytes. Raises BodyTooLarge, MalformedBody or InvalidInput."""
    if len(text) > most or len(text.encode("utf-8", "surrogatepass")) > most:
        raise BodyTooLarge(f"The body is over {most // 1024} KiB.")
    if has_more_values(text, MAX_VALUES):
        raise BodyTooLarge(f"The body has more than {MAX_VALUES:,} values.")
    try:
        body, twice = doubled.load(text, _reject_constant)
    except (_Unfit, json.JSONDecodeError) as error:
        raise MalformedBody(f"The body is not JSON: {error}") from None
    except RecursionError:
        raise MalformedBody("The body is nested too deep.") from None
    except ValueError:  # Python's own bound; its words tell how to raise that
        raise MalformedBody("The body holds a number with too many digits.") from None
    if twice:
        raise InvalidInput(twice)
    if not isinstance(body, dict):
        raise InvalidInput([FieldError("body", "must be a JSON object")])
    return body


def has_more_values(text: str, most: int) -> bool:
    """True if a JSON text has more than so many values, without reading any of them."""
    if _marks(text) <= most:  # those within texts included: most bodies have fewer even so
        return False
    plain = text.replace("\\\\", "").replace('\\"', "")
    count, is_inside = 0, False
    for at in range(0, len(plain), PIECE):
        piece = '"' * is_inside + plain[at : at + PIECE]
        count, is_inside = count + _marks(QUOTED.sub("", piece)), piece.count('"') % 2 == 1
        if count > most:
            return True
    return False


def _marks(text: str) -> int:
    # Each value but the first of an object or a list has a comma before it; each other, a bracket of its own outside.
    return sum(text.count(mark) for mark in ",{[")


class _Unfit(ValueError):
    """A constant that Python accepts as JSON, and no other parser does."""


def _reject_constant(name: str) -> None:
    raise _Unfit(f"{name} is not a JSON value")
