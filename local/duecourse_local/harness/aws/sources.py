"""Event sources: queues of SQS and RabbitMQ whose messages the harness feeds to functions."""

import asyncio
import json
import threading
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError
from pika import BlockingConnection, URLParameters
from pika.exceptions import AMQPError, ChannelClosedByBroker

from ...errors import HarnessError
from ..template import RABBITMQ, Function, Source
from .emulator import session
from .functions import Functions
from .invocation import Answer, Invocation, LambdaError
from .queue_events import (
    Delivery,
    Event,
    failed_items,
    fitting,
    rabbitmq_event,
    rabbitmq_message,
    sqs_event,
    sqs_record,
)

RABBITMQ_LOOK_EVERY_S = 0.1
AWAY_S = 1.0
"""Pause before a queue that was lost is asked again, and before a batch that failed is delivered again."""
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
        for method, properties, body in channel.consume(self._source.queue, inactivity_timeout=RABBITMQ_LOOK_EVERY_S):
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
            connection.process_data_events(time_limit=RABBITMQ_LOOK_EVERY_S / 10)  # heartbeats go on meanwhile
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


LONG_POLL_S = 1
"""Longest time that one look at a queue waits for a message, in whole seconds; the end of the stack waits for it."""
SQS_LOOK_EVERY_S = 0.1
"""Time between two looks in the last second of a batch's window."""
MOST_AT_ONCE = 10

SqsMessage = dict[str, Any]


class SqsFeed:
    """One queue and the function that reads it. What failed comes back when the queue's visibility timeout is over."""

    def __init__(
        self, source: Source, function: str, functions: Functions, aws: str, notice: Callable[[str], None]
    ) -> None:
        self._source = source
        self._function = function
        self._functions = functions
        self._notice = notice
        # No tries of botocore's own: a stack that ends would wait for them, after its emulator has ended.
        self._client = session(aws).client("sqs", config=Config(retries={"total_max_attempts": 1}))
        self._url = ""
        self._free = asyncio.Semaphore(min(source.concurrency, functions.find(function).function.concurrency) or 1)
        self._underway: set[asyncio.Task[None]] = set()

    async def keep(self) -> None:
        """Feed until cancelled."""
        noticed = False
        try:
            while True:
                try:
                    await self._feed()
                    noticed = False
                except (BotoCoreError, ClientError) as error:
                    if not noticed:
                        self._notice(f"{self._function} is not fed from {self._source.queue}: {error}")
                    noticed = True
                    await asyncio.sleep(AWAY_S)
        finally:
            for task in self._underway:
                task.cancel()
            await asyncio.gather(*self._underway, return_exceptions=True)
            self._client.close()

    async def _feed(self) -> None:
        """Collect one batch and have it worked, once one of the pollers is free."""
        if not self._url:
            answer = await asyncio.to_thread(self._client.get_queue_url, QueueName=self._source.queue)
            self._url = answer["QueueUrl"]
        await self._free.acquire()
        try:
            batch = await self._collect()
        except BaseException:
            self._free.release()
            raise
        task = asyncio.create_task(self._work(batch))
        self._underway.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._underway.discard(task)
        self._free.release()
        if not task.cancelled() and task.exception():
            self._notice(f"messages of {self._source.queue} were not deleted: {task.exception()}")

    async def _collect(self) -> list[SqsMessage]:
        """Messages, until the batch is full, or its window is over that the first of them opened."""
        batch: list[SqsMessage] = []
        until = float("inf")
        while len(batch) < self._source.batch_size and time.monotonic() < until:
            wait_s = int(min(LONG_POLL_S, until - time.monotonic()))
            found = await self._receive(min(MOST_AT_ONCE, self._source.batch_size - len(batch)), wait_s)
            if found and not batch:
                until = time.monotonic() + self._source.window_s
            batch += found
            if not (found or wait_s):
                await asyncio.sleep(SQS_LOOK_EVERY_S)
        return batch

    async def _receive(self, count: int, wait_s: int) -> list[SqsMessage]:
        answer = await asyncio.to_thread(
            self._client.receive_message,
            QueueUrl=self._url,
            MaxNumberOfMessages=count,
            WaitTimeSeconds=wait_s,
            MessageAttributeNames=["All"],
            AttributeNames=["All"],
        )
        found: list[SqsMessage] = answer.get("Messages", [])
        return found

    async def _work(self, batch: Sequence[SqsMessage]) -> None:
        for piece in fitting(batch, partial(sqs_record, self._source)):
            await self._work_piece(piece)

    async def _work_piece(self, batch: Sequence[SqsMessage]) -> None:
        event = json.dumps(sqs_event(self._source, batch)).encode()
        try:
            answer = await self._functions.invoke(self._function, Invocation(event))
        except LambdaError:
            return  # throttled: they come back
        ids = [message["MessageId"] for message in batch]
        failed = set(ids) if answer.error else failed_items(answer.payload, ids) if self._source.partial else set()
        worked = [message for message in batch if message["MessageId"] not in failed]
        for first in range(0, len(worked), MOST_AT_ONCE):
            await asyncio.to_thread(self._delete, worked[first : first + MOST_AT_ONCE])

    def _delete(self, messages: Sequence[SqsMessage]) -> None:
        entries = [{"Id": str(n), "ReceiptHandle": each["ReceiptHandle"]} for n, each in enumerate(messages)]
        self._client.delete_message_batch(QueueUrl=self._url, Entries=entries)


class Feeds:
    """The sources of all functions; `amqp` is the address of RabbitMQ, "" where there is none."""

    def __init__(
        self,
        described: Iterable[Function],
        functions: Functions,
        aws: str,
        amqp: str,
        notice: Callable[[str], None],
    ) -> None:
        self._all = [(function.name, source) for function in described for source in function.sources]
        self._functions = functions
        self._aws = aws
        self._amqp = amqp
        self._notice = notice

    @property
    def described(self) -> str:
        """Queue and function of each feed, for people; "" for none."""
        return "  ".join(f"{source.queue} → {function}" for function, source in self._fed_sources())

    def duties(self) -> list[Coroutine[Any, Any, None]]:
        """Coroutines that feed each source until cancelled; `notice` gets the sources that cannot be fed."""
        for function, source in self._all:
            if not self._can_feed(source):
                self._notice(
                    f"{function} is not fed from RabbitMQ's queue {source.queue}: give --amqp, or set DUECOURSE_AMQP"
                )
        return [self._duty(function, source) for function, source in self._fed_sources()]

    def _fed_sources(self) -> Iterator[tuple[str, Source]]:
        return ((function, source) for function, source in self._all if self._can_feed(source))

    def _can_feed(self, source: Source) -> bool:
        return source.kind != RABBITMQ or bool(self._amqp)

    def _duty(self, function: str, source: Source) -> Coroutine[Any, Any, None]:
        if source.kind == RABBITMQ:
            return RabbitMqFeed(source, self._amqp, partial(self._invoke, function), self._notice).keep()
        return SqsFeed(source, function, self._functions, self._aws, self._notice).keep()

    async def _invoke(self, function: str, event: Event) -> Answer:
        return await self._functions.invoke(function, Invocation(json.dumps(event).encode()))
