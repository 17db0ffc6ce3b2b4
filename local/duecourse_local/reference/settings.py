"""The page of the settings, written from their descriptions by `make reference`."""

from collections.abc import Iterator
from typing import Any

from duecourse.base.times import format_duration
from duecourse.settings import variables

from ..project.bundle import REPOSITORY

PAGE = REPOSITORY / "docs" / "reference" / "settings.md"
HEAD = """\
# Settings

Written from `layers/core/duecourse/settings.py` by `make reference`: change the descriptions there, not this page.

Settings are environment variables. Each process checks them at its first call and names every wrong one.
Durations are texts such as `5m`, ISO 8601, or seconds.
The template sets most settings from its parameters, some with other defaults.

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
        return format_duration(value)
    return str(value) if isinstance(value, int | str) else ""
