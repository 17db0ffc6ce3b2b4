"""Acts on many tasks (bulk.lua) and reads of deaths (dead.lua), by shard and state, in bounded steps."""

from collections.abc import Iterator, Sequence
from typing import Any

from duecourse.adapters.redis.pages import walk_terms
from duecourse.adapters.redis.verbs import Verbs
from duecourse.domain.bulk import MAX_BULK, Act, Bulk, BulkResult, Reached
from duecourse.domain.dead import Death, Deaths, DeathsFound
from duecourse.domain.history import cut_by
from duecourse.domain.pages import SECTIONS, Place, Wanted
from duecourse.domain.task import Shard, Status

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
    after, until = after and _shown(verbs, after, tenant), asked.until
    asked = asked._replace(until=asked.until and _shown(verbs, asked.until, tenant))
    for start in _starts(verbs, queue, asked.statuses, asked.group, after):
        place: Reached | None = start
        while place:
            if _is_behind(place, asked.until):
                return BulkResult(count, until)
            if count == asked.limit or steps == MAX_STEPS:
                return BulkResult(count, _hidden(verbs, place, tenant))
            done, place = _step(verbs, queue, asked, place, asked.limit - count, tenant, by)
            count, steps = count + done, steps + 1
        if _is_section(start, asked.until):
            return BulkResult(count, until)
    return BulkResult(count, None)


def _hidden(verbs: Verbs, place: Reached, tenant: str) -> Reached:
    hidden = verbs.cursors.hide(Place(place.status, place.at, place.id), tenant)
    return place._replace(at=hidden.at, id=hidden.id)


def _shown(verbs: Verbs, place: Reached, tenant: str) -> Reached:
    shown = verbs.cursors.reveal(Place(place.status, place.at, place.id), tenant)
    return place._replace(at=shown.at, id=shown.id)


def _is_section(place: Reached, until: Reached | None) -> bool:
    """True if a place is in the shard and state in which the call ends."""
    return until is not None and (place.shard, place.status) == (until.shard, until.status)


def _is_behind(place: Reached, until: Reached | None) -> bool:
    return until is not None and _is_section(place, until) and (place.at, place.id) >= (until.at, until.id)


def deaths(verbs: Verbs, queue: str, asked: Deaths, after: Reached | None, tenant: str) -> DeathsFound:
    """One call: as many steps as its limit and MAX_STEPS allow."""
    found: list[Death] = []
    steps = 0
    after = after and _shown(verbs, after, tenant)
    wanted = Wanted(Status.DEAD, asked.kind, asked.group, asked.error, asked.since_at)
    for start in _starts(verbs, queue, (Status.DEAD,), asked.group, after):
        place: Reached | None = start
        while place:
            if len(found) == asked.limit or steps == MAX_STEPS:
                return DeathsFound(found, _hidden(verbs, place, tenant))
            terms = (*walk_terms(SECTION_OF[place.status], place.at, place.id, wanted), asked.limit - len(found))
            _, reached, flat = verbs.run("dead", Shard(queue, place.shard), [tenant], terms)
            found += _read_deaths(place.shard, flat)
            place, steps = _after(place, reached), steps + 1
    return DeathsFound(found, None)


def _read_deaths(shard: int, flat: Sequence[Any]) -> list[Death]:
    rows = zip(flat[::4], flat[1::4], flat[2::4], flat[3::4], strict=True)
    return [
        Death(shard, sid.decode().partition("/")[2], int(at), kind.decode(), error.decode(errors="replace"))
        for sid, at, kind, error in rows
    ]


def _starts(
    verbs: Verbs, queue: str, statuses: Sequence[Status], group: str, after: Reached | None
) -> Iterator[Reached]:
    """Beginnings of what is still to be looked at; a group's tasks are all in one shard."""
    sharding = verbs.sharding
    shards = [sharding.of(queue, "", group)] if group else sharding.every(queue)
    every = [Reached(shard.number, status) for shard in shards for status in statuses]
    if after is None:
        yield from every
    elif (start := Reached(after.shard, after.status)) in every:
        yield after
        yield from every[every.index(start) + 1 :]


def _step(
    verbs: Verbs, queue: str, asked: Bulk, place: Reached, most: int, tenant: str, by: str
) -> tuple[int, Reached | None]:
    most = most if asked.act is Act.COUNT else min(most, MAX_CHANGES)
    wanted = Wanted(place.status, asked.kind, asked.group, asked.error)
    walk = walk_terms(SECTION_OF[place.status], place.at, place.id, wanted)
    until = (asked.until.at, asked.until.id) if asked.until and _is_section(place, asked.until) else ("", "")
    terms = (*walk, asked.act, most, asked.min_age_ms, cut_by(by), asked.before, *until)
    _, _, done, reached = verbs.run("bulk", Shard(queue, place.shard), [tenant], terms)
    return done, _after(place, reached)


def _after(place: Reached, reached: Sequence[Any]) -> Reached | None:
    return place._replace(at=int(reached[0]), id=reached[1].decode()) if reached else None
