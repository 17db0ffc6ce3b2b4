"""The intake: a queue whose messages are new tasks, for producers that do not speak HTTP."""

import logging
from typing import Any

from duecourse.metrics import IntakeLine, measure
from duecourse.process import Handler
from duecourse.wire.events.intake import read_order
from duecourse.wire.events.messages import answer, read_each
from duecourse.wiring import App

log = logging.getLogger("duecourse.enqueue_message")


@Handler
def handler(app: App, event: dict[str, Any], _context: Any) -> dict[str, Any]:
    """Add the tasks of one batch; rejected messages go back to their queue, and from there to the dead letters."""
    orders = read_each(event, read_order)
    filled = app.tasks.fill(orders.content)
    rejected = {**orders.problems, **filled.rejected}
    for name, problem in rejected.items():
        log.error("a message was rejected", extra={"message_id": name, "problem": problem})
    measure(IntakeLine(Added=filled.added, MessagesRefused=len(rejected)))
    return answer(orders.batch, rejected)
