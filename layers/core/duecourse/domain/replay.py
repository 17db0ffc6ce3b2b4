"""Replaying a queue's dead: how many, of which kind, and how fast."""

from typing import NamedTuple

MAX_REPLAY = 1_000
"""The most tasks of one replay."""
MAX_LOOKS = 100
"""How many pages are looked through for them at most."""


class Replay(NamedTuple):
    """What is asked for: the oldest `limit`, of one kind or all, `at_a_time` in each `per_ms` (0: all at once)."""

    limit: int
    kind: str = ""
    at_a_time: int = 1
    per_ms: int = 0
    dry_run: bool = False

    def delay_ms(self, index: int) -> int:
        """How long after now the task of that number is due: evenly spread."""
        return index * self.per_ms // self.at_a_time


class Replayed(NamedTuple):
    """Which tasks, each with the instant it is due (epoch ms), and whether there may be more."""

    tasks: list[tuple[str, int]]
    more: bool
