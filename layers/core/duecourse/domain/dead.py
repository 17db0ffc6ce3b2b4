"""Dead tasks by their errors: errors that differ in numbers and ids alone are one group."""

import re
from collections.abc import Iterable
from typing import NamedTuple

from duecourse.domain.bulk import DEFAULT_BULK, Reached
from duecourse.domain.masking import MASK, masked_error
from duecourse.domain.task import Status
from duecourse.domain.values import brief, value

MAX_GROUPS = 100
"""The most groups of one answer."""
ANY = "#"
"""Sign for a part that differs between the errors of a group; in a filter it matches any text."""

_CLASS = re.compile(r"[A-Za-z_][\w.]*(?=:)")
"""Name of an exception at the beginning of an error."""
_PLACE = re.compile(r" at \S+:\d+$")
_VARYING = re.compile(
    r"\b(?P<word>status|code|http|answered|errno|error)[ :=]{1,2}\d{1,5}\b"
    r"|(?<![\w-])(?=[\w-]*\d)(?:[0-9a-f]{8,}|[0-9a-f]{4,12}(?:-[0-9a-f]{4,12}){2,}|0x[0-9a-f]+|[\w-]{20,})(?![\w-])"
    r"|\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d[\d:.]*(?:Z|[+-]\d\d:?\d\d)?)?"
    r"|\d+(?:\.\d+)?",
    re.IGNORECASE,
)
"""Parts that vary: numbers, hexadecimal ids, long ids with a digit, dates. A number after `status`, `code`, `HTTP`,
`answered`, `errno` or `error` stays: 404 and 503 are two errors."""


class Deaths(NamedTuple):
    """Request: at most `limit` dead tasks of one kind, group and error ("": all), that died since an instant."""

    kind: str = ""
    group: str = ""
    error: str = ""
    since_at: int = 0
    limit: int = DEFAULT_BULK


class Death(NamedTuple):
    """Death of one task: its shard, the instant (epoch ms) and the error."""

    shard: int
    id: str
    at: int
    kind: str
    error: str


class DeathsFound(NamedTuple):
    """Deaths of one call, and the place at which the next one begins; None after the last."""

    deaths: list[Death]
    next: Reached | None


@value(frozen=True, slots=True)
class DeadGroup:
    """Dead tasks of one kind and error: their number, the first and the last death (epoch ms), and the newest's id.

    `error` has `#` for numbers and ids, in which the errors of a group may differ.
    """

    error: str
    kind: str
    count: int
    first_at: int
    last_at: int
    id: str


@value(frozen=True, slots=True, repr=False)
class DeadGroups:
    """Groups of dead tasks, the largest first, and the place at which the next call begins; None after the last."""

    groups: list[DeadGroup]
    next: Reached | None

    def __repr__(self) -> str:
        return brief(self, "groups", "next")


def pattern_of(error: str) -> str:
    """An error without what differs from task to task; the exception's name and the place in code stay.

    Credentials are hidden before: a sign within one, or within an address, would change what is found to be one.
    """
    shown = masked_error(error)
    error = error if shown == error else shown.replace(MASK, ANY)
    named = _CLASS.match(error)
    place = _PLACE.search(error)
    begin, end = named.end() if named else 0, place.start() if place else len(error)
    return error[:begin] + _VARYING.sub(_varying, error[begin:end]) + error[end:]


def _varying(found: re.Match[str]) -> str:
    return found[0] if found["word"] else ANY


def group_deaths(found: DeathsFound) -> DeadGroups:
    """Deaths by kind and pattern, until these are MAX_GROUPS groups."""
    groups: dict[tuple[str, str], list[Death]] = {}
    before: Death | None = None
    for death in found.deaths:
        key = (pattern_of(death.error), death.kind)
        if before and key not in groups and len(groups) == MAX_GROUPS:
            return DeadGroups(_by_size(groups), Reached(before.shard, Status.DEAD, before.at, before.id))
        groups.setdefault(key, []).append(death)
        before = death
    return DeadGroups(_by_size(groups), found.next)


def _by_size(groups: dict[tuple[str, str], list[Death]]) -> list[DeadGroup]:
    return sorted((_group(*key, deaths) for key, deaths in groups.items()), key=lambda one: (-one.count, one.error))


def _group(error: str, kind: str, deaths: Iterable[Death]) -> DeadGroup:
    ordered = sorted(deaths, key=lambda one: one.at)
    return DeadGroup(error, kind, len(ordered), ordered[0].at, ordered[-1].at, ordered[-1].id)
