"""Checks of a reminder that comes again, before it is added or changed."""

from itertools import islice

from duecourse.domain.seals import hidden_of, names
from duecourse.domain.series import KIND, MAX_STANDING, Series
from duecourse.domain.task import MAX_PAYLOAD_BYTES, load_json
from duecourse.engine.reminders import Reminders
from duecourse.errors import FieldError, InvalidInput, ReminderTooLarge
from duecourse.ports.calendar import Calendar

CREDENTIAL = "holds a credential, which a reminder that comes again does not keep: name one of yours in `auth`"


class SeriesChecks:
    """Checks by a calendar, and by the messages that a start would have."""

    def __init__(self, calendar: Calendar, reminders: Reminders) -> None:
        self._calendar = calendar
        self._reminders = reminders

    def check(self, series: Series, now: int, tenant: str, *, starting: bool) -> int | None:
        """Check a series; answers its last start, None for no end. With `starting`, its rule's start is new.

        Raises InvalidInput and ReminderTooLarge.
        """
        _reject_credentials(series)
        self._calendar.check(series.rule)
        first = next(self._calendar.times(series.rule, max(now, series.rule.starts_at - 1)), None)
        if starting:
            self._check_start(series, first, now)
        if first is None:
            raise InvalidInput([FieldError("until", "leaves no start that is to come")])
        until = self._until(series)
        self._check_standing(series, first)
        if len(series.schedule(until, tenant).payload.encode()) > MAX_PAYLOAD_BYTES:
            raise ReminderTooLarge
        self._reminders.preview(series.reminder(first, first), tenant)
        return until

    def _check_start(self, series: Series, first: int | None, now: int) -> None:
        start = series.rule.starts_at
        if start <= now:
            raise InvalidInput([FieldError("starts_at", "must be in the future")])
        if first != start:
            other = f"; its next one is {self._calendar.local(first, series.rule.time_zone)}" if first else ""
            raise InvalidInput([FieldError("starts_at", f"is no time of the rule{other}")])

    def _until(self, series: Series) -> int | None:
        """The last start that `until` and `limit` leave."""
        if series.limit is None:
            return series.rule.until
        last = series.rule.starts_at
        for at in islice(self._calendar.times(series.rule, series.rule.starts_at - 1), series.limit):
            last = at
        return last

    def _check_standing(self, series: Series, first: int) -> None:
        times = islice(self._calendar.times(series.rule, first - 1), MAX_STANDING + 1)
        if sum(at <= first + series.lead_ms for at in times) > MAX_STANDING:
            problem = f"at most {MAX_STANDING} starts may come within the largest lead time"
            raise InvalidInput([FieldError("repeat", problem), FieldError("remind_before", problem)])


def _reject_credentials(series: Series) -> None:
    """Raise InvalidInput, with each field, where a credential is written in clear."""
    hidden = hidden_of(load_json(series.schedule(None).payload, "payload"), KIND)
    if hidden:
        fields = dict.fromkeys(_field(name, series.fields) for name in names(hidden.values, ""))
        raise InvalidInput([FieldError(field, CREDENTIAL) for field in fields])


def _field(name: str, fields: tuple[str, ...]) -> str:
    """Field of the request that a name in a payload is of."""
    list_name, _, rest = name.partition(".")
    index = rest.partition(".")[0]
    is_place = list_name == "recipients" and index.isdecimal() and int(index) < len(fields)
    return fields[int(index)] if is_place else name
