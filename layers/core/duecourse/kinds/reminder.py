"""The kind `reminder`: tells one person, by one channel, that something is about to begin."""

from collections.abc import Callable, Mapping

from duecourse.domain.content import named_by
from duecourse.domain.outcomes import Done, Drop, Outcome, Retry
from duecourse.domain.reminder import Channel
from duecourse.domain.task import Json, Task, dump_json
from duecourse.domain.times import format_duration, format_instant
from duecourse.domain.values import replaced
from duecourse.errors import InvalidInput, SendFailed, SendRejected
from duecourse.ports.sender import Message, Sender
from duecourse.ports.writer import Letter, Writer

NO_CONTENT = "the ledger has no templates and data of this reminder any more: add the reminder again"


class ReminderKind:
    """Writes and sends the payload that `domain.reminder.Reminder` makes, for state {starts_at}.

    The payload has its content (engine/contents.py). `dial` answers why no SMS may go to a number, or "".

    By e-mail or phone: Done({"message_id": …}) once the service took it, Retry where it may take it later. By webhook:
    the outcome of `webhook`. Drop where the start (epoch ms) has passed, where the templates can no longer be rendered,
    and where the service will never take the message.
    """

    def __init__(
        self,
        senders: Mapping[str, Sender],
        webhook: Callable[[Task], Outcome | None],
        write: Writer,
        dial: Callable[[str], str],
        clock_now: Callable[[], int],
    ) -> None:
        self._senders = senders
        self._webhook = webhook
        self._write = write
        self._dial = dial
        self._now = clock_now

    def __call__(self, task: Task) -> Outcome | None:
        """Send one reminder to one recipient."""
        starts_at = task.state["starts_at"]
        if starts_at <= self._now():
            return Drop(f"the meeting began at {format_instant(starts_at)}")
        if named_by(task.payload):
            return Retry(error=NO_CONTENT)
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
            body, auth = posted(payload, task.state["starts_at"], message), payload["recipient"].get("auth")
            delivery = {"url": message.to, "body": body, **({"auth": auth} if auth else {})}
            return self._webhook(replaced(task, payload_json=dump_json(delivery)))
        if channel == Channel.PHONE and (problem := self._dial(message.to)):
            return Drop(f"{message.to} {problem}")  # the rule may be younger than the reminder
        return Done({"message_id": self._senders[channel].send(message)})


def posted(payload: Json, starts_at: int, message: Message) -> dict[str, object]:
    """Body of a reminder's webhook; `payload` is whole."""
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
