"""The numbered file of schedules that a deployment carries, and what it would change in a ledger."""

from typing import NamedTuple

from duecourse.domain.schedule import Schedule


class Entry(NamedTuple):
    """Key of a schedule that a file made."""

    queue: str
    tenant: str
    id: str


class ScheduleFile(NamedTuple):
    """A file's number, which grows with each change of it, and its schedules; a start of 0 is that of the add."""

    number: int
    schedules: tuple[Schedule, ...]


class Noted(NamedTuple):
    """Record of files in the ledger: the highest number that was begun, the last one applied, and its schedules."""

    begun: int = 0
    applied: int = 0
    entries: tuple[Entry, ...] = ()


class FileChanges(NamedTuple):
    """Changes that a file makes: schedules to add, to change and to delete.

    `foreign` ones have the id of a schedule that was not made by a file, and are left alone.
    """

    add: tuple[Schedule, ...]
    change: tuple[Schedule, ...]
    delete: tuple[Entry, ...]
    foreign: tuple[Entry, ...]


def key_of(schedule: Schedule) -> Entry:
    """Key of a schedule."""
    return Entry(schedule.queue, schedule.tenant, schedule.id)
