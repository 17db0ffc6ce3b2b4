"""`build` and `test`: the project's bundle and `sam build`, and the project's tests."""

import importlib.util
import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from duecourse import __version__

from ...project import bundle
from ...project.place import BUNDLE, Project, here
from ...stack.problems import HarnessError
from .. import console

NO_SAM = "sam is not on PATH: install it with pipx install aws-sam-cli"
NO_PYTEST = "pytest is not installed here: run pip install --editable ."
CONSTRAINT = "PIP_CONSTRAINT"

Rest = Annotated[
    list[str] | None, typer.Argument(help="Further words for the program that is run.", show_default=False)
]


def build(words: Rest = None) -> None:
    """Write .duecourse/bundle from the installed package, then run sam build.

    The functions get the version of duecourse that is installed here.

    Examples:

        duecourse build

        duecourse build --parameter-overrides Architecture=x86_64
    """
    with console.problems_shown():
        project = here()
        environment = {**os.environ, **_written(project)}
        sam = shutil.which("sam")
        if sam is None:
            raise HarnessError(NO_SAM)
        os.chdir(project.root)
        os.execve(sam, ["sam", "build", *(words or ())], environment)  # noqa: S606 - the user's own sam


def run_tests(words: Rest = None) -> None:
    """Run the project's tests: pytest, in the project's folder.

    Examples:

        duecourse test

        duecourse test tests/test_report.py -x
    """
    with console.problems_shown():
        root = here().template().parent
        if importlib.util.find_spec("pytest") is None:
            raise HarnessError(NO_PYTEST)
        os.chdir(root)
        os.execv(sys.executable, [sys.executable, "-m", "pytest", *(words or ())])  # noqa: S606 - this Python


def _written(project: Project) -> Mapping[str, str]:
    """Write the bundle, and answer the variables by which pip installs the library as it is in there."""
    project.template()  # raises where there is no project
    if project.bundle is None:
        raise HarnessError(f"{project.root} is a clone of duecourse itself: run make sam")
    bundle.write(project.root, BUNDLE)
    console.out.print(f"{BUNDLE} is duecourse {__version__}")
    constraints: list[str | Path] = [project.bundle / bundle.CONSTRAINTS]
    if given := os.environ.get(CONSTRAINT):
        constraints.append(given)
    return {CONSTRAINT: " ".join(map(str, constraints))}
