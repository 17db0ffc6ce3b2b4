"""Lines of the logs that `up` prints: one for each event of a task, warnings, errors. The files have all lines."""

import json
import re
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from duecourse.adapters.logged_store import LOGGER

from . import console

FRAME = re.compile(r"(START|END|REPORT|INIT_REPORT) ?(RequestId)?.*?(Error Type: (?P<error>\S+))?\s*$")
"""The lines that Lambda puts around an invocation's own."""
LOGGED = re.compile(r"\S+Z (?P<level>[A-Z]+) (?P<message>.*)")
"""A line of the bridge's log."""
UNSAID = ("Runtime.ExitError", "Function.ResponseSizeTooLarge")
"""Errors of invocations that leave no other line."""
COLOURS = {"done": "green", "dead": "red", "failed": "red", "WARNING": "yellow", "ERROR": "red", "CRITICAL": "red"}
ADVICE = "LAMBDA_WARNING: Unhandled exception"
"""Beginning of general advice by Lambda's runtime client, which the error follows."""
CAUSES = ("problem", "error")
"""Fields of a record by which functions of ours say why, beside the message."""
BRIDGE = "bridge"


class Line(NamedTuple):
    """A line for people, and what it is: a task's event, or a level of a log."""

    text: str
    kind: str = ""


def print_raw(name: str, line: str) -> None:
    """A log's line as it is."""
    console.err.out(f"{name}  {console.visible(line)}")


def wall() -> str:
    """The time of day."""
    return time.strftime("%H:%M:%S")


class Printer:
    """Prints the logs' lines that say something to people, each with the time of `clock`."""

    def __init__(self) -> None:
        self.clock: Callable[[], str] = wall

    def __call__(self, name: str, line: str) -> None:
        """Print a line, or nothing."""
        shown = for_people(name, line)
        if shown is not None:
            colour = COLOURS.get(shown.kind, "default")
            console.err.print(f"[dim]{self.clock()}[/]  [{colour}]{console.shown(shown.text)}[/]", soft_wrap=True)


def for_people(name: str, line: str) -> Line | None:
    """A line of the log called `name` in a person's words; None for one that only fills the file."""
    if ADVICE in line:
        return None
    record = _record(line)
    if record is not None:
        return _of_record(name, record)
    logged = LOGGED.fullmatch(line) if name == BRIDGE else None
    if logged:
        quiet = logged["level"] in ("DEBUG", "INFO")
        return None if quiet else Line(f"{name}  {logged['message']}", logged["level"])
    frame = FRAME.match(line)
    if frame:
        return Line(f"{name} failed: {frame['error']}", "ERROR") if frame["error"] in UNSAID else None
    if not line.strip() or (name == BRIDGE and line.startswith("bridge ready")):
        return None
    return Line(f"{name}  {line}")


def _of_record(name: str, record: dict[str, Any]) -> Line | None:
    if record.get("logger") == LOGGER:
        return Line(str(record["message"]), str(record.get("event", "")))
    message = record.get("message") or record.get("errorMessage")
    if message is None or record.get("level") == "DEBUG":
        return None
    kind = record.get("exception_name") or record.get("errorType")
    cause = next((record[field] for field in CAUSES if isinstance(record.get(field), str)), None)
    text = f"{name}  {message}" + (f" ({kind})" if kind else "") + (f": {cause}" if cause else "")
    return Line(text, str(record.get("level", "")))


def _record(line: str) -> dict[str, Any] | None:
    """A JSON record: metrics, and what functions log; a dict that a function printed has no message and is shown so."""
    try:
        found = json.loads(line) if line.startswith("{") else None
    except ValueError:
        return None
    known = isinstance(found, dict) and ({"_aws", "message", "errorMessage"} & found.keys())
    return found if known else None
