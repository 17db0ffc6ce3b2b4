"""The intake: a queue whose messages are new tasks, for producers that do not speak HTTP."""

import logging
from typing import Any

from duecourse import wiring
from duecourse.metrics import IntakeLine, measure
from duecourse.wire.events.intake import read_order
from duecourse.wire.events.messages import answer, read_each

log = logging.getLogger("duecourse.enqueue_message")


def handler(event: dict[str, Any], _context: Any) -> dict[str, Any]:
    """Add the tasks of one batch; rejected messages go back to their queue, and from there to the dead letters."""
    orders = read_each(event, read_order)
    filled = wiring.tasks().fill(orders.content)
    rejected = {**orders.problems, **filled.rejected}
    for name, problem in rejected.items():
        log.error("a message was rejected", extra={"message_id": name, "problem": problem})
    measure(IntakeLine(Added=filled.added, MessagesRefused=len(rejected)))
    return answer(orders.batch, rejected)
