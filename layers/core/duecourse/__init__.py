"""Delayed, repeated and polled tasks for AWS Lambda, on the Redis a team already runs."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from duecourse.domain.history import Action, Change, Run, Trigger
from duecourse.domain.outcomes import Again, Done, Drop, Retry
from duecourse.domain.task import DueTask, RetryPolicy, Status, Task

if TYPE_CHECKING:
    from duecourse import errors
    from duecourse.async_client import AsyncClient, AsyncReminderClient, AsyncScheduleClient
    from duecourse.client import Client, Listed, ListedDead, Many
    from duecourse.client_reminders import ReminderClient
    from duecourse.client_schedules import AddedSchedule, ListedSchedules, PurgedSchedules, ScheduleClient
    from duecourse.domain.dead import DeadGroup
    from duecourse.domain.order import AddResult
    from duecourse.domain.query import Known, QueryState, QueryStatus
    from duecourse.domain.queues import QueueSettings, QueueStatus, Rate, ShardStatus
    from duecourse.domain.reminder import Channel, Recipient
    from duecourse.domain.reminder_status import Made, Moved, MovedTask, ReminderStatus, Shown
    from duecourse.domain.replay import Replayed
    from duecourse.domain.schedule import (
        Became,
        Cron,
        Every,
        Fold,
        FormerTime,
        Gap,
        Missed,
        Occurrence,
        Overlap,
        Progress,
        RRule,
        Rule,
        Schedule,
    )
    from duecourse.domain.schedule_status import Passed, ScheduleStatus, Upcoming
    from duecourse.domain.series import Series, SeriesStatus, Standing
    from duecourse.domain.timeline import Happened, Waiting, Why
    from duecourse.domain.times import to_datetime
    from duecourse.handler import extend, save, task_handler
    from duecourse.typed import AsyncKind, Kind
    from duecourse.wire.http.problems import Problem, problem_of

__version__ = "0.2.0"
__all__ = [
    "Action",
    "AddResult",
    "AddedSchedule",
    "Again",
    "AsyncClient",
    "AsyncKind",
    "AsyncReminderClient",
    "AsyncScheduleClient",
    "Became",
    "Change",
    "Channel",
    "Client",
    "Cron",
    "DeadGroup",
    "Done",
    "Drop",
    "DueTask",
    "Every",
    "Fold",
    "FormerTime",
    "Gap",
    "Happened",
    "Kind",
    "Known",
    "Listed",
    "ListedDead",
    "ListedSchedules",
    "Made",
    "Many",
    "Missed",
    "Moved",
    "MovedTask",
    "Occurrence",
    "Overlap",
    "Passed",
    "Problem",
    "Progress",
    "PurgedSchedules",
    "QueryState",
    "QueryStatus",
    "QueueSettings",
    "QueueStatus",
    "RRule",
    "Rate",
    "Recipient",
    "ReminderClient",
    "ReminderStatus",
    "Replayed",
    "Retry",
    "RetryPolicy",
    "Rule",
    "Run",
    "Schedule",
    "ScheduleClient",
    "ScheduleStatus",
    "Series",
    "SeriesStatus",
    "ShardStatus",
    "Shown",
    "Standing",
    "Status",
    "Task",
    "Trigger",
    "Upcoming",
    "Waiting",
    "Why",
    "errors",
    "extend",
    "problem_of",
    "save",
    "task_handler",
    "to_datetime",
]

_LATER = {
    "duecourse.async_client": ("AsyncClient", "AsyncReminderClient", "AsyncScheduleClient"),
    "duecourse.client": ("Client", "Listed", "ListedDead", "Many"),
    "duecourse.client_reminders": ("ReminderClient",),
    "duecourse.client_schedules": ("AddedSchedule", "ListedSchedules", "PurgedSchedules", "ScheduleClient"),
    "duecourse.domain.dead": ("DeadGroup",),
    "duecourse.domain.order": ("AddResult",),
    "duecourse.domain.query": ("Known", "QueryState", "QueryStatus"),
    "duecourse.domain.queues": ("QueueSettings", "QueueStatus", "Rate", "ShardStatus"),
    "duecourse.domain.reminder": ("Channel", "Recipient"),
    "duecourse.domain.reminder_status": ("Made", "Moved", "MovedTask", "ReminderStatus", "Shown"),
    "duecourse.domain.replay": ("Replayed",),
    "duecourse.domain.schedule": (
        "Became",
        "Cron",
        "Every",
        "Fold",
        "FormerTime",
        "Gap",
        "Missed",
        "Occurrence",
        "Overlap",
        "Progress",
        "RRule",
        "Rule",
        "Schedule",
    ),
    "duecourse.domain.schedule_status": ("Passed", "ScheduleStatus", "Upcoming"),
    "duecourse.domain.series": ("Series", "SeriesStatus", "Standing"),
    "duecourse.domain.timeline": ("Happened", "Waiting", "Why"),
    "duecourse.domain.times": ("to_datetime",),
    "duecourse.handler": ("extend", "save", "task_handler"),
    "duecourse.typed": ("AsyncKind", "Kind"),
    "duecourse.wire.http.problems": ("Problem", "problem_of"),
}
"""Names of each module that is imported at the first use of one: what a function does not need delays no start."""


def __getattr__(name: str) -> Any:
    """The name, imported now. Raises AttributeError for an unknown one."""
    for module, names in _LATER.items():
        if name in names:
            return getattr(import_module(module), name)
    raise AttributeError(f"module 'duecourse' has no attribute {name!r}")


def __dir__() -> list[str]:
    """The public names, imported or not."""
    return sorted({*globals(), *__all__})
