"""Requests of API Gateway, function URLs and load balancers as one form, and answers in the form of each.

The form is payload 2.0 of API Gateway at the stage $default: the path has neither stage nor base path.

AWS documents: "Create AWS Lambda proxy integrations for HTTP APIs" and "Lambda proxy integrations in API Gateway".
See also "Invoking Lambda function URLs" and "Use Lambda functions as targets of an Application Load Balancer".
"""

import re
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any, NamedTuple
from urllib.parse import unquote_plus, urlencode

from duecourse.base.event_reader import wrong_origin
from duecourse.base.json_text import Json
from duecourse.errors import FieldError, InvalidInput

EXPECTED = "a request of API Gateway, a function URL or a load balancer"
DEFAULT = "$default"
"""Name of the stage without a name, and of the route for all requests that no other route takes."""
PARAMETER = re.compile(r"\{([^{}+]+)(\+?)\}")
TOKEN_FIELDS = {"claims", "scopes", "integrationLatency"}
"""Fields of an authorizer that verifies tokens: any other is a Lambda authorizer's own."""
BALANCER = "elb"
"""Field of a context that a load balancer's request has."""

Event = dict[str, Any]
Answer = dict[str, Any]
Pairs = list[tuple[str, str]]


class GatewayRequest(NamedTuple):
    """One request as payload 2.0, and the form of its answer."""

    event: Event
    answer: Callable[[Answer], Answer]


def read_request(event: Json, base_path: str = "") -> GatewayRequest:
    """The request in an event. Raises InvalidInput, with the event's sender or the wrong field, where there is none.

    `base_path` is left out of the path where a gateway has one route for all paths.
    """
    context = event.get("requestContext") if isinstance(event, Mapping) else None
    if isinstance(event, Mapping) and isinstance(context, Mapping):
        if "http" in context:
            return GatewayRequest(_of_payload_2(event, context, base_path), lambda answer: answer)
        if BALANCER in context and "httpMethod" in event:
            many = "multiValueHeaders" in event
            return GatewayRequest(_of_balancer(event, context, base_path), BALANCER_ANSWERS[many])
        if "httpMethod" in event and "resource" in event:
            return GatewayRequest(_of_payload_1(event, context, base_path), _payload_1_answer)
    raise wrong_origin(event, EXPECTED)


def _of_payload_2(event: Mapping[str, Any], context: Mapping[str, Any], base_path: str) -> Event:
    """Request of an HTTP API or a function URL."""
    http = _table(context, "http", "requestContext.")
    stage, route = context.get("stage"), str(event.get("routeKey") or DEFAULT).rpartition(" ")[2]
    path = _path(route, _table(event, "pathParameters"), _text(event, "rawPath"), stage, base_path)
    return {
        **event,
        "rawPath": path,
        "rawQueryString": _text_or_empty(event, "rawQueryString"),
        "headers": _joined(_text_pairs(event, "Headers"), str.lower),
        "queryStringParameters": _joined(_text_pairs(event, "QueryStringParameters"), str),
        "requestContext": {**context, "stage": DEFAULT, "http": {**http, "method": _method(http, "method")}},
        **_body(event),
    }


def _of_payload_1(event: Mapping[str, Any], context: Mapping[str, Any], base_path: str) -> Event:
    """Request of a REST API, or of an HTTP API with payload 1.0."""
    headers, query = _joined(_text_pairs(event, "Headers"), str.lower), _text_pairs(event, "QueryStringParameters")
    # A REST API hands binary bodies on only if it is configured to: nothing may be compressed for it.
    headers.pop("accept-encoding", None)
    parameters, stage = _table(event, "pathParameters"), context.get("stage")
    path = _path(_text(event, "resource"), parameters, _text(event, "path"), stage, base_path)
    return _as_payload_2(event, path, headers, query, {"authorizer": _verified(context)})


def _of_balancer(event: Mapping[str, Any], context: Mapping[str, Any], base_path: str) -> Event:
    """Request of an Application Load Balancer, which hands on path and query as they were sent."""
    headers, query = _joined(_text_pairs(event, "Headers"), str.lower), _text_pairs(event, "QueryStringParameters")
    path = _strip_prefix(base_path, _text(event, "path"))
    # Nobody verified a caller: the headers x-amzn-oidc-… are the client's own wherever a listener's rule has no login.
    kept = {BALANCER: context[BALANCER]}
    return _as_payload_2(event, path, headers, [(unquote_plus(n), unquote_plus(v)) for n, v in query], kept)


def _as_payload_2(
    event: Mapping[str, Any], path: str, headers: dict[str, str], query: Pairs, context: dict[str, Any]
) -> Event:
    method = _method(event, "httpMethod")
    return {
        "version": "2.0",
        "routeKey": DEFAULT,
        "rawPath": path,
        "rawQueryString": urlencode(query, errors="surrogatepass"),
        "headers": headers,
        "queryStringParameters": _joined(query, str),
        "requestContext": {**context, "stage": DEFAULT, "http": {"method": method, "path": path}},
        **_body(event),
    }


def _verified(context: Mapping[str, Any]) -> dict[str, Any]:
    """Identity that API Gateway verified, as payload 2.0 has it: an IAM principal, or a user pool's token.

    The fields of a Lambda authorizer prove nothing here.
    """
    authorizer, identity = (_table(context, name, "requestContext.") for name in ("authorizer", "identity"))
    if isinstance(authorizer.get("claims"), Mapping) and set(authorizer) <= TOKEN_FIELDS:
        return {"jwt": {"claims": authorizer["claims"]}}
    return {"iam": {"userArn": identity["userArn"]}} if isinstance(identity.get("userArn"), str) else {}


def _path(route: str, parameters: Mapping[str, Any], raw: str, stage: object, base_path: str) -> str:
    """Path of a request within the API, by the route that its gateway chose, else by the path as it was sent.

    The path as it was sent begins with the stage, or with the mapping key of a custom domain; the route has neither.
    """
    if route.startswith("/") and all(isinstance(parameters.get(name), str) for name, _ in PARAMETER.findall(route)):
        # A slash in a parameter was sent as %2F, and begins no further segment.
        found = PARAMETER.sub(
            lambda one: parameters[one[1]] if one[2] else parameters[one[1]].replace("/", "%2F"), route
        )
    else:
        found = raw if stage in (None, "", DEFAULT) else _strip_prefix(f"/{stage}", raw)
    return _strip_prefix(base_path, found)


def _strip_prefix(prefix: str, path: str) -> str:
    """The path after a prefix of whole segments; a path that does not begin with it as it is."""
    after = path.removeprefix(prefix)
    return (after or "/") if prefix and (not after or after.startswith("/")) else path


def _body(event: Mapping[str, Any]) -> dict[str, Any]:
    return {"body": _text_or_empty(event, "body"), "isBase64Encoded": bool(event.get("isBase64Encoded"))}


def _text_pairs(event: Mapping[str, Any], name: str) -> Pairs:
    """Names and values of headers or parameters, which an event has as lists or one by one."""
    many = _table(event, f"multiValue{name}")
    if many:
        lists = {key: given if isinstance(given, list) else [given] for key, given in many.items()}
        return [(key, _as_text(one)) for key, given in lists.items() for one in given]
    single = _table(event, name[0].lower() + name[1:])
    return [(key, one if isinstance(one, str) else _as_text(one)) for key, one in single.items()]


def _as_text(value: object) -> str:
    return "" if value is None else str(value)


def _joined(pairs: Pairs, written: Callable[[str], str]) -> dict[str, str]:
    """Values by name; several of one name are one with commas, as in payload 2.0."""
    found: dict[str, str] = {}
    for name, value in ((written(name), value) for name, value in pairs):
        found[name] = f"{found[name]},{value}" if name in found else value
    return found


def _table(holder: Mapping[str, Any], field: str, place: str = "") -> Mapping[str, Any]:
    value = holder.get(field)
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise InvalidInput([FieldError(f"{place}{field}", "must be an object")])
    return value


def _text(holder: Mapping[str, Any], field: str) -> str:
    value = holder.get(field)
    if not isinstance(value, str):
        raise InvalidInput([FieldError(field, "must be text")])
    return value


def _text_or_empty(holder: Mapping[str, Any], field: str) -> str:
    return "" if holder.get(field) is None else _text(holder, field)


def _method(holder: Mapping[str, Any], field: str) -> str:
    return _text(holder, field).upper()


def _payload_1_answer(answer: Answer) -> Answer:
    headers = {name: [value] for name, value in answer["headers"].items()}
    headers |= {"Set-Cookie": answer["cookies"]} if answer.get("cookies") else {}
    encoded = bool(answer.get("isBase64Encoded"))
    return {
        "statusCode": answer["statusCode"],
        "multiValueHeaders": headers,
        "body": answer["body"] or "",
        "isBase64Encoded": encoded,
    }


def _many_values(answer: Answer) -> Answer:
    """Answer to a load balancer whose target group has multi-value headers."""
    status = answer["statusCode"]
    return {**_payload_1_answer(answer), "statusDescription": f"{status} {HTTPStatus(status).phrase}"}


def _one_value(answer: Answer) -> Answer:
    """Answer to a load balancer that takes one value for each header."""
    many = _many_values(answer)
    headers = {name: values[0] for name, values in many.pop("multiValueHeaders").items()}
    return {**many, "headers": headers}


BALANCER_ANSWERS = {True: _many_values, False: _one_value}
"""Forms of an answer to a load balancer: with lists of values, or not."""
