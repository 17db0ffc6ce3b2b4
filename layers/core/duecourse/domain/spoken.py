"""Instants and spans of time as people say them, in English."""

from datetime import UTC, datetime, tzinfo

from duecourse.domain.times import DAY_MS

DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
MONTHS = (
    "January", "February", "March", "April", "May", "June",
    "July", "August", "September", "October", "November", "December",
)  # fmt: skip
UNITS_MS = (("day", DAY_MS), ("hour", 3_600_000), ("minute", 60_000))


class Moment(dict[str, str | int]):
    """An instant's parts by name; as text, the one among them that is for people."""

    def __str__(self) -> str:
        return str(self["text"])


def moment(at: int, zone: tzinfo) -> Moment:
    """An instant (epoch ms) in a time zone: `Sunday, 29 March 2026 at 03:30 CEST`; seconds only where there are any."""
    local = datetime.fromtimestamp(at // 1000, UTC).astimezone(zone)
    time = f"{local:%H:%M:%S}" if local.second else f"{local:%H:%M}"
    weekday, month = DAYS[local.weekday()], MONTHS[local.month - 1]
    date = f"{weekday}, {local.day} {month} {local.year}"
    return Moment(
        text=f"{date} at {time} {local.tzname()}",
        date=date,
        time=time,
        weekday=weekday,
        day=local.day,
        month=month,
        year=local.year,
        zone=str(local.tzname()),
        iso=local.isoformat(),
        timestamp=at // 1000,
    )


def span(ms: int) -> str:
    """A span of time: `1 day 2 hours`, `5 minutes`, `1.5 seconds`, `12 milliseconds`."""
    if 0 < ms < 1_000:
        return counted(ms, "millisecond")
    parts = []
    for unit, length in UNITS_MS:
        count, ms = divmod(ms, length)
        parts += [counted(count, unit)] if count else []
    if ms or not parts:
        parts.append(counted(ms / 1000, "second"))
    return " ".join(parts)


def counted(count: float, unit: str) -> str:
    """A number of things: `1 task`, `2 tasks`."""
    number = f"{count:g}" if isinstance(count, float) else str(count)
    return f"{number} {unit}" + ("" if count == 1 else "s")
