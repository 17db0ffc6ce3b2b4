"""The page of licences, written from the metadata of the installed packages by `make reference`."""

import json
import re
from collections.abc import Iterator
from importlib.metadata import PackageMetadata, metadata
from pathlib import Path

from ..project.bundle import REPOSITORY

ROOT = REPOSITORY
PAGE = ROOT / "docs" / "reference" / "licences.md"
PINNED = {
    "core layer": ROOT / "layers" / "core" / "requirements.txt",
    "templates layer": ROOT / "layers" / "templates" / "requirements.txt",
    "seals layer": ROOT / "layers" / "seals" / "requirements.txt",
    "bridge's image": ROOT / "layers" / "core" / "requirements-bridge.txt",
}
"""The pins of each thing that a deployment carries."""
VENDORED = ROOT / "layers" / "core" / "duecourse" / "page" / "static" / "vendor" / "vendor.json"
"""Files of others in the operators' page, with their packages."""
LONGEST = 40
"""A longer entry is a licence's text, and no name."""
HEAD = """\
# Licences

Written from the metadata of the pinned packages by `make reference`: change the pins, not this page.

duecourse has the [Apache License 2.0](../../LICENSE). A deployment carries these packages of others.
The layers and the image contain the text of each licence, beside the package's metadata.

| package | version | licence | carried in |
| --- | --- | --- | --- |
"""
PAGE_HEAD = """
The wheel carries these packages of npm, in the [operators' page](../how-to/page.md), with the text of each licence.

| npm package | version | licence | files |
| --- | --- | --- | --- |
"""


def page() -> str:
    """The page's text."""
    return HEAD + "".join(_rows()) + PAGE_HEAD + "".join(_vendored_rows())


def _vendored_rows() -> Iterator[str]:
    files: dict[tuple[str, str, str], list[str]] = {}
    for one in json.loads(VENDORED.read_text()):
        files.setdefault((one["package"], one["version"], one["licence"]), []).append(f"`{one['file']}`")
    for package, named in sorted(files.items()):
        yield f"| {' | '.join(package)} | {', '.join(named)} |\n"


def pins(file: Path) -> dict[str, str]:
    """Versions by package."""
    return dict(re.findall(r"^([\w.-]+)==([^\s;]+)", file.read_text(), re.MULTILINE))


def licence(package: PackageMetadata) -> str:
    """Name of a package's licence: its SPDX expression, or what older metadata have in its place."""
    if expression := _first(package, "License-Expression"):
        return expression
    said = _first(package, "License")
    classifiers = package.get_all("Classifier") or []
    kinds = [one.rpartition(" :: ")[2] for one in classifiers if one.startswith("License ::")]
    # Several are named by classifiers alone: the other field says "dual" at best.
    return said if len(kinds) < 2 and 0 < len(said) <= LONGEST and "\n" not in said else ", ".join(kinds)


def _first(package: PackageMetadata, field: str) -> str:
    values: list[str] = package.get_all(field) or [""]
    return values[0]


def _rows() -> Iterator[str]:
    carried = {place: pins(file) for place, file in PINNED.items()}
    for name in sorted({name for pinned in carried.values() for name in pinned}):
        package = metadata(name)
        places = ", ".join(place for place, pinned in carried.items() if name in pinned)
        yield f"| {name} | {package['Version']} | {licence(package)} | {places} |\n"
