"""Events that AWS's services send to functions, in their exact shapes, and the first event of each process."""

import base64
import json
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, NamedTuple
from urllib.parse import parse_qsl

from duecourse import settings
from duecourse.errors import InvalidSettings
from duecourse.ringing.bridge_event import warm_event
from duecourse.ringing.warming import LAMBDA
from duecourse.running.task_event import tasks_event

from ..template import Function
from .account import ACCOUNT, REGION, STAGE, arn
from .invocation import Answer, Invocation

Event = dict[str, Any]
TEXT_TYPES = ("json", "javascript", "xml")


class HttpRequest(NamedTuple):
    """Request over HTTP: path decoded, query as it was sent, headers in their order; `sent_path` is not decoded."""

    method: str
    path: str
    query: str
    headers: Sequence[tuple[str, str]]
    body: bytes
    source_ip: str
    protocol: str
    sent_path: str = ""


def http_event(
    request: HttpRequest, route_key: str, parameters: Mapping[str, str], authorizer: Event | None = None
) -> Event:
    """An HTTP API's event, payload format 2.0; what a request does not have is left out, as API Gateway does.

    `authorizer` is the verified identity of the caller.
    """
    headers = joined((n, v) for n, v in request.headers if n != "cookie")
    cookies = [c.strip() for n, v in request.headers if n == "cookie" for c in v.split(";")]
    query = joined(parse_qsl(request.query, keep_blank_values=True))
    event: Event = {
        "version": "2.0",
        "routeKey": route_key,
        "rawPath": request.path,
        "rawQueryString": request.query,
        **({"cookies": cookies} if cookies else {}),
        "headers": headers,
        **({"queryStringParameters": query} if query else {}),
        "requestContext": _context(request, route_key, headers) | ({"authorizer": authorizer} if authorizer else {}),
        **({"pathParameters": dict(parameters)} if parameters else {}),
    }
    return event | _body(request.body, headers)


def joined(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Values by name; those of one name are one, with commas, as API Gateway joins them."""
    found: dict[str, str] = {}
    for name, value in pairs:
        found[name] = f"{found[name]},{value}" if name in found else value
    return found


def _context(request: HttpRequest, route_key: str, headers: Mapping[str, str]) -> Event:
    now = time.time()
    domain = headers.get("host", "localhost")
    return {
        "accountId": ACCOUNT,
        "apiId": "local",
        "domainName": domain,
        "domainPrefix": domain.partition(".")[0],
        "http": {
            "method": request.method,
            "path": request.path,
            "protocol": request.protocol,
            "sourceIp": request.source_ip,
            "userAgent": headers.get("user-agent", ""),
        },
        "requestId": base64.b64encode(uuid.uuid4().bytes).decode(),
        "routeKey": route_key,
        "stage": STAGE,
        "time": datetime.fromtimestamp(now, UTC).strftime("%d/%b/%Y:%H:%M:%S +0000"),
        "timeEpoch": int(now * 1000),
    }


def _body(body: bytes, headers: Mapping[str, str]) -> Event:
    if not body:
        return {"isBase64Encoded": False}
    if _is_text(headers):
        try:
            return {"body": body.decode(), "isBase64Encoded": False}
        except UnicodeDecodeError:
            pass
    return {"body": base64.b64encode(body).decode(), "isBase64Encoded": True}


def _is_text(headers: Mapping[str, str]) -> bool:
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    return "content-encoding" not in headers and (kind.startswith("text/") or kind.endswith(TEXT_TYPES))


def scheduled_event(name: str, at: float, *, scheduler: bool = False) -> Event:
    """Event of a schedule at `at` (epoch seconds): an EventBridge rule's, or EventBridge Scheduler's."""
    return {
        "version": "0",
        "id": str(uuid.uuid4()),
        "detail-type": "Scheduled Event",
        "source": "aws.scheduler" if scheduler else "aws.events",
        "account": ACCOUNT,
        "time": datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "region": REGION,
        "resources": [arn("scheduler", f"schedule/default/{name}") if scheduler else arn("events", f"rule/{name}")],
        "detail": "{}" if scheduler else {},
    }


class Condition(StrEnum):
    """End of an asynchronous invocation, in Lambda's words."""

    SUCCESS = "Success"
    RETRIES_EXHAUSTED = "RetriesExhausted"
    EVENT_AGE_EXCEEDED = "EventAgeExceeded"
    ZERO_RESERVED_CONCURRENCY = "ZeroReservedConcurrency"


class EventOutcome(NamedTuple):
    """End of an asynchronous invocation that ran `tries` times; no answer where Lambda itself turned it away last."""

    function: str
    invocation: Invocation
    condition: Condition
    answer: Answer | None
    tries: int


def invocation_record(delivered: EventOutcome) -> Event:
    """Record that Lambda sends to the destination of an asynchronous invocation."""
    return {
        "version": "1.0",
        "timestamp": datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "requestContext": {
            "requestId": delivered.invocation.request_id,
            "functionArn": arn("lambda", f"function:{delivered.function}:$LATEST"),
            "condition": delivered.condition,
            "approximateInvokeCount": delivered.tries,
        },
        "requestPayload": json.loads(delivered.invocation.payload),
        **_response(delivered.answer),
    }


def _response(answer: Answer | None) -> Event:
    """The function's answer in a record; the status alone where Lambda throttled the event and has no answer."""
    if answer is None:
        return {"responseContext": {"statusCode": 429}}
    error = {"functionError": answer.error} if answer.error else {}
    context = {"statusCode": 200, "executedVersion": "$LATEST", **error}
    return {"responseContext": context, "responsePayload": json.loads(answer.payload)}


ON_EXPIRED = "on_expired"
"""The folder of the function that the bridge invokes."""
HEALTH = "GET /health"
ASKED = HttpRequest("GET", "/health", "", (), b"", "127.0.0.1", "HTTP/1.1")


def first_events(
    described: Iterable[Function], settings_of: Callable[[Function], Mapping[str, str]]
) -> dict[str, bytes]:
    """JSON text by function: rings to come for who serves rings, no tasks for who works tasks, health for the API."""
    events = {}
    for function in described:
        if any(route.key == HEALTH for route in function.routes):
            events[function.name] = http_event(ASKED, HEALTH, {})
        if function.code.name == ON_EXPIRED:
            events[function.name] = warm_event([])
            events |= dict.fromkeys(_targets(settings_of(function)), tasks_event([]))
    return {name: json.dumps(event).encode() for name, event in events.items()}


def _targets(environment: Mapping[str, str]) -> list[str]:
    try:
        targets = settings.parse(environment).targets.values()
    except InvalidSettings:
        return []  # which the functions will say themselves
    return [target.removeprefix(LAMBDA) for target in targets if target.startswith(LAMBDA)]
