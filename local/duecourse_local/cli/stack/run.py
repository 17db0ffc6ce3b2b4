"""`run`: run a program of one's own with the settings of the stack that is up."""

import os
import shutil
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from ...aws.account import CREDENTIALS
from ...process.environment import AMQP, AMQP_SECRET, SEAL_KEY, STORE_SECRET, Environment, host_settings
from ...project.place import here
from ...stack import state
from ...stack.options import Egress, Options
from ...stack.problems import HarnessError
from ...template.identity import Addresses
from ...template.reader import Template
from .. import client, console

SETTINGS = (
    "DUECOURSE_STORE",
    "DUECOURSE_TARGETS",
    "DUECOURSE_NAMESPACE",
    "DUECOURSE_SHARDS",
    "DUECOURSE_RESULTS_TABLE",
    "DUECOURSE_EGRESS_ALLOW",
    "DUECOURSE_POLL_INTERVAL",
    "DUECOURSE_REMINDER_MESSAGES",
    "DUECOURSE_SMS_COUNTRIES",
    AMQP,
    "DUECOURSE_CREDENTIAL_PREFIX",
    "DUECOURSE_SEAL_KEY",
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

        duecourse run .venv/bin/python my_script.py

        duecourse run env
    """
    with console.problems_shown():
        variables = _variables(folder)
        # A venv need not be activated for `run duecourse worker` and `run python …`.
        beside = os.pathsep.join((os.environ.get("PATH", os.defpath), str(Path(sys.executable).parent)))
        program = shutil.which(command[0], path=beside)
        if program is None:
            raise HarnessError(f"{command[0]}: no such command")
        os.execve(program, command, {**os.environ, **variables})  # noqa: S606 - the user's own command


def _variables(folder: Path) -> dict[str, str]:
    up = state.running(folder)
    if not up:
        raise HarnessError("no stack is up: run duecourse up")
    client.ledger(None, folder)  # raises where the stack has its ledger to itself
    settings = _settings(up, state.seal_key(folder))
    own = {name: settings[name] for name in SETTINGS if settings.get(name)}
    # A secret in this environment is a deployed stack's, and beside the address of this one it would be rejected.
    services = {"AWS_ENDPOINT_URL": up["aws"], "AWS_ENDPOINT_URL_LAMBDA": up["lambda"]}
    return {**CREDENTIALS, **services, **own, STORE_SECRET: "", AMQP_SECRET: ""}


def _settings(up: dict[str, Any], seal_key: str) -> dict[str, str]:
    """Those of the function behind the HTTP API: it adds tasks, as the program will."""
    given = Options(egress=Egress(up["egress"])).given()
    functions = Template(here().to_run(), Addresses(up["api"], up["aws"], up["store"]), given).functions
    api = next(function for function in functions if function.routes)
    own = {**host_settings(), AMQP: up["amqp"], SEAL_KEY: seal_key}
    return Environment(up["aws"], up["lambda"], up["store"], own).settings(api)
