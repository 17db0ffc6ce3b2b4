"""The pages that users read, and what is written in them."""

import re
from pathlib import Path

from tests.support.project import ROOT

README = ROOT / "README.md"
SECURITY = ROOT / "SECURITY.md"
DOCS = ROOT / "docs"


def pages() -> list[Path]:
    """The README and SECURITY, then each page in `docs`, by name."""
    return [README, SECURITY, *sorted(DOCS.rglob("*.md"))]


def prose(page: Path) -> str:
    """A page's text without its blocks of code."""
    return re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)


def links(page: Path) -> list[str]:
    """What a page's links lead to; what looks like one within code is none."""
    return re.findall(r"\[[^]]*\]\(([^)\s]+)(?: \"[^\"]*\")?\)", re.sub(r"`[^`\n]*`", "", prose(page)))


def anchors(page: Path) -> set[str]:
    """What a link may name after `#` in a page, as GitHub makes it of the headings."""
    headings = re.findall(r"^#+ (.*)$", prose(page), re.MULTILINE)
    plain = (re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).lower() for heading in headings)
    return {re.sub(r"[^\w\- ]", "", heading).replace(" ", "-") for heading in plain}
