"""What a storm's tasks reach outside: a web server, a queue of SQS's, a queue of RabbitMQ's."""

import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import urllib3

from duecourse.running.task_event import decode_message
from duecourse_local.harness.aws.emulator import SENT, session
from tests.support.http_server import ReceivedRequest, Reply, answering
from tests.support.rabbitmq import rabbit
from tests.whole.storm.book import Book, Received

SQS = "storm"
ASKS = 2
"""Requests of a poll until it is answered."""


@contextmanager
def web(book: Book) -> Iterator[str]:
    """A server for webhooks and polls; the path is `/<queue>/<id>/<version>`, with `/poll` behind it for a poll."""
    asked: Counter[str] = Counter()

    def answer(request: ReceivedRequest) -> Reply:
        _, queue, id, v, *poll = request.path.split("/")
        asked[request.path] += 1
        ready = not poll or asked[request.path] >= ASKS
        if ready:
            book.receive(Received(f"{queue}/{id}", time.time_ns() // 1_000_000, int(v), 0))
        return Reply(200, json.dumps({"ready": ready}).encode(), {"content-type": "application/json"})

    with answering(answer) as server:
        yield server.url


@contextmanager
def sqs(book: Book, aws: str) -> Iterator[None]:
    """The queue `storm` at the emulator, whose messages are read as they come."""
    client = session(aws).client("sqs")
    url = client.create_queue(QueueName=SQS)["QueueUrl"]

    def read() -> bool:
        found: Any = client.receive_message(QueueUrl=url, MaxNumberOfMessages=10).get("Messages", [])
        for message in found:
            _receive(book, message["Body"].encode())
            client.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
        return bool(found)

    with _reading(read):
        yield


@contextmanager
def broker(book: Book, amqp: str, queue: str) -> Iterator[None]:
    """A queue at a RabbitMQ, whose messages are read as they come; it goes with the storm."""
    with ExitStack() as parts:
        client = parts.enter_context(rabbit(amqp, queue))
        client.channel.queue_declare(queue, durable=True)

        def read() -> bool:
            message = client.got()
            if message:
                _receive(book, message.body.encode())
            return message is not None

        with _reading(read):
            yield


def mails(aws: str) -> Counter[str]:
    """How many mails each address got at the emulator."""
    found: Any = urllib3.request("GET", aws + SENT).json()
    return Counter(mail["to"] for mail in found["mails"])


def _receive(book: Book, body: bytes) -> None:
    task = decode_message(body)
    book.receive(Received(f"{task.queue}/{task.id}", time.time_ns() // 1_000_000, task.payload["v"], task.fence))


@contextmanager
def _reading(read: Callable[[], bool]) -> Iterator[None]:
    """A thread that reads until nothing is left at the end."""
    over = threading.Event()

    def go_on() -> None:
        more = True
        while more or not over.is_set():
            more = False
            with suppress(OSError):
                more = read()
            if not more:
                over.wait(0.2)

    reading = threading.Thread(target=go_on, daemon=True)
    reading.start()
    try:
        yield
    finally:
        over.set()
        reading.join(20)
