"""Reminder: a start, lead times and recipients; and the tasks that it becomes."""

from enum import StrEnum
from typing import NamedTuple

from duecourse.domain.content import NAME, Digest, hash_of, is_worth_sharing, plain_digest, task_of
from duecourse.domain.task import DEFAULT_TENANT, Json, NewTask, OnDuplicate, Task, dump_json
from duecourse.domain.times import MAX_INSTANT
from duecourse.domain.values import as_dict, brief, value
from duecourse.errors import TaskDamaged

QUEUE = "reminders"
KIND = "reminder"
MAX_TASKS = 1_000
"""The most messages of one reminder: all are moved in one step."""
UTC = "UTC"
TEXTS = ("subject", "message", "html")
"""Fields of a content that are templates."""


class Channel(StrEnum):
    """Channel of a message; a recipient's field of that name holds the address."""

    EMAIL = "email"
    PHONE = "phone"
    WEBHOOK = "webhook"


@value(frozen=True, slots=True, repr=False)
class Recipient:
    """Recipient of one message, by one channel.

    `address` is an e-mail address, a phone number (E.164) or a URL; `time_zone` is the IANA name in which times are
    shown. `auth` names the credential of a URL, "" for none.
    """

    name: str
    channel: Channel
    address: str
    time_zone: str = UTC
    auth: str = ""

    def __repr__(self) -> str:
        return brief(self, "name", "channel", "time_zone")

    def fields(self) -> dict[str, str]:
        """The same as a payload keeps it."""
        given = as_dict(self)
        return given if self.auth else {name: value for name, value in given.items() if name != "auth"}


class Reminder(NamedTuple):
    """A reminder as asked for: `starts_at` in epoch ms, `leads_ms` how long before it each message goes out.

    `subject`, `message` and `html` are templates; "" for what is not given. `data` is for them to speak of. `fields`
    names each recipient's field in the request, for errors. `digest` names the content.
    """

    id: str
    subject: str
    starts_at: int
    leads_ms: tuple[int, ...]
    recipients: tuple[Recipient, ...]
    message: str = ""
    html: str = ""
    data: Json = None
    fields: tuple[str, ...] = ()
    digest: Digest = plain_digest

    @property
    def content(self) -> dict[str, Json]:
        """Templates and data, the same for each message."""
        return {"subject": self.subject, "message": self.message, "html": self.html, "data": self.data or {}}

    def content_task(self, tenant: str = DEFAULT_TENANT, by: str = KIND) -> NewTask | None:
        """The task that holds the content for all messages; None if each holds its own."""
        if not is_worth_sharing(self.content, len(self.leads_ms) * len(self.recipients)):
            return None
        return task_of(self.id, hash_of(self.content, self.digest), self.content, QUEUE, tenant, by)

    def tasks(self, now: int, tenant: str = DEFAULT_TENANT, by: str = KIND) -> list[NewTask]:
        """One task a lead time and recipient; one whose time has passed is due at once."""
        messages = [(lead, index) for lead in self.leads_ms for index in range(len(self.recipients))]
        shared = is_worth_sharing(self.content, len(messages))
        held = {NAME: hash_of(self.content, self.digest)} if shared else self.content
        return [self._task(held, lead, index, now)._replace(tenant=tenant, by=by) for lead, index in messages]

    def _task(self, held: dict[str, Json], lead_ms: int, index: int, now: int) -> NewTask:
        recipient = self.recipients[index].fields()
        payload = {"reminder": self.id, **held, "recipient": recipient, "lead_ms": lead_ms}
        return NewTask(
            id=f"{self.id}:{_short(lead_ms)}:{index}",
            kind=KIND,
            payload=dump_json(payload),
            queue=QUEUE,
            group=self.id,
            state=starting(self.starts_at),
            due_at=due(self.starts_at, lead_ms, now),
            on_duplicate=OnDuplicate.REPLACE,
        )


def is_sound(message: Task) -> bool:
    """True if a message is as duecourse writes it: another program may have put anything in its place."""
    try:
        payload, state = message.payload, message.state
        Recipient(**payload["recipient"])
        texts = [*payload["recipient"].values(), *([payload[NAME]] if NAME in payload else map(payload.get, TEXTS))]
        numbers = payload["lead_ms"], state["starts_at"]
        Channel(payload["recipient"]["channel"])
    except (TaskDamaged, TypeError, LookupError, ValueError):
        return False
    is_whole = NAME in payload or isinstance(payload.get("data"), dict)
    is_shown = all(isinstance(number, int) and 0 <= number <= MAX_INSTANT for number in numbers)
    return is_whole and is_shown and all(isinstance(text, str) for text in texts)


def due(starts_at: int, lead_ms: int, now: int) -> int:
    """Due time of the message `lead_ms` before the start: now, if that has passed."""
    return max(starts_at - lead_ms, now)


def starting(starts_at: int) -> str:
    """The state that a reminder's task carries: JSON text; the start may change, the payload never does."""
    return dump_json({"starts_at": starts_at})


def _short(lead_ms: int) -> str:
    return f"{lead_ms}ms" if lead_ms % 1000 else str(lead_ms // 1000)
