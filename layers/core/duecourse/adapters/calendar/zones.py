"""Time zones of the tzdata package, never the system's; both libraries are imported when a zone is first asked for."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from duecourse.domain.near import nearest
from duecourse.errors import FieldError, InvalidInput

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo

UNKNOWN = "must be the IANA name of a time zone"
NO_ZONE = {"Factory", "posixrules", "localtime"}
"""Names of a machine whose zone is not set, or is its own."""
LIKE = 0.8
"""Least likeness at which a name is suggested for another."""


def version() -> str:
    """Version of the IANA's database, such as `2026f`."""
    import tzdata  # type: ignore[import-untyped]

    named: str = tzdata.IANA_VERSION
    return named


@cache
def names() -> frozenset[str]:
    """Every name of a zone, in its own letters: a file system may take others for the same."""
    from importlib.resources import files

    return frozenset(files("tzdata").joinpath("zones").read_text().split()) - NO_ZONE


def zone(name: str) -> ZoneInfo:
    """The zone of a name. Raises InvalidInput of `time_zone`."""
    if name not in names():
        raise InvalidInput([FieldError("time_zone", UNKNOWN + _hint(name))])
    return _read(name)


def _hint(name: str) -> str:
    """The known name that is nearest to an unknown one, by its whole name or its city."""
    known = {text: one for one in sorted(names()) for text in (one.rpartition("/")[2], one)}
    near = nearest(name, known, LIKE)
    return f": {known[near]}?" if near else ", such as Europe/Vienna or UTC"


@cache
def _read(name: str) -> ZoneInfo:
    from importlib.resources import files
    from zoneinfo import ZoneInfo

    with files("tzdata").joinpath("zoneinfo", *name.split("/")).open("rb") as file:
        return ZoneInfo.from_file(file, key=name)
