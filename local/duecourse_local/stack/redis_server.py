"""The Redis of the harness: the user's, by its URL, or one of its own whose append-only file outlives it."""

import asyncio
import os
import time
from asyncio.subprocess import Process
from pathlib import Path

from duecourse import settings
from duecourse.adapters.redis.connect import connect
from duecourse.adapters.redis.store import RedisStore
from duecourse.errors import DuecourseError, InvalidSettings, StoreUnavailable

from ..aws.account import CREDENTIALS
from ..process.children import spawn
from .addresses import shown
from .logs import Log
from .options import Clock
from .problems import HarnessError
from .redis_binaries import choose
from .sockets import LOOPBACK, free_port
from .state import StateFolder

MEMORY = "memory://"


def given_store(option: str | None, clock: Clock = Clock.WALL) -> str | None:
    """The URL that the user gave: by option, DUECOURSE_STORE or REDIS_URL. Raises HarnessError.

    With a clock that is moved it is a ledger in memory: the time of a Redis cannot be moved.
    """
    if clock == Clock.TRAVEL:
        if option not in (None, MEMORY):
            raise HarnessError(
                f"--clock travel moves the time of {MEMORY} alone, and a Redis has its own: leave --store out"
            )
        return MEMORY
    url = option or os.environ.get("DUECOURSE_STORE") or os.environ.get("REDIS_URL")
    if not url:
        return None
    try:
        return settings.parse({"DUECOURSE_STORE": url}).store
    except InvalidSettings as error:
        raise HarnessError(str(error)) from error


async def start(state: StateFolder, log: Log) -> tuple[Process, str]:
    """Start a server that keeps its data in the folder: the process and its URL. Raises HarnessError.

    While it runs, nobody else has the folder, even if this process is killed: two servers would spoil one file.
    """
    folder = state.path / "redis"
    folder.mkdir(parents=True, exist_ok=True)
    server, port = choose(folder), free_port(0, "--store")
    command = _command(server.path, port, folder)
    process = await spawn(command, environment=CREDENTIALS, out=log.descriptor, keeps=(state.lock,))
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
