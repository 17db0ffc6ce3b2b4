"""The JSON object in a request's or a message's body."""

import json
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from typing import Any

from duecourse.errors import MAX_ERRORS, FieldError, InvalidInput
from duecourse.wire.fields import MAX_FIELD
from duecourse.wire.problems import BodyTooLarge, MalformedBody

MAX_BODY_BYTES = 256 * 1024


def parse_body(text: str, most: int = MAX_BODY_BYTES) -> dict[str, Any]:
    """The JSON object in a body of at most `most` bytes. Raises BodyTooLarge, MalformedBody or InvalidInput."""
    if len(text) > most or len(text.encode("utf-8", "surrogatepass")) > most:
        raise BodyTooLarge(f"The body is over {most // 1024} KiB.")
    doubled: list[_Doubled] = []
    try:
        body = json.loads(text, parse_constant=_refuse_constant, object_pairs_hook=lambda pairs: _table(pairs, doubled))
    except (_Unfit, json.JSONDecodeError) as error:
        raise MalformedBody(f"The body is not JSON: {error}") from None
    except RecursionError:
        raise MalformedBody("The body is nested too deep.") from None
    except ValueError:  # Python's own bound; its words tell how to raise that
        raise MalformedBody("The body holds a number with too many digits.") from None
    if not isinstance(body, dict):
        raise InvalidInput([FieldError("body", "must be a JSON object")])
    if doubled:
        raise InvalidInput(
            [FieldError(name, "stands twice in its object") for name in islice(_named(body), MAX_ERRORS)]
        )
    return body


class _Unfit(ValueError):
    """What Python takes for JSON and nobody else does."""


def _refuse_constant(name: str) -> None:
    raise _Unfit(f"{name} is not a JSON value")


class _Doubled(dict[str, Any]):
    """An object that has `names` more than once: of which value others take, nobody can be sure."""

    names: list[str]


def _table(pairs: list[tuple[str, Any]], doubled: list[_Doubled]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) == len(pairs):
        return table
    doubled.append(_Doubled(table))
    doubled[-1].names = [name for name, times in Counter(name for name, _ in pairs).items() if times > 1]
    return doubled[-1]


def _named(body: dict[str, Any]) -> Iterator[str]:
    """The dotted names of what stands twice; one is found where there is any, for the outermost are all in `body`."""
    todo: list[tuple[str, Any]] = [("", body)]
    while todo:
        path, value = todo.pop()
        if isinstance(value, _Doubled):
            yield from (f"{path}{name}"[:MAX_FIELD] for name in value.names)
        inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        todo += [(f"{path}{key}."[:MAX_FIELD], one) for key, one in inside]
