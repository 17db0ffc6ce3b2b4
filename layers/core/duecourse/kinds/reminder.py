"""The kind `reminder`: tells one person by e-mail that something is about to begin."""

import re
from collections.abc import Callable

from duecourse.domain.outcomes import Done, Drop, Outcome, Retry
from duecourse.domain.task import Task
from duecourse.domain.times import format_instant
from duecourse.errors import SendFailed
from duecourse.ports.sender import Message, Sender

# A line break in a header would begin a header of the sender's own.
_BREAKS = re.compile(r"[\x00-\x20\x7f\x85\u2028\u2029]+")


class ReminderKind:
    """Sends payload {reminder, subject, message, recipient: {name, email}, lead_ms} for state {starts_at}.

    Done({"message_id": …}) once the service took it; Drop where the start (epoch ms) has come already; Retry where the
    service did not take it.
    """

    def __init__(self, sender: Sender, clock_now: Callable[[], int]) -> None:
        self._sender = sender
        self._now = clock_now

    def __call__(self, task: Task) -> Outcome:
        """Send one reminder to one recipient."""
        starts_at = task.state["starts_at"]
        if starts_at <= self._now():
            return Drop(f"the meeting began at {readable(starts_at)}")
        try:
            return Done({"message_id": self._sender.send(render(task))})
        except SendFailed as error:
            return Retry(error=str(error))


def render(task: Task) -> Message:
    """The e-mail for a reminder task."""
    payload = task.payload
    name, subject = _line(payload["recipient"]["name"]), _line(payload["subject"])
    parts = [f"Hello {name}," if name else "Hello,", f"{subject} begins at {readable(task.state['starts_at'])}."]
    text = "\n\n".join([*parts, *filter(None, [(payload.get("message") or "").strip()])])
    return Message(_line(payload["recipient"]["email"]), f"Reminder: {subject}", text + "\n")


def readable(at: int) -> str:
    """An instant for people: `2026-03-29 01:30:00 UTC`."""
    return f"{format_instant(at)[:19].replace('T', ' ')} UTC"


def _line(value: str | None) -> str:
    return _BREAKS.sub(" ", value or "").strip()
