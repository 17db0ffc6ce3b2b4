"""Answers of the verbs on reminders: what was made and moved, each message as it is read, and a reminder's status."""

from duecourse.domain.reminder import Recipient
from duecourse.domain.series import SeriesStatus
from duecourse.domain.task import DueTask, Json, Status, Task
from duecourse.domain.values import brief, value


@value(frozen=True, slots=True, repr=False)
class Made:
    """Result of an add: `created`, and the tasks; none of a `series`, whose occurrences are added in their time."""

    created: bool
    tasks: list[DueTask]
    series: SeriesStatus | None = None

    def __repr__(self) -> str:
        return brief(self, "created", "tasks")


@value(frozen=True, slots=True)
class MovedTask:
    """One task that was moved: its new due time (epoch ms), and its state before."""

    id: str
    due_at: int
    was: Status


@value(frozen=True, slots=True, repr=False)
class Moved:
    """Result of a move: the tasks moved, the ids that were leased, and the ids sent for the old start.

    Of a `series` that was changed, `starts_at` is the next start, and no task is named.
    """

    id: str
    starts_at: int
    tasks: list[MovedTask]
    leased: list[str]
    sent: list[str]
    series: SeriesStatus | None = None

    def __repr__(self) -> str:
        return brief(self, "id", "starts_at", "tasks", "leased", "sent")


@value(frozen=True, slots=True, repr=False)
class Shown:
    """One message as its recipient reads it, and when it is due (epoch ms); `html` is "" for none."""

    id: str
    due_at: int
    lead_ms: int
    recipient: Recipient
    subject: str
    text: str
    html: str

    def __repr__(self) -> str:
        return brief(self, "id", "due_at", "recipient")


@value(frozen=True, slots=True, repr=False)
class ReminderStatus:
    """A reminder as the ledger has it, with at least one task, and the content of its newest one.

    Of a `series`, `starts_at` is the next start, and there is no task.
    """

    id: str
    starts_at: int
    tasks: list[Task]
    content: dict[str, Json]
    series: SeriesStatus | None = None

    def __repr__(self) -> str:
        return brief(self, "id", "starts_at", "tasks")
