"""Destinations of the records of asynchronous invocations: SQS queues and SNS topics of the emulator."""

from collections.abc import Callable

from botocore.exceptions import BotoCoreError, ClientError

from ..stack.problems import HarnessError
from .emulator import session


def deliverer(aws: str, notice: Callable[[str], None]) -> Callable[[str, str], None]:
    """A function that sends a record (JSON text) to a destination's ARN; `notice` gets its failures."""

    def deliver(destination: str, record: str) -> None:
        try:
            _deliver(aws, destination, record)
        except (BotoCoreError, ClientError, HarnessError) as error:
            notice(f"an invocation record did not reach {destination}: {error}")

    return deliver


def _deliver(aws: str, destination: str, record: str) -> None:
    service, name = destination.split(":")[2], destination.rpartition(":")[2]
    if service == "sqs":
        sqs = session(aws).client("sqs")
        sqs.send_message(QueueUrl=sqs.get_queue_url(QueueName=name)["QueueUrl"], MessageBody=record)
    elif service == "sns":
        session(aws).client("sns").publish(TopicArn=destination, Message=record)
    else:
        raise HarnessError(f"the harness delivers to sqs and sns, not to {service}")
