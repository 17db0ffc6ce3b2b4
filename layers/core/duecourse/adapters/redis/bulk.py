"""Acts on many tasks (domain/bulk.py): bulk.lua on one state of one shard after the other, a bounded step at a time."""

from collections.abc import Iterator

from duecourse.adapters.redis.arguments import Argument
from duecourse.adapters.redis.pages import LETTERS
from duecourse.adapters.redis.verbs import Verbs
from duecourse.domain.bulk import MAX_BULK, Act, Bulk, BulkResult, Reached
from duecourse.domain.history import cut_by
from duecourse.domain.pages import SECTIONS
from duecourse.domain.task import Shard

MAX_STEPS = 100
"""Maximum number of steps of one call: each looks at 500 tasks at most."""
MAX_CHANGES = 200
"""Most tasks that one step changes: each takes the server ten times as long as a look."""
SECTION_OF = {status: section for section, statuses in SECTIONS.items() for status in statuses}


def bulk(verbs: Verbs, queue: str, asked: Bulk, after: Reached | None, tenant: str, by: str) -> BulkResult:
    """One call: as many steps as its limit and MAX_STEPS allow."""
    if not 1 <= asked.limit <= MAX_BULK:
        raise ValueError(f"one call is for 1 to {MAX_BULK} tasks, not {asked.limit}")
    count = steps = 0
    for start in _starts(verbs, queue, asked, after):
        place: Reached | None = start
        while place:
            if count == asked.limit or steps == MAX_STEPS:
                return BulkResult(count, place)
            done, place = _step(verbs, queue, asked, place, asked.limit - count, tenant, by)
            count, steps = count + done, steps + 1
    return BulkResult(count, None)


def _starts(verbs: Verbs, queue: str, asked: Bulk, after: Reached | None) -> Iterator[Reached]:
    """Beginnings of what is still to be looked at; a group's tasks are all in one shard."""
    sharding = verbs.sharding
    shards = [sharding.of(queue, "", asked.group)] if asked.group else sharding.every(queue)
    every = [Reached(shard.number, status) for shard in shards for status in asked.statuses]
    if after is None:
        yield from every
    elif (start := Reached(after.shard, after.status)) in every:
        yield after
        yield from every[every.index(start) + 1 :]


def _step(
    verbs: Verbs, queue: str, asked: Bulk, place: Reached, most: int, tenant: str, by: str
) -> tuple[int, Reached | None]:
    most = most if asked.act is Act.COUNT else min(most, MAX_CHANGES)
    walk = (SECTION_OF[place.status], place.at, place.id)
    terms: tuple[Argument, ...] = (asked.act, most, LETTERS[place.status], asked.kind, asked.group, asked.min_age_ms)
    _, _, done, reached = verbs.run("bulk", Shard(queue, place.shard), [tenant], (*walk, *terms, cut_by(by)))
    return done, place._replace(at=int(reached[0]), id=reached[1].decode()) if reached else None
