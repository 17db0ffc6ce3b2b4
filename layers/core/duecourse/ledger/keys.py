"""Names of the ledger's keys, and a queue's settings as fields of each shard's key."""

import logging
import re
import secrets
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from duecourse.base.described_fields import Described
from duecourse.ledger.queue import SETTINGS, QueueSettings, Rate
from duecourse.ledger.task import Shard

# Names of the ledger's keys; those of a shard have one hash tag, so that they live on one node.

log = logging.getLogger("duecourse.ledger")

MEMBER = re.compile(r"([A-Za-z0-9._:@-]{1,64})/([0-9]{1,3})/([0-9]{1,3})")
"""Member of the set of shards: queue, number, count."""
MOST_DIGITS = 15
"""Length of the longest time of a bell: a forged one may be longer than anything can keep."""
CANARY = "canary/b"
"""Beginning of a canary's name in a shard's place; no shard has it, for the number of a shard is one."""


class Keys(NamedTuple):
    """Names of one shard's keys, and of the channel on which a changed bell is published (`head`)."""

    # In the order of `lua/modules/shard.lua`.
    tasks: str
    heads: str
    ring: str
    leased: str
    done: str
    dead: str
    groups: str
    meta: str
    bell: str
    parked: str
    log: str
    late: str
    waiting: str
    history: str

    head: str
    prefix: str

    @property
    def fixed(self) -> tuple[str, ...]:
        """The keys that every script declares."""
        return self[: len(FIXED)]

    def due(self, tenant: str) -> str:
        """The tenant's sorted set of tasks by due time."""
        return f"{self.prefix}due:{tenant}"


FIXED = Keys._fields[:-2]
"""Names of the keys that every script declares."""


@lru_cache(maxsize=4096)
def keys_of(namespace: str, shard: Shard) -> Keys:
    """The keys of a shard."""
    prefix = f"{namespace}:{{{shard}}}:"
    return Keys._make([*(prefix + name for name in (*FIXED, "head")), prefix])


def requests_keys(namespace: str) -> tuple[str, str, str]:
    """The hash of requests that carried an Idempotency-Key, the set of them by time, and what their tenants have used.

    They are on one node, which is no shard's.
    """
    prefix = f"{namespace}:{{requests}}:"
    return f"{prefix}kept", f"{prefix}begun", f"{prefix}used"


def functions_key(namespace: str) -> str:
    """The hash of functions with the time of their last invocation: on one node, no shard's."""
    return f"{namespace}:{{functions}}:invoked"


def queries_key(namespace: str) -> str:
    """The hash of tenants with the queries of each that are in flight: on one node, no shard's."""
    return f"{namespace}:{{queries}}:in_flight"


def shards_key(namespace: str) -> str:
    """The set of the shards that exist, each as `<queue>/<number>/<count>`."""
    return f"{namespace}:shards"


def leaving_key(namespace: str) -> str:
    """The set of marks, `<member>#<who>`, of the shards that are being forgotten: on one node with the set of all."""
    return f"{{{shards_key(namespace)}}}:leaving"


def ledger_key(namespace: str) -> str:
    """The hash of the whole ledger: in `layout` the version of its records; on one node with those two."""
    return f"{namespace}:{{{shards_key(namespace)}}}:ledger"


def makers_key(namespace: str) -> str:
    """The hash of the times at which a tenant last added to a queue: on one node with the set of shards."""
    return f"{namespace}:{{{shards_key(namespace)}}}:makers"


def made_key(namespace: str) -> str:
    """The sorted set of the same uses by their tenants: on one node with the set of all shards."""
    return f"{namespace}:{{{shards_key(namespace)}}}:made"


def seals_key(namespace: str) -> str:
    """The hash of wrapped data keys that seal credentials, by id; `current` is the id of the newest."""
    return f"{namespace}:{{{shards_key(namespace)}}}:seals"


def deployed_key(namespace: str) -> str:
    """The sorted set of deployments' entries, by their times: on one node with the set of shards."""
    return f"{namespace}:{{{shards_key(namespace)}}}:deployed"


def files_key(namespace: str) -> str:
    """The hash of schedule files, and how far they are applied: on one node with the set of shards."""
    return f"{namespace}:{{{shards_key(namespace)}}}:files"


def ended_channel(namespace: str) -> str:
    """The channel of the ends of tasks, published where somebody waits."""
    return f"{namespace}:ended"


def rounds_key(namespace: str) -> str:
    """The hash of parts of the shards with the time of their last sweep: on one node with the set."""
    return f"{{{shards_key(namespace)}}}:swept"


def parse_shards(members: Iterable[bytes]) -> list[tuple[Shard, int]]:
    """The members of the set of shards: each shard, and the number of its queue's shards.

    A member that names no shard, which another program has put there, holds up no other: it is only logged.
    """
    texts = [member.decode(errors="backslashreplace") for member in members]
    found = [(text, MEMBER.fullmatch(text)) for text in texts]
    for text in [text for text, parts in found if not parts]:
        log.error("%r in the set of shards names no shard: remove it with SREM", text)
    return [(Shard(parts[1], int(parts[2])), int(parts[3])) for _, parts in found if parts]


def bell_time(value: bytes | None) -> int | None:
    """Time of a bell with this value; None for one that is gone, or has another program's value."""
    return int(value) if value and len(value) <= MOST_DIGITS and value.isdigit() else None


def tasks_pattern(namespace: str) -> str:
    """A pattern of Redis for the keys that hold tasks of shards; it may match keys of other programs."""
    return f"{namespace}:{{*}}:tasks"


def shard_of_tasks_key(namespace: str, key: str) -> Shard | None:
    """The shard whose tasks are at this key; None where it is no such key."""
    found = re.fullmatch(re.escape(namespace) + r":\{([A-Za-z0-9._:@-]{1,64})/([0-9]{1,3})\}:tasks", key)
    return Shard(found[1], int(found[2])) if found else None


def new_canary(namespace: str) -> str:
    """A name for a bridge's own bell: CANARY and 12 random hexadecimal digits in a shard's place."""
    return f"{namespace}:{{{CANARY}{secrets.token_hex(6)}}}:bell"


# Settings of a whole queue as fields of each of its shards' meta.


def _fields_of(one: Described) -> list[str]:
    return [f"{one.name}_count", f"{one.name}_per"] if one.kind is Rate else [one.name]


FIELDS = {field: one.field for one in SETTINGS for field in _fields_of(one)}
"""Fields of meta, each with the setting that it is part of."""


def as_fields(settings: QueueSettings) -> dict[str, str | int]:
    """The settings as meta keeps them, "" for a default."""
    values = [value for one in SETTINGS for value in _written(one, getattr(settings, one.field))]
    return dict(zip(FIELDS, values, strict=True))


def _written(one: Described, value: Any) -> Sequence[str | int]:
    if value == one.default:
        return [""] * len(_fields_of(one))
    return [value.most, value.per_ms] if isinstance(value, Rate) else [int(value)]


def settings_of(found: Sequence[bytes | None]) -> QueueSettings:
    """The settings by the values of FIELDS."""
    values = dict(zip(FIELDS, found, strict=True))
    return QueueSettings(**{one.field: _read(one, [values[field] for field in _fields_of(one)]) for one in SETTINGS})


def _read(one: Described, found: Sequence[bytes | None]) -> Any:
    if one.kind is bool:
        return bool(found[0])  # of any value: scripts ask no more than that
    numbers = [int(value) for value in found if value and value.isdigit()]
    if len(numbers) < len(found):
        return one.default
    if one.kind is Rate:
        return Rate(*numbers) if all(numbers) else None
    return numbers[0]
