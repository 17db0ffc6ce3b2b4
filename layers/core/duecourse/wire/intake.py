"""Messages that are new tasks: each body is that of POST /tasks."""

from collections.abc import Mapping
from typing import NamedTuple

from duecourse.domain.order import Order
from duecourse.domain.task import Json
from duecourse.errors import DuecourseError, FieldError, InvalidInput
from duecourse.wire.body import parse_body
from duecourse.wire.fields import read
from duecourse.wire.messages import Batch, Received, read_batch
from duecourse.wire.tasks import AddTask


class Orders(NamedTuple):
    """Tasks of an event's messages, and the errors of unreadable ones, by the messages' names."""

    batch: Batch
    wanted: Mapping[str, Order]
    refused: Mapping[str, str]


def read_orders(event: Json) -> Orders:
    """The tasks that a broker's event asks for. Raises InvalidInput where it is another's."""
    batch = read_batch(event)
    if batch is None:
        raise InvalidInput([FieldError("event", "must be an event of SQS, or of Amazon MQ for RabbitMQ")])
    wanted, refused = {}, {}
    for message in batch.messages:
        try:
            wanted[message.name] = _order(message)
        except DuecourseError as error:
            refused[message.name] = str(error)
        except UnicodeDecodeError:
            refused[message.name] = "body: must be UTF-8 text"
    return Orders(batch, wanted, refused)


def _order(message: Received) -> Order:
    body = parse_body(message.body.decode())
    if "id" in body:
        return Order(read(AddTask, body).task(), once=False)
    if not message.id:
        problem = "is required in a message that has no message id: else one delivered twice would be two tasks"
        raise InvalidInput([FieldError("id", problem)])
    return Order(read(AddTask, body | {"id": message.id}).task(), once=True)
