"""Names of the ledger's keys; those of a shard have one hash tag, so that they live on one node."""

import re
import secrets
from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

from duecourse.domain.task import Shard

FIXED = (
    "tasks", "heads", "ring", "leased", "done", "dead", "groups", "meta", "bell", "parked", "log", "late", "waiting",
)  # fmt: skip
"""The keys every script declares, in the order of `lua/modules/shard.lua`."""
CANARY = "canary/b"
"""Beginning of a canary's name in a shard's place; no shard has it, for the number of a shard is one."""


class Keys(NamedTuple):
    """Names of one shard's keys, and of the channel on which a changed bell is published."""

    prefix: str
    fixed: tuple[str, ...]
    head: str

    def __getattr__(self, name: str) -> str:
        if name in FIXED:
            return f"{self.prefix}{name}"
        raise AttributeError(name)

    def due(self, tenant: str) -> str:
        """The tenant's sorted set of tasks by due time."""
        return f"{self.prefix}due:{tenant}"


@lru_cache(maxsize=4096)
def keys_of(namespace: str, shard: Shard) -> Keys:
    """The keys of a shard."""
    prefix = f"{namespace}:{{{shard}}}:"
    return Keys(prefix, tuple(prefix + name for name in FIXED), f"{prefix}head")


def requests_keys(namespace: str) -> tuple[str, str]:
    """The hash of requests that carried an Idempotency-Key, and the set of them by time: on one node, no shard's."""
    return f"{namespace}:{{requests}}:kept", f"{namespace}:{{requests}}:begun"


def functions_key(namespace: str) -> str:
    """The hash of functions with the time of their last invocation: on one node, no shard's."""
    return f"{namespace}:{{functions}}:invoked"


def shards_key(namespace: str) -> str:
    """The set of the shards that exist, each as `<queue>/<number>/<count>`."""
    return f"{namespace}:shards"


def leaving_key(namespace: str) -> str:
    """The set of marks, `<member>#<who>`, of the shards that are being forgotten: on one node with the set of all."""
    return f"{{{shards_key(namespace)}}}:leaving"


def ledger_key(namespace: str) -> str:
    """The hash of the whole ledger: in `layout` the version that new shards have; on one node with those two."""
    return f"{namespace}:{{{shards_key(namespace)}}}:ledger"


def rounds_key(namespace: str) -> str:
    """The hash of parts of the shards with the time of their last sweep: on one node with the set."""
    return f"{{{shards_key(namespace)}}}:swept"


def on_record(members: Iterable[bytes]) -> list[tuple[Shard, int]]:
    """The members of the set of shards: each shard, and the number of its queue's shards."""
    parts = (member.decode().split("/") for member in members)
    return [(Shard(queue, int(number)), int(count)) for queue, number, count in parts]


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
