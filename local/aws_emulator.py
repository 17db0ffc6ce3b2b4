"""AWS's services: moto's server as a child process, or whatever answers at the user's endpoint."""

import asyncio
import os
import sys
import time
from asyncio.subprocess import Process
from collections.abc import Mapping
from pathlib import Path
from threading import Lock

from localstack_client.session import Session  # type: ignore[import-untyped]

from local.account import CREDENTIALS, REGION
from local.children import spawn
from local.logs import Log
from local.problems import HarnessError
from local.sockets import LOOPBACK

READY_WITHIN = 60.0
ENDPOINT = "AWS_ENDPOINT_URL"
SENT = "/duecourse/sent"
"""Where moto, as we start it, tells of messages: {"mails": [{"to", "subject", "body"}], "sms": [{"to", "text"}]}."""
_environment = Lock()


async def start(port: int, environment: Mapping[str, str], log: Log) -> Process:
    """Start moto's server."""
    # By its file, for the working directory may be any; -P keeps the modules beside it from standing in for others.
    program = Path(__file__).with_name("moto_server.py")
    command = (sys.executable, "-P", str(program), LOOPBACK, str(port), SENT)
    return await spawn(command, environment=environment, out=log.descriptor)


async def wait_until_ready(url: str, process: Process) -> None:
    """Return once the server takes connections. Raises HarnessError."""
    port = int(url.rpartition(":")[2])
    until = time.monotonic() + READY_WITHIN
    while True:
        try:
            _, writer = await asyncio.open_connection(LOOPBACK, port)
        except OSError:
            if process.returncode is not None or time.monotonic() > until:
                raise HarnessError("the AWS emulator does not start: see its log") from None
            await asyncio.sleep(0.05)
        else:
            writer.close()
            await writer.wait_closed()
            return


def session(url: str) -> Session:
    """A boto3-like session whose clients call the emulator at `url`."""
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
