"""Messages that are new tasks: each body is that of POST /tasks."""

from duecourse.domain.order import Order
from duecourse.errors import FieldError, InvalidInput
from duecourse.wire.events.messages import Received
from duecourse.wire.http.body import parse_body
from duecourse.wire.http.fields import read
from duecourse.wire.http.tasks import AddTask


def read_order(message: Received) -> Order:
    """The task that a message asks for. Raises DuecourseError where it cannot be read."""
    body = parse_body(_text(message.body))
    if "id" in body:
        return Order(read(AddTask, body).task(), once=False)
    if not message.id:
        problem = "is required in a message that has no message id: else one delivered twice would be two tasks"
        raise InvalidInput([FieldError("id", problem)])
    return Order(read(AddTask, body | {"id": message.id}).task(), once=True)


def _text(body: bytes) -> str:
    try:
        return body.decode()
    except UnicodeDecodeError:
        raise InvalidInput([FieldError("body", "must be UTF-8 text")]) from None
