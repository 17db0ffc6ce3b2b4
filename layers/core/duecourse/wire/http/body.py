"""The JSON object in a request's or a message's body."""

import json
from typing import Any

from duecourse.errors import FieldError, InvalidInput
from duecourse.wire import doubled
from duecourse.wire.http.problems import BodyTooLarge, MalformedBody

MAX_BODY_BYTES = 256 * 1024


def parse_body(text: str, most: int = MAX_BODY_BYTES) -> dict[str, Any]:
    """The JSON object in a body of at most `most` bytes. Raises BodyTooLarge, MalformedBody or InvalidInput."""
    if len(text) > most or len(text.encode("utf-8", "surrogatepass")) > most:
        raise BodyTooLarge(f"The body is over {most // 1024} KiB.")
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


class _Unfit(ValueError):
    """A constant that Python accepts as JSON, and no other parser does."""


def _reject_constant(name: str) -> None:
    raise _Unfit(f"{name} is not a JSON value")
