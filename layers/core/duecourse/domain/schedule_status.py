"""Answers of the verbs on schedules: a schedule's status, and times of a rule."""

from typing import NamedTuple

from duecourse.domain.schedule import Progress, Rule, Schedule
from duecourse.domain.values import brief, value


@value(frozen=True, slots=True)
class Upcoming:
    """An occurrence to come: its nominal time and its due time (epoch ms), and both as text in the schedule's zone.

    `clock_change` is True if the zone's distance to UTC is another than before it.
    """

    nominal: int
    due_at: int
    local: str
    clock_change: bool = False


@value(frozen=True, slots=True)
class Passed:
    """An occurrence that has passed: id of its task, nominal time, state, and the number of times that it makes up for.

    `state` is that of its task, `skipped` or `missed`.
    """

    id: str
    nominal: int
    state: str
    stands_for: int


@value(frozen=True, slots=True, repr=False)
class ScheduleStatus:
    """A schedule as the ledger has it: its progress, the next occurrences, and the last ones, newest first.

    `why` says when it fires, or why it does not.
    """

    schedule: Schedule
    progress: Progress
    created_at: int
    upcoming: tuple[Upcoming, ...]
    recent: tuple[Passed, ...]
    why: str

    def __repr__(self) -> str:
        return brief(self, "schedule", "upcoming")


class Preview(NamedTuple):
    """Times of a rule from `since` on (epoch ms), at most `most`."""

    rule: Rule
    since: int
    most: int
