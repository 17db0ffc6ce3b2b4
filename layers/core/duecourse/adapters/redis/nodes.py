"""Connections to the nodes of a cluster: while a node does not answer, its commands fail at once.

Otherwise each command for a frozen node would wait for its timeout and delay its caller's work on other nodes.
"""

import threading
import time
from functools import cache
from typing import Any

import redis
from redis.connection import ConnectionPool
from redis.exceptions import AuthenticationError

from duecourse.domain.backoff import ceiling_ms
from duecourse.domain.task import RetryPolicy

TRIAL_S = 0.25
"""Time that a node has to answer a trial; the caller that makes the trial waits for it."""
PAUSES = RetryPolicy(backoff_ms=200, max_backoff_ms=2_000)
"""Pauses between trials of a node that does not answer."""
SILENT = "the node has not answered, and is tried again within seconds"


class Outage:
    """State of one node, shared by its connections and threads: whether it answers, and when it is tried again."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._failures = 0
        self._trial_at = 0.0

    @property
    def lasts(self) -> bool:
        """True if the node did not answer when it was last asked."""
        return self._failures > 0

    def note(self) -> None:
        """Note that a command or a trial had no answer."""
        with self._lock:
            self._failures += 1
            self._trial_at = time.monotonic() + ceiling_ms(PAUSES, self._failures) / 1000

    def end(self) -> None:
        """Note that a trial was answered."""
        self._failures = 0

    def take_trial(self) -> bool:
        """True for one caller each time that a trial is due."""
        with self._lock:
            is_due = time.monotonic() >= self._trial_at
            if is_due:
                self._trial_at = time.monotonic() + TRIAL_S
            return is_due


class ObservedConnection:
    """Base of connections that report to `outage` when their server does not answer."""

    def __init__(self, *arguments: Any, outage: Outage | None = None, **options: Any) -> None:
        self._outage = outage
        super().__init__(*arguments, **options)

    def connect_check_health(self, *arguments: Any, **options: Any) -> None:
        """Connect and log in. Raises what redis-py does."""
        try:
            super().connect_check_health(*arguments, **options)  # type: ignore[misc]
        except AuthenticationError:
            raise  # it answers
        except (redis.ConnectionError, redis.TimeoutError):
            self._note()
            raise

    def read_response(self, *arguments: Any, **options: Any) -> Any:
        """Read an answer. Raises what redis-py does."""
        try:
            return super().read_response(*arguments, **options)  # type: ignore[misc]
        except redis.TimeoutError:
            self._note()
            raise

    def _note(self) -> None:
        if self._outage:
            self._outage.note()


@cache
def observed(connection_class: type) -> type:
    """Subclass of a class of connections that is an ObservedConnection, too."""
    return type(f"Observed{connection_class.__name__}", (ObservedConnection, connection_class), {})


class NodePool(ConnectionPool):
    """Connections to one node.

    While the node does not answer, one caller now and then tries it. All others get redis.ConnectionError at once.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.connection_class = observed(self.connection_class)
        self._outage = self.connection_kwargs["outage"] = Outage()

    @property
    def is_away(self) -> bool:
        """True if the node did not answer when it was last asked."""
        return self._outage.lasts

    def get_connection(self, *command: Any, **options: Any) -> Any:
        """A connection, where the node is not known to be away."""
        if self._outage.lasts and not self._answers():
            raise redis.ConnectionError(SILENT)
        return super().get_connection(*command, **options)

    def _answers(self) -> bool:
        if not self._outage.take_trial():
            return False
        bounds = {"socket_timeout": TRIAL_S, "socket_connect_timeout": TRIAL_S, "outage": None}
        trial: Any = self.connection_class(**{**self.connection_kwargs, **bounds})
        try:
            trial.connect()
            trial.send_command("PING")
            trial.read_response()
        except redis.ResponseError:
            pass  # it answers
        except (redis.RedisError, OSError):
            self._outage.note()
            return False
        finally:
            trial.disconnect()
        self._outage.end()
        return True
