"""Errors of this product, as one tree; the docstring of a class is its message.

To add an error that callers see, write its class here, or in `api/problems.py` if only HTTP knows it, with a `code`.
Its status is in `api/problems.py`, its row in CODES of `tests/api/test_problems.py`. Callers match codes: never rename
or remove one. A member of its own belongs to MEMBERS of `api/problems.py`; an error that takes arguments has an example
in `local/duecourse_local/reference/openapi.py`. An error that a script answers is a Reply of
`ledger/operation_types.py`, and has its row in REJECTIONS of `tasks/verbs.py`. `docs/reference/python.md` has a table
of errors.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True, slots=True)
class FieldError:
    """One wrong field: its path (dotted) and what is wrong with it."""

    field: str
    problem: str


class DuecourseError(Exception):
    """Something went wrong."""

    code: ClassVar[str] = "internal"
    """The problem's name over HTTP, a constant: renaming a class changes no caller."""

    def __init__(self, detail: str | None = None) -> None:
        super().__init__(detail or (type(self).__doc__ or "").strip())


MAX_ERRORS = 100
"""Maximum number of wrong fields in an error: an answer must not be many times its request's size."""
MAX_FIELD = 200
"""Maximum length of a wrong field's name in an error, for the same reason."""


def bounded(found: Sequence[FieldError]) -> list[FieldError]:
    """The first MAX_ERRORS of them, and how many more there are."""
    more = len(found) - MAX_ERRORS
    return [*found[:MAX_ERRORS], FieldError("body", f"has {more} more wrong fields")] if more > 0 else list(found)


FIELDS_TOLD = 3
"""Fields with the same problem that an error's text names."""


class InvalidInput(DuecourseError):
    """Some fields are wrong."""

    code = "invalid-input"

    def __init__(self, problems: Sequence[FieldError]) -> None:
        self.problems = list(problems)
        fields: dict[str, list[str]] = {}
        for one in problems:
            fields.setdefault(str(one.problem), []).append(one.field)
        super().__init__("; ".join(_told(names, problem) for problem, names in fields.items()) or None)


def _told(fields: Sequence[str], problem: str) -> str:
    """One problem of some fields: a batch has the same one many times."""
    if len(fields) > FIELDS_TOLD:
        return f"{', '.join(fields[:FIELDS_TOLD])} and {len(fields) - FIELDS_TOLD} more: {problem}"
    return "; ".join(f"{field}: {problem}" for field in fields)


class EgressRejected(InvalidInput):
    """A call may not go where this one leads."""

    def __init__(self, problem: str = "leads where no call may go") -> None:
        super().__init__([FieldError("egress", problem)])


class InvalidHandler(DuecourseError, TypeError):
    """The function cannot work tasks: write a `def` or an `async def` that returns an outcome."""


class InvalidSettings(InvalidInput):
    """Some settings are wrong."""


def _did_you_mean(near: str) -> str:
    return f" Did you mean {near}?" if near else ""


class TaskNotFound(DuecourseError):
    """The queue has no task with this id."""

    code = "task-not-found"

    def __init__(self, id: str = "", queue: str = "", tenant: str = "", what: str = "task", near: str = "") -> None:
        self.id = id
        self.queue = queue
        self.tenant = tenant
        self.near = near
        whose = f" of tenant {tenant}" if tenant.strip("-") else ""  # a caller without a tenant is "-"
        super().__init__(f"Queue {queue} has no {what} {id}{whose}.{_did_you_mean(near)}" if id else None)


class QueueNotFound(DuecourseError):
    """The queue does not exist: nobody has added a task to it or created it."""

    code = "queue-not-found"

    def __init__(
        self, queue: str = "", near: str = "", advice: str = "nobody has added a task to it or created it"
    ) -> None:
        self.queue = queue
        self.near = near
        super().__init__(f"Queue {queue} does not exist: {advice}.{_did_you_mean(near)}" if queue else None)


class QueryNotFound(DuecourseError):
    """The query does not exist: nobody has sent it, or its answer has expired."""

    code = "query-not-found"

    def __init__(self, id: str = "") -> None:
        super().__init__(f"Query {id} does not exist: nobody has sent it, or its answer has expired." if id else None)


class QueryFailed(DuecourseError):
    """The queried API rejected the call or never gave a usable answer; send the query again to start over."""

    code = "query-failed"

    def __init__(self, id: str = "", queue: str = "", detail: str = "") -> None:
        self.id = id
        self.queue = queue
        super().__init__(detail or None)


class Conflict(DuecourseError):
    """The task's state does not allow this."""

    reason = "conflict"


QUOTA_WAIT_MS = 10_000
"""Time after which a rejected request may be sent again where it is not known when there is room."""


class QuotaExceeded(DuecourseError):
    """The tenant has used up a quota: try again after the time in Retry-After, or ask an operator to raise it."""

    code = "quota-exceeded"

    def __init__(self, quota: str = "", wait_ms: int = 0) -> None:
        self.quota = quota
        self.wait_ms = wait_ms or QUOTA_WAIT_MS
        what = f"The tenant has used up its quota {quota}: try again in {self.wait_ms / 1000:g} s"
        super().__init__(f"{what}, or ask an operator to raise it." if quota else None)


class BeyondQuota(InvalidInput):
    """The request needs more than a whole quota of the tenant: send less, or ask an operator to raise the quota."""

    code = "beyond-quota"

    def __init__(self, quota: str = "", *fields: str) -> None:
        self.quota = quota
        problem = f"needs more than the whole quota {quota}: send less, or ask an operator to raise it"
        super().__init__([FieldError(field, problem) for field in fields])


class TaskScheduled(Conflict):
    """The task is already scheduled."""

    code = "task-scheduled"
    reason = "scheduled"


class TaskLeased(Conflict):
    """The task is running: try again after it settles, or use force."""

    code = "task-leased"
    reason = "leased"


class TaskDone(Conflict):
    """The task is already done."""

    code = "task-done"
    reason = "done"


class TaskCancelled(Conflict):
    """The task was cancelled."""

    code = "task-cancelled"
    reason = "cancelled"


class TaskDead(Conflict):
    """The task is dead: replay or delete it."""

    code = "task-dead"
    reason = "dead"


class PastDeadline(Conflict):
    """The new due time is not before the task's `deadline`, so the task would never run. Choose an earlier `due_at`."""

    code = "past-deadline"
    reason = "past_deadline"


class ScheduleExists(Conflict):
    """Another schedule has this id: change it, or delete it first."""

    code = "schedule-exists"


class VersionConflict(Conflict):
    """The schedule or reminder has another version than `if_version`: read it again, then decide."""

    code = "version-conflict"

    def __init__(self, what: str = "schedule") -> None:
        super().__init__(f"The {what} has another version than `if_version`: read it again, then decide.")


class ChangedSince(Conflict):
    """Another request made a change after the first try of this one, which may be done: look, then send a new key."""

    code = "changed-since"
    reason = "changed"


class LeaseLost(Conflict):
    """The lease has lapsed or another request settled the task: this token settles nothing."""

    code = "lease-lost"
    reason = "stale"


class KeyInUse(Conflict):
    """The first request with this Idempotency-Key is still running: try again after the time in Retry-After."""

    code = "key-in-use"
    reason = "under_way"

    def __init__(self, left_ms: int = 1_000) -> None:
        self.left_ms = left_ms
        super().__init__()


class WaitTimedOut(DuecourseError, TimeoutError):
    """The task has not ended within the time."""


class KeyReused(DuecourseError):
    """Another request used this Idempotency-Key: send a new key with each new request."""

    code = "key-reused"


class StoreUnavailable(DuecourseError):
    """The store does not answer."""

    code = "store-unavailable"


class NotPrimary(StoreUnavailable):
    """The store's server is a replica and accepts no writes."""

    code = "not-primary"


class EventsRejected(DuecourseError):
    """The store's server does not allow duecourse to turn key event notifications on."""


class StoreFull(StoreUnavailable):
    """The store is out of memory and accepts no new tasks."""

    code = "store-full"


@dataclass(frozen=True, slots=True)
class Part:
    """One task of a batch that was cut off; if the store has not `added` it, send it again."""

    id: str
    added: bool


class PartlyAdded(StoreUnavailable):
    """The store took only a part of the batch: send the others again."""

    code = "partly-added"

    def __init__(self, parts: Sequence[Part] = ()) -> None:
        self.parts = list(parts)
        super().__init__()


class StoreInUse(StoreUnavailable):
    """Another process has the store open; only one process at a time can."""

    code = "store-in-use"


class StoreMisused(DuecourseError):
    """The store's configuration does not allow this operation."""


class WrongShards(StoreMisused):
    """The queue has another number of shards than the settings say."""


class OtherVersion(StoreMisused):
    """The ledger is of another version than this release."""


class SealUnavailable(StoreUnavailable):
    """The key that seals credentials does not answer."""

    code = "seal-unavailable"


class SealBroken(DuecourseError):
    """The sealed credentials of this task cannot be opened."""

    code = "seal-broken"


class TaskDamaged(DuecourseError):
    """The record of this task is not as duecourse wrote it. Cancel the task: with force, if it runs."""

    code = "task-damaged"


class ResultsUnavailable(DuecourseError):
    """The results table does not answer."""

    code = "results-unavailable"


class InvocationRejected(DuecourseError):
    """Lambda did not accept the invocation."""


class PublishRejected(DuecourseError):
    """The broker did not confirm the messages."""


class MessagesFailed(DuecourseError):
    """Some messages failed: the broker must deliver them again."""


class SendFailed(DuecourseError):
    """The sending service did not accept the message."""


class SendRejected(DuecourseError):
    """The sending service rejects this message for good."""


class TemplatesMissing(DuecourseError):
    """Reminders need Jinja2 and phonenumbers: add the templates layer, or run pip install 'duecourse[templates]'."""


class SecretUnavailable(DuecourseError):
    """A secret that the task's work needs cannot be read: the task waits, and no attempt is spent."""


class WrongSignature(DuecourseError):
    """The request is not signed by a known secret, or was signed too long ago."""


class Crowded(DuecourseError):
    """Long computations of this tenant wait for the processor, so this task runs a little later."""


class HostCrowded(Crowded):
    """This process has as many calls to the same address as it may, so this task runs a little later."""


class CallFailed(DuecourseError):
    """The called address did not answer."""


class CallTimedOut(CallFailed):
    """The called address did not answer before the timeout."""


class CallCutOff(CallFailed):
    """The called address did not answer in the time left; a later call may have more time."""


class ClientClosed(DuecourseError):
    """The client is closed: make another one."""
