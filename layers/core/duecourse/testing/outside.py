"""The world outside a product under test: messages and calls are kept, and answers are as the test sets them."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from types import MappingProxyType
from typing import NamedTuple

from duecourse.domain.task import Json
from duecourse.errors import CallFailed
from duecourse.ports.http import HttpAnswer, HttpRequest
from duecourse.ports.publisher import Message as Published
from duecourse.ports.sender import Message
from duecourse.webhooks import ID, SIGNATURE

Now = Callable[[], datetime]
NO_ANSWER = "no answer is set for it: set one by duecourse.answers({url!r}, json=…)"


@dataclass(frozen=True, slots=True)
class Email:
    """An e-mail that was sent; `html` is "" where there is none."""

    to: str
    subject: str
    text: str
    html: str
    at: datetime


@dataclass(frozen=True, slots=True)
class Sms:
    """An SMS that was sent."""

    to: str
    text: str
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A call to the web: its request, and the status of its answer, 0 where none came.

    `auth` is the name of the credential that it would carry, "" for none.
    """

    method: str
    url: str
    headers: Mapping[str, str]
    body: bytes
    auth: str
    status: int
    at: datetime

    @property
    def json(self) -> Json:
        """Body of the request, decoded."""
        return json.loads(self.body)

    @property
    def signature(self) -> str:
        """The header `webhook-signature`, "" where the call has none."""
        return self.headers.get(SIGNATURE, "")


@dataclass(frozen=True, slots=True)
class QueueMessage:
    """A task that was handed to a queue of SQS or RabbitMQ, as its message."""

    queue: str
    body: Json
    at: datetime


@dataclass(slots=True)
class Sent:
    """Everything that left the product, oldest first."""

    emails: list[Email] = field(default_factory=list)
    sms: list[Sms] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    messages: list[QueueMessage] = field(default_factory=list)

    @property
    def webhooks(self) -> list[Call]:
        """Calls that are webhooks: deliveries, completion notifications and reminders, without polls and queries."""
        return [call for call in self.calls if ID in call.headers]

    def clear(self) -> None:
        """Forget all of it."""
        for kept in (self.emails, self.sms, self.calls, self.messages):
            kept.clear()


class Reply(NamedTuple):
    """Answer that a test sets for a URL; `error` in place of one."""

    status: int = 200
    headers: Mapping[str, str] = MappingProxyType({})
    body: bytes = b""
    error: str = ""


class Web:
    """An HttpCaller that calls nobody: it keeps each request, and answers as set for the URL.

    Of several answers for a URL each is given once, in order, and the last for good. Without one, a GET fails, since it
    wants an answer, and any other call is answered 200 with no body.
    """

    def __init__(self, sent: Sent, now: Now) -> None:
        self._sent, self._now = sent, now
        self._replies: dict[str, list[Reply]] = {}

    def set(self, url: str, reply: Reply) -> None:
        """Answer calls to this URL so, after the answers that are set for it already."""
        self._replies.setdefault(url, []).append(reply)

    def call(self, request: HttpRequest) -> HttpAnswer:
        """See HttpCaller."""
        reply = self._reply(request)
        self._sent.calls.append(
            Call(
                method=request.method,
                url=request.url,
                headers=dict(request.headers),
                body=request.body or b"",
                auth=request.auth.name if request.auth else "",
                status=0 if reply.error else reply.status,
                at=self._now(),
            )
        )
        if reply.error:
            raise CallFailed(f"{request.label} failed: {reply.error}")
        whole = len(reply.body) <= request.max_bytes
        return HttpAnswer(reply.status, reply.headers, reply.body[: request.max_bytes], whole)

    def _reply(self, request: HttpRequest) -> Reply:
        replies = self._replies.get(request.url)
        if replies is None:
            return Reply(error=NO_ANSWER.format(url=request.url)) if request.method == "GET" else Reply()
        return replies.pop(0) if len(replies) > 1 else replies[0]


class EmailSender:
    """A Sender that keeps e-mails."""

    def __init__(self, sent: Sent, now: Now) -> None:
        self._sent, self._now = sent, now

    def send(self, message: Message) -> str:
        """See Sender."""
        self._sent.emails.append(Email(message.to, message.subject, message.text, message.html, self._now()))
        return f"email-{len(self._sent.emails)}"


class SmsSender:
    """A Sender that keeps SMS."""

    def __init__(self, sent: Sent, now: Now) -> None:
        self._sent, self._now = sent, now

    def send(self, message: Message) -> str:
        """See Sender."""
        self._sent.sms.append(Sms(message.to, message.text, self._now()))
        return f"sms-{len(self._sent.sms)}"


class Queues:
    """A Publisher that keeps messages."""

    def __init__(self, sent: Sent, now: Now) -> None:
        self._sent, self._now = sent, now

    def publish(self, queue: str, messages: Sequence[Published]) -> list[str]:
        """See Publisher."""
        self._sent.messages += [QueueMessage(queue, json.loads(one.body), self._now()) for one in messages]
        return [""] * len(messages)
