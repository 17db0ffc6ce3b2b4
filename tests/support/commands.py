"""`duecourse` as a user runs it, in a process of its own where nothing is set."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import typer.testing
from typer.main import get_command
from typer.testing import CliRunner, Result

from duecourse_local.cli.app import app
from tests.support.project import ROOT

PROGRAM = "duecourse"
IN_A_CLONE = (sys.executable, "-m", "local")
FREE_PORTS = ("--port", "0", "--lambda-port", "0", "--aws-port", "0")
BARE = {k: v for k, v in os.environ.items() if not k.startswith(("DUECOURSE_", "REDIS_", "AWS_", "PYTEST_"))}


class Up(NamedTuple):
    """A running `up --json` and the line it printed."""

    process: subprocess.Popen[str]
    line: dict[str, Any]

    @property
    def children(self) -> list[int]:
        """Every process below it."""
        return [child.pid for child in psutil.Process(self.process.pid).children(recursive=True)]


@contextmanager
def up(
    state: Path, *options: str, project: Path = ROOT, program: Sequence[str] = IN_A_CLONE, **variables: str
) -> Iterator[Up]:
    """A stack that is up; what it says besides is in a file beside the state folder, which ends in `.err`."""
    command = (*program, "up", "--json", "--state", str(state), *FREE_PORTS, *options)
    with (
        state.with_suffix(".err").open("ab") as err,
        subprocess.Popen(
            command, cwd=project, env=BARE | variables, stdout=subprocess.PIPE, stderr=err, text=True
        ) as process,
    ):
        assert process.stdout is not None
        try:
            yield Up(process, json.loads(process.stdout.readline()))
        finally:
            process.terminate()


def run(
    *arguments: str,
    event: str = "",
    project: Path = ROOT,
    program: Sequence[str] = IN_A_CLONE,
    **variables: str,
) -> subprocess.CompletedProcess[str]:
    """A command that ends by itself, `event` on its standard input, with `variables` in its environment."""
    command = (*program, *arguments)
    return subprocess.run(
        command,
        cwd=project,
        env=BARE | variables,
        input=event,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


# It would build all forty commands for each: as much work as most of them are.
typer.testing._get_command = cache(get_command)  # type: ignore[attr-defined]


def in_this_process(*arguments: str, event: str = "", **variables: str) -> Result:
    """The same without a process, whose start takes most of a second: for what ends by itself and starts nothing."""
    given = {**dict.fromkeys(os.environ.keys() - BARE.keys()), **variables}
    return CliRunner().invoke(app, arguments, input=event, env=given, prog_name=PROGRAM)


def gone(pids: list[int]) -> bool:
    """Whether none of these processes lives; what is dead may wait for seconds until the system's init looks at it."""
    return not any(map(_lives, pids))


def _lives(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
