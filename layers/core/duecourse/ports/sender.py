"""How a message reaches a person."""

from typing import NamedTuple, Protocol


class Message(NamedTuple):
    """An e-mail to one person."""

    to: str
    subject: str
    text: str


class Sender(Protocol):
    """A channel to people."""

    def send(self, message: Message) -> str:
        """Send one message and return the service's id for it. Raises SendFailed."""
