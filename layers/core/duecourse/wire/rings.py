"""The bridge's events: bells that rang and keys that expired, or bells that will ring; and the function's answers."""

import re
from base64 import b64decode
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field
from typing_extensions import TypedDict

from duecourse.domain.history import Door
from duecourse.domain.task import Shard
from duecourse.domain.watch import MAX_KEY_BYTES, Expired

MAX_WARM = 100
"""The most bells of one event that warms."""
MAX_BELL_CHARS = 256
LAST_AT = 10**13 - 1
"""The last instant that has thirteen digits, in the year 2286."""


class Ring(BaseModel):
    """One key that expired: on which channel it was heard, when (epoch ms), and by which door."""

    model_config = ConfigDict(frozen=True)

    key: str
    channel: str
    heard_at: int
    door: Door = Door.RING


def _decoded(text: Any) -> Any:
    try:
        return b64decode(text, validate=True)
    except (ValueError, TypeError):
        raise ValueError("must be Base64") from None


def _utf_8(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError("has an unpaired surrogate: send bytes that are not UTF-8 in base64") from None
    return text


class ExpiredKey(BaseModel):
    """One watched key that expired, in the server's epoch ms: heard when, and `since` when it may have been.

    `base64` is its exact name where that is no UTF-8; `key` is then to be looked at.
    """

    model_config = ConfigDict(frozen=True)

    key: Annotated[str, Field(max_length=4 * MAX_KEY_BYTES), AfterValidator(_utf_8)]
    base64: Annotated[bytes, Field(max_length=MAX_KEY_BYTES), BeforeValidator(_decoded)] | None = None
    channel: str
    since: int | None = Field(None, ge=0, le=LAST_AT)
    heard_at: int = Field(ge=0, le=LAST_AT)

    def plain(self) -> Expired:
        """As the engine takes it."""
        name = self.key.encode() if self.base64 is None else self.base64
        since = self.heard_at if self.since is None else min(self.since, self.heard_at)
        return Expired(name, self.channel, since, self.heard_at)


class Rings(BaseModel):
    """Events that the bridge sends to `on_expired`."""

    model_config = ConfigDict(frozen=True)

    source: Literal["duecourse.bridge"]
    version: Literal["1"]
    rings: list[Ring]
    expired: list[ExpiredKey] = Field(default_factory=list)

    def heard(self, namespace: str) -> "Heard":
        """The shards of `namespace` whose bells rang, each once, in the order of their first ring; and the rest."""
        return shards_of({ring.key: ring.door for ring in self.rings}, namespace)


class WarmUp(BaseModel):
    """Another event of the bridge: bells, by their keys, that ring soon after an idle spell.

    Without bells it warms the function alone that takes it.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    source: Literal["duecourse.bridge"]
    version: Literal["1"]
    warm: Annotated[list[Annotated[str, Field(max_length=MAX_BELL_CHARS)]], Field(max_length=MAX_WARM)]


class Heard(NamedTuple):
    """Rings: shards, keys that are not our bells, and the trigger of each shard's ring."""

    shards: list[Shard]
    strangers: list[str]
    doors: dict[Shard, Door]


class RingsAnswer(TypedDict):
    """Result: `added` tasks of watched keys, and the figures of one drain.

    `backlog` is what is still due, at least, `bell_at` the earliest bell (epoch ms, 0 for none).
    """

    added: int
    claimed: int
    done: int
    again: int
    retried: int
    dead: int
    backlog: int
    bell_at: int


class WarmAnswer(TypedDict):
    """Functions that were sent an event without tasks, by their names."""

    warmed: list[str]


def shards_of(bells: Mapping[str, Door], namespace: str) -> Heard:
    """The shards of these keys, each once, in their order; and the keys that are no bells of `namespace`."""
    found = {key: _shard(key, namespace) for key in bells}
    shards = [shard for shard in found.values() if shard]
    doors = {shard: bells[key] for key, shard in found.items() if shard}
    return Heard(shards, [key for key, shard in found.items() if not shard], doors)


def shards_behind(bells: Iterable[str], namespace: str) -> Heard:
    """The same for bells that have yet to ring."""
    return shards_of(dict.fromkeys(bells, Door.TIMER), namespace)


def _shard(key: str, namespace: str) -> Shard | None:
    match = re.fullmatch(re.escape(namespace) + r":\{([A-Za-z0-9._:@-]{1,64})/(\d{1,6})\}:bell", key)
    return Shard(match[1], int(match[2])) if match else None


def show_drained(counts: Mapping[str, int], added: int = 0) -> RingsAnswer:
    """A drain's counts as the bridge is told them, and how many tasks came of watched keys."""
    return {
        "added": added,
        "claimed": counts["claimed"],
        "done": counts["done"],
        "again": counts["again"],
        "retried": counts["retried"],
        "dead": counts["dead"],
        "backlog": counts["backlog"],
        "bell_at": counts["bell_at"],
    }
