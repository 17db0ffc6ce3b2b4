"""AWS's services: moto's server as a child process, or whatever answers at the user's endpoint."""

import asyncio
import os
import socket
import sys
from asyncio.subprocess import Process
from collections.abc import Mapping, Sequence
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

import urllib3

from ..process.children import spawn
from ..stack.logs import Log
from ..stack.problems import HarnessError
from .account import CREDENTIALS, REGION

if TYPE_CHECKING:
    from localstack_client.session import Session  # type: ignore[import-untyped]

READY_WITHIN = 60.0
ENDPOINT = "AWS_ENDPOINT_URL"
SENT = "/duecourse/sent"
"""Path at which our moto lists messages: {"mails": [{"to", "subject", "body"}], "sms": [{"to", "text"}]}."""
_environment = Lock()
HOME = Path(__file__).parents[len(__package__.split("."))]
# Where this package is comes last on the search path: nothing beside it may stand in for a library.
PROGRAM = f"""
import runpy, sys
sys.path.append({str(HOME)!r})
runpy.run_module("{__package__}.moto_server", run_name="__main__", alter_sys=True)
"""


async def start(sock: socket.socket, environment: Mapping[str, str], log: Log, names: Sequence[str] = ()) -> Process:
    """Start moto's server on a listening socket, which becomes the server's own; `names` as `Guard` takes them.

    The socket listens before the server exists: the server takes a second to start, and meanwhile another program could
    get the port.
    """
    with sock:
        command = (sys.executable, "-P", "-c", PROGRAM, str(sock.fileno()), SENT, *names)
        return await spawn(command, environment=environment, out=log.descriptor, keeps=[sock.fileno()])


async def wait_until_ready(url: str) -> None:
    """Return once the server answers. Raises HarnessError."""
    try:
        await asyncio.to_thread(urllib3.request, "GET", url + SENT, timeout=READY_WITHIN, retries=False)
    except urllib3.exceptions.HTTPError:
        raise HarnessError("the AWS emulator does not start: see its log") from None


def session(url: str) -> "Session":
    """A boto3-like session whose clients call the emulator at `url`."""
    from localstack_client.session import Session  # brings boto3 along, and the address alone is wanted more often

    # localstack-client takes a whole URL from this variable only, and the variable wins over its argument
    with _environment:
        before = os.environ.get(ENDPOINT)
        os.environ[ENDPOINT] = url
        try:
            return Session(CREDENTIALS["AWS_ACCESS_KEY_ID"], CREDENTIALS["AWS_SECRET_ACCESS_KEY"], region_name=REGION)
        finally:
            if before is None:
                del os.environ[ENDPOINT]
            else:
                os.environ[ENDPOINT] = before
