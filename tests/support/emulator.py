"""Emulators of AWS that the stacks of this process take in turn: each start of moto takes half a second."""

import atexit
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

import urllib3

from duecourse_local.harness.addresses import listen, url_of
from duecourse_local.harness.aws.emulator import PROGRAM, SENT
from duecourse_local.harness.environment import Environment
from duecourse_local.harness.options import Options
from duecourse_local.harness.stack import Stack
from tests.support.redis_server import tie

CALLED = ("EnqueueHttpFunction", "OnExpiredFunction")
"""Functions that nearly every test needs."""
_free: list[str] = []
"""URLs of those that no stack has."""


@contextmanager
def emulator() -> Iterator[str]:
    """The URL of an emulator that nobody else has, with nothing in it."""
    url = _emptied() or _started()
    try:
        yield url
    finally:
        _free.append(url)


def _emptied() -> str | None:
    """One of those that are free; one that died in another test is left out."""
    while _free:
        url = _free.pop()
        with suppress(urllib3.exceptions.HTTPError):
            urllib3.request("POST", f"{url}/moto-api/reset", retries=False, timeout=60)
            return url
    return None


def _started() -> str:
    with listen(0, "") as sock:
        url, descriptor = url_of(sock), sock.fileno()
        words = [*tie(), sys.executable, "-P", "-c", PROGRAM, str(descriptor), SENT]
        pipes = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        process = subprocess.Popen(words, env=Environment(url, "", "").base(), pass_fds=[descriptor], **pipes)
    atexit.register(_end, process)
    return url


def _end(process: "subprocess.Popen[bytes]") -> None:
    process.kill()
    process.wait()


@contextmanager
def local_stack(options: Options | None = None, **more: Any) -> Iterator[Stack]:
    """A stack with such an emulator, of whose functions most start once they are needed; `more` as Stack takes it."""
    with emulator() as url, Stack(replace(options or Options(), aws=url, warm=CALLED), **more) as stack:
        yield stack
