"""Times of a schedule as texts, for tests of the calendar."""

from itertools import islice

from duecourse.base.times import parse_instant
from duecourse.errors import InvalidInput
from duecourse.ledger.schedule import Cron, Fold, Gap, Repeat, RRule, Rule
from duecourse.schedules.calendar import Calendar

CALENDAR = Calendar()
START = "2026-01-01T00:00:00Z"


def rule(
    repeat: Repeat | str,
    zone: str = "UTC",
    start: str = START,
    until: str = "",
    gap: str = "shift",
    fold: str = "first",
) -> Rule:
    """A rule; a text is a recurrence rule if it has an equals sign, else cron."""
    if isinstance(repeat, str):
        repeat = RRule(repeat) if "=" in repeat else Cron(repeat)
    end = parse_instant(until) if until else None
    return Rule(repeat, parse_instant(start), zone, end, Gap(gap), Fold(fold))


def local_times(asked: Rule, after: str = "", count: int = 3) -> list[str]:
    """The next times as they are shown in the rule's zone."""
    since = parse_instant(after) if after else asked.starts_at - 1
    return [CALENDAR.local(at, asked.time_zone) for at in islice(CALENDAR.times(asked, since), count)]


def days(asked: Rule, count: int = 3) -> list[str]:
    """Days of the next times."""
    return [one[:10] for one in local_times(asked, count=count)]


def problems(asked: Rule) -> dict[str, str]:
    """Wrong fields of a rule, each with its problem."""
    try:
        CALENDAR.check(asked)
    except InvalidInput as error:
        return {one.field: one.problem for one in error.problems}
    return {}
