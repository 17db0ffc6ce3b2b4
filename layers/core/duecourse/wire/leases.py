"""The requests by which a function in any language ends its lease, extends it, or saves under it."""

import re
from datetime import timedelta
from typing import Annotated, Any, Literal, Self

from pydantic import ConfigDict, Field, StrictStr, model_validator
from typing_extensions import TypedDict

from duecourse.domain.outcomes import Again, Done, Drop, Outcome, Retry
from duecourse.domain.task import MAX_RESULT_BYTES, MAX_STATE_BYTES
from duecourse.domain.times import DAY_MS, format_instant
from duecourse.wire.fields import Duration, Instant, Strict, Told, between, given, json_of, refuse_fields, written_as

TOKEN = re.compile(r"[0-9a-f]{28}")
TOKEN_EXAMPLE = "0000000000070011223344556677"  # noqa: S105 - of a lease, and made up
MAX_TEXT = 10_000
"""How long an error or a reason may be as sent; a task's history keeps the first 400 bytes."""


Token = Annotated[
    StrictStr,
    written_as(TOKEN, "must be the task's lease.token"),
    Field(
        description="The task's `lease.token`, as it was handed over.",
        examples=[TOKEN_EXAMPLE],
    ),
]
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
MORE: dict[OutcomeName, dict[str, Any]] = {
    "again": {"not": given("after", "at")},
    "drop": {"required": ["reason"], "properties": {"reason": {"minLength": 1}}},
}
"""What its schema says of an outcome's fields besides."""


def _with_its_own(outcome: OutcomeName) -> dict[str, Any]:
    more = MORE.get(outcome, {})
    strangers = dict.fromkeys(sorted(set().union(*OWN.values()) - OWN[outcome]), False)
    return {**more, "properties": {"outcome": {"const": outcome}, **strangers, **more.get("properties", {})}}


class SettleTask(Strict):
    """POST /tasks/{id}/settle: an outcome by its name, beside it the fields that this one has."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"token": TOKEN_EXAMPLE, "outcome": "done", "result": {"paid": 42}}],
            "oneOf": [_with_its_own(outcome) for outcome in OWN],
        }
    )

    token: Token
    outcome: OutcomeName = Field(description="How the run ended: each outcome has fields of its own, and no others.")
    result: Result = Field(None, description="`done`: what it came to, at most 64 KiB of JSON.")
    after: Duration | None = Field(
        None, description="`again` and `retry`: how long from now it runs again; `retry` without it: its own backoff."
    )
    at: Instant | None = Field(None, description="`again`: when it runs again; not beside `after`.")
    state: State = Field(None, description="`again` and `retry`: what its next run finds as `state`, at most 4 KiB.")
    error: Text = Field("", description="`retry`: what went wrong.")
    reason: Text = Field("", description="`drop`, required: why it never will work.")

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

    model_config = ConfigDict(json_schema_extra={"examples": [{"token": TOKEN_EXAMPLE, "for": "PT5M"}]})

    token: Token
    time: Annotated[Duration, between(1_000, DAY_MS)] = Field(
        alias="for", description="How long from now the lease is to hold, PT1S to P1D."
    )


class SaveState(Strict):
    """POST /tasks/{id}/save: a checkpoint, which the task's next run finds as its state."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"token": TOKEN_EXAMPLE, "state": {"page": 7}}]})

    token: Token
    state: State = Field(description="What the task's next run finds as `state`, at most 4 KiB of JSON.")


class SettleAnswer(TypedDict):
    """What became of the lease, a value of Settled: `released` where its result could not be kept."""

    settled: Annotated[str, Field(description="done, again, retried, dead or released.", examples=["done"])]


class LeaseAnswer(TypedDict):
    """Until when the lease now holds."""

    expires_at: Annotated[Told, Field(description="When the lease ends, unless it is extended again.")]
