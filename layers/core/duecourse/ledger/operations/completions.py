"""Waiting for ends of tasks: a field of a shard's key, and one channel of the namespace."""

import select
import socket
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from itertools import chain
from typing import Any

import redis

from duecourse.base.batches import batched
from duecourse.base.times import DAY_MS
from duecourse.errors import StoreMisused, StoreUnavailable
from duecourse.ledger.connect import answering_first, check_primary_address
from duecourse.ledger.keys import ended_channel
from duecourse.ledger.operation_types import EndListener, Waited
from duecourse.ledger.operations.base import LedgerBase
from duecourse.ledger.record import stored_id
from duecourse.ledger.redis_bells import translated
from duecourse.ledger.script_calls import Scripts
from duecourse.ledger.task import Shard

ANSWER_S = 3.0
"""Time that the server has for an answer to a listener."""
AT_ONCE = 500
"""Maximum number of tasks that one script looks for."""
TRAVELLING_MS = 366 * DAY_MS
"""Time for which ends are published where the clock is not the server's: it may be moved by months at a time."""


def read_ended(message: bytes) -> list[Waited]:
    """The tasks of a message: their queue, then their stored ids."""
    queue, *sids = message.decode(errors="replace").split(" ")
    found = (sid.partition("/") for sid in sids)
    return [Waited(queue, tenant, id) for tenant, slash, id in found if slash]


class RedisEndListener:
    """A connection that receives the ends of tasks, and a pair of sockets that wakes the listening thread.

    In a cluster any node will do: a message reaches all of them.
    """

    def __init__(self, scripts: Scripts, namespace: str) -> None:
        """Raises StoreUnavailable."""
        self._heard: deque[Waited] = deque()
        self._ponged = False
        self._poll = select.poll()
        self._woken, self._waker = socket.socketpair()
        self._waker.setblocking(False)
        self._poll.register(self._woken, select.POLLIN)
        try:
            self._open_one(scripts, ended_channel(namespace))
        except BaseException:
            self._close_pair()
            raise

    def _open_one(self, scripts: Scripts, channel: str) -> None:
        """Listen at a server that answers: first at those that are not known to be away."""
        pools = [_pool_of(scripts.client, server) for server in answering_first(scripts.client)]
        for place, pool in enumerate(pools, start=1):
            try:
                self._open(pool, channel)
            except StoreUnavailable:
                if place == len(pools):
                    raise
            else:
                return
        raise StoreUnavailable("the cluster has no primaries")

    def _open(self, pool: redis.ConnectionPool, channel: str) -> None:
        with translated():
            connection: Any = pool.get_connection()
            self._pool, self._connection = pool, connection
            try:
                self._connection.send_command("SUBSCRIBE", channel)
                self._connection.read_response(disable_decoding=True, timeout=ANSWER_S)  # confirmed: it hears by now
                self._poll.register(self._connection._sock, select.POLLIN)  # noqa: SLF001 - redis-py has no word for it
            except redis.exceptions.NoPermissionError as error:
                self._leave()
                raise StoreMisused(f"the login may not listen to {channel}, see `duecourse acl`: {error}") from error
            except BaseException:
                self._leave()
                raise

    def hear(self, timeout_s: float) -> Sequence[Waited]:
        """See EndListener."""
        with translated():
            check_primary_address(self._pool, self._connection)
            self._read()
            if not self._heard:
                ready = self._poll.poll(max(0.0, timeout_s) * 1000)
                if any(descriptor == self._woken.fileno() for descriptor, _ in ready):
                    self._woken.recv(4096)
                self._read()
        found = list(self._heard)
        self._heard.clear()
        return found

    def prove(self) -> None:
        """See EndListener: by a PING on the same connection."""
        end = time.monotonic() + ANSWER_S
        with translated():
            self._ponged = False
            self._connection.send_command("PING")
            while not self._ponged:
                if (left := end - time.monotonic()) <= 0:
                    raise StoreUnavailable(f"the subscription was silent for {ANSWER_S:g} s: it is dead")
                self._take(self._connection.read_response(disable_decoding=True, timeout=left))

    def wake(self) -> None:
        """See EndListener."""
        with suppress(OSError):  # it is full, and so wakes; or it is closed, and nobody listens
            self._waker.send(b"w")

    def close(self) -> None:
        """See EndListener."""
        self._leave()
        self._close_pair()

    def _read(self) -> None:
        while self._connection.can_read(timeout=0):
            self._take(self._connection.read_response(disable_decoding=True))

    def _take(self, message: Any) -> None:
        if message[0] == b"message":
            self._heard.extend(read_ended(message[2]))
        elif message[0] == b"pong":
            self._ponged = True

    def _leave(self) -> None:
        self._connection.disconnect()
        self._pool.release(self._connection)

    def _close_pair(self) -> None:
        self._woken.close()
        self._waker.close()


def _pool_of(client: Any, server: redis.Redis) -> redis.ConnectionPool:
    """Pool of a listener's connection: one of its own in a cluster, whose client closes its own at will."""
    pool = server.connection_pool
    if isinstance(client, redis.Redis):
        return pool
    return redis.ConnectionPool(connection_class=pool.connection_class, **pool.connection_kwargs)


class WaitOperations(LedgerBase):
    """Operations of clients that wait for the ends of tasks."""

    def end_listener(self) -> EndListener:
        """Listen from now on. Raises StoreUnavailable."""
        return RedisEndListener(self._scripts, self._namespace)

    def await_ends(self, shard: Shard, tasks: Sequence[Waited], for_ms: int) -> list[bool]:
        """Have the shard's ends published for so long; True for each of the tasks that is neither scheduled nor leased.

        Both are one step: an end is in the answer, or it is published. A great many tasks are several steps.
        """
        for_ms = TRAVELLING_MS if self._scripts.travel else for_ms
        steps = (
            self._runner.run("await", shard, (), (for_ms, *map(_sid, some)))
            for some in [*batched(tasks, AT_ONCE)] or [()]
        )
        return [bool(ended) for ended in chain.from_iterable(steps)]


def _sid(task: Waited) -> str:
    return stored_id(task.tenant, task.id)
