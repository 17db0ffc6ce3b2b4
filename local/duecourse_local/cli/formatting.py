"""Words for people: instants in the local zone, spans of time, tables that fit 80 columns."""

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from rich.text import Text

from duecourse.base.times import MAX_INSTANT, format_instant, parse_duration, parse_instant, to_ms

COLOURS = {"dead": "red", "done": "green", "leased": "cyan", "cancelled": "dim"}
INSTANT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")
"""An instant as answers have it."""
NEVER = format_instant(MAX_INSTANT)
"""Due time of an occurrence that waits for the end of another."""
AFTER = "after another"
SHORT = (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1_000))
RATE_UNITS = {"PT1S": "s", "PT1M": "m", "PT1H": "h", "P1D": "d"}


def local(instant: str) -> str:
    """An instant in the local zone, with UTC beside it where they differ; as it is where no clock shows it."""
    if instant == NEVER:
        return AFTER
    try:
        utc = _moment(instant)
        here = utc.astimezone()
    except (ValueError, OverflowError):  # looks like an instant, or is in the year 10000 here
        return instant
    text = f"{here:%Y-%m-%d %H:%M:%S}"
    return f"{text} UTC" if here.utcoffset() == utc.utcoffset() else f"{text} ({utc:%H:%M:%S} UTC)"


def near(instant: str) -> str:
    """An instant seen from now, in short: `in 5 min`, `2 h ago`."""
    if instant == NEVER:
        return AFTER
    away = parse_instant(instant) - to_ms(datetime.now(UTC))
    return f"in {short(away)}" if away > 0 else f"{short(-away)} ago"


def short(ms: int) -> str:
    """A span of time by its largest unit: `5 min`, `2 h`, `40 ms`."""
    for unit, length in SHORT:
        # A task that was added for in 10 minutes is due in 9:59.98 by now.
        count = (ms + length // 100) // length
        if count:
            return f"{count} {unit}"
    return f"{ms} ms"


def brief(duration: str | None) -> str:
    """An ISO 8601 duration by its largest unit; "" for none."""
    return "" if duration is None else short(parse_duration(duration))


def number_of(count: int, thing: str) -> str:
    """A number of things: `1 task`, `2,000 tasks`."""
    return f"{count:,} {thing}{'' if count == 1 else 's'}"


def nothing(verb: str, queue: str, wanted: Mapping[str, Any]) -> str:
    """Text where a filter finds no task to act on."""
    state = f"{wanted['state']} " if "state" in wanted else ""
    given = [name for name in ("kind", "group", "error") if name in wanted]
    of = f" of that {' and '.join(given)}" if given else ""
    older = " that is old enough" if "older_than" in wanted else ""
    return f"no {state}task{of}{older} in queue {queue}: nothing to {verb}"


def state(word: str) -> Text:
    """A task's state in its colour."""
    return Text(word, COLOURS.get(word, ""))


def text_of(value: Any) -> str:
    """A value of an answer as a cell's text."""
    if isinstance(value, str):
        return _timed(value)
    return "" if value is None else json.dumps(value, ensure_ascii=False)


def parts_of(value: Any) -> str:
    """A value of an answer; of an object, its fields in a row; of a rate, `10/s`."""
    if isinstance(value, dict) and value.keys() == {"count", "per"}:
        return f"{value['count']}/{RATE_UNITS.get(value['per'], value['per'])}"
    if isinstance(value, dict):
        return ", ".join(f"{key} {parts_of(part)}" for key, part in value.items() if part is not None)
    return text_of(value) if isinstance(value, str) else "" if value is None else str(value)


def _timed(value: str) -> str:
    """A text with its instants as people read them."""
    return INSTANT.sub(lambda found: local(found[0]), value)


def _moment(instant: str) -> datetime:
    return datetime.fromtimestamp(parse_instant(instant) / 1000, UTC)
