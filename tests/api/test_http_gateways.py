"""One request through each gateway: API Gateway's REST and HTTP APIs, a function URL and a load balancer."""

import base64
import json
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, quote

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from duecourse import errors
from duecourse.api.authorization import ClaimRule
from duecourse.api.gateways import read_request
from duecourse.ledger.embedded.ledger import EmbeddedLedger
from duecourse.settings import Settings, parse, read_access
from tests.support.functions import invoke, saved
from tests.support.ledger import stored_task
from tests.support.requests import WEBHOOK
from tests.support.wired import Wire

TEXT = json.dumps(WEBHOOK | {"id": "a@b:7"})
JSON_TYPE = {"Content-Type": "application/json"}
USER = "arn:aws:iam::123456789012:role/shop"
SESSION = "arn:aws:sts::123456789012:assumed-role/shop/checkout"
TABLE = 'principals:{"arn:aws:iam::123456789012:role/shop": {"tenant": "acme", "roles": ["caller"]}}'


class Sent(NamedTuple):
    """One request as its client sends it; the query is encoded."""

    method: str
    path: str
    query: str = ""
    body: str | None = None
    headers: dict[str, str] = {}  # noqa: RUF012 - nobody changes it


def rest(sent: Sent, **context: Any) -> dict[str, Any]:
    """Event of a REST API with one resource for all paths, behind a base path of a custom domain."""
    event = saved("enqueue_http/rest_list_base_path")
    pairs = parse_qsl(sent.query, keep_blank_values=True)
    many: dict[str, list[str]] = {}
    for name, value in pairs:
        many.setdefault(name, []).append(value)
    event["requestContext"] |= {"httpMethod": sent.method, "path": f"/jobs{sent.path}", **context}
    event["headers"] |= sent.headers
    event["multiValueHeaders"] |= {name: [value] for name, value in sent.headers.items()}
    return {
        **event,
        "httpMethod": sent.method,
        "path": f"/jobs{sent.path}",
        "pathParameters": {"proxy": sent.path.removeprefix("/")},
        "queryStringParameters": dict(pairs) or None,
        "multiValueQueryStringParameters": many or None,
        "body": sent.body,
    }


def url(sent: Sent) -> dict[str, Any]:
    """Event of a function URL."""
    event = saved("enqueue_http/url_add")
    event["requestContext"]["http"] |= {"method": sent.method, "path": sent.path}
    joined: dict[str, str] = {}
    for name, value in parse_qsl(sent.query, keep_blank_values=True):
        joined[name] = f"{joined[name]},{value}" if name in joined else value
    headers = {name.lower(): value for name, value in sent.headers.items()}
    event["headers"] = {**event["headers"], "content-type": "", **headers}
    event |= {"rawPath": sent.path, "rawQueryString": sent.query}
    return event | {"queryStringParameters": joined, "body": sent.body}


def _balancer(case: str, sent: Sent) -> dict[str, Any]:
    event = saved(f"enqueue_http/{case}") | {"httpMethod": sent.method, "path": sent.path, "body": sent.body or ""}
    pairs = [pair.partition("=")[::2] for pair in sent.query.split("&") if pair]
    headers = {name.lower(): value for name, value in sent.headers.items()}
    if "multiValueHeaders" in event:
        event["multiValueHeaders"] |= {name: [value] for name, value in headers.items()}
        event["multiValueQueryStringParameters"] = {}
        for name, value in pairs:
            event["multiValueQueryStringParameters"].setdefault(name, []).append(value)
    else:
        event["headers"] = {"host": "example.com", **headers}
        event["queryStringParameters"] = dict(pairs)
    return event


def balancer(sent: Sent) -> dict[str, Any]:
    """Event of a load balancer that sends one value of each header."""
    return _balancer("alb_add", sent)


def balancer_many(sent: Sent) -> dict[str, Any]:
    """Event of a load balancer that sends all values of each header."""
    return _balancer("alb_list_multi_value", sent)


Through = Callable[[Sent], dict[str, Any]]
GATEWAYS: list[Through] = [rest, url, balancer, balancer_many]
OPEN = Settings(load_balancer="open")


def headers_of(answer: dict[str, Any]) -> dict[str, str]:
    """Headers of an answer, in lower case, whichever field they are in."""
    many = {name: values[0] for name, values in answer.get("multiValueHeaders", {}).items()}
    return {name.lower(): value for name, value in (many | answer.get("headers", {})).items()}


@pytest.mark.parametrize("through", GATEWAYS)
def test_a_task_is_added_shown_listed_and_cancelled(through: Through, wire: Wire) -> None:
    ledger = EmbeddedLedger()
    wire(OPEN, ledger=ledger)
    assert invoke("enqueue_http", through(Sent("POST", "/tasks", body=TEXT, headers=JSON_TYPE)))["statusCode"] == 201
    shown = invoke("enqueue_http", through(Sent("GET", f"/tasks/{quote('a@b:7', safe='')}", "queue=def%61ult")))
    assert (shown["statusCode"], json.loads(shown["body"])["task"]["id"]) == (200, "a@b:7")
    assert headers_of(shown)["content-type"] == "application/json"
    listed = invoke("enqueue_http", through(Sent("GET", "/tasks", "queue=default&state=scheduled&kind=webhook")))
    assert [task["id"] for task in json.loads(listed["body"])["tasks"]] == ["a@b:7"]
    wrong = invoke("enqueue_http", through(Sent("GET", "/tasks", "queue=a%2Cb")))
    assert (wrong["statusCode"], headers_of(wrong)["content-type"]) == (422, "application/problem+json")
    gone = invoke("enqueue_http", through(Sent("DELETE", "/tasks/a@b:7", "force")))
    assert (gone["statusCode"], gone["body"] or "", gone["isBase64Encoded"]) == (204, "", False)
    assert stored_task(ledger, "a@b:7").status == "cancelled"


@pytest.mark.parametrize("through", GATEWAYS)
def test_an_encoded_body_is_read(through: Through, wire: Wire) -> None:
    wire(OPEN, ledger=EmbeddedLedger())
    sent = Sent("POST", "/tasks", body=base64.b64encode(TEXT.encode()).decode(), headers=JSON_TYPE)
    assert invoke("enqueue_http", through(sent) | {"isBase64Encoded": True})["statusCode"] == 201


@pytest.mark.parametrize("through", GATEWAYS)
def test_a_key_is_known_again_and_tied_to_its_request(through: Through, wire: Wire) -> None:
    wire(OPEN, ledger=EmbeddedLedger())
    keyed = {**JSON_TYPE, "Idempotency-Key": '"8e03978e-40d5-43e8-bc93"'}
    task = {**WEBHOOK, "id": "one"}

    def add(body: Any) -> int:
        event = through(Sent("POST", "/tasks", body=json.dumps(body), headers=keyed))
        return int(invoke("enqueue_http", event)["statusCode"])

    assert [add(task), add(task), add({**task, "id": "two"})] == [201, 201, 422]


@pytest.mark.parametrize("through", GATEWAYS)
def test_a_request_without_a_json_type_is_rejected(through: Through, wire: Wire) -> None:
    wire(OPEN, ledger=EmbeddedLedger())
    sent = Sent("POST", "/tasks", body=TEXT, headers={"Content-Type": "text/plain"})
    assert invoke("enqueue_http", through(sent))["statusCode"] == 415


def test_each_gateway_gets_the_form_that_it_takes(wire: Wire) -> None:
    wire(OPEN, ledger=EmbeddedLedger())
    one, many, api, own = (
        invoke("enqueue_http", by(Sent("GET", "/health"))) for by in (balancer, balancer_many, rest, url)
    )
    body = '{"status":"ok","store":"ok"}'
    json_type = "application/json"
    assert one == {
        "statusCode": 200,
        "statusDescription": "200 OK",
        "headers": {"Content-Type": json_type},
        "body": body,
        "isBase64Encoded": False,
    }
    assert many == {
        "statusCode": 200,
        "statusDescription": "200 OK",
        "multiValueHeaders": {"Content-Type": [json_type]},
        "body": body,
        "isBase64Encoded": False,
    }
    assert api == {
        "statusCode": 200,
        "multiValueHeaders": {"Content-Type": [json_type]},
        "body": body,
        "isBase64Encoded": False,
    }
    assert own == {
        "statusCode": 200,
        "headers": {"Content-Type": json_type},
        "cookies": [],
        "body": body,
        "isBase64Encoded": False,
    }


def test_cookies_of_an_answer_are_headers_where_a_gateway_has_no_field_for_them() -> None:
    answer = {"statusCode": 200, "headers": {}, "cookies": ["a=1", "b=2"], "body": None, "isBase64Encoded": False}
    rest_api = read_request(rest(Sent("GET", "/"))).answer(answer)
    assert rest_api["multiValueHeaders"] == {"Set-Cookie": ["a=1", "b=2"]}
    assert read_request(balancer_many(Sent("GET", "/"))).answer(answer)["multiValueHeaders"]["Set-Cookie"] == [
        "a=1",
        "b=2",
    ]
    assert read_request(url(Sent("GET", "/"))).answer(answer)["cookies"] == ["a=1", "b=2"]


def test_a_page_is_compressed_only_for_a_gateway_that_hands_binary_bodies_on(wire: Wire) -> None:
    wire(OPEN, ledger=EmbeddedLedger())
    sent = Sent("GET", "/openapi.json", headers={"Accept-Encoding": "gzip"})
    assert [invoke("enqueue_http", by(sent))["isBase64Encoded"] for by in GATEWAYS] == [False, True, True, True]


# The caller.


def who(event: dict[str, Any]) -> tuple[int, Any]:
    """Status of a request about tasks, and what is said of it."""
    answer = invoke("enqueue_http", event)
    return answer["statusCode"], json.loads(answer["body"]).get("role")


GET = Sent("GET", "/tasks")


def test_a_signature_that_a_rest_api_verified_names_the_caller(wire: Wire) -> None:
    wire(Settings(tenant_from=read_access(TABLE)), ledger=EmbeddedLedger())
    assert who(rest(GET))[0] == 200
    assert who(url(GET))[0] == 200
    other = {"userArn": SESSION.replace("/shop/", "/stranger/")}
    assert who(rest(GET, identity=other)) == (403, "caller")
    assert who(rest(GET, identity={"userArn": None})) == (403, "caller")


@pytest.mark.parametrize("case", ["rest_show_cognito", "payload_1_jwt"])
def test_a_token_that_an_api_verified_names_the_caller_by_its_claims(case: str, wire: Wire) -> None:
    wire(Settings(tenant_from=ClaimRule("sub")), ledger=EmbeddedLedger())
    event = saved(f"enqueue_http/{case}")
    assert who(event)[0] in {200, 404}
    event["requestContext"]["authorizer"]["claims"]["scope"] = "openid"
    assert who(event) == (403, "caller")


AUTHORIZERS = [
    {"principalId": "shop", "claims": {"sub": "acme", "scope": "duecourse/operator"}},
    {"principalId": "shop", "sub": "acme", "scope": "duecourse/operator", "integrationLatency": 7},
    {"claims": {"sub": "acme", "scope": "duecourse/operator"}, "plan": "gold"},
    {"claims": None, "scopes": None},
    {"claims": '{"sub": "acme"}'},
    {"lambda": {"sub": "acme"}},
    {"iam": {"userArn": SESSION}, "jwt": {"claims": {"sub": "acme", "scope": "duecourse/operator"}}},
    {},
]


@pytest.mark.parametrize("authorizer", AUTHORIZERS)
def test_fields_that_a_lambda_authorizer_writes_prove_nothing(authorizer: Any, wire: Wire) -> None:
    for rule in (ClaimRule("sub"), read_access(TABLE)):
        wire(Settings(tenant_from=rule), ledger=EmbeddedLedger())
        assert who(rest(GET, identity={}, authorizer=authorizer)) == (403, "caller")


FORGED = {
    "x-amzn-oidc-identity": "acme",
    "x-amzn-oidc-data": "eyJhbGciOiJFUzI1NiJ9.eyJzdWIiOiJhY21lIn0.c2ln",
    "x-amzn-oidc-accesstoken": "eyJhbGciOiJub25lIn0.eyJzY29wZSI6ImR1ZWNvdXJzZS9vcGVyYXRvciJ9.",
    "authorization": "Bearer eyJhbGciOiJub25lIn0.eyJzdWIiOiJhY21lIn0.",
    "x-tenant": "acme",
}


@pytest.mark.parametrize("through", [balancer, balancer_many])
@pytest.mark.parametrize("rule", [None, ClaimRule("sub"), read_access(TABLE)])
def test_a_load_balancer_names_no_caller_whatever_the_headers(through: Through, rule: Any, wire: Wire) -> None:
    wire(Settings(tenant_from=rule), ledger=EmbeddedLedger())
    event = through(Sent("GET", "/tasks", headers=FORGED))
    event["requestContext"]["authorizer"] = {"iam": {"userArn": SESSION}}
    event["requestContext"]["identity"] = {"userArn": SESSION}
    answer = invoke("enqueue_http", event)
    kind = "unverified-caller" if rule is None else "role-missing"
    assert (answer["statusCode"], json.loads(answer["body"])["type"]) == (403, f"urn:duecourse:problem:{kind}")


@pytest.mark.parametrize("path", ["/health", "/openapi.json", "/docs"])
def test_a_closed_load_balancer_may_ask_for_health_and_the_document(path: str, wire: Wire) -> None:
    wire(Settings(), ledger=EmbeddedLedger())
    event = balancer(Sent("GET", path, headers={"user-agent": "ELB-HealthChecker/2.0"}))
    assert invoke("enqueue_http", event)["statusCode"] == 200


def test_a_load_balancer_is_not_opened_beside_a_rule_for_callers() -> None:
    with pytest.raises(errors.InvalidSettings, match="LOAD_BALANCER: must be closed beside DUECOURSE_TENANT_FROM"):
        parse({"DUECOURSE_STORE": "memory://", "DUECOURSE_LOAD_BALANCER": "open", "DUECOURSE_TENANT_FROM": "claim:sub"})


# The path.

ONE = "/tasks/a:7/why"
PATHS: list[tuple[str, str, dict[str, str], str, str]] = [
    ("GET /tasks/{id}/why", ONE, {"id": "a:7"}, "$default", ""),
    ("GET /tasks/{id}/why", f"/jobs{ONE}", {"id": "a:7"}, "$default", ""),
    ("GET /tasks/{id}/why", f"/prod{ONE}", {"id": "a:7"}, "prod", ""),
    ("GET /tasks/{id}/why", f"/jobs{ONE}/", {"id": "a:7"}, "prod", ""),
    ("ANY /{proxy+}", f"/jobs{ONE}", {"proxy": ONE[1:]}, "prod", ""),
    ("ANY /jobs/{proxy+}", f"/jobs{ONE}", {"proxy": ONE[1:]}, "$default", "/jobs"),
    ("ANY /tasks/{rest+}", f"/prod{ONE}", {"rest": "a:7/why"}, "prod", ""),
    ("$default", ONE, {}, "$default", ""),
    ("$default", ONE, {}, "$default", "/jobs"),
    ("$default", f"/prod{ONE}", {}, "prod", ""),
    ("$default", f"/jobs{ONE}", {}, "$default", "/jobs"),
    ("$default", f"/jobs{ONE}", {}, "prod", "/jobs"),
    ("$default", f"/prod/a/b{ONE}", {}, "prod", "/a/b"),
    ("GET /tasks/{id}/why", ONE, {}, "$default", ""),
]


@pytest.mark.parametrize(("route", "raw", "parameters", "stage", "base_path"), PATHS)
def test_a_path_is_the_routes_whatever_stands_before_it(
    route: str, raw: str, parameters: dict[str, str], stage: str, base_path: str
) -> None:
    event = saved("enqueue_http/why_webhook") | {"routeKey": route, "rawPath": raw, "pathParameters": parameters}
    event["requestContext"] |= {"stage": stage, "routeKey": route}
    assert read_request(event, base_path).event["rawPath"] == ONE
    resource = "$default" if route == "$default" else route.partition(" ")[2]
    first = rest(Sent("GET", "/x"), stage=stage) | {
        "resource": resource,
        "path": raw,
        "pathParameters": parameters or None,
    }
    assert read_request(first, base_path).event["rawPath"] == ONE


@pytest.mark.parametrize("path", ["/jobsx/tasks", "/job/tasks", "/tasks/jobs", "/", "/prodx", "//tasks"])
def test_a_path_that_only_begins_like_a_base_path_is_kept(path: str) -> None:
    assert read_request(balancer(Sent("GET", path)), "/jobs").event["rawPath"] == path


@pytest.mark.parametrize(("path", "left"), [("/jobs", "/"), ("/jobs/", "/"), ("/jobs/jobs", "/jobs")])
def test_a_base_path_is_left_out_once(path: str, left: str) -> None:
    assert read_request(balancer(Sent("GET", path)), "/jobs").event["rawPath"] == left


def test_a_function_url_without_a_stage_is_served(wire: Wire) -> None:
    wire(ledger=EmbeddedLedger())
    event = url(Sent("GET", "/health"))
    del event["requestContext"]["stage"], event["routeKey"], event["requestContext"]["routeKey"]
    assert invoke("enqueue_http", event)["statusCode"] == 200


@pytest.mark.parametrize("through", [rest, balancer_many])
def test_several_values_of_one_name_are_one_text_with_commas(through: Through) -> None:
    event = through(Sent("GET", "/tasks", "status=dead&status=done"))
    event["multiValueHeaders"]["X-Own"] = ["a", "b"]
    found = read_request(event).event
    assert found["queryStringParameters"]["status"] == "dead,done"
    assert found["headers"]["x-own"] == "a,b"


def test_a_slash_in_a_parameter_leads_to_no_other_route() -> None:
    event = saved("enqueue_http/show_poll") | {"rawPath": "/tasks/a/why", "pathParameters": {"id": "a/why"}}
    assert invoke("enqueue_http", event)["statusCode"] == 422


def test_a_preview_on_a_named_stage_takes_no_key() -> None:
    event = saved("enqueue_http/preview_schedule_stage")
    asked = [{"repeat": {"cron": f"{minute} 9 * * *"}, "count": 1} for minute in (1, 2)]
    answers = [invoke("enqueue_http", event | {"body": json.dumps(one)}) for one in asked]
    assert [one["statusCode"] for one in answers] == [200, 200]
    assert answers[0]["body"] != answers[1]["body"]


# Broken events.

WRONG: list[tuple[str, dict[str, Any]]] = [
    ("headers", {"headers": []}),
    ("queryStringParameters", {"queryStringParameters": "a=1"}),
    ("rawPath", {"rawPath": None}),
    ("body", {"body": {"a": 1}}),
    ("requestContext.http", {"requestContext": {"http": 7}}),
    ("method", {"requestContext": {"http": {"path": "/"}}}),
    ("pathParameters", {"pathParameters": [1]}),
]


@pytest.mark.parametrize(("field", "wrong"), WRONG)
def test_a_request_out_of_shape_is_rejected_by_field(field: str, wrong: dict[str, Any]) -> None:
    with pytest.raises(errors.InvalidInput) as caught:
        invoke("enqueue_http", url(Sent("GET", "/health")) | wrong)
    assert [problem.field for problem in caught.value.problems] == [field]


LEAF = st.none() | st.booleans() | st.integers() | st.text(max_size=8)
ANY = st.recursive(LEAF, lambda c: st.lists(c, max_size=3) | st.dictionaries(st.text(max_size=8), c, max_size=3))
SHAPES = [by(Sent("GET", "/tasks", "state=scheduled")) for by in GATEWAYS]
FIELDS = sorted({field for shape in SHAPES for field in shape})


@pytest.mark.slow
@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(SHAPES), st.dictionaries(st.sampled_from(FIELDS), ANY, max_size=3), ANY)
def test_any_event_is_answered_or_rejected_by_name(shape: dict[str, Any], odd: dict[str, Any], other: Any) -> None:
    for event in (shape | odd, other):
        with suppress(errors.InvalidInput):
            assert invoke("enqueue_http", event)["statusCode"] < 500
