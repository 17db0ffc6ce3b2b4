"""A ring: a bell went, and its shard is to be drained."""

from typing import Any, NamedTuple


class Ring(NamedTuple):
    """One bell that went: its key, where that was or would have been heard, and when (the server's epoch ms)."""

    key: str
    channel: str
    heard_at: int


def event(rings: list[Ring]) -> dict[str, Any]:
    """What `on_expired` is invoked with."""
    return {"source": "duecourse.bridge", "version": "1", "rings": [ring._asdict() for ring in rings]}
