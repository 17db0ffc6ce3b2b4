"""The reference is what the OpenAPI document says, and no page names a route that is not there."""

import re
from typing import Any

import pytest

import duecourse
from duecourse_local.reference import typed_dicts
from duecourse_local.reference.api import REFERENCE, reference
from duecourse_local.reference.openapi import document
from tests.support.pages import pages

PAGES = "\n".join(page.read_text() for page in pages() if page != REFERENCE)
NAMED = re.compile(r"\b(GET|POST|PUT|PATCH|DELETE)`? (/[\w/{}.:-]*)")
CALLED = re.compile(r"(?:localhost:3000|TASKS_URL\})(/[\w/{}$().:-]*)")
HIDDEN = {"/openapi.json", "/docs"}


@pytest.fixture(scope="module")
def made() -> dict[str, Any]:
    return document()


def test_the_reference_is_up_to_date(made: dict[str, Any]) -> None:
    assert REFERENCE.read_text() == reference(made), "run: make reference"


def test_the_fields_of_the_client_are_up_to_date(made: dict[str, Any]) -> None:
    assert typed_dicts.MODULE.read_text() == typed_dicts.module(made), "run: make reference"


def test_every_route_field_and_problem_is_in_it(made: dict[str, Any]) -> None:
    page = reference(made)
    for path, methods in made["paths"].items():
        for method, operation in methods.items():
            [part] = re.findall(rf"^### `{method.upper()} {re.escape(path)}`$(.*?)(?=^##|\Z)", page, re.M | re.S)
            assert operation["summary"] in part
            assert f"curl -s {'' if method == 'get' else f'-X {method.upper()} '}localhost:3000/" in part
            assert "From Python: " in part
            assert all(f"| {status} |" in part for status in operation["responses"])
    for name, schema in made["components"]["schemas"].items():
        [part] = re.findall(rf"^### {name}$(.*?)(?=^##|\Z)", page, re.M | re.S)
        for field, one in schema.get("properties", {}).items():
            assert f"| `{field}` |" in part
            assert one["description"].replace("\n", " ") in part


def test_every_link_leads_somewhere(made: dict[str, Any]) -> None:
    page = reference(made)
    headings = {heading.lower() for heading in re.findall(r"^#+ (\w+)$", page, re.M)}
    assert set(re.findall(r"\]\(#([a-z]+)\)", page)) <= headings


def test_every_verb_of_the_client_is_beside_a_route(made: dict[str, Any]) -> None:
    page = reference(made)
    verbs = {name for name in vars(duecourse.Client) if not name.startswith("_")} - {"close", "from_env", "wait"}
    assert {verb for verb in verbs if f"`client.{verb}(" not in page} == set()


def test_a_field_that_says_nothing_of_itself_is_found(made: dict[str, Any]) -> None:
    broken = {**made, "components": {"schemas": {"Odd": {"properties": {"a": {"type": "integer", "minimum": 3}}}}}}
    assert "| `a` | integer (≥ 3) |  |  |" in reference(broken)


def matches(path: str, templates: set[str]) -> bool:
    patterns = (re.sub(r"\\\{.*?\\\}", "[^/]+", re.escape(template)) for template in templates)
    return any(re.fullmatch(pattern, path) for pattern in patterns)


def test_the_pages_name_no_route_that_is_not_there(made: dict[str, Any]) -> None:
    served = {(method.upper(), path) for path, methods in made["paths"].items() for method in methods}
    named = set(NAMED.findall(PAGES))
    assert len(named) >= 10
    for method, path in named:
        paths = {template for one, template in served if one == method} | HIDDEN
        assert matches(path.rstrip("."), paths), f"{method} {path}"
    verbs = re.findall(r'\btell\(task, "(\w+)"', PAGES)
    assert verbs
    for path in CALLED.findall(PAGES):
        called = re.sub(r"\$\{.*?\)\}", "x", path).rstrip(".)")
        for verb in verbs:
            assert matches(called.replace("${verb}", verb), {template for _, template in served} | HIDDEN), path
