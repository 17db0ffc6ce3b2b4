"""`advance`: move the clock of a stack that was started with `--clock travel`."""

from pathlib import Path
from typing import Annotated

import typer
import urllib3

from ...stack import state
from ...stack.options import Clock
from ...stack.problems import HarnessError
from ...threads.clock_api import PATH
from .. import client, console


def advance(
    to: Annotated[
        str, typer.Argument(help="A duration (24h, 30d, PT5M, seconds), or an instant such as 2030-01-01T09:00:00Z.")
    ],
    folder: client.StateUsed = state.DEFAULT,
) -> None:
    """Move the running stack's clock, and run everything that falls due by then, in order.

    The stack must have been started by `duecourse up --clock travel`.

    Examples:

        duecourse advance 24h

        duecourse advance 2100-01-04T09:30:00Z
    """
    with console.problems_shown():
        answer = _moved(folder, to)
    console.out.print(f"{answer['now']}: {answer['claimed']} runs on the way", soft_wrap=True)


def _moved(folder: Path, to: str) -> dict[str, str]:
    up = state.running(folder)
    if not up:
        raise HarnessError("no stack is running: start one by duecourse up --clock travel")
    if up.get("clock") != Clock.TRAVEL:
        raise HarnessError("the running stack goes by this machine's clock: start it by duecourse up --clock travel")
    answer = urllib3.request("POST", up["lambda"] + PATH, json={"to": to}, timeout=None, retries=False)
    found: dict[str, str] = answer.json()
    if answer.status != 200:
        raise HarnessError(found["detail"])
    return found
