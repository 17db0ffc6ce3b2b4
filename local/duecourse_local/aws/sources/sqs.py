"""Feeds a function from an SQS queue of the emulator: receive, invoke, delete what worked."""

import asyncio
import json
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from ..emulator import session
from ..functions import Functions
from ..invocation import Invocation, LambdaError
from .described import Source
from .events import failed_items, fitting, sqs_event, sqs_record

LOOK_EVERY_S = 0.2
"""Time between two looks at an empty queue: moto's own long poll would block a thread that Ctrl-C has to wait for."""
AWAY_S = 1.0
MOST_AT_ONCE = 10

Message = dict[str, Any]


class SqsFeed:
    """One queue and the function that reads it. What failed comes back when the queue's visibility timeout is over."""

    def __init__(
        self, source: Source, function: str, functions: Functions, aws: str, notice: Callable[[str], None]
    ) -> None:
        self._source = source
        self._function = function
        self._functions = functions
        self._notice = notice
        self._client = session(aws).client("sqs")
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

    async def _collect(self) -> list[Message]:
        """Messages, until the batch is full, or its window is over that the first of them opened."""
        batch: list[Message] = []
        until = float("inf")
        while len(batch) < self._source.batch_size and time.monotonic() < until:
            found = await self._receive(min(MOST_AT_ONCE, self._source.batch_size - len(batch)))
            if found and not batch:
                until = time.monotonic() + self._source.window_s
            batch += found
            if not found:
                await asyncio.sleep(LOOK_EVERY_S)
        return batch

    async def _receive(self, count: int) -> list[Message]:
        answer = await asyncio.to_thread(
            self._client.receive_message,
            QueueUrl=self._url,
            MaxNumberOfMessages=count,
            MessageAttributeNames=["All"],
            AttributeNames=["All"],
        )
        found: list[Message] = answer.get("Messages", [])
        return found

    async def _work(self, batch: Sequence[Message]) -> None:
        for piece in fitting(batch, partial(sqs_record, self._source)):
            await self._work_piece(piece)

    async def _work_piece(self, batch: Sequence[Message]) -> None:
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

    def _delete(self, messages: Sequence[Message]) -> None:
        entries = [{"Id": str(n), "ReceiptHandle": each["ReceiptHandle"]} for n, each in enumerate(messages)]
        self._client.delete_message_batch(QueueUrl=self._url, Entries=entries)
