"""Requests of a worker that settles by itself."""

from datetime import timedelta
from typing import Annotated, Any, Literal, Self

from pydantic import ConfigDict, Field, StrictStr, model_validator
from typing_extensions import TypedDict

from duecourse.api.fields import (
    Duration,
    Instant,
    ShownInstant,
    Strict,
    about,
    between,
    json_of,
    matching,
    reject_fields,
    requires,
)
from duecourse.base.times import DAY_MS, format_instant
from duecourse.ledger.task import MAX_RESULT_BYTES, MAX_STATE_BYTES, Again, Done, Drop, Outcome, Retry

TOKEN_EXAMPLE = "0000000000070011223344556677"  # noqa: S105 - of a lease, and made up
MAX_TEXT = 10_000
"""Maximum length of an error or a reason as sent; a task's history keeps the first 400 bytes."""


Token = Annotated[
    StrictStr,
    matching("[0-9a-f]{28}", "must be the task's lease.token"),
    about(
        "Token of the lease: `lease.token` of the task in the event, or `token` in the answer of `begin`.",
        TOKEN_EXAMPLE,
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
    "again": {"not": requires("after", "at")},
    "drop": {"required": ["reason"], "properties": {"reason": {"minLength": 1}}},
}
"""Schema of the fields of each outcome."""


def _with_its_own(outcome: OutcomeName) -> dict[str, Any]:
    more = MORE.get(outcome, {})
    unknown = dict.fromkeys(sorted(set().union(*OWN.values()) - OWN[outcome]), False)
    return {**more, "properties": {"outcome": {"const": outcome}, **unknown, **more.get("properties", {})}}


class BeginTask(Strict):
    """Body of `POST /tasks/{id}/begin`: the delivery of a task that was handed over."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"token": TOKEN_EXAMPLE, "for": "PT30S"}]})

    token: Token
    time: Annotated[Duration, between(1_000, DAY_MS)] | None = Field(
        None, alias="for", description="Length of the lease of the run, PT1S to P1D; default DUECOURSE_LEASE."
    )
    worker: Annotated[StrictStr, Field(max_length=128)] = Field(
        "",
        description="Text of your own that names this worker. The same token and worker again get the same answer: "
        "send both again where a reply was lost.",
    )
    invocation: Annotated[StrictStr, Field(max_length=128)] = Field(
        "",
        description="Request id of the Lambda invocation that works the task (`context.awsRequestId`). The failure "
        "record of another invocation with the same event then does not end this run.",
    )


class SettleTask(Strict):
    """Body of `POST /tasks/{id}/settle`: an outcome, with the fields that belong to it."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"token": TOKEN_EXAMPLE, "outcome": "done", "result": {"paid": 42}}],
            "oneOf": [_with_its_own(outcome) for outcome in OWN],
        }
    )

    token: Token
    outcome: OutcomeName = Field(description="Outcome of the run. Each outcome allows its own fields only.")
    result: Result = Field(None, description="Result, for `done`; at most 64 KiB of JSON.")
    after: Duration | None = Field(
        None,
        description="Delay until the next run, for `again` and `retry`. Default for `retry`: the backoff of the task.",
    )
    at: Instant | None = Field(None, description="Time of the next run, for `again`. Give `after` or `at`, not both.")
    state: State = Field(
        None,
        description="Checkpoint that the next run finds as `state`, for `again` and `retry`; at most 4 KiB of JSON.",
    )
    error: Text = Field("", description="Error, for `retry`.")
    reason: Text = Field("", description="Reason why the task can never succeed; required for `drop`.")

    @model_validator(mode="after")
    def _its_own_fields(self) -> Self:
        unknown = self.model_fields_set - {"token", "outcome", *OWN[self.outcome]}
        if unknown:
            raise reject_fields(f"does not belong to the outcome {self.outcome}", *sorted(unknown))
        if self.outcome == "drop" and not self.reason:
            raise reject_fields("is required: the reason why the task can never succeed", "reason")
        if self.after is not None and self.at is not None:
            raise reject_fields("give after or at, not both", "after", "at")
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
    """Body of `POST /tasks/{id}/extend`: the new length of the lease, counted from now."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"token": TOKEN_EXAMPLE, "for": "PT5M"}]})

    token: Token
    time: Annotated[Duration, between(1_000, DAY_MS)] = Field(
        alias="for", description="New length of the lease, counted from now; PT1S to P1D."
    )


class SaveState(Strict):
    """Body of `POST /tasks/{id}/save`: a checkpoint, which the next run finds as its state."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"token": TOKEN_EXAMPLE, "state": {"page": 7}}]})

    token: Token
    state: State = Field(description="Checkpoint that the next run finds as `state`; at most 4 KiB of JSON.")


class BeginAnswer(TypedDict):
    """Lease of the run: extend, save and settle the task with its token from now on."""

    token: Annotated[str, about("Token of the run's lease.", TOKEN_EXAMPLE)]
    expires_at: Annotated[ShownInstant, about("End of the lease, unless it is extended.")]
    run: Annotated[int, about("Number of this run of the task, from 1.", 1)]
    attempt: Annotated[int, about("Current attempt: 1 plus the failures since the last `again`.", 1)]


class SettleAnswer(TypedDict):
    """Effect of the outcome: `released` if the result could not be stored, so that the task runs again."""

    settled: Annotated[str, about("Effect of the outcome: done, again, retried, dead or released.", "done")]


class LeaseAnswer(TypedDict):
    """New end of the lease."""

    expires_at: Annotated[ShownInstant, about("End of the lease, unless it is extended again.")]
