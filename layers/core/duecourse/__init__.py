"""Delayed, repeated and polled tasks for AWS Lambda, on the Redis a team already runs."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from duecourse.ledger.task import (
    Action,
    Again,
    Change,
    Done,
    Drop,
    DueTask,
    Lost,
    Retry,
    RetryPolicy,
    Run,
    Status,
    Task,
    Trigger,
)

if TYPE_CHECKING:
    from duecourse import errors
    from duecourse.api.problems import Problem, problem_of
    from duecourse.base.times import to_datetime
    from duecourse.client.async_client import AsyncClient, AsyncReminderClient, AsyncScheduleClient
    from duecourse.client.client import (
        AddedSchedule,
        Client,
        Listed,
        ListedDead,
        ListedSchedules,
        Many,
        PurgedSchedules,
        ReminderClient,
        ScheduleClient,
    )
    from duecourse.client.typed_kinds import AsyncKind, Kind
    from duecourse.ledger.api_query import Known, QueryState, QueryStatus
    from duecourse.ledger.many_tasks import DeadGroup, Replayed
    from duecourse.ledger.queue import QueueSettings, QueueStatus, Rate, ShardStatus
    from duecourse.ledger.queue_history import HistoryLine, QueueHistory, QueueNumbers
    from duecourse.ledger.reminder import (
        Channel,
        Made,
        Moved,
        MovedTask,
        Recipient,
        ReminderStatus,
        Series,
        SeriesStatus,
        Shown,
        Standing,
    )
    from duecourse.ledger.schedule import (
        Became,
        Cron,
        Every,
        Fold,
        FormerTime,
        Gap,
        Missed,
        Occurrence,
        Overlap,
        Passed,
        Progress,
        RRule,
        Rule,
        Schedule,
        ScheduleStatus,
        Upcoming,
    )
    from duecourse.ledger.task import AddResult
    from duecourse.ledger.timeline import Happened, Waiting, Why
    from duecourse.task_handlers import extend, save, task_handler

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
    "HistoryLine",
    "Kind",
    "Known",
    "Listed",
    "ListedDead",
    "ListedSchedules",
    "Lost",
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
    "QueueHistory",
    "QueueNumbers",
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
    "duecourse.api.problems": ("Problem", "problem_of"),
    "duecourse.base.times": ("to_datetime",),
    "duecourse.client.async_client": ("AsyncClient", "AsyncReminderClient", "AsyncScheduleClient"),
    "duecourse.client.client": (
        "AddedSchedule",
        "Client",
        "Listed",
        "ListedDead",
        "ListedSchedules",
        "Many",
        "PurgedSchedules",
        "ReminderClient",
        "ScheduleClient",
    ),
    "duecourse.client.typed_kinds": ("AsyncKind", "Kind"),
    "duecourse.task_handlers": ("extend", "save", "task_handler"),
    "duecourse.ledger.many_tasks": ("DeadGroup", "Replayed"),
    "duecourse.ledger.api_query": ("Known", "QueryState", "QueryStatus"),
    "duecourse.ledger.queue": ("QueueSettings", "QueueStatus", "Rate", "ShardStatus"),
    "duecourse.ledger.queue_history": ("HistoryLine", "QueueHistory", "QueueNumbers"),
    "duecourse.ledger.reminder": (
        "Channel",
        "Made",
        "Moved",
        "MovedTask",
        "Recipient",
        "ReminderStatus",
        "Series",
        "SeriesStatus",
        "Shown",
        "Standing",
    ),
    "duecourse.ledger.schedule": (
        "Became",
        "Cron",
        "Every",
        "Fold",
        "FormerTime",
        "Gap",
        "Missed",
        "Occurrence",
        "Overlap",
        "Passed",
        "Progress",
        "RRule",
        "Rule",
        "Schedule",
        "ScheduleStatus",
        "Upcoming",
    ),
    "duecourse.ledger.task": ("AddResult",),
    "duecourse.ledger.timeline": ("Happened", "Waiting", "Why"),
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
