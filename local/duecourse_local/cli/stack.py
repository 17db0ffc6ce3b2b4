"""Commands of a stack that is up: `invoke`, `events`, `run`, `advance` and `sent`."""

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
import urllib3
from rich.json import JSON
from rich.panel import Panel

from ..errors import HarnessError
from ..harness import state
from ..harness.aws.account import CREDENTIALS
from ..harness.aws.emulator import ENDPOINT, SENT
from ..harness.environment import AMQP, AMQP_SECRET, SEAL_KEY, STORE_SECRET, Environment, host_settings
from ..harness.intrinsics import Addresses
from ..harness.options import Clock, Egress, Options
from ..harness.template import Template
from ..project.place import here
from . import console, lambda_invoke, options, target
from .console import Table
from .lambda_invoke import InvokeResult


def invoke(
    function: Annotated[
        str, typer.Argument(help="Name of the function, its logical id, or its folder under functions/.")
    ],
    event: Annotated[
        Path | None,
        typer.Option("--event", "-e", help="File with the event; - reads standard input.", show_default="{}"),
    ] = None,
    folder: options.StateUsed = state.DEFAULT,
) -> None:
    """Send one event to a function and print its answer; exit code 1 if the function failed.

    Uses the running stack, or starts one for this command.

    Examples:

        duecourse invoke poll_tick -e events/poll_tick/scheduler.json

        echo '{"source": "duecourse.bridge", "version": "1", "rings": []}' | duecourse invoke on_expired -e -

    The same in SAM's own container, after `make sam ARCH=x86_64` (or arm64: the machine's own architecture):

        sam local invoke PollTickFunction -e events/poll_tick/scheduler.json --parameter-overrides Architecture=x86_64
    """
    with console.problems_shown():
        name, sent = lambda_invoke.function_named(function), _event_from(event)
        with lambda_invoke.lambda_service(folder) as service:
            answer = lambda_invoke.invoke(service, name, sent)
    typer.echo(console.json_visible(answer.payload))
    console.err.print(f"{console.shown(answer.error or 'ok')} after {answer.took_ms:.1f} ms")
    raise typer.Exit(1 if answer.error else 0)


def _event_from(event: Path | None) -> bytes:
    if event is None:
        return b"{}"
    if str(event) == "-":
        return sys.stdin.buffer.read()
    try:
        return event.read_bytes()
    except OSError as error:
        raise HarnessError(f"--event {event} cannot be read: {error.strerror}") from None


MEANT_TO_FAIL = "bad_"
"""Beginning of the names of events that their functions may reject."""


def events(
    paths: Annotated[
        list[Path] | None,
        typer.Argument(
            help="Event files or folders of them; a file's folder names its function.", show_default="events/"
        ),
    ] = None,
    folder: options.StateUsed = state.DEFAULT,
) -> None:
    """Send saved events to their functions and show request, answer and time.

    Exit code 1 if a function failed, other than on an event named bad_….

    Uses the running stack, or starts one for this command. Without PATHS the command always starts one, with a
    ledger that goes with it: some of the events pause a queue or cancel a task.

    The command for dead tasks is duecourse replay.

    Examples:

        duecourse events

        duecourse events events/on_expired events/poll_tick/scheduler.json
    """
    with console.problems_shown():
        found = [(path, _function_of(path)) for path in _event_files(paths or [here().events])]
        with lambda_invoke.lambda_service(folder if paths else None) as service:
            failed = [path.name for path, function in found if _send_events(service, path, function).error]
    unexpected = [name for name in failed if not name.startswith(MEANT_TO_FAIL)]
    console.out.print(f"{len(found)} events, {len(failed)} failed, {len(unexpected)} of them unexpectedly")
    raise typer.Exit(1 if unexpected else 0)


def _event_files(paths: list[Path]) -> list[Path]:
    found = [f for path in paths for f in (sorted(path.rglob("*.json")) if path.is_dir() else [path])]
    if not found:
        raise HarnessError(f"no events in {', '.join(map(str, paths))}")
    return found


def _function_of(path: Path) -> str:
    named = path.resolve().parent.name
    function = lambda_invoke.functions_by_name().get(named)
    if function is None:
        raise HarnessError(f"{path}: no function of the template has the folder {named}")
    return function.name


def _send_events(service: str, path: Path, function: str) -> InvokeResult:
    event = path.read_bytes()
    answer = lambda_invoke.invoke(service, function, event)
    title = f"{path.parent.name}/{path.name} → {function}"
    console.out.print(Panel(_result_shown(event.decode()), title=title, title_align="left"))
    outcome = f"[bold red]{console.shown(answer.error)}[/]" if answer.error else "[green]ok[/]"
    subtitle = f"{outcome} {answer.took_ms:.1f} ms"
    console.out.print(Panel(_result_shown(answer.payload), title=subtitle, title_align="left"))
    return answer


def _result_shown(text: str) -> JSON | str:
    try:
        json.loads(text)
    except ValueError:
        return console.shown(text)
    return JSON(console.json_text(json.loads(text)))


AS_GIVEN = {"ignore_unknown_options": True, "allow_interspersed_args": False}
"""Options after the command are the command's own."""


def run(
    command: Annotated[list[str], typer.Argument(help="Command to run, and its arguments.")],
    folder: options.StateUsed = state.DEFAULT,
) -> None:
    """Run a command with the settings by which a `Client` uses the stack that is up, and with its AWS services.

    Examples:

        duecourse run .venv/bin/python my_script.py

        duecourse run env
    """
    with console.problems_shown():
        variables = _variables_of_stack(folder)
        # A venv need not be activated for `run duecourse worker` and `run python …`.
        beside = os.pathsep.join((os.environ.get("PATH", os.defpath), str(Path(sys.executable).parent)))
        program = shutil.which(command[0], path=beside)
        if program is None:
            raise HarnessError(f"{command[0]}: no such command")
        os.execve(program, command, {**os.environ, **variables})  # noqa: S606 - the user's own command


def _variables_of_stack(folder: Path) -> dict[str, str]:
    from duecourse.client.keyword_settings import ClientSettings
    from duecourse.settings import PREFIX

    up = state.running(folder)
    if not up:
        raise HarnessError("no stack is up: run duecourse up")
    target.ledger_settings(None, folder)  # raises where the stack has its ledger to itself
    settings = _settings_of_stack(up, state.seal_key(folder))
    read = ("DUECOURSE_STORE", AMQP, *(PREFIX + name.upper() for name in ClientSettings.__annotations__))
    own = {name: settings[name] for name in read if settings.get(name)}
    # A secret in this environment is a deployed stack's, and beside the address of this one it would be rejected.
    services = {"AWS_ENDPOINT_URL": up["aws"], "AWS_ENDPOINT_URL_LAMBDA": up["lambda"]}
    return {**CREDENTIALS, **services, **own, STORE_SECRET: "", AMQP_SECRET: ""}


def _settings_of_stack(up: dict[str, Any], seal_key: str) -> dict[str, str]:
    """Those of the function behind the HTTP API: it adds tasks, as the program will."""
    given = Options(egress=Egress(up["egress"])).given()
    functions = Template(here().to_run(), Addresses(up["api"], up["aws"], up["store"]), given).functions
    api = next(function for function in functions if function.routes)
    own = {**host_settings(), AMQP: up["amqp"], SEAL_KEY: seal_key}
    return Environment(up["aws"], up["lambda"], up["store"], own).settings(api)


def advance(
    to: Annotated[
        str, typer.Argument(help="A duration (24h, 30d, PT5M, seconds), or an instant such as 2030-01-01T09:00:00Z.")
    ],
    folder: options.StateUsed = state.DEFAULT,
) -> None:
    """Move the running stack's clock, and run everything that falls due by then, in order.

    The stack must have been started by `duecourse up --clock travel`.

    Examples:

        duecourse advance 24h

        duecourse advance 2100-01-04T09:30:00Z
    """
    with console.problems_shown():
        answer = _move_clock(folder, to)
    console.out.print(f"{answer['now']}: {answer['claimed']} runs on the way", soft_wrap=True)


def _move_clock(folder: Path, to: str) -> dict[str, str]:
    from ..harness.clock_travel import CLOCK_PATH

    up = state.running(folder)
    if not up:
        raise HarnessError("no stack is running: start one by duecourse up --clock travel")
    if up.get("clock") != Clock.TRAVEL:
        raise HarnessError("the running stack goes by this machine's clock: start it by duecourse up --clock travel")
    answer = urllib3.request("POST", up["lambda"] + CLOCK_PATH, json={"to": to}, timeout=None, retries=False)
    found: dict[str, str] = answer.json()
    if answer.status != 200:
        raise HarnessError(found["detail"])
    return found


def sent(folder: options.StateUsed = state.DEFAULT) -> None:
    """Print the e-mails and SMS that the running stack has sent, oldest first.

    Examples:

        duecourse sent
    """
    with console.problems_shown():
        up = state.running(folder)
        if not up:
            raise HarnessError("no stack is running: run duecourse up")
        messages = _fetch_messages(str(up["aws"]))
    table = Table("by", "to", "subject", "body")
    for mail in messages["mails"]:
        table.add_row("email", mail["to"], mail["subject"], mail["body"])
    for sms in messages["sms"]:
        table.add_row("phone", sms["to"], "", sms["text"])
    console.print_table(table)


def _fetch_messages(aws: str) -> dict[str, list[dict[str, str]]]:
    answer = urllib3.request("GET", aws + SENT, timeout=10)
    if answer.status != 200:
        hint = f" ({ENDPOINT} is set)" if os.environ.get(ENDPOINT) else ""
        raise HarnessError(
            f"the service at {aws} is not the stack's own emulator: use its own tools to list messages{hint}"
        )
    found: dict[str, list[dict[str, str]]] = answer.json()
    return found
