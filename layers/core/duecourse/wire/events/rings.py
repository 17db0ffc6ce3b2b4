"""The bridge's events: bells that rang and keys that expired, or bells that will ring; and the function's answers."""

import re
from base64 import b64decode
from collections.abc import Iterable, Mapping
from typing import NamedTuple, TypedDict, cast

from duecourse.domain.history import Trigger
from duecourse.domain.task import Json, Shard
from duecourse.domain.watch import MAX_KEY_BYTES, Expired
from duecourse.wire.events.tables import Table

SOURCE, VERSION = ("duecourse.bridge",), ("1",)
TRIGGERS = tuple(Trigger)
MAX_WARM = 100
"""The most bells of one event that warms."""
MAX_BELL_CHARS = 256


class Heard(NamedTuple):
    """Rings: shards, keys that are not our bells, and the trigger of each shard's ring."""

    shards: list[Shard]
    unknown: list[str]
    triggers: dict[Shard, Trigger]


class Rings(NamedTuple):
    """Event of the bridge for `on_expired`: bells that rang, by their keys, and watched keys that expired."""

    bells: Mapping[str, Trigger]
    expired: list[Expired]

    def heard(self, namespace: str) -> Heard:
        """The shards of `namespace` whose bells rang, each once, in the order of their first ring; and the rest."""
        return shards_of(self.bells, namespace)


def read_rings(event: Json) -> Rings:
    """The bridge's event. Raises InvalidInput, naming every wrong field.

    A ring is a key, the channel on which it was heard, the time (epoch ms), and its trigger, which the event calls
    `door`.
    """
    table = Table(event)
    table.one_of("source", SOURCE)
    table.one_of("version", VERSION)
    bells = {ring.text("key"): _trigger(ring) for ring in table.tables("rings")}
    expired = [_expired(one) for one in table.tables("expired")] if table.has("expired") else []
    table.end()
    return Rings(bells, expired)


def _trigger(ring: Table) -> Trigger:
    ring.text("channel")
    ring.instant("heard_at")
    return Trigger(ring.one_of("door", TRIGGERS) or Trigger.RING) if ring.has("door") else Trigger.RING


def _expired(one: Table) -> Expired:
    """One watched key that expired, in the server's epoch ms: heard when, and `since` when it may have been.

    `base64` is its exact name where that is no UTF-8; `key` is then to be looked at.
    """
    heard_at, name = one.instant("heard_at"), _utf_8(one)
    since = min(one.instant("since"), heard_at) if one.has("since") else heard_at
    return Expired(_exact(one) if one.has("base64") else name, one.text("channel"), since, heard_at)


def _utf_8(one: Table) -> bytes:
    try:
        return one.text("key", 4 * MAX_KEY_BYTES).encode()
    except UnicodeEncodeError:
        one.note("key", "has half a character: send text that is not UTF-8 in base64")
        return b""


def _exact(one: Table) -> bytes:
    try:
        name = b64decode(one.text("base64"), validate=True)
    except ValueError:
        one.note("base64", "must be Base64")
        return b""
    if len(name) > MAX_KEY_BYTES:
        one.note("base64", f"must have at most {MAX_KEY_BYTES} bytes")
    return name


def read_warm_up(event: Json) -> list[str]:
    """Another event of the bridge: bells, by their keys, that ring soon after an idle spell.

    Without bells it warms the function alone that takes it. Raises InvalidInput, naming every wrong field.
    """
    table = Table(event)
    table.one_of("source", SOURCE)
    table.one_of("version", VERSION)
    bells = table.each("warm", MAX_WARM)
    for at, bell in enumerate(bells):
        if not isinstance(bell, str) or len(bell) > MAX_BELL_CHARS:
            table.note(f"warm.{at}", f"must be text, at most {MAX_BELL_CHARS} characters")
    table.only("source", "version", "warm")
    table.end()
    return bells


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


def shards_of(bells: Mapping[str, Trigger], namespace: str) -> Heard:
    """The shards of these keys, each once, in their order; and the keys that are no bells of `namespace`."""
    found = {key: _shard(key, namespace) for key in bells}
    shards = [shard for shard in found.values() if shard]
    triggers = {shard: bells[key] for key, shard in found.items() if shard}
    return Heard(shards, [key for key, shard in found.items() if not shard], triggers)


def shards_behind(bells: Iterable[str], namespace: str) -> Heard:
    """The same for bells that will ring."""
    return shards_of(dict.fromkeys(bells, Trigger.TIMER), namespace)


def _shard(key: str, namespace: str) -> Shard | None:
    match = re.fullmatch(re.escape(namespace) + r":\{([A-Za-z0-9._:@-]{1,64})/(\d{1,6})\}:bell", key)
    return Shard(match[1], int(match[2])) if match else None


def show_drained(counts: Mapping[str, int], added: int = 0) -> RingsAnswer:
    """A drain's counts in the answer to the bridge, with the number of tasks that watched keys added."""
    known = {**counts, "added": added}
    return cast(RingsAnswer, {name: known[name] for name in RingsAnswer.__annotations__})
