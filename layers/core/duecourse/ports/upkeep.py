"""What the upkeep of many shards answers: what was done in one, or why nothing was."""

from collections.abc import Callable
from typing import NamedTuple, TypeVar

from duecourse.errors import StoreMisused, StoreUnavailable

T = TypeVar("T")
Away = StoreUnavailable | StoreMisused


def answered(ask: Callable[[], T]) -> T | Away:
    """What `ask` answers, or why it does not: for one of many shards, where the others go on."""
    try:
        return ask()
    except (StoreUnavailable, StoreMisused) as error:
        return error


class Swept(NamedTuple):
    """What one sweep did: leases that had lapsed, tasks dead by it, ended tasks forgotten; `more` if bounded."""

    reclaimed: int
    died: int
    pruned: int
    more: bool
    bell_at: int
    now: int
