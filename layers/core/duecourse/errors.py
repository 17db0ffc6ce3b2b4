"""One tree of everything this product refuses; a docstring is the error's message."""

from collections.abc import Sequence
from typing import NamedTuple


class FieldError(NamedTuple):
    """One wrong field: its path (dotted) and what is wrong with it."""

    field: str
    problem: str


class DuecourseError(Exception):
    """Something went wrong."""

    def __init__(self, detail: str | None = None) -> None:
        super().__init__(detail or (type(self).__doc__ or "").strip())


class InvalidInput(DuecourseError):
    """Some fields are wrong."""

    def __init__(self, problems: Sequence[FieldError]) -> None:
        self.problems = list(problems)
        super().__init__("; ".join(f"{p.field}: {p.problem}" for p in problems) or None)


class InvalidSettings(InvalidInput):
    """Some settings are wrong."""


class TaskNotFound(DuecourseError):
    """No such task in this queue."""


class QueueNotFound(DuecourseError):
    """No such queue: nothing was ever added to it, nor was it ever set."""


class Conflict(DuecourseError):
    """The task is in a state that does not allow this."""

    reason = "conflict"


class TaskScheduled(Conflict):
    """The task is scheduled already."""

    reason = "scheduled"


class TaskLeased(Conflict):
    """The task is running: ask again when it has settled, or use force."""

    reason = "leased"


class TaskDone(Conflict):
    """The task is done."""

    reason = "done"


class TaskCancelled(Conflict):
    """The task was cancelled."""

    reason = "cancelled"


class TaskDead(Conflict):
    """The task is dead: replay or delete it."""

    reason = "dead"


class LeaseLost(Conflict):
    """The lease has lapsed and the task went to another, or was settled otherwise: this token settles nothing."""

    reason = "stale"


class StoreUnavailable(DuecourseError):
    """The store does not answer."""


class NotPrimary(StoreUnavailable):
    """The store's server is a replica: it takes no writes and rings no bells."""


class EventsRefused(DuecourseError):
    """The store's server does not let its notifications be turned on."""


class StoreFull(StoreUnavailable):
    """The store is out of memory and takes no new tasks."""


class StoreInUse(StoreUnavailable):
    """Another process has the store open, and only one at a time may."""


class StoreMisused(DuecourseError):
    """The store was asked for something its set-up forbids."""


class ResultsUnavailable(DuecourseError):
    """The results database does not answer."""


class InvocationRefused(DuecourseError):
    """The function's service did not take the invocation."""


class PublishRefused(DuecourseError):
    """The broker did not confirm the messages."""


class MessagesFailed(DuecourseError):
    """Some messages could not be worked: their broker is to deliver them again."""


class SendFailed(DuecourseError):
    """The message was not taken by the service that sends it."""


class CallFailed(DuecourseError):
    """The address called did not answer."""
