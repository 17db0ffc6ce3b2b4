"""Names that nobody adds tasks under: the kinds and queues of what is made in another way."""

from duecourse.domain import reminder
from duecourse.domain.query import QUEUE_PREFIX


def open_kind(kind: str) -> str:
    """A kind that may be asked for. Raises ValueError, with what to do, for one that may not."""
    if kind == reminder.KIND:
        raise ValueError(f"{kind} is reserved for POST /reminders: send it there, or choose another kind")
    return kind


def open_queue(queue: str) -> str:
    """A queue into which tasks may be added. Raises ValueError, with what to do, for one into which they may not."""
    # A task of another kind under a reminder's id would take its place, or be taken by it.
    if queue == reminder.QUEUE:
        raise ValueError(f"{queue} is reserved for POST /reminders: choose another queue")
    if queue.startswith(QUEUE_PREFIX):
        raise ValueError(f"{QUEUE_PREFIX}… is reserved for POST /queries: choose another queue")
    return queue
