"""Commands that write: `init` a project of one's own, `new` a function into it."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from duecourse import __version__

from ..errors import HarnessError
from ..project.place import here
from . import console, scaffold

SKELETON = Path(__file__).with_name("skeleton")
FIRST = scaffold.NewFunction("report", "report")
PARTS = ("functions", "events", "tests", "layer")
"""Folders of a project."""
TO_FILL = ".in"
"""Suffix of files that would act within this package by their own name, or be compiled here."""
MAX_STACK = 23
"""Maximum length of a stack's name: with that of a function it makes a name on AWS, at most 64 characters long."""


def init(
    folder: Annotated[Path, typer.Argument(help="Folder of the project; made where it is missing.")] = Path(),
) -> None:
    """Write a project: functions of your own, and duecourse as a nested application of its template.

    Nothing is overwritten.

    Examples:

        duecourse init

        duecourse init billing
    """
    with console.problems_shown():
        for path in write_project(folder.resolve()):
            console.out.print(f"wrote {path.relative_to(folder.resolve())}")
    entered = "" if folder.resolve() == Path.cwd() else f"  cd {shlex.quote(str(folder))}\n"
    console.out.print(
        f"\nNext:\n{entered}"
        "  pip install --editable .   (what pyproject.toml asks for)\n"
        "  duecourse up               (README.md has a first task)\n"
        "  duecourse test",
        soft_wrap=True,
        markup=False,
    )


def write_project(root: Path) -> list[Path]:
    """Write a project with a first function; answers the files.

    Raises HarnessError, with nothing written, where files of these names are there.
    """
    files = {root / name: text for name, text in _skeleton(root.name)}
    there = [path for path in (*files, *(root / part for part in PARTS)) if path.exists()]
    if there:
        names = ", ".join(str(path.relative_to(root)) for path in there)
        raise HarnessError(f"{root} already has {names}: choose an empty folder, such as duecourse init my-tasks")
    files |= scaffold.planned(root, files[root / "template.yaml"], FIRST)
    scaffold.write_all(files)
    return list(files)


def _skeleton(name: str) -> Iterator[tuple[str, str]]:
    """Each file's path in the project, and its text."""
    words = {"@STACK@": _stack(name), "@RANGE@": admitted(__version__)}
    for path in sorted(SKELETON.rglob("*")):
        if path.is_file():
            text = path.read_text()
            for word, value in words.items():
                text = text.replace(word, value)
            yield str(path.relative_to(SKELETON)).removesuffix(TO_FILL), text


def _stack(name: str) -> str:
    """A name that CloudFormation and Python's packages take, made from a folder's."""
    plain = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:MAX_STACK].strip("-")
    return plain if plain[:1].isalpha() else f"tasks-{plain}".strip("-")


def admitted(version: str) -> str:
    """The versions that a project takes: this one, and later ones that its records and its command agree with."""
    major, minor, *_ = map(int, re.findall(r"\d+", version))
    return f">={version},<{f'0.{minor + 1}' if major == 0 else major + 1}"


def new(
    name: Annotated[str, typer.Argument(help="Name of the folder under functions/, such as report.")],
    kind: Annotated[
        str | None, typer.Option(help="Kind of task that the function works.", show_default="as the folder is called")
    ] = None,
) -> None:
    """Write functions/NAME, its resource and target in template.yaml, and a saved event; in a project, also a test.

    Examples:

        duecourse new report

        duecourse new send_bill --kind bill
    """
    wanted = scaffold.NewFunction(name, kind or name)
    with console.problems_shown():
        root = here().template().parent
        for path in scaffold.write_function(root, wanted):
            console.out.print(f"wrote {path.relative_to(root)}")
    body = f'{{"kind": "{wanted.kind}", "payload": {{"hello": "world"}}}}'
    console.out.print(
        f"\nNext: write the handler in functions/{name}/app.py, then try it:\n"
        "  duecourse up   (restart it if it is running)\n"
        f"  curl -s localhost:3000/tasks -H 'content-type: application/json' -d '{body}'",
        soft_wrap=True,
        markup=False,
    )
