"""The bell: what the bridge invokes when something is due, or a watched key has expired."""

from typing import Any

from aws_lambda_powertools import Logger, Metrics
from aws_lambda_powertools.metrics import MetricUnit
from aws_lambda_powertools.utilities.typing import LambdaContext

from duecourse import wiring
from duecourse.domain.watch import show
from duecourse.wire.fields import read
from duecourse.wire.rings import Rings, RingsAnswer, show_drained

logger = Logger()
metrics = Metrics(namespace="duecourse")


@logger.inject_lambda_context
def handler(event: dict[str, Any], context: LambdaContext) -> RingsAnswer:
    """Make tasks of watched keys that expired, and drain the shards whose bells rang."""
    told = read(Rings, event)
    rang = told.heard(wiring.settings().namespace)
    noted = wiring.watches().note([one.plain() for one in told.expired])
    if rang.strangers:
        logger.warning("keys that are no bells of ours were left out", keys=rang.strangers)
    if noted.strangers:
        logger.warning("keys that nothing here watches were left out", keys=[show(key) for key in noted.strangers])
    drained = wiring.drainer().drain(rang.shards, context.get_remaining_time_in_millis, rang.doors)
    metrics.add_metric("Added", MetricUnit.Count, noted.added)
    metrics.add_metric("Claimed", MetricUnit.Count, drained.claimed)
    metrics.add_metric("Done", MetricUnit.Count, drained.done)
    metrics.add_metric("Retried", MetricUnit.Count, drained.retried)
    metrics.add_metric("Dead", MetricUnit.Count, drained.dead)
    metrics.flush_metrics()
    return show_drained(drained._asdict(), noted.added)
