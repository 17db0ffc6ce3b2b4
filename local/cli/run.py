"""`run`: run a program of one's own with the settings of the stack that is up."""

import os
import shutil
from pathlib import Path
from typing import Annotated, Any

import typer

from ..aws.account import CREDENTIALS
from ..process.environment import Environment, host_settings
from ..stack import state
from ..stack.options import PARAMETERS, TEMPLATE
from ..stack.problems import HarnessError
from ..template.identity import Addresses
from ..template.reader import Template
from . import client, console

SETTINGS = (
    "DUECOURSE_STORE",
    "DUECOURSE_TARGETS",
    "DUECOURSE_NAMESPACE",
    "DUECOURSE_SHARDS",
    "DUECOURSE_RESULTS_TABLE",
)
"""Settings that `Client.from_env` reads, of all that the functions have."""
AS_GIVEN = {"ignore_unknown_options": True, "allow_interspersed_args": False}
"""Options after the command are the command's own."""


def run(
    command: Annotated[list[str], typer.Argument(help="Command to run, and its arguments.")],
    folder: client.StateUsed = state.DEFAULT,
) -> None:
    """Run a command with the settings by which a `Client` uses the stack that is up, and with its AWS services.

    Examples:

        python -m local run .venv/bin/python my_script.py

        python -m local run env
    """
    with console.problems_shown():
        variables = _variables(folder)
        if shutil.which(command[0]) is None:
            raise HarnessError(f"{command[0]}: no such command")
        os.execvpe(command[0], command, {**os.environ, **variables})  # noqa: S606 - the user's own command


def _variables(folder: Path) -> dict[str, str]:
    client.ledger(None, folder)  # raises where the stack has its ledger to itself
    up = state.running(folder)
    if not up:
        raise HarnessError("no stack is up: run make up")
    settings = _settings(up)
    own = {name: settings[name] for name in SETTINGS if settings.get(name)}
    return {**CREDENTIALS, "AWS_ENDPOINT_URL": up["aws"], **own}


def _settings(up: dict[str, Any]) -> dict[str, str]:
    """Those of the function behind the HTTP API: it adds tasks, as the program will."""
    functions = Template(TEMPLATE, Addresses(up["api"], up["aws"], up["store"]), PARAMETERS).functions
    api = next(function for function in functions if function.routes)
    return Environment(up["aws"], up["lambda"], up["store"], host_settings()).settings(api)
