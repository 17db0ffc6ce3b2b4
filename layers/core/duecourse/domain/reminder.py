"""Reminder: a start, lead times and recipients; and the tasks that it becomes."""

from enum import StrEnum
from typing import NamedTuple

from duecourse.domain.task import Json, NewTask, OnDuplicate, Status, Task, dump_json

QUEUE = "reminders"
KIND = "reminder"
MAX_TASKS = 1_000
"""The most messages of one reminder: all are moved in one step."""
UTC = "UTC"


class Channel(StrEnum):
    """Channel of a message; a recipient's field of that name holds the address."""

    EMAIL = "email"
    PHONE = "phone"
    WEBHOOK = "webhook"


class Recipient(NamedTuple):
    """Recipient of one message, by one channel.

    `address` is an e-mail address, a phone number (E.164) or a URL; `time_zone` is the IANA name in which times are
    shown.
    """

    name: str
    channel: Channel
    address: str
    time_zone: str = UTC


class Reminder(NamedTuple):
    """A reminder as asked for: `starts_at` in epoch ms, `leads_ms` how long before it each message goes out.

    `subject`, `message` and `html` are templates; "" for what is not given. `data` is for them to speak of.
    """

    id: str
    subject: str
    starts_at: int
    leads_ms: tuple[int, ...]
    recipients: tuple[Recipient, ...]
    message: str = ""
    html: str = ""
    data: Json = None

    def tasks(self, now: int) -> list[NewTask]:
        """One task a lead time and recipient; one whose time has passed is due at once."""
        return [self._task(lead, index, now) for lead in self.leads_ms for index in range(len(self.recipients))]

    def _task(self, lead_ms: int, index: int, now: int) -> NewTask:
        payload = {
            "reminder": self.id,
            "subject": self.subject,
            "message": self.message,
            "html": self.html,
            "data": self.data or {},
            "recipient": self.recipients[index]._asdict(),
            "lead_ms": lead_ms,
        }
        return NewTask(
            id=f"{self.id}:{_short(lead_ms)}:{index}",
            kind=KIND,
            payload=dump_json(payload),
            queue=QUEUE,
            group=self.id,
            state=starting(self.starts_at),
            due_at=due(self.starts_at, lead_ms, now),
            on_duplicate=OnDuplicate.REPLACE,
            by=KIND,
        )


class Made(NamedTuple):
    """Result of an add: `created`, and each task's id and due time (epoch ms)."""

    created: bool
    tasks: list[tuple[str, int]]


class MovedTask(NamedTuple):
    """One task that was moved: its new due time (epoch ms), and its state before."""

    id: str
    due_at: int
    was: Status


class Moved(NamedTuple):
    """Result of a move: the tasks moved, the ids that were leased, and the ids sent for the old start."""

    id: str
    starts_at: int
    tasks: list[MovedTask]
    leased: list[str]
    sent: list[str]


class Shown(NamedTuple):
    """One message as its recipient reads it, and when it is due (epoch ms); `html` is "" for none."""

    id: str
    due_at: int
    lead_ms: int
    recipient: Recipient
    subject: str
    text: str
    html: str


class ReminderStatus(NamedTuple):
    """A reminder as the ledger has it, with at least one task."""

    id: str
    starts_at: int
    tasks: list[Task]


def due(starts_at: int, lead_ms: int, now: int) -> int:
    """Due time of the message `lead_ms` before the start: now, if that has passed."""
    return max(starts_at - lead_ms, now)


def starting(starts_at: int) -> str:
    """The state that a reminder's task carries: JSON text; the start may change, the payload never does."""
    return dump_json({"starts_at": starts_at})


def _short(lead_ms: int) -> str:
    return f"{lead_ms}ms" if lead_ms % 1000 else str(lead_ms // 1000)
