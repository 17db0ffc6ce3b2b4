"""Answers of the verbs on schedules: a schedule's status, why it fires or does not, and times of a rule."""

from typing import NamedTuple

from duecourse.domain.queues import Throttle, ThrottleReason
from duecourse.domain.schedule import Became, Every, Overlap, Progress, Rule, Schedule
from duecourse.domain.spoken import span
from duecourse.domain.task import Task
from duecourse.domain.timeline import waiting
from duecourse.domain.times import format_instant
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


def why(
    schedule: Schedule, progress: Progress, throttle: Throttle, late: Task | None = None, *, runs: bool = True
) -> str:
    """Reason why a schedule fires when it does, or not at all, in sentences.

    `throttle` is that of its queue at the time; `late` is an occurrence that is due and not claimed. `runs` is False
    if nothing is known that runs its kind.
    """
    sentences = [_when(schedule, progress, throttle)]
    if former := progress.former:
        by_former = f"by {former.zones} it was {format_instant(former.nominal)}"
        sentences.append(f"Recomputed by time zones {progress.zones}; {by_former}.")
    if not runs:
        sentences.append(f"Nothing is known that runs its kind {schedule.kind}: name a target, or start a worker.")
    if throttle.reason is ThrottleReason.PAUSE and not schedule.paused:
        sentences.append(f"Its queue {schedule.queue} is paused: nothing fires or runs until it is resumed.")
    elif late:
        text = waiting(late, throttle).text.replace("its queue", f"its queue {schedule.queue}")
        sentences.append(f"Its occurrence {late.id} waits. {text}")
    if progress.recent and progress.recent[-1].became is Became.SKIPPED:
        sentences.append(_skipped(schedule))
    return " ".join(sentences)


def _when(schedule: Schedule, progress: Progress, throttle: Throttle) -> str:
    if schedule.paused:
        return "It is paused: nothing fires until it is resumed."
    if progress.nominal is None:
        is_over = schedule.is_over(progress.fired)
        return "It has fired as often as `limit` says." if is_over else "Its rule has no time left."
    away = progress.next_at - throttle.now
    if away > 0:
        zones = "" if isinstance(schedule.rule.repeat, Every) else f", by time zones {progress.zones}"
        return f"Its next occurrence is due in {span(away)}, at {format_instant(progress.next_at)}{zones}."
    since = f"Its next occurrence has been due for {span(-away)}"
    is_paused = throttle.reason is ThrottleReason.PAUSE
    return f"{since}." if is_paused else f"{since}, and waits for a ring or the next tick."


def _skipped(schedule: Schedule) -> str:
    beside = "one before it had not ended, or " if schedule.overlap in {Overlap.SKIP, Overlap.QUEUE} else ""
    return f"Its last occurrence was skipped: {beside}tenant {schedule.tenant} is over a quota of {schedule.queue}."
