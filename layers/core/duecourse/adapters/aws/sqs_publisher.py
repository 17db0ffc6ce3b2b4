"""SQS as a broker that tasks are handed to."""

import hashlib
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from duecourse.adapters.aws.clients import LazyClient
from duecourse.domain.batches import cut
from duecourse.errors import PublishRejected
from duecourse.ports.publisher import Message

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient
    from mypy_boto3_sqs.type_defs import SendMessageBatchRequestEntryTypeDef

KEY = "idempotency_key"
"""The message attribute that carries a message's id."""
MAX_ENTRIES = 10
MAX_BATCH_BYTES = 256 * 1024
"""SQS takes 1 MiB a request since August 2025; queues with a limit of their own and emulators still take this."""
ATTRIBUTE_BYTES = 200
"""Size of a message besides its body, in bytes."""
WAITS_S = (0.1, 0.4)
"""Before what failed in a batch is sent again."""


class SqsPublisher:
    """A Publisher by SQS; a queue is a name of this account and region, or a URL.

    In a FIFO queue each message is its own group, and its source and id keep SQS from taking it twice within five
    minutes.
    """

    def __init__(self, client: "SQSClient | None" = None) -> None:
        self._client = client or LazyClient("sqs", attempts=2, read_timeout_s=5.0)
        self._urls: dict[str, str] = {}

    def publish(self, queue: str, messages: Sequence[Message]) -> list[str]:
        """Put messages into `queue`; answers for each why SQS did not take it, "" where it did.

        Raises PublishRejected where SQS does not answer or knows no such queue.
        """
        from botocore.exceptions import BotoCoreError, ClientError

        problems: dict[str, str] = {}
        try:
            for batch in cut(messages, _size, most=MAX_ENTRIES, max_bytes=MAX_BATCH_BYTES):
                self._send_all(queue, batch, problems)
        except (BotoCoreError, ClientError, ValueError) as error:
            if not problems:
                raise PublishRejected(f"SQS did not take them: {error}") from error
            return [problems.get(message.id, f"SQS did not take it: {error}") for message in messages]
        return [problems[message.id] for message in messages]

    def _send_all(self, queue: str, batch: Sequence[Message], problems: dict[str, str]) -> None:
        """Record each message's problem by its id; messages at which SQS failed by its own fault are sent again.

        If a later call raises, `problems` already has the messages confirmed before it.
        """
        for wait in (0.0, *WAITS_S):
            if batch:
                time.sleep(wait)
                batch = self._send(queue, batch, problems)

    def _send(self, queue: str, batch: Sequence[Message], problems: dict[str, str]) -> list[Message]:
        entries = [_entry(n, message, fifo=queue.endswith(".fifo")) for n, message in enumerate(batch)]
        answer = self._client.send_message_batch(QueueUrl=self._url(queue), Entries=entries)
        taken = {entry["Id"] for entry in answer.get("Successful", ())}
        failed = {entry["Id"]: entry for entry in answer.get("Failed", ())}
        again = []
        for n, message in enumerate(batch):
            failure = failed.get(str(n))
            problem = f"{failure['Code']}: {failure.get('Message', '')}" if failure else "SQS did not tell of it"
            problems[message.id] = "" if str(n) in taken else problem
            if failure and not failure["SenderFault"]:
                again.append(message)
        return again

    def _url(self, queue: str) -> str:
        if queue.startswith(("https://", "http://")):
            return queue
        if queue not in self._urls:
            self._urls[queue] = self._client.get_queue_url(QueueName=queue)["QueueUrl"]
        return self._urls[queue]


def _entry(number: int, message: Message, *, fifo: bool) -> "SendMessageBatchRequestEntryTypeDef":
    entry: SendMessageBatchRequestEntryTypeDef = {
        "Id": str(number),
        "MessageBody": message.body,
        "MessageAttributes": {KEY: {"DataType": "String", "StringValue": message.id}},
    }
    if fifo:
        # A hash, for SQS takes 128 characters; of the source too, or another queue's task would be a repetition.
        once = hashlib.sha256(f"{message.source}/{message.id}".encode()).hexdigest()
        entry |= {"MessageGroupId": once, "MessageDeduplicationId": once}
    return entry


def _size(message: Message) -> int:
    return len(message.body) + ATTRIBUTE_BYTES
