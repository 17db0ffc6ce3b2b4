"""The intake: a queue whose messages are new tasks, for producers that do not speak HTTP."""

from typing import Any

from aws_lambda_powertools import Logger, Metrics
from aws_lambda_powertools.metrics import MetricUnit
from aws_lambda_powertools.utilities.typing import LambdaContext

from duecourse import wiring
from duecourse.wire.intake import read_order
from duecourse.wire.messages import answer, read_each

logger = Logger()
metrics = Metrics(namespace="duecourse")


@logger.inject_lambda_context
def handler(event: dict[str, Any], _context: LambdaContext) -> dict[str, Any]:
    """Add the tasks of one batch; what is refused goes back to its queue, and from there to the dead letters."""
    orders = read_each(event, read_order)
    filled = wiring.tasks().fill(orders.content)
    refused = {**orders.problems, **filled.refused}
    for name, problem in refused.items():
        logger.error("a message was rejected", message_id=name, problem=problem)
    metrics.add_metric("Added", MetricUnit.Count, filled.added)
    metrics.add_metric("MessagesRefused", MetricUnit.Count, len(refused))
    metrics.flush_metrics()
    return answer(orders.batch, refused)
