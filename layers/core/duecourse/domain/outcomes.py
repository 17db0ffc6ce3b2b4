"""Outcomes of a run: the values that a handler returns, and the settlement that the ledger takes."""

from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, NamedTuple, Self, TypeAlias

from duecourse.domain.task import Json, Task
from duecourse.domain.values import value

Span: TypeAlias = int | float | str | timedelta
"""A duration: seconds, a text such as `5m` or ISO 8601, or a timedelta."""


@value(frozen=True, slots=True)
class Done:
    """The work is finished; `result` (JSON, at most 64 KiB) is kept."""

    result: Json = None


@value(frozen=True, slots=True)
class Again:
    """Not yet: run the task again `after` a duration or `at` an instant; no attempt is spent.

    The next run begins 100 ms later at the earliest, so that a handler cannot spin. `task.state` is then `state` (JSON,
    at most 4 KiB); None keeps the state that the task had.
    """

    after: Span | None = None
    at: datetime | str | None = None
    state: Json = None


@value(frozen=True, slots=True)
class Retry:
    """The run failed and may succeed later: an attempt is spent. Without `after`, the task's own backoff applies."""

    after: Span | None = None
    state: Json = None
    error: str = ""


@value(frozen=True, slots=True)
class Drop:
    """The run failed for good: the task is dead, with the reason."""

    reason: str


Outcome: TypeAlias = Done | Again | Retry | Drop


class Ending(StrEnum):
    """Endings that a settlement can ask for."""

    DONE = "done"
    AGAIN = "again"
    RETRY = "retry"
    DROP = "drop"
    RELEASE = "release"
    UNDELIVERED = "undelivered"
    """The function had no room for the event, or did not get to this task, which goes back. Stale once it is begun."""


class Settlement(NamedTuple):
    """The end of one lease, under its token.

    `due_at` is used where given, else `delay_ms` after the server's now (again, retry, release).
    `state` is JSON text, None to leave it. `detail` is the error or reason; `result` the JSON text of Done's result.
    `late_ms` is the time from the due time to the first line of the handler; -1 if nothing ran, or if a begin has
    counted it. `waited_ms` is the part of that time after the claim.
    """

    id: str
    tenant: str
    token: str
    ending: Ending
    delay_ms: int = 0
    due_at: int | None = None
    state: str | None = None
    detail: str = ""
    result: str = ""
    late_ms: int = -1
    waited_ms: int = 0

    def with_lateness(self, task: Task, waited_ms: int) -> Self:
        """This end with the lateness of its run, whose handler began `waited_ms` after the claim."""
        # A lease that is given back began no run; a function counts the begin of a task that was handed over.
        if self.ending is Ending.RELEASE or task.target:
            return self
        return self._replace(late_ms=max(0, task.claimed_at - task.due_at + waited_ms), waited_ms=waited_ms)

    @classmethod
    def of(cls, task: Task, ending: Ending, **rest: Any) -> Self:
        """The end of this task's lease; `rest` are the other fields."""
        return cls(task.id, task.tenant, task.token, ending, **rest)
