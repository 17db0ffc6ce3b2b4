"""Contract of the calendar: the nominal times of a rule."""

from collections.abc import Iterator
from typing import Protocol

from duecourse.domain.schedule import Rule


class Calendar(Protocol):
    """Times by the time zones of one version of the IANA's database."""

    @property
    def version(self) -> str:
        """Version of the time zones, such as `2026f`; versions are in the order of their texts."""

    def check(self, rule: Rule) -> None:
        """Return if a rule has a time.

        Raises InvalidInput, which names every wrong field: `repeat.cron`, `repeat.rrule`, `repeat.every`,
        `repeat.exdates`, `time_zone`, `until`.
        """

    def times(self, rule: Rule, after: int) -> Iterator[int]:
        """Nominal times of a rule later than `after` (epoch ms), ascending, each once, computed as they are asked for.

        `rule` has passed `check`; it may have been written with other time zones. A text of cron or of a recurrence
        rule is read once a process. There are none in the last two days of the year 9999.
        """

    def local(self, at: int, time_zone: str) -> str:
        """An instant (epoch ms) as RFC 3339 in a time zone: `2026-11-26T09:00:00+01:00`."""
