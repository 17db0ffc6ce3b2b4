"""Lambda's records of invocations that failed: each is the error of the attempts that it carried."""

import logging
from collections.abc import Iterator
from typing import Any

from duecourse.app import App, Handler
from duecourse.base.event_reader import batch_answer, read_each
from duecourse.base.metrics import UndeliveredLine, measure
from duecourse.errors import StoreUnavailable
from duecourse.ledger.task import STEP_MS, cut_detail
from duecourse.running.leases import settle_failure
from duecourse.running.received_tasks import pauses
from duecourse.running.task_event import Failure, read_failure

log = logging.getLogger("duecourse.on_undelivered")


@Handler
def handler(app: App, event: dict[str, Any], context: Any) -> dict[str, Any]:
    """Retry the tasks of each record; one that cannot be read goes back, and at last to the dead letters.

    Raises StoreUnavailable where the store stays away: then all are delivered again.
    """
    reported = read_each(event, read_failure)
    # Delivered again, a record comes minutes later; its tasks wait as long.
    retried, tries = 0, pauses(context.get_remaining_time_in_millis, STEP_MS)
    for name, failure in reported.content.items():
        counts, error = _settled(app, failure, tries), cut_detail(failure.error)
        retried += counts["retried"] + counts["dead"] + counts["released"]
        log.warning("an invocation failed", extra={"message_id": name, "error": error, "tasks": counts})
    for name, problem in reported.problems.items():
        log.error("a record cannot be read", extra={"message_id": name, "problem": problem})
    measure(UndeliveredLine(Undelivered=retried))
    return batch_answer(reported.batch, reported.problems)


def _settled(app: App, failure: Failure, tries: Iterator[bool]) -> dict[str, int]:
    while True:
        try:
            return settle_failure(app.ledger, failure)
        except StoreUnavailable:
            if not next(tries, False):
                raise
