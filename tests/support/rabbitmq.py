"""A RabbitMQ to test on: the one that runs here, for queues of a test's own, and nodes that a test may stop."""

import secrets
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import pika

from duecourse_local.errors import HarnessError
from duecourse_local.harness.rabbitmq_server import executable
from tests.support.needs import missing

URL = "amqp://guest:guest@127.0.0.1:5672/"


def need() -> str:
    """The URL of the broker that runs here; without one a laptop skips the test, and CI fails it."""
    try:
        socket.create_connection(("127.0.0.1", 5672), timeout=1).close()
    except OSError:
        missing("no RabbitMQ answers at 127.0.0.1:5672")
    return URL


def need_server() -> None:
    """See that a node can be started here; without the server a laptop skips the test, and CI fails it."""
    try:
        executable()
    except HarnessError as error:
        missing(str(error))


class Got(NamedTuple):
    """A message as a consumer finds it."""

    body: str
    id: str
    persistent: bool
    redelivered: bool
    tag: int


class Rabbit:
    """A client of a broker with queues of its own, which go with it."""

    def __init__(self, url: str, queue: str = "") -> None:
        self.url = url
        self.queue = queue or a_queue()
        self._connection = pika.BlockingConnection(pika.URLParameters(url))
        self.channel: Any = self._connection.channel()

    def got(self, queue: str = "", *, ack: bool = True) -> Got | None:
        """The next message of the queue, None for none."""
        method, properties, body = self.channel.basic_get(queue or self.queue, auto_ack=ack)
        if method is None:
            return None
        persistent = properties.delivery_mode == 2
        return Got(body.decode(), properties.message_id, persistent, method.redelivered, method.delivery_tag)

    def put(self, body: str, queue: str = "", **properties: Any) -> None:
        """Put one message into the queue."""
        self.channel.basic_publish("", queue or self.queue, body.encode(), pika.BasicProperties(**properties))

    def count(self, queue: str = "") -> int:
        """How many messages wait."""
        counted: int = self.channel.queue_declare(queue or self.queue, passive=True).method.message_count
        return counted

    def close(self) -> None:
        """Delete the queue and go."""
        with self._connection as connection:
            connection.channel().queue_delete(self.queue)  # one of its own: a test may have had the other closed


def a_queue() -> str:
    """A name that nobody else has."""
    return f"duecourse-test-{secrets.token_hex(6)}"


@contextmanager
def rabbit(url: str, queue: str = "") -> Iterator[Rabbit]:
    """A client for the while."""
    client = Rabbit(url, queue)
    try:
        yield client
    finally:
        client.close()
