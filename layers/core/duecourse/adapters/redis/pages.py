"""A page of a queue's tasks: answers of page.lua for each of its shards, merged by time, section after section."""

from collections.abc import Iterator, Sequence
from heapq import nsmallest
from typing import Any, NamedTuple, TypeAlias

from duecourse.adapters.redis.answers import readable
from duecourse.adapters.redis.arguments import Argument
from duecourse.adapters.redis.keys import Keys
from duecourse.adapters.redis.record import STATUSES, stored_id
from duecourse.adapters.redis.scripts import Scripts
from duecourse.adapters.redis.verbs import Verbs
from duecourse.domain.pages import MAX_PAGE, PAGE_BYTES, Page, Place, Wanted, fitting, size_of
from duecourse.domain.task import Shard, Status, Task
from duecourse.domain.values import replaced

LOOK = 500
"""Number of tasks that one shard looks at for a page."""
MAX_STEPS = 20
"""Number of looks at each shard for a page: behind so many tasks of other tenants, it ends early."""
MEMBERS = 4_000
"""Number of a group's members that one step reads: some milliseconds of the server's time."""
LIVE = frozenset({"due", "leased"})
"""Sections of the tasks that are not over."""
LETTERS = {status: chr(code) for code, status in STATUSES.items()}

Spot: TypeAlias = tuple[int, str]
"""Instant and id: the place of a task in its section."""


class Found(NamedTuple):
    """Tasks of one shard by their spots, in order, and the last spot that it looked at; None if these are all."""

    tasks: list[tuple[Spot, Task]]
    reached: Spot | None


def page(verbs: Verbs, queue: str, wanted: Wanted, after: Place | None, limit: int, tenant: str) -> Page:
    """One page; a group's tasks are in one shard, and have an index of their own.

    It looks on behind tasks of others, so that it does not end where those do.
    """
    if not 1 <= limit <= MAX_PAGE:
        raise ValueError(f"a page has 1 to {MAX_PAGE} tasks, not {limit}")
    tasks: list[Task] = []
    room, steps = PAGE_BYTES, 0
    places = _places(wanted, verbs.cursors.reveal(after, tenant) if after else None)
    while places:
        place, *later = places
        left = limit - len(tasks)
        if not left or room <= 0 or steps == MAX_STEPS:
            return Page(tasks, verbs.cursors.hide(place, tenant))
        if wanted.group:
            found = _look_at_group(verbs, queue, wanted, tenant, place, left)
        else:
            terms = (*walk_terms(*place, wanted), left)
            found = [_look(verbs, shard, tenant, terms) for shard in verbs.sharding.every(queue)]
        taken, rest, room = _merged(found, left, room)
        tasks, steps = tasks + taken, steps + bool(rest)
        places = [Place(place.section, *rest), *later] if rest else later
    return Page(tasks, None)


def _places(wanted: Wanted, after: Place | None) -> list[Place]:
    """Beginnings of the sections that are still to be looked at."""
    sections = wanted.sections()
    if after is None:
        return [Place(section) for section in sections]
    if after.section not in sections:
        return []
    later = sections[sections.index(after.section) + 1 :]
    return [after, *(Place(section) for section in later)]


def _merged(found: list[Found], limit: int, room: int) -> tuple[list[Task], Spot | None, int]:
    """The first tasks, the spot after which there may be more, and the room that is left in the page.

    The spot is no further than every shard has looked.
    """
    horizon = min((one.reached for one in found if one.reached), default=None)
    every = sorted((pair for one in found for pair in one.tasks), key=lambda pair: pair[0])
    seen = [pair for pair in every if horizon is None or pair[0] <= horizon]
    sizes = (size_of(task.payload_json, task.result_json, task.state_json) for _, task in seen[:limit])
    count, room = fitting(sizes, room)
    rest = seen[count - 1][0] if len(seen) > count else horizon
    return [task for _, task in seen[:count]], rest, room


def _look_at_group(verbs: Verbs, queue: str, wanted: Wanted, tenant: str, place: Place, limit: int) -> list[Found]:
    """Tasks of a group after a place: first their spots, then their records."""
    shard = verbs.sharding.of(queue, "", wanted.group)
    spots = _spots(verbs.scripts, verbs.keys(shard), tenant, wanted.group, place)
    if not spots:
        return []
    named = [part for at, id in spots for part in (stored_id(tenant, id), at)]
    found = _look(verbs, shard, tenant, (*walk_terms(*place, wanted), limit, *named))
    more = spots[-1] if len(spots) == LOOK else None
    return [found if found.reached else found._replace(reached=more)]


def walk_terms(section: str, at: int, id: str, wanted: Wanted) -> tuple[Argument, ...]:
    """Arguments of lua/modules/walk.lua. In a section of tasks that ended, all before `since_at` are skipped."""
    letter = LETTERS[wanted.status] if wanted.status else ""
    start = (at, id) if section in LIVE or wanted.since_at <= at else (wanted.since_at, "")
    return section, *start, letter, wanted.kind, wanted.group, wanted.error, wanted.since_at


def _look(verbs: Verbs, shard: Shard, tenant: str, arguments: Sequence[Argument]) -> Found:
    _, reached, flat = verbs.run("page", shard, [tenant], arguments)
    tasks = []
    for sid, at, data, body in zip(flat[::4], flat[1::4], flat[2::4], flat[3::4], strict=True):
        task = readable(shard.queue, sid.decode(), data, int(at), body)
        if task:
            shown = task if task.status is Status.LEASED else replaced(task, lease_expires_at=0)
            tasks.append(((int(at), task.id), shown))
    return Found(tasks, (int(reached[0]), reached[1].decode()) if reached else None)


def _spots(scripts: Scripts, keys: Keys, tenant: str, group: str, place: Place) -> list[Spot]:
    """The first LOOK spots of a group after a place, in order.

    The group's index is in the order of ids, so all of it is read. Changes meanwhile may be seen or not, as between two
    pages.
    """
    own = f"{tenant}/"
    section = keys.due(tenant) if place.section == "due" else f"{keys.prefix}{place.section}"
    best: list[Spot] = []
    for sids in _members(scripts, keys.groups, f"{tenant}/{group}"):
        [scores] = scripts.read(("ZMSCORE", section, *sids))
        here = [(int(at), sid.removeprefix(own)) for sid, at in zip(sids, scores, strict=True) if at is not None]
        best = nsmallest(LOOK, [*best, *(spot for spot in here if spot > (place.at, place.id))])
    return best


def _members(scripts: Scripts, groups: str, name: str) -> Iterator[list[str]]:
    """Stored ids of a group's tasks, at most MEMBERS at a time."""
    after, last = f"[{name}\0".encode(), f"({name}\1"
    found: Any = [b""] * MEMBERS
    while len(found) == MEMBERS:
        [found] = scripts.read(("ZRANGEBYLEX", groups, after, last, "LIMIT", 0, MEMBERS))
        if found:
            yield [member.decode().partition("\0")[2] for member in found]
            after = b"(" + found[-1]
