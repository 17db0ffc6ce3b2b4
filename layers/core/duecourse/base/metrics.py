"""Every metric: its name, unit and meaning, and the lines of a log that carry it to CloudWatch.

A line in the embedded metric format becomes metrics by itself: nobody calls CloudWatch, or needs the right to.
Source: AWS, "Specification: Embedded metric format".

To add a metric, add its field to the line that carries it (`Annotated[type, unit, meaning]`). mypy then names where its
value is missing: `functions/*/app.py`, `ringing/linger.py`, `ringing/bridge.py` or `*/routes.py`. Then run
`make reference`. A count of a drain is a field of Drained (`running/drain.py`), too; one of a tick passes TickResult
(`ringing/tick.py`). The Dashboard of `template.yaml` shows it. A new line has a row in PRINTED of
`local/duecourse_local/reference/metrics.py`. An alarm is a resource of `template.yaml` and a row in
`tests/template/test_alarms.py`, which has the exact set of those on the Dashboard too.
"""

import json
import os
import sys
import time
from typing import Annotated, TypedDict, get_args

NAMESPACE = "duecourse"
DIMENSION = "service"
"""The dimension of every metric."""
SERVICE = "POWERTOOLS_SERVICE_NAME"
"""The variable with that dimension's value, as users of Powertools know it; by default it is the namespace."""
COUNT, MS = "Count", "Milliseconds"
"""Units, as CloudWatch names them."""


class AddedLine(TypedDict):
    """Tasks that a request added."""

    Added: Annotated[int, COUNT, "Tasks added by requests, messages or watched keys"]


class IntakeLine(AddedLine):
    """Messages that are new tasks, or none."""

    MessagesRefused: Annotated[int, COUNT, "Messages that could not become tasks"]


class WorkedLine(TypedDict):
    """Tasks by what a drain did with them."""

    Claimed: Annotated[int, COUNT, "Tasks claimed"]
    Done: Annotated[int, COUNT, "Tasks done"]
    Retried: Annotated[int, COUNT, "Tasks that failed and are tried again"]
    Reclaimed: Annotated[int, COUNT, "Tasks whose lease lapsed, with those of a delivery that nobody began"]
    Lapsed: Annotated[int, COUNT, "Runs that ended without a settle: an attempt is spent, at the end of the lease"]
    LapsedAtTarget: Annotated[
        int,
        COUNT,
        "Those of them that a function or a broker's consumer had begun: it returned without a settle, or died and "
        "Lambda did not report it. In the other runs, the process of a tick, a ring or a worker died or was frozen",
    ]
    Dead: Annotated[int, COUNT, "Dead tasks: all in the ledger, from a tick's sweep; those that just died, from others"]


class RungLine(AddedLine, WorkedLine):
    """An invocation of `on_expired`."""


class TickLine(WorkedLine):
    """A tick's sweep."""

    OldestOverdue: Annotated[int, MS, "Time for which the longest waiting task was overdue when the tick came"]
    LeftOut: Annotated[int, COUNT, "Shards that the tick could not serve"]


class HeardLine(TypedDict):
    """Bells and watched keys that a bridge heard, alone or within a tick."""

    Rings: Annotated[int, COUNT, "Bells that rang"]
    RingLateness: Annotated[float, MS, "Worst delay between the time of a bell and its ring"]
    Keys: Annotated[int, COUNT, "Watched keys heard to expire"]
    KeysLost: Annotated[int, COUNT, "Watched keys whose expiry added no task, although it was heard"]


class LingerLine(HeardLine, RungLine):
    """The minute of a lingering tick, without its sweep."""


class BridgeLine(HeardLine):
    """A minute of a bridge. Of these, no function may print `Invocations`: the bridge's alarm goes by its silence."""

    Invocations: Annotated[int, COUNT, "Invocations that the bridge began"]
    Refused: Annotated[int, COUNT, "Invocations that were rejected or failed, and are repeated"]
    Warmed: Annotated[int, COUNT, "Events that the bridge sent to warm functions"]


class WarmLine(TypedDict):
    """Functions that `on_expired` warmed."""

    FunctionsWarmed: Annotated[int, COUNT, "Functions that were invoked without tasks, to be warm in time"]


class UndeliveredLine(TypedDict):
    """Lambda's records of failed invocations."""

    Undelivered: Annotated[int, COUNT, "Tasks whose invocation failed, by Lambda's records"]


Line = AddedLine | IntakeLine | RungLine | TickLine | LingerLine | BridgeLine | WarmLine | UndeliveredLine
UNITS = {name: hint.__metadata__[0] for line in get_args(Line) for name, hint in line.__annotations__.items()}


def embedded(line: Line, *, service: str, at: int) -> str:
    """A line's metrics in the embedded format, without the line's end; `at` is epoch milliseconds."""
    named = [{"Name": name, "Unit": UNITS[name]} for name in line]
    directive = {"Namespace": NAMESPACE, "Dimensions": [[DIMENSION]], "Metrics": named}
    return json.dumps({"_aws": {"Timestamp": at, "CloudWatchMetrics": [directive]}, DIMENSION: service, **line})


def measure(line: Line) -> None:
    """Print a line of metrics, at once."""
    service = os.environ.get(SERVICE) or NAMESPACE
    sys.stdout.write(embedded(line, service=service, at=round(time.time() * 1000)) + "\n")
    sys.stdout.flush()
