"""Event of the bridge, written and read: bells that rang, watched keys that expired, bells to warm functions for."""

import re
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from duecourse.base.event_reader import Table, check_origin
from duecourse.base.json_text import Json
from duecourse.ledger.task import Shard, Trigger
from duecourse.ledger.watched_keys import MAX_KEY_BYTES, ExpiredKey, show

SOURCE, VERSION = ("duecourse.bridge",), ("1",)
EXPECTED = "an event of duecourse's bridge: bells that rang, or bells to warm for"
TRIGGERS = tuple(Trigger)
MAX_WARM = 100
"""The most bells of one event that warms."""
MAX_BELL_CHARS = 256


class ResolvedRings(NamedTuple):
    """Rings: shards, keys that are not our bells, and the trigger of each shard's ring."""

    shards: list[Shard]
    unknown: list[str]
    triggers: dict[Shard, Trigger]


class Rings(NamedTuple):
    """Event of the bridge for `on_expired`: bells that rang, by their keys, and watched keys that expired."""

    bells: Mapping[str, Trigger]
    expired: list[ExpiredKey]


def read_rings(event: Json) -> Rings:
    """The bridge's event. Raises InvalidInput, naming every wrong field.

    A ring is a key, the channel on which it was heard, the time (epoch ms), and its trigger, which the event calls
    `door`.
    """
    table = Table(check_origin(event, EXPECTED, ("source", "version")))
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


def _expired(one: Table) -> ExpiredKey:
    """One watched key that expired, in the server's epoch ms: heard when, and `since` when it may have been.

    `base64` is its exact name where that is no UTF-8; `key` is then to be looked at.
    """
    heard_at, name = one.instant("heard_at"), _utf_8(one)
    since = min(one.instant("since"), heard_at) if one.has("since") else heard_at
    return ExpiredKey(_exact(one) if one.has("base64") else name, one.text("channel"), since, heard_at)


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


def read_warm_up(event: Json) -> dict[str, Trigger]:
    """Another event of the bridge: bells, by their keys, that ring soon after an idle spell, and all by its timer.

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
    return dict.fromkeys(bells, Trigger.TIMER)


def shards_of(bells: Mapping[str, Trigger], namespace: str) -> ResolvedRings:
    """The shards of these keys, each once, in their order; and the keys that are no bells of `namespace`."""
    found = {key: _shard(key, namespace) for key in bells}
    triggers = {shard: bells[key] for key, shard in found.items() if shard}
    return ResolvedRings(list(triggers), [key for key, shard in found.items() if not shard], triggers)


def _shard(key: str, namespace: str) -> Shard | None:
    match = re.fullmatch(re.escape(namespace) + r":\{([A-Za-z0-9._:@-]{1,64})/(\d{1,6})\}:bell", key)
    return Shard(match[1], int(match[2])) if match else None


class Ring(NamedTuple):
    """One bell that went: its key, the channel of its event, and the time of that event (the server's epoch ms).

    `trigger` is RING if its event was heard, TIMER if the bridge found the bell gone. `server` is the name of the
    primary that had it, "" for the only one.
    """

    key: str
    channel: str
    heard_at: int
    trigger: Trigger = Trigger.RING
    server: str = ""


def warm_event(bells: Sequence[str]) -> dict[str, Any]:
    """The event by which `on_expired` is asked to warm the functions for these bells, itself included."""
    return {"source": "duecourse.bridge", "version": "1", "warm": list(bells)}


def event(rings: Sequence[Ring], expired: Sequence[ExpiredKey] = ()) -> dict[str, Any]:
    """Event for `on_expired`."""
    rang = {"source": "duecourse.bridge", "version": "1", "rings": [_heard(ring) for ring in rings]}
    return {**rang, "expired": [_show(one) for one in expired]} if expired else rang


def _heard(ring: Ring) -> dict[str, Any]:
    # A bridge and its functions are not deployed in one step, so the event keeps the name `door`.
    return {"key": ring.key, "channel": ring.channel, "heard_at": ring.heard_at, "door": ring.trigger}


def _show(expired: ExpiredKey) -> dict[str, Any]:
    """One expired key; a name that is not UTF-8 is also in Base64, for its text is only to be looked at."""
    name = show(expired.key)
    exact = {} if name.encode() == expired.key else {"base64": b64encode(expired.key).decode()}
    return {**expired._asdict(), "key": name, **exact}
