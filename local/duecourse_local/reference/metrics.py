"""The page of the metrics, written from their descriptions by `make reference`."""

from collections.abc import Iterator
from typing import NamedTuple

from duecourse.base import metrics as lines

from ..project.bundle import REPOSITORY

PAGE = REPOSITORY / "docs" / "reference" / "metrics.md"
HEAD = """\
# Metrics

Written from `layers/core/duecourse/base/metrics.py` by `make reference`: change the descriptions there, not this page.

The functions and the bridge print metrics into their logs, in CloudWatch's embedded metric format.
A worker prints none.
All are in the namespace `duecourse`. Their one dimension, `service`, is the value of `POWERTOOLS_SERVICE_NAME`.
The template sets it to the stack's name.

| metric | unit | meaning | printed by |
| --- | --- | --- | --- |
"""
PRINTED: dict[type, str] = {
    lines.TickLine: "`poll_tick`: each sweep",
    lines.LingerLine: "`poll_tick`: each lingering",
    lines.RungLine: "`on_expired`: each ring",
    lines.WarmLine: "`on_expired`: each warming",
    lines.BridgeLine: "bridge: each minute",
    lines.AddedLine: "`enqueue_http`: each request that adds tasks",
    lines.IntakeLine: "`enqueue_message`: each batch",
    lines.UndeliveredLine: "`on_undelivered`: each batch",
}
"""The program that prints each line, and when."""


class Metric(NamedTuple):
    """One metric, and the lines that carry it."""

    name: str
    unit: str
    meaning: str
    lines: list[type]


def metrics() -> Iterator[Metric]:
    """Every metric once, in the order of the lines."""
    said = {name: hint.__metadata__ for line in PRINTED for name, hint in line.__annotations__.items()}
    for name, (unit, meaning) in said.items():
        yield Metric(name, unit, meaning, [line for line in PRINTED if name in line.__annotations__])


def page() -> str:
    """The page's text."""
    rows = (
        f"| `{one.name}` | {one.unit} | {one.meaning} | {'; '.join(PRINTED[line] for line in one.lines)} |\n"
        for one in metrics()
    )
    return HEAD + "".join(rows)
