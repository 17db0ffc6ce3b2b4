"""Models of the payloads of built-in kinds, and of completion notifications."""

import re
from functools import lru_cache
from typing import Annotated, Any, Literal, NotRequired, Self
from urllib.parse import urlsplit

from pydantic import (
    ConfigDict,
    Field,
    StrictStr,
    model_validator,
)
from typing_extensions import TypedDict

from duecourse.api.fields import (
    Checked,
    Duration,
    Name,
    Strict,
    about,
    between,
    matching,
    reject_fields,
    requires,
)
from duecourse.base.masking import masked_text
from duecourse.base.times import DAY_MS
from duecourse.guard.call_credentials import (
    CONFLICT,
    NAME,
    WRONG_NAME,
)
from duecourse.guard.http_types import RESERVED_PATTERN, is_reserved
from duecourse.guard.jmespath_check import MAX_LENGTH, WrongExpression, parse_expression
from duecourse.ledger.api_query import MIN_INTERVAL_MS
from duecourse.ledger.task import Notify, is_url

# Models of the built-in kinds' payloads, checked at an add; running them needs none of this.

MAX_URL = 2_048
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
        fit = _is_place(parts.scheme, parts.netloc)
    except ValueError:
        fit = False
    if not fit or _UNFIT_FOR_URL.search(value):
        raise ValueError("must be an http or https URL" + _advice(value))
    if "@" in parts.netloc:
        raise ValueError("must not contain a user or a password: send a header over https")
    return value


def _advice(value: str) -> str:
    """Hint for a text that is no URL, without any part of it: an address may carry a secret."""
    if _UNFIT_FOR_URL.search(value.strip()):
        return ": write blanks and backslashes with escapes, such as %20"
    is_host = re.match(r"(localhost|[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)+)(:[0-9]+)?([/?#]|$)", value)
    return ": begin with https://" if is_host else ""


@lru_cache(maxsize=1024)
def _is_place(scheme: str, netloc: str) -> bool:
    """True if a call can go to this part of a URL, as far as its form tells; kept, for few hosts get most tasks."""
    parts = urlsplit(f"{scheme}://{netloc}")
    return scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0


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
    if problem := _problem_of(value):
        raise ValueError(problem)
    return value


@lru_cache(maxsize=1024)
def _problem_of(expression: str) -> str:
    """Reason why an expression is not taken, or ""; kept, for a batch may have one a thousand times."""
    try:
        parse_expression(expression)
    except WrongExpression as error:
        return str(error)
    return ""


URL_SCHEMA = {"pattern": r"^[Hh][Tt][Tt][Pp][Ss]?://[^\x00-\x20\x7f\\/?#@]+([/?#][^\x00-\x20\x7f\\]*)?$"}
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


Auth = Annotated[
    Annotated[StrictStr, matching(NAME, WRONG_NAME)] | None,
    about(
        "Name of the credential that the call carries: a bearer token, a login, a header, or OAuth's client "
        "credentials. Secrets Manager keeps it, and it is sent to its own hosts alone.",
        "billing",
    ),
]


class Calling(Strict):
    """Fields of each payload that is a call."""

    headers: Headers = Field(default_factory=dict)
    auth: Auth = None

    @model_validator(mode="after")
    def _one_authorization(self) -> Self:
        if self.auth and any(name.lower() == "authorization" for name in self.headers):
            raise reject_fields(CONFLICT, "headers")
        return self


class PollPayload(Calling):
    """Payload of a poll: request `url` at each `interval` until its JSON answer makes `until` true."""

    url: Url = Field(
        description="URL to request: http or https, at a public address or at one that DUECOURSE_EGRESS_ALLOW lists.",
        examples=["https://api.example.com/exports/42"],
    )
    method: Method = Field("GET", description="HTTP method.")
    body: Any = Field(None, description="Body of the request. A string is sent as text/plain, any other value as JSON.")
    interval: Annotated[Duration, between(MIN_INTERVAL_MS, MAX_INTERVAL_MS)] = Field(
        description="Interval between two requests, PT0.1S to P30D, and at least DUECOURSE_POLL_INTERVAL (PT1S). "
        "A longer Retry-After takes precedence.",
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


class WebhookPayload(Calling):
    """Payload of a webhook: send `body` to `url` until the answer is 2xx."""

    url: Url = Field(
        description="URL to call: http or https, at a public address or at one that DUECOURSE_EGRESS_ALLOW lists.",
        examples=["https://hooks.example.com/orders"],
    )
    method: Method = Field("POST", description="HTTP method.")
    body: Any = Field(None, description="Body of the request, sent as JSON.")
    timeout: Timeout = None


PAYLOADS: dict[str, type[Strict]] = {"poll": PollPayload, "webhook": WebhookPayload}


def check_payload(kind: str, payload: dict[str, Any]) -> None:
    """Return if a built-in `kind` could run the payload; a user's own kind takes any. Raises ValidationError."""
    model = PAYLOADS.get(kind)
    if model:
        model.model_validate(payload)


# Receiver of a completion notification, in requests and answers.


class NotifyDone(Strict):
    """Receiver of the completion notification: a URL, or the target of a kind.

    A task of its own delivers the notification, with retries.
    """

    model_config = ConfigDict(
        json_schema_extra={"oneOf": [requires("url"), requires("target")], "not": requires("target", "auth")}
    )

    url: Url | None = Field(
        None,
        description="URL that receives a POST with `type`, `timestamp` and `data`, as in Standard Webhooks.",
        examples=["https://example.com/hooks/tasks"],
    )
    target: Name | None = Field(
        None,
        description="Kind from DUECOURSE_TARGETS whose target receives a task with the payload `type`, "
        "`timestamp` and `data`.",
        examples=["audit"],
    )
    include: Annotated[list[Literal["payload", "result"]], Field(max_length=2)] = Field(
        default_factory=list,
        description="Parts of the task to add to the notification: `payload`, with credentials shown as `•••`, and "
        "`result`. The notification always carries the rest, `history` included.",
        examples=[["payload", "result"]],
    )

    auth: Auth = None

    @model_validator(mode="after")
    def _one_of_them(self) -> Self:
        if (self.url is None) == (self.target is None):
            raise reject_fields("give either url or target", "url", "target")
        if self.auth and not self.url:
            raise reject_fields("needs a url: a target is not called over HTTP", "auth")
        return self

    def text(self) -> str:
        """The receiver as text, as a record has it."""
        include = tuple(dict.fromkeys(self.include))
        return Notify(self.url or self.target or "", include, self.auth or "").text()


class NotifyView(TypedDict):
    """Receiver of the completion notification, as it is shown."""

    url: NotRequired[Annotated[str, about("URL that receives a POST; credentials in it are shown as `•••`.")]]
    target: NotRequired[Annotated[str, about("Kind whose target receives the notification.", "audit")]]
    include: NotRequired[Annotated[list[str], about("Parts of the task added to the notification.", ["payload"])]]
    auth: NotRequired[Annotated[str, about("Name of the credential that the POST carries.", "billing")]]


def show_notify(text: str) -> NotifyView:
    """Receiver of a completion notification in the words of the HTTP API."""
    notify = Notify.of(text)
    view: NotifyView = {"url": masked_text(notify.address)} if is_url(text) else {"target": notify.address}
    if notify.include:
        view["include"] = list(notify.include)
    if notify.auth:
        view["auth"] = notify.auth
    return view
