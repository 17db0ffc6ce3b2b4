"""`sent`: print what the emulated services were given to send to people."""

import os

import urllib3

from ...aws.emulator import ENDPOINT, SENT
from ...stack import state
from ...stack.problems import HarnessError
from .. import client, console
from ..table import Table


def sent(folder: client.StateUsed = state.DEFAULT) -> None:
    """Print the e-mails and SMS that the running stack has sent, oldest first.

    Examples:

        duecourse sent
    """
    with console.problems_shown():
        up = state.running(folder)
        if not up:
            raise HarnessError("no stack is running: run duecourse up")
        messages = _ask(str(up["aws"]))
    table = Table("by", "to", "subject", "body")
    for mail in messages["mails"]:
        table.add_row("email", mail["to"], mail["subject"], mail["body"])
    for sms in messages["sms"]:
        table.add_row("phone", sms["to"], "", sms["text"])
    console.show(table)


def _ask(aws: str) -> dict[str, list[dict[str, str]]]:
    answer = urllib3.request("GET", aws + SENT, timeout=10)
    if answer.status != 200:
        hint = f" ({ENDPOINT} is set)" if os.environ.get(ENDPOINT) else ""
        raise HarnessError(
            f"the service at {aws} is not the stack's own emulator: use its own tools to list messages{hint}"
        )
    found: dict[str, list[dict[str, str]]] = answer.json()
    return found
