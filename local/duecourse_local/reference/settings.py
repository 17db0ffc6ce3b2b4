"""The page of the settings, written from their descriptions by `make reference`."""

from collections.abc import Iterator
from typing import Any

from duecourse.domain.times import DAY_MS, format_duration
from duecourse.settings import variables

from ..project.bundle import REPOSITORY

HOUR_MS = 3_600_000
PAGE = REPOSITORY / "docs" / "reference" / "settings.md"
HEAD = """\
# Settings

Written from `layers/core/duecourse/settings.py` by `make reference`: change the descriptions there, not this page.

Settings are environment variables. Each process checks them at its first call and names every wrong one.
Durations are seconds or ISO 8601. The template sets most of them from its parameters, some with other defaults.

| variable | default | meaning |
| --- | --- | --- |
"""


def page() -> str:
    """The page's text."""
    return HEAD + "".join(_rows())


def _rows() -> Iterator[str]:
    for one in variables():
        default = _default(one.field, one.default)
        meaning = one.description.replace("<", "\\<")
        yield f"| `{one.name}` | {default and f'`{default}`'} | {meaning} |\n"


def _default(name: str, value: Any) -> str:
    if name.endswith("_ms"):
        return _duration(value)
    return str(value) if isinstance(value, int | str) else ""


def _duration(ms: int) -> str:
    if ms > DAY_MS and ms % DAY_MS == 0:
        return f"P{ms // DAY_MS}D"
    if ms and ms % HOUR_MS == 0:
        return f"PT{ms // HOUR_MS}H"
    return format_duration(ms)
