"""The bridge's event: which bells rang; and what the function answers to it."""

import re
from collections.abc import Mapping
from typing import Literal, NamedTuple

from pydantic import BaseModel, ConfigDict
from typing_extensions import TypedDict

from duecourse.domain.history import Door
from duecourse.domain.task import Shard


class Ring(BaseModel):
    """One key that expired: on which channel it was heard, when (epoch ms), and by which door."""

    model_config = ConfigDict(frozen=True)

    key: str
    channel: str
    heard_at: int
    door: Door = Door.RING


class Rings(BaseModel):
    """What the bridge invokes `on_expired` with."""

    model_config = ConfigDict(frozen=True)

    source: Literal["duecourse.bridge"]
    version: Literal["1"]
    rings: list[Ring]

    def heard(self, namespace: str) -> "Heard":
        """The shards of `namespace` whose bells rang, each once, in the order of their first ring; and the rest."""
        return shards_of({ring.key: ring.door for ring in self.rings}, namespace)


class Heard(NamedTuple):
    """What rang: shards, the keys that are no bells of ours, and by which door each shard's bell was found."""

    shards: list[Shard]
    strangers: list[str]
    doors: dict[Shard, Door]


class RingsAnswer(TypedDict):
    """What one drain did; `backlog` is what is still due, `bell_at` the earliest bell (epoch ms, 0 for none)."""

    claimed: int
    done: int
    again: int
    retried: int
    dead: int
    backlog: int
    bell_at: int


def shards_of(bells: Mapping[str, Door], namespace: str) -> Heard:
    """The shards of these keys, each once, in their order; and the keys that are no bells of `namespace`."""
    found = {key: _shard(key, namespace) for key in bells}
    shards = [shard for shard in found.values() if shard]
    doors = {shard: bells[key] for key, shard in found.items() if shard}
    return Heard(shards, [key for key, shard in found.items() if not shard], doors)


def _shard(key: str, namespace: str) -> Shard | None:
    match = re.fullmatch(re.escape(namespace) + r":\{([A-Za-z0-9._:@-]{1,64})/(\d{1,6})\}:bell", key)
    return Shard(match[1], int(match[2])) if match else None


def show_drained(counts: Mapping[str, int]) -> RingsAnswer:
    """A drain's counts as the bridge is told them."""
    return {
        "claimed": counts["claimed"],
        "done": counts["done"],
        "again": counts["again"],
        "retried": counts["retried"],
        "dead": counts["dead"],
        "backlog": counts["backlog"],
        "bell_at": counts["bell_at"],
    }
