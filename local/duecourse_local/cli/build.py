"""`build`, `test` and `built`: the project's bundle and `sam build`, the project's tests, and the weight of a build."""

import importlib.util
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, NamedTuple

import typer
from rich.table import Table

from duecourse import __version__

from ..errors import HarnessError
from ..harness.environment import is_python
from ..harness.intrinsics import Addresses
from ..harness.options import PARAMETERS
from ..harness.template import Function, Template
from ..project import bundle
from ..project.place import BUNDLE, Project, here
from . import console

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


AT = ".aws-sam"
"""Folder of what sam builds."""
LAYER_MB = 30.0
STARTS = 40.0
"""Bound of a cold import, in starts of the bare interpreter: both are slower on a slower or busier machine.

The bound catches growth. The aim is 8: functions without requests take some 11, the HTTP API, whose router and models
are built on pydantic, some 35.
"""
ROUNDS = 7
MACHINES = {"x86_64": "x86_64", "aarch64": "arm64", "arm64": "arm64"}
NOWHERE = Addresses("http://127.0.0.1", "http://127.0.0.1", "memory://")

# The function's own file is compiled at each cold start, on Lambda too: its folder cannot be written to. The
# processor's time is what Lambda stretches by a function's share of a vCPU, and what else runs here is not in it. What
# the process has used when its first line runs is the interpreter's own start.
COLD = """
import sys, time
start = time.process_time()
sys.path[:0] = sys.argv[2:]
__import__(sys.argv[1])
print(start * 1000, (time.process_time() - start) * 1000)
"""


class Measurement(NamedTuple):
    """One line of what was measured, in its unit, and what it may be."""

    what: str
    value: float
    bound: float
    unit: str


def built(
    architecture: Annotated[str, typer.Option(help="Architecture that the layer was built for.")] = "arm64",
    python: Annotated[str, typer.Option(help="Interpreter with the functions' Python version.")] = "python3.11",
) -> None:
    """Print the layers' sizes and the functions' cold imports; warn where one is over its bound.

    A warning does not change the exit code, so it never stops a deployment.

    Examples:

        duecourse built --architecture x86_64
    """
    with console.problems_shown():
        functions = Template(_built(), NOWHERE, {**PARAMETERS, "Architecture": architecture}).functions
        found = [*_sizes(functions)]
        with _layers_for_here(functions, architecture, python) as layers:
            found += [_cold(function, layers, python) for function in functions if is_python(function)]
    console.out.print(_table(found))
    over = [weighed for weighed in found if weighed.value > weighed.bound]
    for weighed in over:
        over_by = f"{weighed.value:.1f} of {weighed.bound:g} {weighed.unit}"
        console.notice(f"warning: {weighed.what} is over its bound: {over_by}")


def _built() -> Path:
    project = here()
    template = project.template().parent / AT / "build" / "template.yaml"
    if not template.exists():
        raise HarnessError(f"{template} is not there: run {'duecourse build' if project.bundle else 'make sam'}")
    return template


def _sizes(functions: list[Function]) -> Iterator[Measurement]:
    for layer in sorted({layer for function in functions for layer in function.layers}):
        size = sum(path.stat().st_size for path in layer.rglob("*") if path.is_file())
        yield Measurement(f"layer {layer.parent.name}, unzipped", size / 1e6, LAYER_MB, "MB")


@contextmanager
def _layers_for_here(functions: list[Function], architecture: str, python: str) -> Iterator[dict[Path, Path]]:
    """Each layer that was built, and the one that this machine can load: the same, or the same made for here."""
    layers = sorted({layer for function in functions for layer in function.layers})
    machine = MACHINES.get(platform.machine(), "x86_64")
    made = [path for path in layers if architecture != machine and AT in path.parts]  # others hold a project's sources
    with tempfile.TemporaryDirectory(prefix="duecourse-layers-") as folder:
        yield {path: path for path in layers} | {
            path: _made_for(machine, path.parent.name, Path(folder), python) for path in made
        }


def _made_for(machine: str, name: str, folder: Path, python: str) -> Path:
    where = (here().bundle or here().root) / "layers" / name.removesuffix("Layer").lower()
    words = [f"build-{name}", f"ARCH={machine}", f"ARTIFACTS_DIR={folder / name}", f"PYTHON={python}"]
    made = subprocess.run(["make", "-C", where, *words], capture_output=True, text=True, check=False)
    if made.returncode:
        raise HarnessError(f"{name} cannot be built for {machine}: {made.stderr.strip()}")
    return folder / name / "python"


def _cold(function: Function, layers: dict[Path, Path], python: str) -> Measurement:
    rounds = [_import_ms(function, [layers[layer] for layer in function.layers], python) for _ in range(ROUNDS)]
    start_ms, import_ms = map(min, zip(*rounds, strict=True))
    return Measurement(
        f"cold import of {function.code.name}, {import_ms:.0f} ms", import_ms / start_ms, STARTS, "starts"
    )


def _import_ms(function: Function, layers: list[Path], python: str) -> tuple[float, float]:
    """The milliseconds of the interpreter's own start, and of the import after it."""
    module = function.handler.rpartition(".")[0].replace("/", ".")
    command = [python, "-I", "-S", "-B", "-c", COLD, module, str(function.code), *map(str, layers)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise HarnessError(f"{function.name} cannot be imported: {done.stderr.strip()}")
    start_ms, import_ms = done.stdout.split()
    return float(start_ms), float(import_ms)


def _table(found: list[Measurement]) -> Table:
    title = f"imports in starts of the bare interpreter: processor's time, best of {ROUNDS} fresh processes"
    table = Table("what was built", title=title)
    for column in ("measured", "bound"):
        table.add_column(column, justify="right")
    for weighed in found:
        table.add_row(weighed.what, f"{weighed.value:.1f} {weighed.unit}", f"{weighed.bound:g} {weighed.unit}")
    return table
