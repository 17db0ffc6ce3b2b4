"""A Redis that was there before the stack: what in it loses tasks, and what the bridge changes and we put back."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress

import redis

from duecourse.adapters.redis import eviction
from duecourse.adapters.redis.bells import missing_flags
from duecourse.adapters.redis.connect import connect, servers
from duecourse.errors import DuecourseError

from .options import Precision

EVENTS = "notify-keyspace-events"


def hears(precision: Precision, settings: Mapping[str, str]) -> bool:
    """True if the stack turns key events on in its Redis."""
    return precision != Precision.TICK and settings.get("DUECOURSE_EVENTS") != "off"


async def visit(url: str, tell: Callable[[str], None], *, hears: bool) -> Callable[[], Awaitable[None]]:
    """Report problems of the Redis at `url`, and return a function that restores its settings once the stack has ended.

    `hears` is True if key events will be turned on there.
    """
    flags = await asyncio.to_thread(_look, url, tell, hears=hears)

    async def leave() -> None:
        with suppress(redis.RedisError, DuecourseError):
            await asyncio.to_thread(_put_back, url, flags, tell)

    return leave


def _look(url: str, tell: Callable[[str], None], *, hears: bool) -> dict[str, str]:
    found = {}
    with connect(url) as client:
        for server in servers(client):
            if warning := eviction.warning(server):
                tell(warning)
            flags = _flags(server)
            if flags is not None:
                found[_name(server)] = flags
    if hears and any(missing_flags(flags) for flags in found.values()):
        values = ", ".join(sorted({repr(flags) for flags in found.values()}))
        tell(
            f"the store's {EVENTS} is {values}: the bridge adds what it needs, and it is put back when this stack stops"
        )
    return found


def _put_back(url: str, before: dict[str, str], tell: Callable[[str], None]) -> None:
    """Set the notifications as they were, unless another program, such as a second bridge, listens to them."""
    with connect(url) as client:
        for server in servers(client):
            flags, now = before.get(_name(server)), _flags(server)
            if flags is None or flags == now:
                continue
            if server.pubsub_numpat() or server.pubsub_channels("__key*"):
                tell(f"the store's {EVENTS} stays {now!r} (it was {flags!r}), for other programs listen there")
            else:
                server.config_set(EVENTS, flags)


def _flags(server: redis.Redis) -> str | None:
    """None where a server does not let us read its settings: it does not let a bridge change them either."""
    try:
        return str(server.config_get(EVENTS)[EVENTS])
    except (redis.ResponseError, KeyError):
        return None


def _name(server: redis.Redis) -> str:
    where = server.get_connection_kwargs()
    return f"{where.get('host', where.get('path'))}:{where.get('port', '')}"
