"""The short way of a command to Redis, past the layers that its client puts around each."""

import os
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any

import redis
from hiredis import pack_command
from redis.connection import ConnectionPool
from redis.exceptions import ResponseError

from duecourse.adapters.redis.arguments import Argument

MOST_AT_HAND = 8
"""Most idle connections that a pool hands out the short way; redis-py's own pool keeps the others."""


class QuickPool(ConnectionPool):
    """A pool that hands out what was given back last, without the accounts that redis-py keeps of each turn.

    To redis-py, connections at hand are in use; one that is not quiet goes back to it, to be connected again.
    """

    _at_hand: deque[Any]

    def reset(self) -> None:
        """Start with no connections, in a forked child too: those of its parent stay its parent's."""
        self._at_hand = deque()
        super().reset()

    def get_connection(self, *command: Any, **options: Any) -> Any:
        """A connection that is open and has nothing to say."""
        if self.pid == os.getpid():  # else it is reset
            try:
                connection = self._at_hand.pop()
            except IndexError:
                return super().get_connection(*command, **options)
            if _quiet(connection):
                return connection
            connection.disconnect()
            super().release(connection)
        return super().get_connection(*command, **options)

    def release(self, connection: Any) -> None:
        """Take a connection back."""
        ours = connection.pid == self.pid == os.getpid() and connection not in self._at_hand
        if ours and len(self._at_hand) < MOST_AT_HAND:
            self._at_hand.append(connection)
        else:
            super().release(connection)

    def disconnect(self, inuse_connections: bool = True) -> None:
        """Close the connections."""
        if self.pid == os.getpid():
            with suppress(IndexError):  # other threads take from it too
                while True:
                    super().release(self._at_hand.pop())
        super().disconnect(inuse_connections)


PLAIN = (QuickPool, ConnectionPool)
"""Pools all of whose connections lead to the one server."""


def _fit(connection: Any) -> bool:
    """True if it is open, and may stay so: redis-py 6 has no words for either."""
    is_open = getattr(connection, "is_connected", getattr(connection, "_sock", None) is not None)
    return bool(is_open) and not getattr(connection, "should_reconnect", bool)()


def _quiet(connection: Any) -> bool:
    """True if there is nothing to read: else the server has closed it, or a late answer has come that nobody wants."""
    try:
        return _fit(connection) and not connection.can_read()
    except (redis.ConnectionError, redis.TimeoutError, OSError):
        return False
    except (TypeError, ValueError):
        return False  # closed by another thread meanwhile: redis-py then looks at a socket that is gone


def is_plain(client: Any) -> bool:
    """True if all its commands go to one server, known before the first one."""
    return type(getattr(client, "connection_pool", None)) in PLAIN


def execute(client: Any, *command: Argument) -> Any:
    """Answer of the server. Raises the errors of the client itself.

    A cluster's client, which knows the node of a key, and a Sentinel's, which knows the primary, send it themselves.
    """
    if not is_plain(client):
        return client.execute_command(*command)
    pool = client.connection_pool
    connection = pool.get_connection()
    try:
        connection.send_packed_command((pack_command(command),))  # type: ignore[arg-type]
        return connection.read_response()
    except ResponseError:
        raise
    except BaseException:
        connection.disconnect()  # an answer that comes late must not be taken for the next one
        raise
    finally:
        pool.release(connection)


def execute_ahead(client: Any, commands: Iterable[Sequence[Argument]]) -> Iterator[Any]:
    """Answers of a plain client's server to the commands, each ResponseError among them.

    While the server runs one command, the answer to the one before is read, and the next is made and sent.
    """
    connection = client.connection_pool.get_connection()
    try:
        sent = False
        for command in commands:
            connection.send_packed_command((pack_command(command),))  # type: ignore[arg-type]
            if sent:
                yield _answer(connection)
            sent = True
        if sent:
            yield _answer(connection)
    except BaseException:
        connection.disconnect()
        raise
    finally:
        client.connection_pool.release(connection)


def _answer(connection: Any) -> Any:
    """The next answer, an error too: the others must be read all the same."""
    try:
        return connection.read_response()
    except ResponseError as refused:
        return refused
