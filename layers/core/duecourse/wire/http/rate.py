"""So many tasks in each time, as requests say it."""

from typing import Annotated

from pydantic import Field

from duecourse.domain.queues import MAX_LIMIT
from duecourse.domain.times import DAY_MS
from duecourse.wire.http.fields import Duration, Strict, between

Count = Annotated[int, Field(ge=1, le=MAX_LIMIT, strict=True)]


class Rate(Strict):
    """Rate: at most `count` tasks in any window of the length `per`."""

    count: Count = Field(description="Maximum number of tasks in the window.", examples=[5])
    per: Annotated[Duration, between(100, DAY_MS)] = Field(
        description="Length of the sliding window, PT0.1S to PT24H.", examples=["PT1S"]
    )
