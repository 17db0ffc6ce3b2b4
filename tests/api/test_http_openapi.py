"""The OpenAPI document: all that is served, each part described, its examples true."""

import json
import re
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from duecourse.api import problems
from duecourse.errors import DuecourseError
from duecourse.tasks import routes as tasks_routes
from duecourse_local.reference.openapi import document_of, every, rejections
from tests.repository.test_architecture import imported
from tests.support.functions import load
from tests.support.requests import ask
from tests.support.source import ROOT
from tests.template.test_policies import ROUTES

UNDESCRIBED = {"GET /openapi.json", "GET /docs"}


@cache
def document() -> dict[str, Any]:
    made: dict[str, Any] = ask("GET", "/openapi.json").body
    return made


def resolved(schema: dict[str, Any]) -> dict[str, Any]:
    """A schema, also one that a reference names."""
    if "$ref" not in schema:
        return schema
    found: dict[str, Any] = document()["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    return found


def operations() -> dict[str, dict[str, Any]]:
    """Every operation, by method and path."""
    paths = document()["paths"]
    return {f"{method.upper()} {path}": one for path, methods in paths.items() for method, one in methods.items()}


def contents(operation: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """The answers of an operation that have a body: status, media type, content."""
    for status, answer in operation["responses"].items():
        for media, content in answer.get("content", {}).items():
            yield status, media, content


def test_every_route_is_described_and_every_one_described_is_deployed() -> None:
    assert operations().keys() == ROUTES - UNDESCRIBED
    assert document()["openapi"] == "3.1.0"


def test_every_part_says_what_it_is() -> None:
    made = document()
    ids = [one["operationId"] for one in operations().values()]
    assert len(set(ids)) == len(ids)
    for name, one in operations().items():
        assert one["summary"], name
        assert one["tags"] == [name.split("/")[1]], name
        assert all(parameter["description"] for parameter in one.get("parameters", [])), name
        assert all(answer["description"] not in {"", "Successful Response"} for answer in one["responses"].values())
    for name, schema in made["components"]["schemas"].items():
        assert schema.get("description"), name
        for field, part in schema.get("properties", {}).items():
            assert part.get("description"), f"{name}.{field}"


def test_every_refusal_that_http_tells_is_described_and_says_what_it_is() -> None:
    told = {one["type"] for each in operations().values() for one in examples(each) if "type" in one}
    statuses = {status for status in problems.STATUS.values() if status != 500}
    known = [kind for status in statuses - {405} for kind in rejections(status)]
    assert told == {problems.problem_of(kind()).document["type"] for kind in known if kind not in OF_INPUT} | {
        problems.URN + name for name in ("invalid-input", "internal")
    }
    for kind in every(DuecourseError):
        assert "__doc__" in vars(kind), kind
        assert kind.__doc__, kind


OF_INPUT = {kind for kind in rejections(422) if kind.__name__ == "InvalidInput"}


def examples(operation: dict[str, Any]) -> Iterator[Any]:
    for _, _, content in contents(operation):
        yield from (one["value"] for one in content["examples"].values())


def validator(schema: Any) -> Draft202012Validator:
    return Draft202012Validator({**schema, "components": document()["components"]})


def test_every_example_of_an_answer_is_one() -> None:
    for name, operation in operations().items():
        for status, media, content in contents(operation):
            assert content["examples"], f"{name} {status} {media}"
            for one in content["examples"].values():
                validator(content["schema"]).validate(one["value"])


@pytest.mark.slow
def test_every_request_has_an_example_that_is_not_refused_for_what_it_says() -> None:
    for name, operation in operations().items():
        method, path = name.split()
        for one in operation.get("parameters", []):
            if one["in"] == "path":
                path = path.replace(f"{{{one['name']}}}", str(resolved(one["schema"])["examples"][0]))
        content = operation.get("requestBody", {}).get("content", {}).get("application/json")
        body = content and next(iter(content["examples"].values()))["value"]
        if content:
            validator(content["schema"]).validate(body)
        answer = ask(method, path, body)
        assert str(answer.status) in operation["responses"], name
        assert answer.status in {200, 201, 202, 204, 404, 409}, (name, answer.text)


def test_what_changes_something_takes_a_key_and_tells_when_to_come_again() -> None:
    for name, one in operations().items():
        changes = name.split()[0] in {"POST", "PATCH", "PUT", "DELETE"} and not name.endswith("/preview")
        assert changes == ("Idempotency-Key" in {parameter["name"] for parameter in one.get("parameters", [])}), name
        assert changes == ("Retry-After" in one["responses"].get("409", {}).get("headers", {})), name
        assert "Retry-After" in one["responses"]["503"]["headers"], name


def test_limits_and_defaults_are_in_the_schemas() -> None:
    schemas = document()["components"]["schemas"]
    assert schemas["AddBatch"]["properties"]["tasks"]["maxItems"] == 1_000
    retry = schemas["Retry"]["properties"]
    assert (retry["max_attempts"]["default"], retry["max_attempts"]["maximum"]) == (10, 1_000)
    assert schemas["AddTask"]["properties"]["max_wait"]["default"] == "PT1H"
    assert schemas["AddTask"]["properties"]["queue"]["default"] == "default"
    duration = Draft202012Validator(schemas["Duration"])
    assert all(duration.is_valid(one) for one in ("PT5M", "P1DT1H", "1.5", 300, 0.5, "PT0.1S", "P2W"))
    assert not any(duration.is_valid(one) for one in ("soon", "P", "PT", "-1", -1, "5M", True, ""))


@pytest.mark.parametrize(
    ("schema", "field", "bounds"),
    [
        ("SetQueue", "retention", "P366D"),
        ("SetQueue", "lease", "PT1S to P1D"),
        ("Rate", "per", "PT0.1S to PT24H"),
        ("ReplayDead", "rate", "7 days"),
        ("Retry", "backoff", "P49D"),
        ("Retry", "max_backoff", "P49D"),
        ("ExtendLease", "for", "PT1S to P1D"),
        ("PollPayload", "interval", "PT0.1S to P30D"),
        ("PollPayload", "timeout", "PT20S"),
        ("WebhookPayload", "timeout", "PT20S"),
    ],
)
def test_a_duration_tells_the_bounds_that_its_schema_cannot(schema: str, field: str, bounds: str) -> None:
    assert bounds in document()["components"]["schemas"][schema]["properties"][field]["description"]


def test_a_queue_in_a_path_is_called_one() -> None:
    for name, one in operations().items():
        told = {parameter["name"]: parameter for parameter in one.get("parameters", []) if parameter["in"] == "path"}
        if "{queue}" in name:
            assert told["queue"]["description"] == "Name of the queue."
            assert told["queue"]["schema"]["examples"] == ["default"]


def test_requests_are_signed() -> None:
    made = document()
    assert made["security"] == [{"AWS_IAM": []}, {"JWT": []}], "either"
    assert made["components"]["securitySchemes"]["AWS_IAM"]["x-amazon-apigateway-authtype"] == "awsSigv4"


def test_a_route_that_says_nothing_more_is_described_by_what_it_is() -> None:
    """Nothing but its function says anything of it."""
    from aws_lambda_powertools.event_handler import Response

    app = type(load("enqueue_http").api)(enable_validation=True)

    def revive_task(id: str) -> Response[None]:  # noqa: ARG001
        """Schedule a dead task.

        With all its attempts.
        """
        return Response(204)

    app.post("/tasks/<id>/revive")(revive_task)
    app.include_router(tasks_routes.router)
    operation = document_of(app)["paths"]["/tasks/{id}/revive"]["post"]
    assert (operation["operationId"], operation["summary"]) == ("reviveTask", "Schedule a dead task")
    assert operation["description"] == "With all its attempts."
    assert {"204", "400", "403", "404", "409", "422", "429", "500", "503"} == operation["responses"].keys()


def test_the_page_has_all_it_needs_and_lets_nothing_else_in() -> None:
    answer = ask("GET", "/docs")
    assert (answer.status, answer.headers["Content-Type"]) == (200, "text/html; charset=utf-8")
    policy = dict(part.strip().split(" ", 1) for part in answer.headers["Content-Security-Policy"].split(";"))
    assert policy["default-src"] == "'none'"
    assert re.fullmatch(r"('sha256-[A-Za-z0-9+/]{43}=' ?){2}", policy["script-src"])
    assert policy["connect-src"] == "'self'"
    assert not re.search(r"<(script|link|img)[^>]+(src|href)=", answer.text)
    assert 'updateUrl("openapi.json")' in answer.text
    assert "SwaggerUIBundle(swaggerUIOptions)" in answer.text
    assert len(answer.text) < 4_000_000, "base64 and all, within what Lambda answers"


@pytest.mark.slow
def test_a_function_starts_without_any_of_it() -> None:
    loaded = set(imported(["app"], path=str(ROOT / "functions/enqueue_http"))["loaded"])
    assert "duecourse.api.router" in loaded
    assert "aws_lambda_powertools.event_handler.openapi.swagger_ui" not in loaded


@pytest.mark.slow
def test_the_document_that_is_served_is_up_to_date() -> None:
    made = json.loads(json.dumps(document_of(load("enqueue_http").api)))
    assert document() == made, "run: make reference"
