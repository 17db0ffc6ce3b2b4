"""Results of the upkeep of many shards: for each, what was done, or why nothing was."""

from collections.abc import Callable
from typing import NamedTuple, TypeVar

from duecourse.errors import StoreMisused, StoreUnavailable

T = TypeVar("T")
Away = StoreUnavailable | StoreMisused


def answered(ask: Callable[[], T]) -> T | Away:
    """Answer of `ask`, or the error as a value: for one of many shards, while the others continue."""
    try:
        return ask()
    except (StoreUnavailable, StoreMisused) as error:
        return error


class Outlook(NamedTuple):
    """The next instant at which a shard has something to do, 0 for none: a task comes due, or a lease ends.

    The instant is past where due tasks wait, whatever they wait for. `dead` is the number of dead tasks.
    """

    next_at: int
    dead: int
    now: int


class Swept(NamedTuple):
    """Figures of one sweep: lapsed leases, tasks dead by it, ended tasks forgotten; `more` if bounded."""

    reclaimed: int
    died: int
    pruned: int
    more: bool
    bell_at: int
    now: int
