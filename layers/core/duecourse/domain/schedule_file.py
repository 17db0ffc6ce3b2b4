"""The numbered file of schedules that a deployment carries, and what it would change in a ledger."""

from typing import NamedTuple

from duecourse.domain.schedule import Schedule
from duecourse.errors import FieldError


class Entry(NamedTuple):
    """Key of a schedule that a file made."""

    queue: str
    tenant: str
    id: str


class ScheduleFile(NamedTuple):
    """A file's number, which grows with each change of it, and its schedules; a start of AT_ADD is that of the add.

    `problems` are those of the schedules that are left out. `digest` tells files apart that have one number.
    """

    number: int
    schedules: tuple[Schedule, ...]
    problems: tuple[FieldError, ...] = ()
    digest: str = ""


class Noted(NamedTuple):
    """State of the schedule files in a ledger.

    `begun` is the highest number that was begun, at `begun_at` (epoch ms). `applied` is the last number of which all
    was made. `settled` is the last one beside which no earlier file is being applied any more. `digest` is that of the
    file that was begun. `entries` are the schedules that a file may have made.
    """

    begun: int = 0
    begun_at: int = 0
    applied: int = 0
    settled: int = 0
    digest: str = ""
    entries: frozenset[Entry] = frozenset()


class FileChanges(NamedTuple):
    """Changes that a file made: schedules that were added, changed and deleted.

    `foreign` ones have the id of a schedule that was not made by a file, and are left alone.
    """

    added: tuple[Entry, ...]
    changed: tuple[Entry, ...]
    deleted: tuple[Entry, ...]
    foreign: tuple[Entry, ...]


def key_of(schedule: Schedule) -> Entry:
    """Key of a schedule."""
    return Entry(schedule.queue, schedule.tenant, schedule.id)
