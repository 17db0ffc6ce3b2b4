"""`invoke`: send one event to one function."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from ...stack import state
from ...stack.problems import HarnessError
from .. import client, console


def invoke(
    function: Annotated[
        str, typer.Argument(help="Name of the function, its logical id, or its folder under functions/.")
    ],
    event: Annotated[
        Path | None,
        typer.Option("--event", "-e", help="File with the event; - reads standard input.", show_default="{}"),
    ] = None,
    folder: client.StateUsed = state.DEFAULT,
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
        name, sent = client.function_named(function), _read(event)
        with client.lambda_service(folder) as service:
            answer = client.invoke(service, name, sent)
    typer.echo(console.json_visible(answer.payload))
    console.err.print(f"{console.shown(answer.error or 'ok')} after {answer.took_ms:.1f} ms")
    raise typer.Exit(1 if answer.error else 0)


def _read(event: Path | None) -> bytes:
    if event is None:
        return b"{}"
    if str(event) == "-":
        return sys.stdin.buffer.read()
    try:
        return event.read_bytes()
    except OSError as error:
        raise HarnessError(f"--event {event} cannot be read: {error.strerror}") from None
