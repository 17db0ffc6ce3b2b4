"""Contract of publishing due tasks to a broker, which then owns them."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol


class Message(NamedTuple):
    """A task for a queue: its idempotency key as the message's id, its body as JSON text of ASCII characters.

    `source` is the queue and tenant that the task is of: other sources may have the same id.
    """

    id: str
    body: str
    source: str = ""


class Publisher(Protocol):
    """A broker."""

    def publish(self, queue: str, messages: Sequence[Message]) -> list[str]:
        """Put messages into `queue`; answers for each why it was not confirmed, "" where the broker has it for good.

        One that was not confirmed may be there all the same. Raises PublishRejected where none was confirmed.
        """
