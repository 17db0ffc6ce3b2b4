"""A ring: a bell went, and its shard is to be drained."""

from collections.abc import Callable
from typing import Any, NamedTuple

from duecourse.domain.history import Door
from duecourse.domain.task import Json
from duecourse.ports.invoker import Invoker


class Ring(NamedTuple):
    """One bell that went: its key, where that was or would have been heard, and when (the server's epoch ms).

    `door` is RING where its event told of it, TIMER where the bridge found it gone.
    """

    key: str
    channel: str
    heard_at: int
    door: Door = Door.RING


Serve = Callable[[list[Ring]], Json]
"""Has the shards of these bells drained, and answers what `on_expired` does. May raise InvocationRefused."""


def invoking(invoker: Invoker, function: str) -> Serve:
    """Rings served by invoking `function`, and waiting for it."""
    return lambda rings: invoker.invoke(function, event(rings))


def event(rings: list[Ring]) -> dict[str, Any]:
    """What `on_expired` is invoked with."""
    return {"source": "duecourse.bridge", "version": "1", "rings": [ring._asdict() for ring in rings]}
