"""The tick: what the schedule invokes each minute, whether or not a bell rang."""

from typing import Any

from aws_lambda_powertools import Logger, Metrics
from aws_lambda_powertools.metrics import MetricUnit
from aws_lambda_powertools.utilities.typing import LambdaContext

from duecourse import wiring
from duecourse.wire.fields import read
from duecourse.wire.schedule import ScheduledEvent

logger = Logger()
metrics = Metrics(namespace="duecourse")


@logger.inject_lambda_context
def handler(event: dict[str, Any], context: LambdaContext) -> dict[str, int]:
    """Sweep every shard and drain what the rings missed."""
    read(ScheduledEvent, event)
    ticked = wiring.sweeper().tick(context.get_remaining_time_in_millis)
    metrics.add_metric("OldestOverdue", MetricUnit.Milliseconds, ticked.oldest_overdue_ms)
    metrics.add_metric("Dead", MetricUnit.Count, ticked.dead_total)
    metrics.add_metric("Claimed", MetricUnit.Count, ticked.claimed)
    metrics.add_metric("Reclaimed", MetricUnit.Count, ticked.reclaimed)
    metrics.flush_metrics()
    return ticked._asdict()
