"""Expressions of cron that fire near a change of the clock, drawn by chance from every form that there is."""

from calendar import monthrange
from datetime import date, datetime, timedelta
from random import Random

from tests.support.calendar_oracle import MINUTE, MONTHS, WEEKDAYS, Transition

REACH = timedelta(hours=3)


def near(transition: Transition, chance: Random) -> str:
    """An expression that names a wall-clock time within three hours of a change, those left out among them."""
    before, after = transition.shows()
    low, high = before - timedelta(hours=2), after + timedelta(hours=2)
    if chance.random() < 0.5:  # what is left out, or comes twice
        low, high = min(before, after), max(before, after)
    named = low + MINUTE * chance.randrange((high - low) // MINUTE)
    return f"{_minute(named, chance)} {_hour(named, chance)} {_day(named.date(), chance)}"


def _minute(named: datetime, chance: Random) -> str:
    minute = named.minute
    return chance.choice(
        [
            f"{minute}",
            f"{minute},{chance.randrange(60)}",
            f"{chance.randint(0, minute)}-{chance.randint(minute, 59)}",
            f"{minute % 15}/15",
            f"{minute % 7}-59/7",
            _step(minute),
            "*",
        ]
    )


def _hour(named: datetime, chance: Random) -> str:
    hour = named.hour
    return chance.choice(
        [
            f"{hour}",
            f"{hour},{chance.randrange(24)}",
            f"{chance.randint(0, hour)}-{chance.randint(hour, 23)}",
            f"{hour % 3}-23/3",
            _step(hour),
            "*",
            "*",
        ]
    )


def _step(number: int) -> str:
    divisor = next((by for by in (20, 12, 10, 6, 5, 4, 3, 2) if number % by == 0), 1)
    return f"*/{divisor}"


def _day(day: date, chance: Random) -> str:
    """Day of month, month and day of week that fit a day."""
    last, kind = monthrange(day.year, day.month)[1], day.isoweekday() % 7
    name, other = WEEKDAYS[kind], WEEKDAYS[(kind + 3) % 7]
    forms = [
        "* * *",
        f"{day.day} * *",
        f"{day.day} {day.month} *",
        f"{day.day} {MONTHS[day.month - 1].lower()} ?",
        f"* {day.month} {kind}",
        f"? * {name}",
        f"* * {name.lower()}#{(day.day - 1) // 7 + 1}",
        f"{day.day} * {other}",
        f"{max(1, day.day - 2)}-{day.day},31 {'*/2' if day.month % 2 else '2/2'} *",
        f"*/2 * {name}" if day.day % 2 else f"2/2 * {name}",
        f"* * {name},{other}#2",
        f"{f'L-{last - day.day}' if day.day < last else 'L'} * *",
        f"1,L * {name}",
        f"* * {'SAT-SUN' if kind in (0, 6) else 'MON-FRI'}",
        f"* * {'0,6-7' if kind in (0, 6) else '1-5'}",
    ]
    if day.day + 7 > last:
        forms += [f"* * {name}L", f"* {day.month} {kind or 7}L"]
    if kind not in (0, 6):
        forms += [f"{day.day}W * *", f"{_weekend_beside(day)}W * *"]
    return chance.choice(forms)


def _weekend_beside(day: date) -> int:
    """The day of month of a weekend whose nearest weekday a day is, else the day's own."""
    by = {5: 1, 1: -1}.get(day.isoweekday(), 0)
    beside = day + timedelta(days=by)
    return beside.day if beside.month == day.month else day.day
