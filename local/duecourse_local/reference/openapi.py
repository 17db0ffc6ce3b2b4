"""The OpenAPI document of the routes: Powertools', with what that cannot know: problems, headers, examples, signing."""

import importlib.util
import json
from collections.abc import Iterator, Mapping
from typing import Any, get_args, get_origin, get_type_hints

from aws_lambda_powertools.event_handler import Response
from aws_lambda_powertools.event_handler.api_gateway import Route

from duecourse import __version__, errors
from duecourse.api import problems, router
from duecourse.api.fields import DEADLINE_SCHEMA, DURATION_SCHEMA, INSTANT_SCHEMA
from duecourse.api.kind_payloads import PAYLOADS
from duecourse.api.request import CHANGING, KEY, KEY_HEADER, READING
from duecourse.api.router import REJECTS, Api
from duecourse.errors import DuecourseError
from duecourse.queries.http import QUERY_ID

from ..project.bundle import REPOSITORY

Schema = Mapping[str, Any]
FUNCTION = REPOSITORY / "functions/enqueue_http/app.py"
"""The function that has the routes."""
REF = "#/components/schemas/"
BY_TYPE: dict[str, Any] = {"string": "text", "integer": 1, "number": 1, "boolean": True, "null": None, "object": {}}


def example(schema: Schema, schemas: Mapping[str, Schema]) -> Any:
    """A value of `schema`: its own example where it has one, else made of those of its required fields and items."""
    if "$ref" in schema:
        return example(schemas[schema["$ref"].removeprefix(REF)], schemas)
    known = schema.get("examples") or schema.get("enum") or ([schema["default"]] if "default" in schema else [])
    if known:
        return known[0]
    if "anyOf" in schema:
        return example(schema["anyOf"][0], schemas)
    if schema.get("type") == "array":
        return [example(schema.get("items", {}), schemas)]
    return _plain(schema, schemas)


def _plain(schema: Schema, schemas: Mapping[str, Schema]) -> Any:
    if "properties" in schema:
        fields, required = schema["properties"], set(schema.get("required", ()))
        return {name: example(fields[name], schemas) for name in fields if name in required}
    return BY_TYPE.get(schema.get("type", "object"))


def named(node: Any) -> Iterator[str]:
    """The names of the components that a part of a document refers to."""
    if isinstance(node, Mapping):
        if isinstance(node.get("$ref"), str):
            yield node["$ref"].removeprefix(REF)
        for value in node.values():
            yield from named(value)
    elif isinstance(node, list):
        for item in node:
            yield from named(item)


def reachable(start: Any, schemas: Mapping[str, Schema]) -> dict[str, Schema]:
    """The components that `start` refers to, and those that they refer to, in the order of their names."""
    found: set[str] = set()
    wanted = {name for name in named(start) if name in schemas}
    while wanted:
        found |= wanted
        wanted = {name for one in wanted for name in named(schemas[one]) if name in schemas} - found
    return {name: schemas[name] for name in sorted(found)}


def replaced(node: Any, parts: Mapping[str, Schema]) -> Any:
    """`node` with each part that `parts` has by name as a reference to it; titles that only repeat a name left out."""
    if isinstance(node, list):
        return [replaced(item, parts) for item in node]
    if not isinstance(node, Mapping):
        return node
    for name, part in parts.items():
        if all(node.get(word) == value for word, value in part.items()):
            rest = {word: value for word, value in node.items() if word not in part and word != "title"}
            return {"$ref": f"{REF}{name}", **rest}
    return {
        word: value if word in {"default", "examples", "enum"} else replaced(value, parts)
        for word, value in node.items()
        if word != "title" or not isinstance(value, str)
    }


Operation = dict[str, Any]
Rejection = type[DuecourseError]
DESCRIPTION = (
    "Delayed, repeated and polled tasks for AWS Lambda and workers of your own. "
    "Instants are RFC 3339 with an offset; durations are texts such as `5m`, ISO 8601 (`PT5M`) or seconds, at most "
    "100 years. Bodies are JSON, with `Content-Type: application/json`. Errors are problem documents (RFC 9457); a "
    "rejected request changes nothing. An unknown path is answered with 404, a path with another method with 405 and "
    "`Allow`. HEAD is answered as GET, without the body; OPTIONS with 204 and `Allow`. A deployed API requires signed "
    "requests (SigV4, service `execute-api`), or tokens (`Auth=jwt`). API Gateway answers others with 403 and "
    '`{"message":"Forbidden"}`, or 401 and `{"message":"Unauthorized"}`. Where callers have roles, an operator names a '
    "tenant in the query parameter `tenant` of any request."
)

SECURITY = {
    "AWS_IAM": {
        "type": "apiKey",
        "in": "header",
        "name": "Authorization",
        "x-amazon-apigateway-authtype": "awsSigv4",
        "description": "AWS Signature Version 4, service `execute-api`. Locally, only `up --auth iam` needs it.",
    },
    "JWT": {
        "type": "http",
        "scheme": "bearer",
        "bearerFormat": "JWT",
        "description": "Token of the issuer, in a deployment with `Auth=jwt`.",
    },
}
SHAPES: dict[str, Schema] = {"Duration": DURATION_SCHEMA, "Instant": INSTANT_SCHEMA, "Deadline": DEADLINE_SCHEMA}
"""Schemas that many fields use, and the document defines once."""
PARTS: dict[str, Schema] = {
    "Duration": {
        **DURATION_SCHEMA,
        "description": "Text such as `5m` or `1h30m`, ISO 8601 without years and months, or seconds.",
    },
    "Instant": {**INSTANT_SCHEMA, "description": "RFC 3339 with an offset."},
    "Deadline": {**DEADLINE_SCHEMA, "description": "Instant, or duration from the due time."},
}
KEY_PARAMETER = {
    "name": KEY_HEADER,
    "in": "header",
    "required": False,
    "description": "Key of this request, 1 to 255 printable ASCII characters in double quotes, such as "
    '`"8e03978e-40d5-43e8-bc93-6894a57f9324"`. Send a new key with each new request. For 24 hours duecourse does a '
    "request once for each key, and repeats its answer.",
    "schema": {"type": "string", "minLength": 3, "maxLength": 512, "pattern": f"^{KEY.pattern}$"},
}
RETRY_AFTER = {
    "Retry-After": {
        "description": "Seconds to wait before the next request.",
        "schema": {"type": "string", "pattern": "^[0-9]+$"},
    }
}
PROBLEM = {
    "type": "object",
    "description": "Problem document (RFC 9457) of a rejected request.",
    "required": ["type", "title", "status", "detail"],
    "properties": {
        "type": {"type": "string", "description": "URN of the problem, one of those below."},
        "title": {"type": "string", "description": "Meaning of the problem, the same each time."},
        "status": {"type": "integer", "description": "Status of the answer."},
        "detail": {"type": "string", "description": "Description of this occurrence."},
        "role": {"type": "string", "description": "Role that the request needs; with 403 only."},
        "reason": {"type": "string", "description": "State of the task that prevents the request; with 409 only."},
        "quota": {"type": "string", "description": "Name of the quota that is used up (429) or too small (422)."},
        "task": {"type": "string", "description": "Id of the query and of its task; with 502 only."},
        "queue": {
            "type": "string",
            "description": "Queue of that task (502), or unknown queue (404).",
        },
        "near": {"type": "string", "description": "Known name that is most like the unknown one; with 404 only."},
        "errors": {
            "type": "array",
            "description": "Each wrong field; with 422 only.",
            "items": {
                "type": "object",
                "required": ["field", "problem"],
                "properties": {
                    "field": {"type": "string", "description": "Dotted name of the field."},
                    "problem": {"type": "string", "description": "Description of the error."},
                },
            },
        },
    },
}
EXAMPLES: dict[Rejection, DuecourseError] = {
    errors.QueueNotFound: errors.QueueNotFound("defualt", "default"),
    problems.RoleMissing: problems.RoleMissing("operator", "arn:aws:iam::123456789012:user/shop", ["caller"]),
    errors.InvalidInput: errors.InvalidInput(
        [errors.FieldError("delay", "must be a duration such as 5m, PT5M or 300 (seconds)")]
    ),
    errors.QuotaExceeded: errors.QuotaExceeded("tenant_max_pending"),
    errors.BeyondQuota: errors.BeyondQuota("tenant_max_bytes", "payload"),
    errors.QueryFailed: errors.QueryFailed(
        QUERY_ID, "query:api.example.com", "GET https://api.example.com/reports answered 403: no such key"
    ),
}


def document() -> dict[str, Any]:
    """The OpenAPI document of the function that has the routes."""
    spec = importlib.util.spec_from_file_location("duecourse_reference", FUNCTION)
    assert spec is not None  # noqa: S101 - for the types: it is a file
    assert spec.loader is not None  # noqa: S101
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return document_of(module.api)


def write(made: dict[str, Any]) -> None:
    """Keep the document where the API serves it from."""
    router.DOCUMENT.write_bytes(f"{json.dumps(made, indent=1, ensure_ascii=False)}\n".encode())


def document_of(api: Api) -> dict[str, Any]:
    """The OpenAPI document of an API's routes."""
    every = api.every_route()
    made = json.loads(api.get_openapi_json_schema(title="duecourse", version=__version__, description=DESCRIPTION))
    for route in (one for one in every if one.include_in_schema):
        operation = made["paths"][route.openapi_path][route.method.lower()]
        operation |= _description(route)
        rejected = getattr(route.func, REJECTS, None)
        operation |= {} if rejected is None else {REJECTS: rejected}
        operation["responses"] = _successes(route, operation["responses"])
    return completed(made)


def _description(route: Route) -> Operation:
    """Operation id and summary of a route, from its function's name and docstring."""
    head, *rest = route.func.__name__.split("_")
    first, _, more = (route.func.__doc__ or "").strip().partition("\n")
    return {
        "operationId": head + "".join(map(str.capitalize, rest)),
        "summary": first.rstrip("."),
        **({"description": " ".join(more.split())} if more.strip() else {}),
        "tags": [route.path.split("/")[1]],
    }


def _successes(route: Route, described: dict[str, Any]) -> dict[str, Any]:
    """The answers of a route that is served: those it names, else what its return type and method tell."""
    if route.responses:
        return {status: described[status] for status in map(str, route.responses)}
    plain = described[str(route.status_code)]
    answer = get_type_hints(route.func).get("return")
    if get_origin(answer) is not Response:
        return {str(route.status_code): plain}
    if get_args(answer) == (type(None),):
        return {"204": {"description": "Success; the answer has no body."}}
    return {"201": plain, "200": plain} if route.method in CHANGING - {"DELETE"} else {"200": plain}


def completed(document: dict[str, Any]) -> dict[str, Any]:
    """The document that Powertools makes of routes, with all that a caller wants to know of each."""
    payloads = {one.__name__: one.model_json_schema(ref_template=f"{REF}{{model}}") for one in PAYLOADS.values()}
    schemas = {**document["components"]["schemas"], **payloads}
    schemas = {name: replaced(schema, SHAPES) for name, schema in schemas.items() if name not in PARTS}
    schemas |= {**PARTS, "Problem": PROBLEM}
    _describe_payloads(schemas)
    paths = replaced(document["paths"], SHAPES)
    for path, operations in paths.items():
        for method, operation in operations.items():
            _complete(path, method, operation, schemas)
    kept = reachable(paths, schemas)
    whole = {**document, "security": [{"AWS_IAM": []}, {"JWT": []}], "paths": dict(sorted(paths.items()))}
    return whole | {"components": {"schemas": kept, "securitySchemes": SECURITY}}


def _complete(path: str, method: str, operation: Operation, schemas: dict[str, Any]) -> None:
    if method.upper() in CHANGING and path not in READING:
        operation["parameters"] = [*operation.get("parameters", []), KEY_PARAMETER]
    for media in operation.get("requestBody", {}).get("content", {}).values():
        media["examples"] = {"request": {"value": example(media["schema"], schemas)}}
    for status, answer in operation["responses"].items():
        _describe(status, answer, schemas)
    for kinds in _rejected(path, method, operation):
        operation["responses"].setdefault(str(problems.status_of(kinds[0])), _rejection(kinds))


def _describe(status: str, answer: dict[str, Any], schemas: dict[str, Any]) -> None:
    for media in answer.get("content", {}).values():
        media.setdefault("examples", {"answer": {"value": example(media["schema"], schemas)}})
        if answer["description"] == "Successful Response":
            answer["description"] = schemas[media["schema"]["$ref"].removeprefix(REF)]["description"]
    if status == "503":
        answer["headers"] = RETRY_AFTER


def _rejected(path: str, method: str, operation: Operation) -> Iterator[list[Rejection]]:
    """Errors of a route by status: those that it declares, or all of its state's; the rest from its parameters."""
    by_id, changes = "{" in path, method.upper() in CHANGING and path not in READING
    likely = {404: by_id, 409: changes}
    of_state = [kind for kind in every(DuecourseError) if likely.get(problems.status_of(kind))]
    listed = set(operation.pop("rejects", of_state))
    listed |= {errors.InvalidInput}  # by a query parameter that the route does not have, if by nothing else
    listed |= {problems.NoSuchRoute} if by_id else set()
    listed |= KEYED if changes else set()
    listed |= OF_BODIES if "requestBody" in operation else set()
    for status in (400, 403, 404, 409, 413, 415, 422, 429, 500, 502, 503):
        kinds = [kind for kind in rejections(status) if kind in listed or status in ALWAYS]
        if kinds:
            yield kinds


ALWAYS = {403, 500, 503}
"""Statuses that any request may get."""
KEYED: set[Rejection] = {problems.MalformedKey, errors.KeyInUse, errors.KeyReused, errors.QuotaExceeded}
OF_BODIES: set[Rejection] = {problems.MalformedBody, problems.BodyTooLarge, problems.UnsupportedBody}


def _rejection(kinds: list[Rejection]) -> dict[str, Any]:
    documents = [problems.problem_of(EXAMPLES.get(kind) or kind()) for kind in kinds]
    types = [problem.document["type"] for problem in documents]
    titles = dict.fromkeys(problem.document["title"] for problem in documents)
    return {
        "description": " ".join(titles),
        **({"headers": RETRY_AFTER} if any(problem.headers for problem in documents) else {}),
        "content": {
            problems.CONTENT_TYPE: {
                "schema": {
                    "allOf": [
                        {"$ref": f"{REF}Problem"},
                        {"properties": {"type": {"enum": types}, "status": {"const": documents[0].status}}},
                    ]
                },
                "examples": {
                    type.rpartition(":")[2]: {"value": documents[at].document} for at, type in enumerate(types)
                },
            }
        },
    }


def rejections(status: int) -> list[Rejection]:
    """Errors with this status, each once."""
    if status == 500:
        return [problems.Internal]
    return [kind for kind in every(DuecourseError) if kind not in ABSTRACT and problems.status_of(kind) == status]


ABSTRACT = {errors.Conflict, problems.Forbidden}
"""Never raised by itself."""


def every(kind: Rejection) -> Iterator[Rejection]:
    """All of an error's kinds, each after what it is a kind of."""
    for one in kind.__subclasses__():
        if one.__module__.startswith("duecourse."):
            yield one
            yield from every(one)


def _describe_payloads(schemas: dict[str, Any]) -> None:
    """Say of an add's payload what those of the built-in kinds must look like."""
    known = {kind: {"$ref": f"{REF}{model.__name__}"} for kind, model in PAYLOADS.items()}
    task = schemas["AddTask"]
    anything = task["properties"]["payload"]
    task["properties"]["payload"] = {"description": anything.pop("description"), "anyOf": [*known.values(), anything]}
    task["allOf"] = [
        {"if": {"properties": {"kind": {"const": kind}}}, "then": {"properties": {"payload": payload}}}
        for kind, payload in known.items()
    ]
