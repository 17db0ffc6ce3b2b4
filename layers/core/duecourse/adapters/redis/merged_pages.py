"""A page of a queue's tasks out of what each of its shards answers: merged by time, section after section."""

from collections.abc import Callable
from typing import NamedTuple

from duecourse.domain.pages import MAX_PAGE, Page, Place, Wanted
from duecourse.domain.task import Task

LOOK = 500
"""How many tasks one shard looks at for a page."""
LOOK_BYTES = 1_000_000
"""After how many bytes of records it stops."""

Spot = tuple[int, str]
"""An instant and an id: where a task stands in its section."""


class Found(NamedTuple):
    """What one shard has: tasks by their spots, in order, and how far it looked; None where that is all."""

    tasks: list[tuple[Spot, Task]]
    reached: Spot | None


Look = Callable[[Place, int], list[Found]]
"""What every shard has after a place, at most so many tasks each."""


def paged(wanted: Wanted, after: Place | None, limit: int, look: Look) -> Page:
    """One page. Raises ValueError for a limit out of bounds."""
    if not 1 <= limit <= MAX_PAGE:
        raise ValueError(f"a page has 1 to {MAX_PAGE} tasks, not {limit}")
    tasks: list[Task] = []
    for place in _places(wanted, after):
        if len(tasks) == limit:
            return Page(tasks, place)
        taken, rest = _merged(look(place, limit - len(tasks)), limit - len(tasks))
        tasks += taken
        if rest:
            return Page(tasks, Place(place.section, *rest))
    return Page(tasks, None)


def _places(wanted: Wanted, after: Place | None) -> list[Place]:
    """Where each section that is still to be looked at begins."""
    sections = wanted.sections()
    if after is None:
        return [Place(section) for section in sections]
    if after.section not in sections:
        return []
    later = sections[sections.index(after.section) + 1 :]
    return [after, *(Place(section) for section in later)]


def _merged(found: list[Found], limit: int) -> tuple[list[Task], Spot | None]:
    """The first tasks, and the spot after which there may be more: no further than every shard has looked."""
    horizon = min((one.reached for one in found if one.reached), default=None)
    every = sorted((pair for one in found for pair in one.tasks), key=lambda pair: pair[0])
    seen = [pair for pair in every if horizon is None or pair[0] <= horizon]
    taken = seen[:limit]
    rest = taken[-1][0] if len(seen) > limit else horizon
    return [task for _, task in taken], rest
