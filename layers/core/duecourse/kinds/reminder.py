"""The kind `reminder`: tells one person, by one channel, that something is about to begin."""

from collections.abc import Callable, Mapping

from duecourse.domain.outcomes import Done, Drop, Outcome, Retry
from duecourse.domain.reminder import Channel
from duecourse.domain.task import Task, dump_json
from duecourse.domain.times import format_duration, format_instant
from duecourse.errors import InvalidInput, SendFailed, SendRejected
from duecourse.ports.sender import Message, Sender
from duecourse.ports.writer import Letter, Writer


class ReminderKind:
    """Writes and sends the payload that `domain.reminder.Reminder` makes, for state {starts_at}.

    By e-mail or phone: Done({"message_id": …}) once the service took it, Retry where it may take it later. By webhook:
    the outcome of `webhook`. Drop where the start (epoch ms) has passed, where the templates can no longer be rendered,
    and where the service will never take the message.
    """

    def __init__(
        self,
        senders: Mapping[str, Sender],
        webhook: Callable[[Task], Outcome | None],
        write: Writer,
        clock_now: Callable[[], int],
    ) -> None:
        self._senders = senders
        self._webhook = webhook
        self._write = write
        self._now = clock_now

    def __call__(self, task: Task) -> Outcome | None:
        """Send one reminder to one recipient."""
        starts_at = task.state["starts_at"]
        if starts_at <= self._now():
            return Drop(f"the meeting began at {format_instant(starts_at)}")
        try:
            [message] = self._write([Letter(task.payload, starts_at)])
            return self._send(task, message)
        except (InvalidInput, SendRejected) as error:
            return Drop(str(error))
        except SendFailed as error:
            return Retry(error=str(error))

    def _send(self, task: Task, message: Message) -> Outcome | None:
        channel = task.payload["recipient"]["channel"]
        if channel == Channel.WEBHOOK:
            delivery = {"url": message.to, "body": posted(task, message)}
            return self._webhook(task._replace(payload_json=dump_json(delivery)))
        return Done({"message_id": self._senders[channel].send(message)})


def posted(task: Task, message: Message) -> dict[str, object]:
    """Body of a reminder's webhook."""
    payload = task.payload
    body = {
        "type": "reminder",
        "reminder": payload["reminder"],
        "subject": message.subject,
        "text": message.text,
        "html": message.html,
        "starts_at": format_instant(task.state["starts_at"]),
        "remind_before": format_duration(payload["lead_ms"]),
        "recipient": {"name": payload["recipient"]["name"]},
        "data": payload["data"],
    }
    return body if message.html else {name: value for name, value in body.items() if name != "html"}
