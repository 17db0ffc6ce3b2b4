"""The intake: a queue whose messages are new tasks, for producers that do not speak HTTP."""

import logging
from typing import Any

from duecourse.base.cold_imports import lasting

with lasting():
    from duecourse.app import App, Handler
    from duecourse.base.event_reader import batch_answer, read_each
    from duecourse.base.metrics import IntakeLine, measure
    from duecourse.tasks.http import parse_message

log = logging.getLogger("duecourse.enqueue_message")


@Handler
def handler(app: App, event: dict[str, Any], _context: Any) -> dict[str, Any]:
    """Add the tasks of one batch; rejected messages go back to their queue, and from there to the dead letters."""
    parsed = read_each(event, parse_message)
    added = app.tasks.add_messages(parsed.content)
    rejected = {**parsed.problems, **added.rejected}
    for name, problem in rejected.items():
        log.error("a message was rejected", extra={"message_id": name, "problem": problem})
    measure(IntakeLine(Added=added.added, MessagesRefused=len(rejected)))
    return batch_answer(parsed.batch, rejected)
