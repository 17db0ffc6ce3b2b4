"""Checks of one server of the store."""

import time
from collections.abc import Callable, Iterator, Sequence
from statistics import median
from typing import Any, NamedTuple

import redis

from duecourse.base.times import counted, span
from duecourse.ledger import connect
from duecourse.ledger.redis_bells import missing_flags

from .finding import Finding, Level

EVENTS = "notify-keyspace-events"
OLDEST = (6, 2)
PINGS = 11
SLOW_MS = 20.0
"""Round trip from which a warning is due: a task takes a few of them."""
OFF_MS = 1_000.0
"""Difference of two clocks from which a warning is due; from FAR_OFF_MS it is a fault."""
FAR_OFF_MS = 60_000.0
NEARLY_FULL = 0.9
MANY_VOLATILE = 10_000


class Server(NamedTuple):
    """A server: its client, its name in findings, the number of our bells in it, and whether bridges use events."""

    client: redis.Redis
    name: str
    bells: int
    events: bool

    def setting(self, name: str) -> str | None:
        """A setting of its configuration; None where the server does not show it."""
        try:
            return str(self.client.config_get(name)[name])
        except (redis.ResponseError, KeyError):
            return None


def examine(server: Server) -> list[Finding]:
    """Findings on one server. Raises RedisError."""
    return [finding._replace(place=server.name) for check in CHECKS for finding in check(server)]


def _version(server: Server) -> Iterator[Finding]:
    info: Any = server.client.info("server")
    name = "Valkey" if "valkey_version" in info else "Redis"
    version = str(info.get("valkey_version", info["redis_version"]))
    parts = tuple(int(part) for part in version.split(".")[:2])
    if parts < OLDEST:
        yield Finding(Level.FAULT, "version", f"{name} {version} is too old", "use Redis 6.2 or newer, or Valkey")
    else:
        yield Finding(Level.FINE, "version", f"{name} {version}")


def _round_trip(server: Server) -> Iterator[Finding]:
    took = []
    for _ in range(PINGS):
        began = time.perf_counter()
        server.client.ping()
        took.append((time.perf_counter() - began) * 1000)
    level = Level.WARNING if median(took) > SLOW_MS else Level.FINE
    fix = "run functions and Redis in one region and network" if level == Level.WARNING else ""
    yield Finding(level, "round trip", f"{median(took):.1f} ms from here", fix)


def _clock(server: Server) -> Iterator[Finding]:
    began = time.time()
    seconds, micros = server.client.time()
    off_ms = (seconds + micros / 1e6 - (began + time.time()) / 2) * 1000
    if abs(off_ms) > OFF_MS:
        text = f"{span(round(abs(off_ms)))} {'ahead of' if off_ms > 0 else 'behind'} this machine's"
        level = Level.WARNING if abs(off_ms) < FAR_OFF_MS else Level.FAULT
        yield Finding(level, "clock", text, "synchronize both clocks: tasks come due by the server's")
    else:
        yield Finding(Level.FINE, "clock", f"{round(off_ms) + 0:+d} ms from this machine's")


def _memory(server: Server) -> Iterator[Finding]:
    if connect.eviction_warning(server.client):
        policy = server.client.info("memory")["maxmemory_policy"]
        text = f"maxmemory-policy is {policy}: tasks can be evicted once memory is full"
        yield Finding(Level.FAULT, "eviction", text, "redis-cli config set maxmemory-policy noeviction")
    info: Any = server.client.info("memory")
    most, used = int(info.get("maxmemory", 0)), int(info["used_memory"])
    if most and used > NEARLY_FULL * most:
        text = f"{100 * used // most} % of maxmemory is used: adds fail once it is full"
        yield Finding(Level.WARNING, "memory", text, "give the server more memory, or shorten DUECOURSE_RETENTION")
    else:
        yield Finding(
            Level.FINE, "memory", f"{used // 2**20} MiB used{f' of {most // 2**20} MiB' if most else ', no limit'}"
        )


def _persistence(server: Server) -> Iterator[Finding]:
    info: Any = server.client.info("persistence")
    failed = [name for name in ("aof_last_write_status", "rdb_last_bgsave_status") if info.get(name) == "err"]
    if failed:
        yield Finding(Level.FAULT, "persistence", f"{failed[0]} is err", "look at the server's log, and at its disk")
    if info.get("aof_enabled"):
        fsync = server.setting("appendfsync") or "unknown"
        lost = {"always": "nothing", "everysec": "the last second"}.get(fsync, "what the system had not written")
        yield Finding(Level.FINE, "persistence", f"append-only file, appendfsync {fsync}: a crash loses {lost}")
    elif server.setting("save") == "":
        yield Finding(Level.FAULT, "persistence", "a restart loses all tasks", "redis-cli config set appendonly yes")
    else:
        changes = info.get("rdb_changes_since_last_save", 0)
        text = f"snapshots alone: a crash loses what came after the last one, {changes} changes now"
        yield Finding(Level.WARNING, "persistence", text, "redis-cli config set appendonly yes")


def _listeners(server: Server) -> Iterator[Finding]:
    found: Any = server.client.client_list(_type="pubsub")
    where = ", ".join(sorted(one["addr"] or one["laddr"] for one in found))
    if found:
        yield Finding(Level.FINE, "listeners", f"{counted(len(found), 'connection')} listening: {where}")
    else:
        text = "nobody listens: due tasks wait for the tick, up to a minute"
        yield Finding(
            Level.NOTE,
            "listeners",
            text,
            "for milliseconds, deploy with Precision=linger, or Precision=bridge and run a bridge",
        )
    yield from _events(server, is_heard=bool(found))


def _events(server: Server, *, is_heard: bool) -> Iterator[Finding]:
    flags = server.setting(EVENTS)
    if flags is None:
        text = f"the server does not show {EVENTS}"
        yield Finding(
            Level.NOTE, "key events", text, "if key events cannot be turned on there, set DUECOURSE_EVENTS=off"
        )
    elif is_heard and server.events and (missing := missing_flags(flags)):
        text = f"{EVENTS} is {flags!r} and lacks {missing!r}: another program has changed it"
        yield Finding(Level.WARNING, "key events", text, "restart the bridge, or wait for the next tick")
    elif not is_heard and not missing_flags(flags):
        text = f"{EVENTS} is {flags!r}, and nobody listens: each expiry of a key costs the server an event"
        yield Finding(Level.NOTE, "key events", text, f'redis-cli config set {EVENTS} "", if no program needs them')
    else:
        yield Finding(Level.FINE, "key events", f"{EVENTS} is {flags!r}")


def _volatile(server: Server) -> Iterator[Finding]:
    db = server.client.get_connection_kwargs().get("db") or 0
    info: Any = server.client.info("keyspace")
    foreign = int(info.get(f"db{db}", {}).get("expires", 0)) - server.bells
    if foreign > MANY_VOLATILE:
        text = f"about {foreign:,} keys of other programs expire: with key events, each is an event to each bridge"
        yield Finding(Level.WARNING, "foreign keys", text, "use a database of its own, or DUECOURSE_EVENTS=off")
    elif foreign > 0:
        yield Finding(Level.NOTE, "foreign keys", f"about {foreign:,} keys of other programs have a time to live")


CHECKS: Sequence[Callable[[Server], Iterator[Finding]]] = (
    _version,
    _round_trip,
    _clock,
    _memory,
    _persistence,
    _listeners,
    _volatile,
)
