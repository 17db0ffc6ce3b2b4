"""Where a group's tasks stand in a section of the order: by the group's own index, in steps."""

from collections.abc import Iterator, Sequence
from functools import partial
from heapq import nsmallest
from typing import Any

from duecourse.adapters.redis.keys import Keys
from duecourse.adapters.redis.merged_pages import LOOK, Spot
from duecourse.adapters.redis.scripts import Scripts
from duecourse.domain.pages import Place

MEMBERS = 4_000
"""Number of members that one step reads: some milliseconds of the server's time."""


def spots_of_group(scripts: Scripts, keys: Keys, tenant: str, group: str, place: Place) -> list[Spot]:
    """The first LOOK spots after a place, in order.

    The index is in the order of ids, so all of it is read. What changes meanwhile may or may not be seen, as between
    two pages.
    """
    own = f"{tenant}/"
    section = keys.due(tenant) if place.section == "due" else f"{keys.prefix}{place.section}"
    best: list[Spot] = []
    for sids in _members(scripts, keys.groups, f"{own}{group}"):
        scores: Any = scripts.read(partial(_read_scores, section, sids))[0]
        here = [(int(at), sid.removeprefix(own)) for sid, at in zip(sids, scores, strict=True) if at is not None]
        best = nsmallest(LOOK, [*best, *(spot for spot in here if spot > (place.at, place.id))])
    return best


def _members(scripts: Scripts, groups: str, name: str) -> Iterator[list[str]]:
    """Stored ids of a group's tasks, at most MEMBERS at a time."""
    after, last = f"[{name}\0".encode(), f"({name}\1"
    while True:
        [found] = scripts.read(partial(_read_members, groups, after, last))
        if found:
            yield [member.decode().partition("\0")[2] for member in found]
        if len(found) < MEMBERS:
            return
        after = b"(" + found[-1]


def _read_members(groups: str, after: bytes, last: str, pipe: Any) -> None:
    pipe.zrangebylex(groups, after, last, start=0, num=MEMBERS)


def _read_scores(section: str, sids: Sequence[str], pipe: Any) -> None:
    pipe.zmscore(section, sids)
