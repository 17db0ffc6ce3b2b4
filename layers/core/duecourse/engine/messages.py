"""Messages of a reminder as the ledger has them, without those that another program has damaged."""

import logging
from collections.abc import Sequence

from duecourse.domain.reminder import is_sound
from duecourse.domain.task import Task

log = logging.getLogger("duecourse.engine")


def sound(messages: Sequence[Task]) -> list[Task]:
    """The messages that can be read; each of the others is only logged."""
    found = []
    for message in messages:
        if is_sound(message):
            found.append(message)
        else:
            log.warning("task %s of reminder %s is left out because it is damaged", message.id, message.group)
    return found
