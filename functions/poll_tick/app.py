"""The tick: what the schedule invokes each minute, whether or not a bell rang."""

from collections.abc import Mapping
from typing import Any

from aws_lambda_powertools import Logger, Metrics
from aws_lambda_powertools.metrics import MetricUnit
from aws_lambda_powertools.utilities.typing import LambdaContext

from duecourse import wiring
from duecourse.errors import StoreUnavailable
from duecourse.lingering import linger
from duecourse.wire.fields import read
from duecourse.wire.schedule import ScheduledEvent

logger = Logger()
metrics = Metrics(namespace="duecourse")

FOUND = {
    "OldestOverdue": (MetricUnit.Milliseconds, "oldest_overdue_ms"),
    "Dead": (MetricUnit.Count, "dead_total"),
    "Claimed": (MetricUnit.Count, "claimed"),
    "Done": (MetricUnit.Count, "done"),
    "Retried": (MetricUnit.Count, "retried"),
    "Reclaimed": (MetricUnit.Count, "reclaimed"),
}
LINGERED = {
    "Rings": (MetricUnit.Count, "rings"),
    "Lateness": (MetricUnit.Milliseconds, "latest_ms"),
    "Claimed": (MetricUnit.Count, "claimed"),
    "Done": (MetricUnit.Count, "done"),
    "Retried": (MetricUnit.Count, "retried"),
    "Dead": (MetricUnit.Count, "dead"),
    "Added": (MetricUnit.Count, "added"),
    "Keys": (MetricUnit.Count, "keys"),
    "KeysLost": (MetricUnit.Count, "lost"),
}


@logger.inject_lambda_context
def handler(event: dict[str, Any], context: LambdaContext) -> dict[str, int]:
    """Sweep every shard and drain what the rings missed; then, if so set, stay and serve the rings.

    Where some shards are away, the others are served, and then it fails.
    """
    read(ScheduledEvent, event)
    remaining_ms = context.get_remaining_time_in_millis
    try:
        found = wiring.sweeper().survey()
    except StoreUnavailable:
        with linger(remaining_ms):  # whose rings are served once it is back
            raise
    with linger(remaining_ms) as lingering:
        ticked = wiring.sweeper().tick(found, remaining_ms)._asdict()
        measure(FOUND, ticked)
    if lingering:
        measure(LINGERED, {**lingering.stats()._asdict(), **lingering.counts})
    if found.away:
        raise found.away
    return ticked


def measure(named: Mapping[str, tuple[MetricUnit, str]], values: Mapping[str, float]) -> None:
    """Tell these metrics at once, in the log's embedded metric format: the rest of a tick may take a minute."""
    for name, (unit, key) in named.items():
        metrics.add_metric(name, unit, values.get(key, 0))
    metrics.flush_metrics()
