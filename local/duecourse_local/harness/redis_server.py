"""Redis of the harness: the user's, by its URL, or one of its own whose append-only file outlives it."""

import asyncio
import os
import time
from asyncio.subprocess import Process
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from pathlib import Path

import redis

from duecourse import settings
from duecourse.errors import DuecourseError, InvalidSettings, StoreUnavailable
from duecourse.ledger import connect as eviction
from duecourse.ledger.connect import connect, servers
from duecourse.ledger.operations.ledger import Ledger
from duecourse.ledger.redis_bells import missing_flags

from ..errors import HarnessError
from .addresses import LOOPBACK, free_port, without_password
from .aws.account import CREDENTIALS
from .children import spawn
from .logs import Log
from .options import Clock, Precision
from .redis_binaries import choose
from .state import StateFolder

EVENTS = "notify-keyspace-events"


def turns_events_on(precision: Precision, settings: Mapping[str, str]) -> bool:
    """True if the stack turns key events on in its Redis."""
    return precision != Precision.TICK and settings.get("DUECOURSE_EVENTS") != "off"


async def check_given_redis(
    url: str, warn: Callable[[str], None], *, needs_events: bool
) -> Callable[[], Awaitable[None]]:
    """Report problems of the Redis at `url`, and return a function that restores its settings once the stack has ended.

    `needs_events` is True if key events will be turned on there.
    """
    flags = await asyncio.to_thread(_check_servers, url, warn, needs_events=needs_events)

    async def restore() -> None:
        with suppress(redis.RedisError, DuecourseError):
            await asyncio.to_thread(_put_back, url, flags, warn)

    return restore


def _check_servers(url: str, warn: Callable[[str], None], *, needs_events: bool) -> dict[str, str]:
    found = {}
    with connect(url) as client:
        for server in servers(client):
            if warning := eviction.eviction_warning(server):
                warn(warning)
            flags = _event_flags(server)
            if flags is not None:
                found[_server_name(server)] = flags
    if needs_events and any(missing_flags(flags) for flags in found.values()):
        values = ", ".join(sorted({repr(flags) for flags in found.values()}))
        warn(
            f"the store's {EVENTS} is {values}: the bridge adds what it needs, and it is put back when this stack stops"
        )
    return found


def _put_back(url: str, before: dict[str, str], warn: Callable[[str], None]) -> None:
    """Set the notifications as they were, unless another program, such as a second bridge, listens to them."""
    with connect(url) as client:
        for server in servers(client):
            flags, now = before.get(_server_name(server)), _event_flags(server)
            if flags is None or flags == now:
                continue
            if server.pubsub_numpat() or server.pubsub_channels("__key*"):
                warn(f"the store's {EVENTS} stays {now!r} (it was {flags!r}), for other programs listen there")
            else:
                server.config_set(EVENTS, flags)


def _event_flags(server: redis.Redis) -> str | None:
    """None where a server does not let us read its settings: it does not let a bridge change them either."""
    try:
        return str(server.config_get(EVENTS)[EVENTS])
    except (redis.ResponseError, KeyError):
        return None


def _server_name(server: redis.Redis) -> str:
    where = server.get_connection_kwargs()
    return f"{where.get('host', where.get('path'))}:{where.get('port', '')}"


MEMORY = "memory://"


def given_store(option: str | None, clock: Clock = Clock.WALL) -> str | None:
    """The URL that the user gave: by option, DUECOURSE_STORE or REDIS_URL. Raises HarnessError.

    With a clock that is moved it is a ledger in memory: the time of a Redis cannot be moved.
    """
    if clock == Clock.TRAVEL:
        if option not in (None, MEMORY):
            raise HarnessError(
                f"--clock travel needs the ledger at {MEMORY}, for no server lets its clock be moved: leave --store out"
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
                raise HarnessError(f"the store at {without_password(url)} does not answer: {error}") from None
        except DuecourseError as error:
            raise HarnessError(
                f"the store at {without_password(url)} cannot be used: {error}. Give another --store"
            ) from None
        else:
            return
        await asyncio.sleep(0.02)


def _ping(url: str) -> None:
    """Ask it as the functions will. Raises StoreUnavailable."""
    with connect(url) as client:
        Ledger(client).ping()
