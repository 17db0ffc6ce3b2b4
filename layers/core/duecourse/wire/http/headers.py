"""Headers of requests: the type of a body, and the Idempotency-Key of a request that changes something."""

import re

from duecourse.wire.http.problems import MalformedKey

CHANGING = frozenset({"POST", "PATCH", "PUT", "DELETE"})
"""Methods of the requests that may have a key."""
READING = frozenset({"/reminders/preview", "/schedules/preview"})
"""Routes of such a method that change nothing: no key makes a ledger keep their answers, which may hold credentials."""
KEY_HEADER = "Idempotency-Key"
KEY = re.compile(r'"([ !#-\[\]-~]|\\["\\]){1,255}"')
"""A String of RFC 9651: printable ASCII in double quotes, with a backslash before each quote or backslash in it."""


def read_key(text: str) -> str:
    """The key in the header's text. Raises MalformedKey."""
    text = text.strip(" ")
    if not KEY.fullmatch(text):
        raise MalformedKey
    return re.sub(r"\\(.)", r"\1", text[1:-1])


def is_json(content_type: str) -> bool:
    """True if a body of this content type is accepted."""
    return content_type.partition(";")[0].strip().lower() == "application/json"
