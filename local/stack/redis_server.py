"""The Redis of the harness: the user's, by its URL, or one of its own whose append-only file outlives it."""

import asyncio
import os
import time
from asyncio.subprocess import Process
from pathlib import Path

from duecourse import settings
from duecourse.adapters.redis.connect import connect
from duecourse.adapters.redis.store import RedisStore
from duecourse.domain.address import shown
from duecourse.errors import DuecourseError, InvalidSettings, StoreUnavailable

from ..aws.account import CREDENTIALS
from ..process.children import spawn
from .logs import Log
from .problems import HarnessError
from .redis_binaries import choose
from .sockets import LOOPBACK, free_port


def given_store(option: str | None) -> str | None:
    """The URL that the user gave: by option, DUECOURSE_STORE or REDIS_URL. Raises HarnessError."""
    url = option or os.environ.get("DUECOURSE_STORE") or os.environ.get("REDIS_URL")
    if not url:
        return None
    try:
        return settings.parse({"DUECOURSE_STORE": url}).store
    except InvalidSettings as error:
        raise HarnessError(str(error)) from error


async def start(folder: Path, log: Log) -> tuple[Process, str]:
    """Start a server that keeps its data in `folder`: the process and its URL. Raises HarnessError."""
    folder.mkdir(parents=True, exist_ok=True)
    server, port = choose(folder), free_port(0, "--store")
    process = await spawn(_command(server.path, port, folder), environment=CREDENTIALS, out=log.descriptor)
    return process, f"redis://{LOOPBACK}:{port}/0"


def _command(server: str, port: int, folder: Path) -> list[str]:
    settings = {
        "bind": LOOPBACK,
        "port": str(port),
        "dir": str(folder),
        "appendonly": "yes",
        "appendfsync": "everysec",
        "save": "",
        "maxmemory-policy": "noeviction",
    }
    return [server, *(word for name, value in settings.items() for word in (f"--{name}", value))]


async def wait_until_ready(url: str, within: float) -> None:
    """Return once the server answers, its file loaded. Raises HarnessError after `within` seconds."""
    until = time.monotonic() + within
    while True:
        try:
            await asyncio.to_thread(_ping, url)
        except StoreUnavailable as error:
            if time.monotonic() > until:
                raise HarnessError(f"the store at {shown(url)} does not answer: {error}") from None
        except DuecourseError as error:
            raise HarnessError(f"the store at {shown(url)} cannot be used: {error}. Give another --store") from None
        else:
            return
        await asyncio.sleep(0.02)


def _ping(url: str) -> None:
    """Ask it as the functions will. Raises StoreUnavailable."""
    with connect(url) as client:
        RedisStore(client).ping()
