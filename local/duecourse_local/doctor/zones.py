"""Check of this machine's time zones: those of Python's zoneinfo, for code of a user's own, and those of schedules."""

import zoneinfo
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

from duecourse.schedules import wall_time

from .finding import Finding, Level

CHECK = "time zones"
FIX = 'set PYTHONTZPATH="" where your functions run, or update the system\'s tzdata'
SHOWN = 3
LOOKS = [timedelta(days=14 * number) for number in range(27)]
"""Distances from now at which two clocks are compared: a year."""


def examine(now: datetime | None = None) -> Iterator[Finding]:
    """The finding on this machine's tables, as of `now`."""
    ours, folder = wall_time.version(), _folder()
    if folder is None:
        yield Finding(Level.FINE, CHECK, f"Python's zoneinfo and schedules both go by tzdata {ours}")
        return
    theirs = _version(folder)
    differing = _differing(now or datetime.now(UTC))
    tables = f"Python's zoneinfo reads {theirs or 'tables without a version'} in {folder}, and schedules tzdata {ours}"
    if differing:
        more = f" and {len(differing) - SHOWN} more" if len(differing) > SHOWN else ""
        text = f"{tables}: clocks differ within a year in {', '.join(differing[:SHOWN])}{more}"
        yield Finding(Level.NOTE, CHECK, text, FIX)
    elif theirs != ours:
        yield Finding(Level.NOTE, CHECK, f"{tables}: within a year, no clock differs", FIX)
    else:
        yield Finding(Level.FINE, CHECK, tables)


def _folder() -> Path | None:
    """The folder of the tables that zoneinfo reads; None where it reads the tzdata package."""
    return next((Path(one) for one in zoneinfo.TZPATH if (Path(one) / "UTC").is_file()), None)


def _version(folder: Path) -> str:
    """Version of a folder's tables, such as `2026f`; "" where the folder has none."""
    for name in ("tzdata.zi", "+VERSION", "version"):
        with suppress(OSError), (folder / name).open() as file:
            return file.readline().removeprefix("# version").strip()
    return ""


def _differing(now: datetime) -> list[str]:
    """Names of the zones whose clocks are not the same within a year."""
    return [name for name in sorted(wall_time.names()) if _differs(name, now)]


def _differs(name: str, now: datetime) -> bool:
    ours, theirs = wall_time.zone(name), zoneinfo.ZoneInfo.no_cache(name)
    instants = [now + away for away in LOOKS]
    return any(at.astimezone(ours).utcoffset() != at.astimezone(theirs).utcoffset() for at in instants)
