"""Rings become invocations: folded by bell, few at a time."""

from collections.abc import Callable, Sequence

from duecourse.bridge.lanes import Rules
from duecourse.bridge.pool import Pool
from duecourse.bridge.rings import Ring
from duecourse.domain.task import Json

BATCH = 100
"""The most rings in one invocation."""
PER_BELL = 2
"""The most invocations under way for one bell."""
JOIN_S = 0.02
"""Time for which the first invocation has the bell for itself: after that its work may be slow, and the ring late."""


def dispatcher(serve: Callable[[list[Ring]], Json], *, in_flight: int, on_end: Callable[[], None]) -> Pool[Ring]:
    """A pool that has the shards of rings drained by `serve`, which answers what `on_expired` does.

    One ring of a bell counts for all that wait: a drain takes whatever is due.
    """

    def drain(rings: list[Ring]) -> Sequence[Ring]:
        return rings if _is_behind(serve(rings)) else ()

    rules = Rules(threads=in_flight, batch=BATCH, calls=PER_BELL, join_s=JOIN_S, folds=True)
    return Pool("rings", drain, rules, key=lambda ring: ring.key, on_end=on_end)


def _is_behind(answer: Json) -> bool:
    """True if there is more to do at once. A backlog of which nothing could be claimed waits for the bell's deadman."""
    return isinstance(answer, dict) and bool(answer.get("backlog")) and bool(answer.get("claimed"))
