"""The requests by which a function in any language ends its lease, extends it, or saves under it."""

import re
from datetime import timedelta
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, StrictStr, model_validator
from typing_extensions import TypedDict

from duecourse.domain.outcomes import Again, Done, Drop, Outcome, Retry
from duecourse.domain.task import MAX_RESULT_BYTES, MAX_STATE_BYTES
from duecourse.domain.times import format_instant
from duecourse.wire.fields import Duration, Instant, Strict, between, json_of, refuse_fields

TOKEN = re.compile(r"[0-9]{1,15}\.[0-9a-f]{16}")
MAX_TEXT = 10_000
"""How long an error or a reason may be as sent; a task's history keeps the first 400 bytes."""


def _token(value: str) -> str:
    if not TOKEN.fullmatch(value):
        raise ValueError("must be the task's lease.token")
    return value


Token = Annotated[StrictStr, AfterValidator(_token)]
State = Annotated[Any, json_of(MAX_STATE_BYTES)]
Result = Annotated[Any, json_of(MAX_RESULT_BYTES)]
Text = Annotated[StrictStr, Field(max_length=MAX_TEXT)]
OutcomeName = Literal["done", "again", "retry", "drop"]
OWN: dict[OutcomeName, set[str]] = {
    "done": {"result"},
    "again": {"after", "at", "state"},
    "retry": {"after", "state", "error"},
    "drop": {"reason"},
}
"""The fields that each outcome may have."""


class SettleTask(Strict):
    """POST /tasks/{id}/settle: an outcome by its name, beside it the fields that this one has."""

    token: Token
    outcome: OutcomeName
    result: Result = None
    after: Duration | None = None
    at: Instant | None = None
    state: State = None
    error: Text = ""
    reason: Text = ""

    @model_validator(mode="after")
    def _its_own_fields(self) -> Self:
        strangers = self.model_fields_set - {"token", "outcome", *OWN[self.outcome]}
        if strangers:
            raise refuse_fields(f"does not belong to the outcome {self.outcome}", *sorted(strangers))
        if self.outcome == "drop" and not self.reason:
            raise refuse_fields("is required: why the task never will work", "reason")
        if self.after is not None and self.at is not None:
            raise refuse_fields("give after or at, not both", "after", "at")
        return self

    def value(self) -> Outcome:
        """The outcome, as a function in Python returns it."""
        after = None if self.after is None else timedelta(milliseconds=self.after)
        match self.outcome:
            case "done":
                return Done(self.result)
            case "again":
                return Again(after, None if self.at is None else format_instant(self.at), self.state)
            case "retry":
                return Retry(after, self.state, self.error)
            case "drop":
                return Drop(self.reason)


class ExtendLease(Strict):
    """POST /tasks/{id}/extend: how long from now the lease is to hold."""

    token: Token
    time: Annotated[Duration, between(1_000, 86_400_000)] = Field(alias="for")


class SaveState(Strict):
    """POST /tasks/{id}/save: a checkpoint, which the task's next run finds as its state."""

    token: Token
    state: State


class SettleAnswer(TypedDict):
    """What became of the lease, a value of Settled: `released` where its result could not be kept."""

    settled: str


class LeaseAnswer(TypedDict):
    """Until when the lease now holds."""

    expires_at: str
