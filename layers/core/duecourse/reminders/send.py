"""The kind `reminder`: a message to one person, by one channel; Protocols of sending and of writing.

Who sends by a channel is a Sender in `services/`. How to add one is in the docstring of Channel (`ledger/reminder.py`).
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import NamedTuple, Protocol, TypeAlias

from duecourse.base.json_text import Json, dump_json
from duecourse.base.times import format_duration, format_instant
from duecourse.errors import InvalidInput, SendFailed, SendRejected
from duecourse.ledger.reminder import Channel
from duecourse.ledger.task import DEFAULT_TENANT, Done, Drop, Outcome, Retry, Task
from duecourse.tasks.kinds import NumberPolicy

# Length of an SMS, and the number of parts in which it is sent and billed.

MAX_LENGTH = 1_600
"""The most characters that SNS takes."""

# GSM 03.38: its 7-bit alphabet, and what takes two of its places.
_GSM = frozenset(
    "@£$¥èéùìòÇ\nØø\rÅåΔ_ΦΓΛΩΠΨΣΘΞÆæßÉ !\"#¤%&'()*+,-./0123456789:;<=>?¡ABCDEFGHIJKLMNOPQRSTUVWXYZÄÖÑÜ§¿"
    "abcdefghijklmnopqrstuvwxyzäöñüà"
)
_GSM_TWO = frozenset("^{}\\[~]|€")


def sms_parts(text: str) -> int:
    """Number of parts of `text`: 160 GSM characters in one or 153 in each of several, 70 and 67 with any other.

    A character of two places is not split between parts.
    """
    if _GSM.union(_GSM_TWO).issuperset(text):
        widths, alone, each = [1 + (character in _GSM_TWO) for character in text], 160, 153
    else:
        widths, alone, each = [1 + (character > "\uffff") for character in text], 70, 67
    return 1 if sum(widths) <= alone else _filled(widths, each)


def _filled(widths: Iterable[int], room: int) -> int:
    parts, left = 1, room
    for width in widths:
        if width > left:
            parts, left = parts + 1, room
        left -= width
    return parts


# Sending a message to a person, by one channel.


class Message(NamedTuple):
    """Message to one person: a subject of one line, a text, and the same as HTML ("" for none).

    `to` is an address of the channel; a channel leaves out what it cannot carry.
    """

    to: str
    subject: str
    text: str
    html: str = ""


class Sender(Protocol):
    """A channel to people."""

    def send(self, message: Message) -> str:
        """Send one message and return the service's id for it.

        Raises SendRejected where the service will never take it, SendFailed where it may at another time.
        """


# Rendering a reminder's templates for each recipient.


class Letter(NamedTuple):
    """Input of one message: the payload of a reminder's task, the start (epoch ms), and the tenant."""

    payload: Json
    starts_at: int
    tenant: str = DEFAULT_TENANT


Write: TypeAlias = Callable[[Iterable[Letter]], list[Message]]
"""`TemplateWriter.write` (`reminders/writer.py`): Jinja2 is loaded at its first call.

Raises InvalidInput for the first letter that cannot be written.
"""


# The kind `reminder`.

CONTENT_ID = "content"
"""Field of a payload whose templates and data an earlier version kept in a task of their own."""
FORMER_CONTENT = (
    "an earlier version kept its templates and data apart: export this ledger, and import it into an empty one"
)


class ReminderKind:
    """Writes and sends the payload of a task that `Reminder.tasks` made; its state is {starts_at}.

    By e-mail or phone: Done({"message_id": …}) once the service took it, Retry where it may take it later. By webhook:
    the outcome of `webhook`. Drop where the start (epoch ms) has passed, where the templates can no longer be rendered,
    and where the service will never take the message.
    """

    def __init__(
        self,
        senders: Mapping[str, Sender],
        webhook: Callable[[Task], Outcome | None],
        write: Write,
        number_policy: NumberPolicy,
        clock_now: Callable[[], int],
    ) -> None:
        self._senders = senders
        self._webhook = webhook
        self._write = write
        self._number_policy = number_policy
        self._now = clock_now

    def __call__(self, task: Task) -> Outcome | None:
        """Send one reminder to one recipient."""
        starts_at = task.state["starts_at"]
        if starts_at <= self._now():
            return Drop(f"the meeting began at {format_instant(starts_at)}")
        if CONTENT_ID in task.payload:
            return Drop(FORMER_CONTENT)
        try:
            [message] = self._write([Letter(task.payload, starts_at, task.tenant)])
            return self._send(task, message)
        except (InvalidInput, SendRejected) as error:
            return Drop(str(error))
        except SendFailed as error:
            return Retry(error=str(error))

    def _send(self, task: Task, message: Message) -> Outcome | None:
        payload = task.payload
        channel = payload["recipient"]["channel"]
        if channel == Channel.WEBHOOK:
            body, auth = webhook_body(payload, task.state["starts_at"], message), payload["recipient"].get("auth")
            delivery = {"url": message.to, "body": body, **({"auth": auth} if auth else {})}
            # Next: `Webhook.__call__` (calls/webhook.py).
            return self._webhook(replace(task, payload_json=dump_json(delivery)))
        if channel == Channel.PHONE and (problem := self._number_policy(message.to)):
            return Drop(f"{message.to} {problem}")  # the rule may be younger than the reminder
        return Done({"message_id": self._senders[channel].send(message)})


def webhook_body(payload: Json, starts_at: int, message: Message) -> dict[str, object]:
    """Body of a reminder's webhook."""
    body = {
        "type": "reminder",
        "reminder": payload["reminder"],
        "subject": message.subject,
        "text": message.text,
        "html": message.html,
        "starts_at": format_instant(starts_at),
        "remind_before": format_duration(payload["lead_ms"]),
        "recipient": {"name": payload["recipient"]["name"]},
        "data": payload["data"],
    }
    return body if message.html else {name: value for name, value in body.items() if name != "html"}
