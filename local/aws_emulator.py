"""AWS's services: moto's server as a child process, or whatever answers at the user's endpoint."""

import asyncio
import os
import sys
import time
from asyncio.subprocess import Process
from collections.abc import Mapping
from threading import Lock

import urllib3
from localstack_client.session import Session  # type: ignore[import-untyped]

from local.account import CREDENTIALS, REGION
from local.children import spawn
from local.logs import Log
from local.problems import HarnessError
from local.sockets import LOOPBACK

READY_WITHIN = 60.0
ENDPOINT = "AWS_ENDPOINT_URL"
_environment = Lock()


async def start(port: int, base: Mapping[str, str], log: Log) -> Process:
    """Start moto's server and wait until it answers."""
    command = (sys.executable, "-m", "moto.server", "-H", LOOPBACK, "-p", str(port))
    process = await spawn(command, environment=base, out=log.descriptor)
    await asyncio.to_thread(_wait_until_ready, f"http://{LOOPBACK}:{port}/moto-api/data.json", process)
    return process


def _wait_until_ready(url: str, process: Process) -> None:
    until = time.monotonic() + READY_WITHIN
    with urllib3.PoolManager() as http:
        while True:
            try:
                http.request("HEAD", url, retries=False, timeout=5)
            except urllib3.exceptions.HTTPError:
                if process.returncode is not None or time.monotonic() > until:
                    raise HarnessError("the AWS emulator does not start: see its log") from None
            else:
                return
            time.sleep(0.05)


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
