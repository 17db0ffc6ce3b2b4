"""Findings of an examination."""

from enum import StrEnum
from typing import NamedTuple


class Level(StrEnum):
    """Weight of a finding: a fault loses tasks or keeps them from running, a warning makes them late or may."""

    FINE = "fine"
    NOTE = "note"
    WARNING = "warning"
    FAULT = "fault"


class Finding(NamedTuple):
    """One finding: the check, where it was made ("" for the whole ledger), what was seen, and what mends it."""

    level: Level
    check: str
    text: str
    fix: str = ""
    place: str = ""
