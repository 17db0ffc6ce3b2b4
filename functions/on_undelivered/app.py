"""Lambda's records of invocations that failed: each is the error of the attempts that it carried."""

from typing import Any

from aws_lambda_powertools import Logger, Metrics
from aws_lambda_powertools.metrics import MetricUnit
from aws_lambda_powertools.utilities.typing import LambdaContext

from duecourse import wiring
from duecourse.wire.failures import read_failure
from duecourse.wire.messages import answer, read_each

logger = Logger()
metrics = Metrics(namespace="duecourse")


@logger.inject_lambda_context
def handler(event: dict[str, Any], _context: LambdaContext) -> dict[str, Any]:
    """Retry the tasks of each record; one that cannot be read goes back, and at last to the dead letters.

    Raises StoreUnavailable: then all are delivered again.
    """
    reported = read_each(event, read_failure)
    retried = 0
    for name, failure in reported.content.items():
        counts = wiring.failures().settle(failure)
        retried += counts["retried"] + counts["dead"] + counts["released"]
        logger.warning("an invocation failed", message_id=name, error=failure.error, tasks=counts)
    for name, problem in reported.problems.items():
        logger.error("a record cannot be read", message_id=name, problem=problem)
    metrics.add_metric("Undelivered", MetricUnit.Count, retried)
    metrics.flush_metrics()
    return answer(reported.batch, reported.problems)
