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


MAX_ERRORS = 100
"""How many wrong fields are told: an answer must not be many times its request's size."""
MAX_FIELD = 200
"""How much of a wrong field's name is told, for the same reason."""


def bounded(found: Sequence[FieldError]) -> list[FieldError]:
    """The first MAX_ERRORS of them, and how many more there are."""
    more = len(found) - MAX_ERRORS
    return [*found[:MAX_ERRORS], FieldError("body", f"has {more} more wrong fields")] if more > 0 else list(found)


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


class QueryNotFound(DuecourseError):
    """No such query: it was never asked, or its time is over."""


class QueryFailed(DuecourseError):
    """The API that was asked refused, or never gave an answer that counts: asked again, the query begins anew."""

    def __init__(self, id: str = "", queue: str = "", detail: str = "") -> None:
        self.id = id
        self.queue = queue
        super().__init__(detail or None)


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


class KeyInUse(Conflict):
    """The first request with this Idempotency-Key is still under way: ask again when its time is over."""

    reason = "under_way"

    def __init__(self, left_ms: int = 1_000) -> None:
        self.left_ms = left_ms
        super().__init__()


class KeyReused(DuecourseError):
    """This Idempotency-Key was used for another request: take a new key for a new request."""


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


class SendRefused(DuecourseError):
    """The service that sends it will never take this message."""


class TemplatesMissing(DuecourseError):
    """Reminders need Jinja2: give the function the layer templates, or pip install 'duecourse[templates]'."""


class CallFailed(DuecourseError):
    """The address called did not answer."""


class CallTimedOut(CallFailed):
    """The address called did not answer in its time."""


class CallCutOff(CallFailed):
    """The address called did not answer in the time that was left; it may have more another time."""
