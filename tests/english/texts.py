"""The texts that users read, and the docstrings, from where each is written, with the rules that hold for it."""

import inspect
import json
import re
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import cfn_flip  # type: ignore[import-untyped]
import typer.main

from duecourse.api.watched_keys import WatchSetting
from duecourse.errors import DuecourseError
from duecourse.settings import variables
from duecourse_local.cli.app import app
from duecourse_local.reference.metrics import metrics
from duecourse_local.reference.openapi import document, every
from tests.english import messages
from tests.english.docstrings import docstrings
from tests.english.rules import CODING, DESCRIBING, NAMING, TELLING, Rule, plain
from tests.support.pages import DOCS, pages, prose
from tests.support.project import PRODUCT, ROOT
from tests.support.source import sources

SAID = ("description", "summary", "Description", "AlarmDescription", "ConstraintDescription")
MADE = ("example", "examples")
"""What is in these is not said but shown."""
CODE = ("layers/core", "local", "functions")
WRITTEN = (DOCS / "api.md", DOCS / "reference" / "settings.md", DOCS / "reference" / "metrics.md")
"""Pages whose texts are looked at where they come from."""


class Text(NamedTuple):
    """A text, where a reader of a report finds it, and the rules that hold for it."""

    place: str
    plain: str
    rules: Iterable[Rule]


def texts() -> Iterator[Text]:
    """All of them."""
    yield from _api()
    yield from _settings()
    yield from _metrics()
    yield from _errors()
    yield from _code()
    yield from _help()
    yield from _template()
    yield from _pages()


def _api() -> Iterator[Text]:
    for place, said in _described(document(), ()):
        yield Text(f"openapi {place}", plain(said), DESCRIBING)


def _settings() -> Iterator[Text]:
    for one in variables():
        yield Text(f"settings {one.name}", plain(one.description), DESCRIBING)
    for place, said in _described(WatchSetting.model_json_schema(), ()):
        yield Text(f"settings {WatchSetting.__name__}/{place}", plain(said), DESCRIBING)


def _metrics() -> Iterator[Text]:
    for one in metrics():
        yield Text(f"metrics {one.name}", plain(one.meaning), DESCRIBING)


def _errors() -> Iterator[Text]:
    for kind in every(DuecourseError):
        yield Text(f"error {kind.__name__}", plain(inspect.getdoc(kind) or ""), DESCRIBING)


def _code() -> Iterator[Text]:
    for file in sources(*CODE):
        yield from (Text(f"{file.name}:{line}", plain(said), TELLING) for line, said in messages.raised(file.text))
        yield from (Text(f"{file.name}:{line}", plain(said), CODING) for line, said in docstrings(file.text))


def _help() -> Iterator[Text]:
    group: Any = typer.main.get_command(app)
    yield Text("help", plain(group.help or ""), DESCRIBING)
    for name, command in group.commands.items():
        for part in re.split(r"\n\s*\n", inspect.cleandoc(command.help or "")):
            if not re.match(r"\s{4}|Examples?:", part):
                yield Text(f"help {name}", plain(part), DESCRIBING)
        for one in command.params:
            yield Text(f"help {name} {one.name}", plain(getattr(one, "help", None) or ""), DESCRIBING)


def _template() -> Iterator[Text]:
    made = json.loads(cfn_flip.to_json((PRODUCT / "template.yaml").read_text()))
    for place, said in _described(made, ()):
        yield Text(f"template {place}", plain(said), DESCRIBING)


def _pages() -> Iterator[Text]:
    for page in pages():
        if page not in WRITTEN:
            yield from _page(str(page.relative_to(ROOT)), prose(page))


def _page(place: str, said: str) -> Iterator[Text]:
    for part in re.split(r"\n\s*\n|\n(?=[-|#]|\d+\. )", said):
        if part.startswith("    "):
            continue
        cells = part.strip("| \n").split("|") if part.startswith("|") else [re.sub(r"^(?:[-#]+|\d+\.) ", "", part)]
        for cell in cells:
            yield Text(place, plain(cell), NAMING if part.startswith("|") else TELLING)


def _described(node: Any, path: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """What a document says of its parts, with the path to each."""
    if isinstance(node, list):
        for at, one in enumerate(node):
            yield from _described(one, (*path, str(at)))
    if isinstance(node, dict):
        for name, one in node.items():
            if name in SAID and isinstance(one, str):
                yield "/".join(path) or "/", one
            elif name not in MADE:
                yield from _described(one, (*path, str(name)))
