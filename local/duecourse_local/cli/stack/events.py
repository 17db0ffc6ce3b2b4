"""`events`: send saved events to their functions."""

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.json import JSON
from rich.panel import Panel

from ...project.place import here
from ...stack import state
from ...stack.problems import HarnessError
from .. import client, console
from ..client import Invoked

MEANT_TO_FAIL = "bad_"
"""Beginning of the names of events that their functions may reject."""


def events(
    paths: Annotated[
        list[Path] | None,
        typer.Argument(
            help="Event files or folders of them; a file's folder names its function.", show_default="events/"
        ),
    ] = None,
    folder: client.StateUsed = state.DEFAULT,
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
        found = [(path, _function_of(path)) for path in _files(paths or [here().events])]
        with client.lambda_service(folder if paths else None) as service:
            failed = [path.name for path, function in found if _send(service, path, function).error]
    unexpected = [name for name in failed if not name.startswith(MEANT_TO_FAIL)]
    console.out.print(f"{len(found)} events, {len(failed)} failed, {len(unexpected)} of them unexpectedly")
    raise typer.Exit(1 if unexpected else 0)


def _files(paths: list[Path]) -> list[Path]:
    found = [f for path in paths for f in (sorted(path.rglob("*.json")) if path.is_dir() else [path])]
    if not found:
        raise HarnessError(f"no events in {', '.join(map(str, paths))}")
    return found


def _function_of(path: Path) -> str:
    named = path.resolve().parent.name
    function = client.functions().get(named)
    if function is None:
        raise HarnessError(f"{path}: no function of the template has the folder {named}")
    return function.name


def _send(service: str, path: Path, function: str) -> Invoked:
    event = path.read_bytes()
    answer = client.invoke(service, function, event)
    title = f"{path.parent.name}/{path.name} → {function}"
    console.out.print(Panel(_shown(event.decode()), title=title, title_align="left"))
    outcome = f"[bold red]{console.shown(answer.error)}[/]" if answer.error else "[green]ok[/]"
    subtitle = f"{outcome} {answer.took_ms:.1f} ms"
    console.out.print(Panel(_shown(answer.payload), title=subtitle, title_align="left"))
    return answer


def _shown(text: str) -> JSON | str:
    try:
        json.loads(text)
    except ValueError:
        return console.shown(text)
    return JSON(console.json_text(json.loads(text)))
