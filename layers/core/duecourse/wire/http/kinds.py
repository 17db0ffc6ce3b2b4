"""Models of the built-in kinds' payloads, checked at an add; running them needs none of this."""

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import Field, StrictStr

from duecourse.domain.calls import RESERVED_PATTERN, is_reserved
from duecourse.domain.expression import MAX_LENGTH, problem_of_tree
from duecourse.domain.times import DAY_MS
from duecourse.wire.http.fields import Checked, Duration, Strict, about, between

MAX_URL = 2_048
MIN_INTERVAL_MS = 100
MAX_INTERVAL_MS = 30 * DAY_MS
MAX_TIMEOUT_MS = 20_000
MAX_HEADERS = 50
MAX_HEADER = 4_096

Method = Literal["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"]

_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,200}")
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_UNFIT_FOR_URL = re.compile(r"[\x00-\x20\x7f\\]")


def _url(value: str) -> str:
    try:
        parts = urlsplit(value)
        fit = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        fit = False
    if not fit or _UNFIT_FOR_URL.search(value):
        raise ValueError("must be an http or https URL")
    return value


def _headers(value: dict[str, str]) -> dict[str, str]:
    for name, text in value.items():
        if not _HEADER_NAME.fullmatch(name):
            raise ValueError(f"{name[:50]!r} is not a header name")
        if is_reserved(name):
            raise ValueError(f"must not contain {name[:50]}, which duecourse or the connection sets: leave it out")
        # HTTP carries Latin-1; a line break would begin a header of somebody else's making.
        if _CONTROL.search(text) or len(text) > MAX_HEADER or not text.isascii():
            raise ValueError(f"{name} must be printable ASCII of at most {MAX_HEADER} characters")
    return value


def _expression(value: str) -> str:
    import jmespath
    from jmespath.exceptions import JMESPathError

    try:
        parsed = jmespath.compile(value).parsed
    except (JMESPathError, ValueError, RecursionError):
        raise ValueError("must be a JMESPath expression") from None
    if problem := problem_of_tree(parsed):
        raise ValueError(problem)
    _check_calls(parsed)
    return value


def _check_calls(parsed: Mapping[str, Any]) -> None:
    """Return if each function is one of JMESPath's, rightly called: else no answer could ever be judged."""
    from jmespath.functions import Functions

    waiting = [parsed]
    while waiting:
        node = waiting.pop()
        waiting += [child for child in node["children"] if isinstance(child, dict)]
        if node["type"] == "function_expression":
            known = Functions.FUNCTION_TABLE.get(node["value"])
            _check_call(node["value"][:50], len(node["children"]), known and known["signature"])


def _check_call(name: str, count: int, signature: Sequence[dict[str, Any]] | None) -> None:
    if signature is None:
        raise ValueError(f"must call functions of JMESPath only: {name} is unknown")
    more = signature[-1].get("variadic", False)
    if count < len(signature) or (count > len(signature) and not more):
        takes = f"{'at least ' if more else ''}{len(signature)} argument{'' if len(signature) == 1 else 's'}"
        raise ValueError(f"must call {name} with {takes}, not {count}")


URL_SCHEMA = {"pattern": r"^[Hh][Tt][Tt][Pp][Ss]?://[^\x00-\x20\x7f\\/?#][^\x00-\x20\x7f\\]*$"}
"""Pattern of every such URL, as far as a pattern can check it."""
Url = Annotated[StrictStr, Field(max_length=MAX_URL), Checked(_url, URL_SCHEMA)]
HEADERS_SCHEMA = {
    "propertyNames": {"pattern": f"^{_HEADER_NAME.pattern}$", "not": {"pattern": RESERVED_PATTERN}},
    "additionalProperties": {"type": "string", "maxLength": MAX_HEADER, "pattern": "^[\\t -~]*$"},
}
Headers = Annotated[
    dict[StrictStr, StrictStr],
    Field(max_length=MAX_HEADERS, description="Headers of the request: at most 50, in printable ASCII."),
    Checked(_headers, HEADERS_SCHEMA),
]
Expression = Annotated[
    StrictStr, Field(min_length=1, max_length=MAX_LENGTH), Checked(_expression, {"format": "jmespath"})
]
Timeout = Annotated[
    Annotated[Duration, between(1, MAX_TIMEOUT_MS)] | None,
    about("Timeout of one request, at most PT20S. Default: DUECOURSE_HTTP_TIMEOUT."),
]


class PollPayload(Strict):
    """Payload of a poll: request `url` at each `interval` until its JSON answer makes `until` true."""

    url: Url = Field(description="URL to request: http or https.", examples=["https://api.example.com/exports/42"])
    method: Method = Field("GET", description="HTTP method.")
    headers: Headers = Field(default_factory=dict)
    body: Any = Field(None, description="Body of the request. A string is sent as text/plain, any other value as JSON.")
    interval: Annotated[Duration, between(MIN_INTERVAL_MS, MAX_INTERVAL_MS)] = Field(
        description="Interval between two requests, PT0.1S to P30D. A longer Retry-After takes precedence.",
        examples=["PT30S"],
    )
    timeout: Timeout = None
    until: Expression = Field(
        description="JMESPath expression on the JSON answer; the poll is done when it is true.",
        examples=["state == 'done'"],
    )
    failed_when: Expression | None = Field(
        None, description="JMESPath expression on the JSON answer; the task is dead when it is true."
    )
    result: Expression | None = Field(
        None, description="JMESPath expression that selects the result. Default: the whole answer."
    )


class WebhookPayload(Strict):
    """Payload of a webhook: send `body` to `url` until the answer is 2xx."""

    url: Url = Field(description="URL to call: http or https.", examples=["https://hooks.example.com/orders"])
    method: Method = Field("POST", description="HTTP method.")
    headers: Headers = Field(default_factory=dict)
    body: Any = Field(None, description="Body of the request, sent as JSON.")
    timeout: Timeout = None


PAYLOADS: dict[str, type[Strict]] = {"poll": PollPayload, "webhook": WebhookPayload}


def check_payload(kind: str, payload: dict[str, Any]) -> None:
    """Return if a built-in `kind` could run the payload; a user's own kind takes any. Raises ValidationError."""
    model = PAYLOADS.get(kind)
    if model:
        model.model_validate(payload)
