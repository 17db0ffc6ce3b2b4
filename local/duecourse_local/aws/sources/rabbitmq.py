"""Feeds a function from a queue of RabbitMQ: consume, invoke, acknowledge what worked, requeue what failed."""

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any

from pika import BlockingConnection, URLParameters
from pika.exceptions import AMQPError, ChannelClosedByBroker

from ...stack.problems import HarnessError
from ..invocation import Answer, LambdaError
from .described import Source
from .events import Delivery, Event, fitting, rabbitmq_event, rabbitmq_message

LOOK_EVERY_S = 0.1
AWAY_S = 1.0
"""Before a broker that was lost is dialled again, and before a batch that failed is delivered again."""
NOT_FOUND, THROTTLED = 404, 429

Invoke = Callable[[Event], Coroutine[Any, Any, Answer]]


class RabbitMqFeed:
    """One queue and the function that reads it, one batch at a time, as Lambda does with Amazon MQ.

    `invoke(event)` runs in the event loop that made the feed; the connection belongs to a thread of its own.
    """

    def __init__(self, source: Source, url: str, invoke: Invoke, notice: Callable[[str], None]) -> None:
        self._source = source
        self._parameters = _parameters(url)
        if source.virtual_host:
            self._parameters.virtual_host = source.virtual_host
        self._invoke = invoke
        self._notice = notice
        self._loop = asyncio.get_running_loop()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._feed, name=f"feed-{source.queue}", daemon=True)

    async def keep(self) -> None:
        """Feed until cancelled; the batch at hand then goes back to its queue."""
        self._thread.start()
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            self._stopping.set()
            await asyncio.to_thread(self._thread.join)

    def _feed(self) -> None:
        try:
            self._go_on()
        finally:
            if not self._stopping.is_set():
                self._notice(f"RabbitMQ's queue {self._source.queue} is not fed from any more: see the error above")

    def _go_on(self) -> None:
        noticed = False
        while not self._stopping.is_set():
            try:
                with BlockingConnection(self._parameters) as connection:
                    noticed = False
                    self._consume(connection)
            except (AMQPError, OSError) as error:
                if not noticed:
                    self._notice(f"RabbitMQ's queue {self._source.queue} is not fed from: {error!r}")
                noticed = True
                self._stopping.wait(AWAY_S)

    def _consume(self, connection: BlockingConnection) -> None:
        channel = self._declared(connection)
        channel.basic_qos(prefetch_count=self._source.batch_size)
        batch: list[Delivery] = []
        until = 0.0
        for method, properties, body in channel.consume(self._source.queue, inactivity_timeout=LOOK_EVERY_S):
            if self._stopping.is_set():
                return
            if method is not None:
                until = until if batch else time.monotonic() + self._source.window_s
                batch.append(Delivery(properties, body, method.redelivered, method.delivery_tag))
            if batch and (len(batch) == self._source.batch_size or time.monotonic() >= until):
                for piece in fitting(batch, rabbitmq_message):
                    self._work(connection, channel, piece)
                batch = []

    def _declared(self, connection: BlockingConnection) -> Any:
        """A channel on which the queue exists: unchanged if it did, else durable."""
        channel: Any = connection.channel()
        try:
            channel.queue_declare(self._source.queue, passive=True)
        except ChannelClosedByBroker as closed:
            if closed.reply_code != NOT_FOUND:
                raise
            channel = connection.channel()
            channel.queue_declare(self._source.queue, durable=True)
        return channel

    def _work(self, connection: BlockingConnection, channel: Any, batch: list[Delivery]) -> None:
        event = rabbitmq_event(self._source, self._parameters.virtual_host, batch)
        answering = asyncio.run_coroutine_threadsafe(self._invoke(event), self._loop)
        while not answering.done() and not self._stopping.is_set():
            connection.process_data_events(time_limit=LOOK_EVERY_S / 10)  # heartbeats go on meanwhile
        if not answering.done():
            answering.cancel()
            return
        if self._worked(answering):
            channel.basic_ack(batch[-1].tag, multiple=True)
            return
        self._stopping.wait(AWAY_S)
        channel.basic_nack(batch[-1].tag, multiple=True, requeue=True)

    def _worked(self, answering: Any) -> bool:
        try:
            return answering.result().error is None
        except LambdaError as refused:
            if refused.status != THROTTLED:
                self._notice(f"a message of RabbitMQ's queue {self._source.queue} cannot be delivered: {refused}")
            return False


def _parameters(url: str) -> URLParameters:
    try:
        return URLParameters(url)
    except (ValueError, TypeError, SyntaxError, OSError) as error:  # pika reads ssl_options as Python, and its files
        raise HarnessError(f"--amqp or DUECOURSE_AMQP is not an AMQP URL: {error}") from error
