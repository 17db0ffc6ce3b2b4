"""Retry policy of a task, as in requests."""

from typing import Annotated, Self

from pydantic import Field, StrictBool, model_validator

from duecourse.domain.task import RetryPolicy
from duecourse.domain.times import DAY_MS
from duecourse.wire.http.fields import Duration, Strict, between, refuse_fields

MAX_BACKOFF_MS = 49 * DAY_MS
"""A task's record has 32 bits for it."""
Backoff = Annotated[Duration, between(0, MAX_BACKOFF_MS)]


class Retry(Strict):
    """Attempts and backoff of a failing task."""

    max_attempts: int = Field(
        10,
        ge=1,
        le=1_000,
        strict=True,
        description="Maximum attempts, 1 to 1,000; a failure on the last one makes the task dead.",
    )
    backoff: Backoff = Field("PT1S", validate_default=True, description="Delay after the first failure; at most P49D.")
    factor: float = Field(
        2.0,
        ge=1,
        le=100,
        allow_inf_nan=False,
        strict=True,
        description="Multiplier applied to the delay after each failure, 1 to 100.",
    )
    max_backoff: Backoff = Field("PT1H", validate_default=True, description="Upper bound for the delay; at most P49D.")
    jitter: StrictBool = Field(
        True, description="Randomise the delay (full jitter) so that clients do not retry in step."
    )

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.max_backoff < self.backoff:
            raise refuse_fields("must not be below backoff", "max_backoff")
        return self

    def policy(self) -> RetryPolicy:
        """The same in the domain's words."""
        return RetryPolicy(self.max_attempts, self.backoff, self.factor, self.max_backoff, self.jitter)
