"""The decorator that makes a function of one's own work tasks."""

from collections.abc import Callable
from functools import wraps
from typing import Any

from duecourse import wiring
from duecourse.domain.outcomes import Outcome
from duecourse.domain.task import Json, Task
from duecourse.wire.invocation import decode_tasks


def task_handler(function: Callable[[Task], Outcome | None]) -> Callable[[Json, Any], dict[str, int]]:
    """Make `function` a Lambda handler for the engine's invocations: `lambda:<its name>` in DUECOURSE_TARGETS.

    The function gets one Task and returns Done, Again, Retry or Drop; None is Done, an exception a Retry. The tasks of
    one invocation run beside each other, each under its lease, which is settled here. The handler answers how many
    tasks ended how, and raises InvalidInput for an event that is not the engine's.
    """

    @wraps(function)
    def handler(event: Json, context: Any) -> dict[str, int]:
        return wiring.worker(function).work(decode_tasks(event), context.get_remaining_time_in_millis)

    return handler
