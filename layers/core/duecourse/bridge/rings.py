"""Rings of bells that went, whose shards are then drained; and the event for rings and expired watched keys."""

from base64 import b64encode
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from duecourse.domain.history import Trigger
from duecourse.domain.task import Json
from duecourse.domain.watch import Expired, show
from duecourse.ports.invoker import Invoker


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


class Server(Protocol):
    """Server of rings and watched keys: a function, or a drain in this process. Each verb raises InvocationRejected."""

    def drain(self, rings: Sequence[Ring]) -> Json:
        """Have the shards of these bells drained; answers what `on_expired` does."""

    def note(self, expired: Sequence[Expired]) -> Json:
        """Have tasks made of these keys."""


Warm = Callable[[Sequence[str]], Json]
"""Has the functions warmed that will work what these bells ring for.

May raise InvocationRejected or StoreUnavailable.
"""


@dataclass(frozen=True, slots=True)
class Warming:
    """Warming of functions: the call, its lead before a bell, and the length of an idle spell (ms).

    `last` is when each bell rang or was warmed for (the server's epoch ms): one that is kept outlives a bridge.
    """

    warm: Warm
    ahead_ms: int
    idle_ms: int
    last: dict[str, float] = field(default_factory=dict)


class Invoked:
    """`on_expired`, by its name: invoked, and waited for."""

    def __init__(self, invoker: Invoker, function: str) -> None:
        self._invoker = invoker
        self._function = function

    def drain(self, rings: Sequence[Ring]) -> Json:
        """See Server."""
        return self._invoker.invoke(self._function, event(rings))

    def note(self, expired: Sequence[Expired]) -> Json:
        """See Server."""
        return self._invoker.invoke(self._function, event([], expired))

    def warm(self, bells: Sequence[str]) -> Json:
        """Have the functions warmed, which it knows; it is warm itself by that."""
        return self._invoker.invoke(self._function, warm_event(bells))


def warm_event(bells: Sequence[str]) -> dict[str, Any]:
    """The event by which `on_expired` is asked to warm the functions for these bells, itself included."""
    return {"source": "duecourse.bridge", "version": "1", "warm": list(bells)}


def event(rings: Sequence[Ring], expired: Sequence[Expired] = ()) -> dict[str, Any]:
    """Event for `on_expired`."""
    rang = {"source": "duecourse.bridge", "version": "1", "rings": [_heard(ring) for ring in rings]}
    return {**rang, "expired": [_show(one) for one in expired]} if expired else rang


def _heard(ring: Ring) -> dict[str, Any]:
    # The event says `door`, as in version 0.1: a bridge and its functions are not deployed in one step.
    return {"key": ring.key, "channel": ring.channel, "heard_at": ring.heard_at, "door": ring.trigger}


def _show(expired: Expired) -> dict[str, Any]:
    """One expired key; a name that is not UTF-8 is also in Base64, for its text is only to be looked at."""
    name = show(expired.key)
    exact = {} if name.encode() == expired.key else {"base64": b64encode(expired.key).decode()}
    return {**expired._asdict(), "key": name, **exact}
