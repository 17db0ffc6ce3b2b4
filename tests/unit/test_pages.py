"""Links in the pages lead to files and headings that are there, and the index names every page."""

import re
from pathlib import Path

import pytest

from tests.support.pages import DOCS, README, anchors, links, pages
from tests.support.project import ROOT

LINKING = [*pages(), *(ROOT / name for name in ("CONTRIBUTING.md", "DECISIONS.md", "CHANGELOG.md"))]


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
    index = DOCS / "README.md"
    linked = {(DOCS / link.partition("#")[0]).resolve() for link in links(index)}
    assert set(pages()) - {index} <= linked


def test_the_readme_is_read_in_five_minutes() -> None:
    assert len(README.read_text().splitlines()) <= 150
