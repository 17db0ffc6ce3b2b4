"""The bell: what the bridge invokes when something is due, or soon will be, or a watched key has expired."""

from typing import Any

from aws_lambda_powertools import Logger, Metrics
from aws_lambda_powertools.metrics import MetricUnit
from aws_lambda_powertools.utilities.typing import LambdaContext

from duecourse import wiring
from duecourse.domain.watch import show
from duecourse.wire.rings import RingsAnswer, WarmAnswer, read_rings, read_warm_up, shards_behind, show_drained

logger = Logger()
metrics = Metrics(namespace="duecourse")


@logger.inject_lambda_context
def handler(event: dict[str, Any], context: LambdaContext) -> RingsAnswer | WarmAnswer:
    """Make tasks of watched keys that expired, and drain the shards whose bells rang; or warm what will do so."""
    if isinstance(event, dict) and "warm" in event:
        return warm(event)
    told = read_rings(event)
    rang = told.heard(wiring.settings().namespace)
    noted = wiring.watches().note(told.expired)
    if rang.strangers:
        logger.warning("ignored keys that are not bells of this stack", keys=rang.strangers)
    if noted.strangers:
        logger.warning(
            "ignored keys that match no pattern of DUECOURSE_WATCH", keys=[show(key) for key in noted.strangers]
        )
    drained = wiring.drainer().drain(rang.shards, context.get_remaining_time_in_millis, rang.doors)
    metrics.add_metric("Added", MetricUnit.Count, noted.added)
    metrics.add_metric("Claimed", MetricUnit.Count, drained.claimed)
    metrics.add_metric("Done", MetricUnit.Count, drained.done)
    metrics.add_metric("Retried", MetricUnit.Count, drained.retried)
    metrics.add_metric("Dead", MetricUnit.Count, drained.dead)
    metrics.flush_metrics()
    return show_drained(drained._asdict(), noted.added)


def warm(event: dict[str, Any]) -> WarmAnswer:
    """Be ready for a ring, and have the functions be so that its tasks will be handed to."""
    rings = shards_behind(read_warm_up(event), wiring.settings().namespace)
    if rings.strangers:
        logger.warning("ignored keys that are not bells of this stack", keys=rings.strangers)
    wiring.store().ping()
    wiring.drainer()
    warmed = wiring.warmer().warm(rings.shards)
    metrics.add_metric("FunctionsWarmed", MetricUnit.Count, len(warmed))
    metrics.flush_metrics()
    return {"warmed": warmed}
