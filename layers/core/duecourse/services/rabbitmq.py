"""RabbitMQ as a broker that tasks are handed to, by one connection with bounded waits."""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from duecourse.base.secret_cache import Secret
from duecourse.errors import DuecourseError, PublishRejected
from duecourse.running.task_event import BrokerMessage

# One connection to RabbitMQ, worked by whichever thread uses it: no thread of its own, and every wait has an end.

HEARTBEAT_S = 30
"""A process that was frozen for twice as long has lost its connection, and finds out at its next use."""
CLOSE_S = 0.5
NOT_FOUND = 404
# What goes wrong is told once, by whoever wanted to publish; pika would tell it five times over.
logging.getLogger("pika").setLevel(logging.CRITICAL)


class LoginRejected(PublishRejected):
    """The broker did not let us in."""


class ChannelClosed(NamedTuple):
    """Closing of a channel by the broker: its code, 0 for an open channel, and the reason for an error's text."""

    code: int = 0
    reason: str = ""


class AmqpSession:
    """An open connection with one channel in confirm mode; not for two threads at a time.

    `until` is the instant (of `time.monotonic`) at which patience ends. Raises PublishRejected where the broker at
    `url` is not there by then, LoginRejected where it is and takes no such login.
    """

    def __init__(self, url: str, until: float) -> None:
        from pika import SelectConnection, URLParameters

        try:
            parameters = URLParameters(url)
        except (ValueError, TypeError, SyntaxError, OSError) as error:
            # pika reads ssl_options as Python, and its files.
            raise PublishRejected(f"DUECOURSE_AMQP is not an AMQP URL: {error}") from error
        parameters.heartbeat = HEARTBEAT_S
        # A little before our own patience ends: then pika takes a half-open socket down by itself.
        parameters.socket_timeout = parameters.stack_timeout = max(0.8 * (until - time.monotonic()), 0.1)
        self.used_at = time.time()
        self._known: set[str] = set()
        self._waiting: dict[int, str] = {}
        self._problems: dict[str, str] = {}
        self._channel: Any = None
        self._over = False
        self._lost = self._blocked = ""
        self._login_rejected = False
        self._connection: Any = SelectConnection(
            parameters, on_open_callback=self._wake, on_open_error_callback=self._ended, on_close_callback=self._ended
        )
        self._connection.add_on_connection_blocked_callback(self._held_up)
        self._connection.add_on_connection_unblocked_callback(self._held_up)
        try:
            self._run(lambda: self._connection.is_open, until)
            self._open_channel(until)
        except PublishRejected:
            self.close()
            raise

    def publish(self, queue: str, messages: Sequence[BrokerMessage], until: float) -> list[str]:
        """Put messages into `queue`, made where it is missing; why each was not confirmed, "" where it was.

        Raises PublishRejected where nothing could be sent.
        """
        from pika import BasicProperties, DeliveryMode

        self._declare(queue, until)
        first = self._tag + 1
        self._waiting = dict(enumerate([message.id for message in messages], start=first))
        self._problems = dict.fromkeys(self._waiting.values(), "")
        for message in messages:
            properties = BasicProperties(
                content_type="application/json", delivery_mode=DeliveryMode.Persistent, message_id=message.id
            )
            self._channel.basic_publish("", queue, message.body.encode(), properties, mandatory=True)
        self._tag += len(messages)
        try:
            self._run(lambda: not self._waiting, until)
        except PublishRejected as error:
            self._problems |= dict.fromkeys(self._waiting.values(), str(error))
        self.used_at = time.time()
        return [self._problems[message.id] for message in messages]

    def usable(self) -> bool:
        """True if connection and channel are open, by all that has arrived, and nothing on them is unanswered."""
        self._hear()
        return not self._over and self._channel is not None and self._channel.is_open and not self._waiting

    def close(self) -> None:
        """End the connection: politely, and where the broker does not answer to that, at once."""
        try:
            if self._connection.is_open:
                self._connection.close()
                self._run(lambda: self._over, time.monotonic() + CLOSE_S)
        except PublishRejected:
            pass
        finally:
            if not self._over:
                # pika waits for the broker's goodbye for as long as it takes; this drops the socket.
                self._connection._adapter_disconnect_stream()  # noqa: SLF001
            self._hear()
            self._connection.ioloop.close()

    def _open_channel(self, until: float) -> None:
        self._channel, self._tag, self._waiting = None, 0, {}
        self._confirming, self._closed = False, ChannelClosed()
        self._connection.channel(on_open_callback=self._channel_open)
        self._run(lambda: self._confirming, until)

    def _channel_open(self, channel: Any) -> None:
        self._channel = channel
        channel.add_on_return_callback(self._returned)
        channel.add_on_close_callback(self._channel_closed)
        channel.confirm_delivery(self._answered, callback=self._confirms)

    def _declare(self, queue: str, until: float) -> None:
        """Make the queue if it is missing; an existing one is used unchanged: its owner decides of what type it is."""
        if queue in self._known:
            return
        self._ask(lambda heard: self._channel.queue_declare(queue, passive=True, callback=heard), until)
        if self._closed.code == NOT_FOUND:
            self._open_channel(until)
            self._ask(lambda heard: self._channel.queue_declare(queue, durable=True, callback=heard), until)
        if self._closed.code:
            raise PublishRejected(self._closed.reason)
        self._known.add(queue)

    def _ask(self, ask: Callable[[Callable[[Any], None]], None], until: float) -> None:
        answers: list[Any] = []

        def heard(answer: Any) -> None:
            answers.append(answer)
            self._wake()

        ask(heard)
        self._run(lambda: bool(answers or self._closed.code), until)

    def _run(self, done: Callable[[], bool], until: float) -> None:
        """Work the connection until it is `done`. Raises PublishRejected where it is lost before, or the time is up."""
        loop = self._connection.ioloop
        timer = loop.call_later(max(until - time.monotonic(), 0), loop.stop)
        try:
            while not done():
                if self._over:
                    error = LoginRejected if self._login_rejected else PublishRejected
                    raise error(f"the connection to the broker is lost: {self._lost}")
                if time.monotonic() >= until:
                    raise PublishRejected(f"the broker did not answer in time{self._blocked}")
                loop.start()
        finally:
            loop.remove_timeout(timer)

    def _hear(self) -> None:
        """Let the loop do what it can do at once, the closing of sockets too."""
        loop = self._connection.ioloop
        loop.call_later(0, loop.stop)
        loop.start()

    def _wake(self, *_: Any) -> None:
        self._connection.ioloop.stop()

    def _confirms(self, _frame: Any) -> None:
        self._confirming = True
        self._wake()

    def _ended(self, _connection: Any, reason: Any) -> None:
        from pika.exceptions import AuthenticationError, ProbableAuthenticationError

        self._over, self._lost = True, str(reason) or repr(reason)
        self._login_rejected = isinstance(reason, AuthenticationError | ProbableAuthenticationError)
        self._wake()

    def _held_up(self, _connection: Any, frame: Any) -> None:
        reason = getattr(frame.method, "reason", "")  # an unblocking has none
        self._blocked = f": it takes no messages, for it is {reason}" if reason else ""

    def _channel_closed(self, _channel: Any, reason: Any) -> None:
        self._closed = ChannelClosed(getattr(reason, "reply_code", -1), f"the broker closed the channel: {reason}")
        self._problems |= dict.fromkeys(self._waiting.values(), self._closed.reason)
        self._waiting.clear()
        self._wake()

    def _returned(self, _channel: Any, method: Any, properties: Any, _body: bytes) -> None:
        """No queue took it; its confirm follows all the same."""
        self._known.discard(method.routing_key)
        self._problems[properties.message_id] = f"no queue took it: {method.reply_text}"

    def _answered(self, frame: Any) -> None:
        from pika.spec import Basic

        tag, taken = frame.method.delivery_tag, isinstance(frame.method, Basic.Ack)
        tags = [t for t in self._waiting if t <= tag] if frame.method.multiple else [tag]
        for id in [self._waiting.pop(t) for t in tags if t in self._waiting]:
            if not taken:
                self._problems[id] = "the broker refused it"
        self._wake()


# RabbitMQ as a broker that tasks are handed to.

WITHIN_S = 10.0
"""Longest wait for a turn on the connection, and for the work on it: both together less than a drain's margin."""
MAX_IDLE_S = 5.0
"""A connection that idled longer is dropped rather than trusted: a frozen process does not see its socket die."""
FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 5.0


class AmqpPublisher:
    """A Publisher by AMQP 0.9.1 with publisher confirms, on one connection that its threads use in turn.

    `url` is amqp:// or amqps://, or comes from a `secret`, which is read again after a rejected login. With neither,
    nothing is published. A lost connection is replaced at the next use. While that fails, publishing fails at once,
    except for one try after each of ever longer pauses.
    """

    def __init__(self, url: str, within_s: float = WITHIN_S, *, secret: Secret | None = None) -> None:
        self._url = url
        self._secret = secret
        self._within_s = within_s
        self._session: AmqpSession | None = None
        self._turn = threading.Lock()
        self._pause_s = FIRST_PAUSE_S
        self._refuse_until = 0.0
        self._problem = ""

    def publish(self, queue: str, messages: Sequence[BrokerMessage]) -> list[str]:
        """Put messages into `queue`, which is made (durable) where it is missing; why each was not confirmed.

        Raises PublishRejected where there is no connection or nothing could be sent.
        """
        if not (self._url or self._secret):
            raise PublishRejected("no broker is configured: set DUECOURSE_AMQP")
        if not self._turn.acquire(timeout=self._within_s):
            raise PublishRejected("the connection to the broker is busy")
        try:
            return self._publish(queue, messages)
        finally:
            self._turn.release()

    def close(self) -> None:
        """End the connection."""
        with self._turn:
            self._drop()

    def _publish(self, queue: str, messages: Sequence[BrokerMessage]) -> list[str]:
        until = time.monotonic() + self._within_s
        session = self._connected(until)
        try:
            return session.publish(queue, messages, until)
        except PublishRejected:
            self._drop()  # an answer may still be under way on it
            raise

    def _connected(self, until: float) -> AmqpSession:
        # By the wall's clock: while a process is frozen, the monotonic one may stand still.
        idle = self._session and time.time() - self._session.used_at > MAX_IDLE_S
        if self._session and (idle or not self._session.usable()):
            self._drop()
        if not self._session:
            self._session = self._connect(until)
        return self._session

    def _connect(self, until: float) -> AmqpSession:
        if time.monotonic() < self._refuse_until:
            raise PublishRejected(f"the broker was away a moment ago: {self._problem}")
        try:
            session = self._logged_in(until)
        except PublishRejected as error:
            self._problem = str(error)
            self._refuse_until = time.monotonic() + self._pause_s
            self._pause_s = min(2 * self._pause_s, LONGEST_PAUSE_S)
            raise
        self._pause_s = FIRST_PAUSE_S
        return session

    def _logged_in(self, until: float) -> AmqpSession:
        if self._secret is None:
            return AmqpSession(self._url, until)
        try:
            url = self._secret.value()
        except DuecourseError as error:
            raise PublishRejected(str(error)) from error
        try:
            return AmqpSession(url, until)
        except LoginRejected:
            newer = self._secret.renewed(url)
            if newer is None:
                raise
            return AmqpSession(newer, until)

    def _drop(self) -> None:
        if self._session:
            self._session.close()
        self._session = None
