"""Links in pages lead to files and headings that are there; the indexes have every page, and each promise its test."""

import re
from pathlib import Path

import pytest

from tests.support.pages import DOCS, README, anchors, links, pages, prose
from tests.support.project import ROOT

LINKING = [*pages(), *(ROOT / name for name in ("CONTRIBUTING.md", "CHANGELOG.md"))]

DECISIONS = DOCS / "decisions"
PROMISES = DOCS / "explanation" / "promises.md"
PROOF = re.compile(r'\[([\w/]+)\]\(([^)\s]+)(?: "([^"]*)")?\)')
"""A test's file, the path to it, and the functions where the file has many."""


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", LINKING, ids=name)
def test_each_link_within_the_project_leads_somewhere(page: Path) -> None:
    for link in links(page):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        file = (page.parent / path).resolve() if path else page
        assert file.exists(), link
        assert not anchor or anchor in anchors(file), link


def test_the_index_names_every_page() -> None:
    indexes = [DOCS / "README.md", DECISIONS / "README.md"]
    linked = {(index.parent / link.partition("#")[0]).resolve() for index in indexes for link in links(index)}
    assert set(pages()) - {indexes[0]} <= linked


def test_a_decision_is_a_short_page_of_four_parts() -> None:
    for page in set(DECISIONS.iterdir()) - {DECISIONS / "README.md"}:
        assert re.fullmatch(r"\d\d-[a-z-]+\.md", page.name), page.name
        lines = page.read_text().splitlines()
        headings = [line for line in lines if line.startswith("#")]
        assert headings == [lines[0], "## Context", "## Choice", "## Consequences"], page.name
        assert len(lines) <= 40, page.name


def test_the_readme_is_read_in_five_minutes() -> None:
    assert len(README.read_text().splitlines()) <= 150


def promises() -> list[list[str]]:
    """The cells of each row of the page's tables, without their heads."""
    rows = [line.strip("|").split("|") for line in prose(PROMISES).splitlines() if line.startswith("| ")]
    cells = [[cell.strip() for cell in row] for row in rows]
    return [row for row in cells if row[0] not in {"fails", "---"}]


@pytest.mark.parametrize("row", promises(), ids=lambda row: row[0])
def test_each_promise_names_the_tests_that_prove_it(row: list[str]) -> None:
    *_, proofs = row
    found = PROOF.findall(proofs)
    assert len(row) == 3
    assert 1 <= len(found) <= 2
    assert PROOF.sub("", proofs).strip(", ") == "", "links alone"
    for text, path, functions in found:
        file = (PROMISES.parent / path).resolve()
        assert file == ROOT / "tests" / f"{text}.py"
        defined = set(re.findall(r"^def (test_\w+)", file.read_text(), re.MULTILINE))
        assert defined >= set(functions.split(", ") if functions else ())
        assert defined
