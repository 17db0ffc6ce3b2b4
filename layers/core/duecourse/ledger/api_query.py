"""Query: a request whose answer is wanted, its id, and its queue; bounds of polls; names that callers may not use."""

import json
import re
import socket
from collections.abc import Callable
from enum import StrEnum
from hashlib import sha256
from ipaddress import IPv6Address
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from duecourse.base.host_addresses import in_ascii
from duecourse.base.json_text import Json, dump_json
from duecourse.base.times import DAY_MS
from duecourse.base.value_classes import as_dict, brief, value
from duecourse.ledger import reminder
from duecourse.ledger.task import NewTask, OnDuplicate

# Query: the request whose answer is wanted, its id, and the queue in which its one task waits.

KIND = "poll"
QUEUE_PREFIX = "query:"
"""Beginning of the name of each host's queue, and of no other."""
HOST = r"[a-z0-9._:-]{1,58}"
"""Pattern of the host in a queue's name: what that name leaves room for."""
ID_PATTERN = rf"^q-[0-9a-f]{{32}}@{HOST}$"
IDENTITY = ("url", "method", "headers", "body", "until", "failed_when", "result")
"""Fields that make two queries the same; interval, timeout and age do not."""
DEADLINE_MS = DAY_MS
"""Time after which a query is given up."""
HEAD_START_MS = 1_000
"""Time for which a new query belongs to the request that made it, before any drain may claim it."""
KNOWN = "known"
"""Field in which a query's task carries the earlier answer, if no database has it."""

_NUMBER = re.compile(r"(?=[a-fx.]*[0-9])[0-9a-fx.]+")
"""Pattern of anything that may be an IPv4 address, such as `127.1` and `0x7f000001`."""
_STANDARD_PORT = {"http": 80, "https": 443}


@value
class Known:
    """An answer that came, and when (epoch ms)."""

    data: Json
    fetched_at: int

    def __repr__(self) -> str:
        return brief(self, "fetched_at")


class QueryState(StrEnum):
    """State of a query: answered, still polled, or failed."""

    DONE = "done"
    PROCESSING = "processing"
    FAILED = "failed"


@value
class QueryStatus:
    """Status of a query; `known` is its newest answer, which is an earlier one unless `status` is done.

    `error` is that of its last failed call, "" if none failed; `due_at` is the time of the next call, 0 for none.
    """

    id: str
    queue: str
    status: QueryState
    known: Known | None
    error: str = ""
    due_at: int = 0

    def __repr__(self) -> str:
        return brief(self, "id", "status", "known", "error", "due_at")


class Query(NamedTuple):
    """A poll's payload, and how old (ms) an answer may be that is as good as a new one.

    `digest` makes the hash, in hexadecimal. It takes a key where the payload has credentials, for an id is no secret. A
    password could be guessed from a hash that anyone can make.
    """

    payload: dict[str, Json]
    max_age_ms: int
    digest: Callable[[bytes], str] = lambda text: sha256(text).hexdigest()

    @property
    def group(self) -> str:
        """Hash of the query: the group of its one task, so that the task can be added only if the group has none."""
        headers = {name.lower(): value for name, value in (self.payload.get("headers") or {}).items()}
        spelled = {"url": _plain(self.payload["url"]), "headers": headers}
        same = {name: self.payload.get(name) for name in IDENTITY} | spelled
        if auth := self.payload.get("auth"):  # in no query of before: those keep their ids
            same["auth"] = auth
        in_order = json.dumps(json.loads(dump_json(same)), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        return "q-" + self.digest(in_order.encode())[:32]

    @property
    def id(self) -> str:
        """Id of the query: the hash, and the host, which names its queue."""
        return f"{self.group}@{host_of(self.payload['url'])}"

    def task(self, tenant: str, known: Known | None, by: str) -> NewTask:
        """The task that asks; it carries what is known already where that is given."""
        carried = {KNOWN: as_dict(known)} if known else {}
        id = self.id  # a hash of all that is asked, a body of 256 KiB among it: made once
        return NewTask(
            id=id,
            kind=KIND,
            payload=dump_json({**self.payload, **carried}),
            queue=queue_of(id),
            tenant=tenant,
            group=id.partition("@")[0],
            delay_ms=HEAD_START_MS,
            deadline_ms=DEADLINE_MS,
            on_duplicate=OnDuplicate.REPLACE,
            by=by,
        )


def limits_of(parallel: int, shards: int, *, are_apart: bool) -> dict[str, int]:
    """Default limits of a host's queue: where tenants `are_apart`, one call is always left for another tenant.

    Each of the queue's shards has a part of each limit, so that no limit is below their number.
    """
    limits = {"max_running": parallel}
    return limits | {"tenant_max_running": max(parallel - 1, shards)} if are_apart else limits


def queue_of(id: str) -> str:
    """The queue of a query: its host's."""
    return QUEUE_PREFIX + id.partition("@")[2]


def host_of(url: str) -> str:
    """An address's host in one spelling, with a port that is not the standard one; cut where it is too long.

    A host that does not fit into a queue's name is kept distinct by a hash.
    """
    parts = urlsplit(url)
    host = _spelled(unquote(parts.hostname or "").lower().rstrip("."))
    named = host if parts.port in (None, _STANDARD_PORT.get(parts.scheme)) else f"{host}:{parts.port}"
    if re.fullmatch(HOST, named):
        return named
    return re.sub(r"[^a-z0-9.-]", "-", named)[:41] + "." + sha256(named.encode()).hexdigest()[:16]


def _plain(url: str) -> str:
    """An address without its meaningless variations: the case of its host, a standard port, a fragment.

    Nothing more: two addresses that differ for any server must not share one answer.
    """
    parts = urlsplit(url)
    user, at, place = parts.netloc.rpartition("@")
    rest = url.partition("#")[0][len(f"{parts.scheme}://{parts.netloc}") :]
    place = place.lower().removesuffix(f":{_STANDARD_PORT.get(parts.scheme)}")
    return f"{parts.scheme}://{user}{at}{place}" + (rest if rest.startswith("/") else f"/{rest}")


def _spelled(host: str) -> str:
    """A host in one of its spellings: as the shortest form of a number, or as DNS has its name."""
    try:
        if ":" in host:
            number = IPv6Address(host)
            return str(number.ipv4_mapped or number)
        return socket.inet_ntoa(socket.inet_aton(host)) if _NUMBER.fullmatch(host) else in_ascii(host)
    except (ValueError, OSError):
        return host


# Bounds of polls: a poll asks again and again, and neither too often nor for ever.

MIN_INTERVAL_MS = 100
"""Shortest interval that an operator can allow."""
LEAST_INTERVAL_MS = 1_000
"""Shortest interval, unless an operator allows a shorter one or asks for a longer one."""
MAX_DEADLINE_MS = 366 * DAY_MS
"""Longest time from the due time to the deadline; without one, a poll has a day (ledger/task.py)."""


# Names that nobody adds tasks under: the kinds and queues of what is made in another way.


def open_kind(kind: str) -> str:
    """A kind that may be asked for. Raises ValueError, with what to do, for one that may not."""
    if kind == reminder.KIND:
        raise ValueError(f"{kind} is reserved for POST /reminders: send it there, or choose another kind")
    return kind


def open_queue(queue: str) -> str:
    """A queue into which tasks may be added. Raises ValueError, with what to do, for one into which they may not."""
    # A task of another kind under a reminder's id would take its place, or be taken by it.
    if queue == reminder.QUEUE:
        raise ValueError(f"{queue} is reserved for POST /reminders: choose another queue")
    if queue.startswith(QUEUE_PREFIX):
        raise ValueError(f"{QUEUE_PREFIX}… is reserved for POST /queries: choose another queue")
    return queue
