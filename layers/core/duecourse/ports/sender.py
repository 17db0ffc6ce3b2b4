"""Contract of sending a message to a person, by one channel."""

from typing import NamedTuple, Protocol


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
