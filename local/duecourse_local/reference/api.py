"""The reference of the HTTP API, from its OpenAPI document."""

import inspect
import json
import re
from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import Any
from urllib.parse import quote

import duecourse
from duecourse.client.client import ReminderClient, ScheduleClient

from ..project.bundle import REPOSITORY

REFERENCE = REPOSITORY / "docs" / "api.md"
API = "localhost:3000"
PARTS = {"reminders": ReminderClient, "schedules": ScheduleClient}
"""Parts of the client that have the verbs of a tag."""
REF = "#/components/schemas/"
Node = Mapping[str, Any]

HEAD = """\
# The HTTP API, route by route

Written from the OpenAPI document by `make reference`: change the models and routes, not this page. The API serves the
document at `/openapi.json` and a page to try it at `/docs` (with `make up`: http://localhost:3000/docs).

{description}

`client` is `duecourse.Client.from_env()`, which writes straight to the ledger with the same checks. Times may be
`datetime` and `timedelta` too. A problem over HTTP is an exception from `duecourse.errors` here.
"""


def reference(made: Node) -> str:
    """The page."""
    operations = [(path, method, one) for path, methods in made["paths"].items() for method, one in methods.items()]
    operations.sort(key=lambda found: found[2]["tags"][0])
    parts = [HEAD.format(description=made["info"]["description"])]
    for tag, found in groupby(operations, key=lambda each: each[2]["tags"][0]):
        parts += [f"## /{tag}\n", *("\n".join(_route(*each)) for each in found)]
    parts += ["## Shapes\n", *("\n".join(_shape(name, one)) for name, one in _schemas(made).items())]
    parts.append("\n".join(_problems(made)))
    return "\n".join(parts)


def _route(path: str, method: str, operation: Node) -> Iterator[str]:
    yield f"### `{method.upper()} {path}`\n"
    yield f"{operation['summary']}. {operation.get('description', '')}".strip() + "\n"
    yield f"    {_curl(path, method, operation)}\n"
    yield f"From Python: {_in_python(path, operation)}\n"
    if operation.get("parameters"):
        yield from _table("parameter", "in", "is", "default", "means")
        yield from (_parameter(one) for one in operation["parameters"])
        yield ""
    if "requestBody" in operation:
        [media] = operation["requestBody"]["content"].values()
        yield f"Body: {_kind(media['schema'])}.\n"
    yield from _table("answer", "with", "when")
    yield from (_answer(status, one) for status, one in sorted(operation["responses"].items()))
    yield ""


def _curl(path: str, method: str, operation: Node) -> str:
    where = path
    for one in operation.get("parameters", ()):
        if one["in"] == "path":
            where = where.replace(f"{{{one['name']}}}", quote(str(one["schema"].get("examples", ["…"])[0]), safe=":"))
    words = ["curl", "-s", *([] if method == "get" else ["-X", method.upper()]), f"{API}{where}"]
    for media in operation.get("requestBody", {}).get("content", {}).values():
        body = json.dumps(next(iter(media["examples"].values()))["value"], ensure_ascii=False).replace("'", "'\\''")
        words += ["-H", "'content-type: application/json'", "-d", f"'{body}'"]
    return " ".join(words)


def _in_python(path: str, operation: Node) -> str:
    """The verb of the same name, or of the path's last word: Client's, or the package's own."""
    name = re.sub(r"(?<!^)(?=[A-Z])", "_", operation["operationId"]).lower()
    for tag, client in PARTS.items():
        if operation["tags"] == [tag]:
            verb = name.partition("_")[0]
            return f"`client.{tag}.{verb}{_signature(getattr(client, verb))}`"
    words = [name]
    if operation["tags"] == ["tasks"]:
        last = path.rsplit("/", 1)[-1]
        words += [name.partition("_")[0] + "_many"] if last == "batch" else [last, name.partition("_")[0]]
    for word in words:
        if word in duecourse.__all__:
            return f"`duecourse.{word}{_signature(getattr(duecourse, word))}`, within a `@task_handler`."
        if hasattr(duecourse.Client, word):
            return f"`client.{word}{_signature(getattr(duecourse.Client, word))}`"
    return "none; over HTTP alone."


def _signature(verb: Any) -> str:
    found = inspect.signature(verb)
    bare = [one.replace(annotation=one.empty) for name, one in found.parameters.items() if name != "self"]
    return str(found.replace(parameters=bare, return_annotation=found.empty))


def _parameter(one: Node) -> str:
    default = "required" if one.get("required") else _default(one["schema"])
    return _row(f"`{one['name']}`", one["in"], _kind(one["schema"]), default, one["description"])


def _answer(status: str, answer: Node) -> str:
    found = [_media(media, content) for media, content in answer.get("content", {}).items()]
    headers = [f"`{name}`" for name in answer.get("headers", ())]
    return _row(status, "; ".join([*found, *headers]) or "no body", answer["description"])


def _media(media: str, content: Node) -> str:
    types: list[str] = next((part["properties"]["type"]["enum"] for part in content["schema"].get("allOf", ())[1:]), [])
    names = [f"[{one.rpartition(':')[2]}](#problems)" for one in types]
    return ", ".join(names) if media.startswith("application/problem") else _kind(content["schema"])


def _shape(name: str, schema: Node) -> Iterator[str]:
    yield f"### {name}\n"
    yield f"{schema.get('description', '')}\n"
    if "properties" not in schema:
        yield f"{_kind(schema)}.\n"
        return
    required = schema.get("required", ())
    yield from _table("field", "is", "default", "means")
    for field, one in schema["properties"].items():
        default = "required" if field in required else _default(one)
        yield _row(f"`{field}`", _kind(one), default, one.get("description", ""))
    yield ""


def _kind(schema: Node) -> str:
    """A schema in words: its type and its bounds."""
    if "$ref" in schema:
        name = schema["$ref"].removeprefix(REF)
        return f"[{name}](#{name.lower()})"
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(_kind(one) for one in schema["anyOf"]))
    if schema.get("type") == "array":
        return f"list of {_kind(schema['items'])}{_bounds(schema)}"
    return f"{schema.get('type', 'any JSON')}{_bounds(schema)}"


BOUNDS = {
    "minimum": "≥ {}",
    "maximum": "≤ {}",
    "minLength": "at least {} characters",
    "maxLength": "at most {} characters",
    "minItems": "at least {}",
    "maxItems": "at most {}",
    "pattern": "`{}`",
    "format": "{}",
}


def _bounds(schema: Node) -> str:
    bounds = [words.format(_number(schema[word])) for word, words in BOUNDS.items() if word in schema]
    return f" ({', '.join(bounds)})" if bounds else ""


def _number(value: Any) -> Any:
    return f"{value:,.0f}" if isinstance(value, int | float) and value == int(value) else value


def _default(schema: Node) -> str:
    return f"`{json.dumps(schema['default'])}`" if schema.get("default") not in (None, "") else ""


def _problems(made: Node) -> Iterator[str]:
    found = {}
    for methods in made["paths"].values():
        for operation in methods.values():
            for answer in operation["responses"].values():
                for one in answer.get("content", {}).get("application/problem+json", {}).get("examples", {}).values():
                    found[one["value"]["type"]] = one["value"]
    yield "## Problems\n"
    yield from _table("type", "status", "reason", "means")
    for one in sorted(found.values(), key=lambda value: (value["status"], value["type"])):
        reason = f"`{one['reason']}`" if "reason" in one else ""
        yield _row(f"`{one['type']}`", one["status"], reason, one["title"])
    yield ""


def _schemas(made: Node) -> dict[str, Node]:
    found: dict[str, Node] = made["components"]["schemas"]
    return found


def _table(*columns: str) -> Iterator[str]:
    yield _row(*columns)
    yield _row(*["---"] * len(columns))


def _row(*cells: Any) -> str:
    return f"| {' | '.join(str(cell).replace('|', chr(92) + '|').replace(chr(10), ' ') for cell in cells)} |"
