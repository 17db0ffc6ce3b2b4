"""RabbitMQ as a broker that tasks are handed to."""

import threading
import time
from collections.abc import Sequence

from duecourse.adapters.amqp.session import AmqpSession, LoginRejected
from duecourse.errors import DuecourseError, PublishRejected
from duecourse.ports.publisher import Message
from duecourse.ports.secret import Secret

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

    def publish(self, queue: str, messages: Sequence[Message]) -> list[str]:
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

    def _publish(self, queue: str, messages: Sequence[Message]) -> list[str]:
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
