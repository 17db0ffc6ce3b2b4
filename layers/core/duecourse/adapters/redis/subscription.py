"""Bells heard: a connection to one primary, for one thread.

Key events are a node's own. Published messages reach every node of a cluster: a head counts on its bell's node, so that
the heads of a bell keep their order.
"""

import select
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import redis
from redis.exceptions import RedisClusterException

from duecourse.adapters.redis.connect import check_place
from duecourse.adapters.redis.keys import CANARY, hung_at
from duecourse.domain.watch import Watchlist
from duecourse.errors import NotPrimary, StoreUnavailable
from duecourse.ports.bells import Expiry, Sound, What

CONFIRMED = frozenset({b"subscribe", b"psubscribe"})
MESSAGES = frozenset({b"message", b"pmessage"})
"""Kinds of a server's replies on a connection that subscribes, which may come in any order."""


@contextmanager
def translated() -> Iterator[None]:
    """Redis's errors as this product's."""
    try:
        yield
    except redis.ReadOnlyError as error:
        raise NotPrimary from error
    except (redis.RedisError, RedisClusterException, OSError) as error:
        raise StoreUnavailable(f"Redis: {error}") from error


def head_of(bell: str) -> str:
    """The channel on which a bell is published when it is re-hung."""
    return bell.removesuffix("bell") + "head"


class Names:
    """Names of a bridge's keys and channels; `watched` are keys of other programs in the same database."""

    def __init__(self, namespace: str, db: int, watched: Watchlist) -> None:
        self.watched = watched
        self.every_head = f"{namespace}:{{*}}:head"
        self.pattern = ("PSUBSCRIBE", self.every_head)
        self.events = {what: f"__keyevent@{db}__:{what}" for what in (What.EXPIRED, What.EVICTED)}
        self.events_heard = {name.encode(): what for what, name in self.events.items()}
        self._prefix = f"{namespace}:{{".encode()
        self._canaries = f"{namespace}:{{{CANARY}".encode()

    def is_bell(self, key: bytes, canary: bytes) -> bool:
        """True for a bell of ours. A canary but this one is another bridge's: there is no shard behind it."""
        if not (key.startswith(self._prefix) and key.endswith(b"}:bell")):
            return False
        return key == canary or not key.startswith(self._canaries)


class RedisSubscription:
    """One connection that listens to heads and, with `events`, to expiries and evictions of all keys.

    Of heads those count whose bells the server `has`: a message reaches every node of a cluster.
    """

    def __init__(
        self,
        pool: redis.ConnectionPool,
        names: Names,
        canary: str,
        has: Callable[[str], bool],
        heads: Sequence[str],
        *,
        events: bool,
    ) -> None:
        """Raises as redis-py: ResponseError where the server does not allow it."""
        self._pool = pool
        self._names = names
        self._canary = canary
        self._own = canary.encode()
        self._has = has
        self._heads = set(heads[1:])
        self._kept: deque[Sequence[bytes]] = deque()
        """Messages that came between confirmations: a busy server sends some as soon as it has the first channel."""
        self._quiet_at = time.monotonic()
        self._poll = select.poll()
        self._connection: Any = pool.get_connection()
        try:
            self._confirm(*([["SUBSCRIBE", *names.events.values()]] if events else []), heads)
            self._poll.register(self, select.POLLIN)
        except BaseException:
            self.close()
            raise

    def _confirm(self, *commands: Sequence[str]) -> None:
        """Subscribe, and wait for every confirmation: only later messages are sure to be heard."""
        for command in commands:
            self._connection.send_command(*command)
        missing = sum(len(command) - 1 for command in commands)
        while missing:
            reply = self._connection.read_response(disable_decoding=True)
            if reply[0] in CONFIRMED:
                missing -= 1
            else:
                self._kept.append(reply)

    def fileno(self) -> int:
        """The socket's descriptor, for the poll."""
        return int(self._connection._sock.fileno())  # noqa: SLF001 - redis-py has no word for it

    def hear(self, timeout: float) -> Sound | Expiry | None:
        """See Subscription; other keys' events, and heads of other primaries' bells, are passed over."""
        end = time.monotonic() + timeout
        while self._kept:
            if heard := self._sound(self._kept.popleft()):
                return heard
        with translated():
            check_place(self._pool, self._connection)
            while (asked_at := time.monotonic()) < end:
                if not self._connection.can_read(timeout=0):
                    self._quiet_at = asked_at  # later messages came since: this process may have been frozen
                    self._poll.poll((end - asked_at) * 1000)
                elif heard := self._sound(self._connection.read_response(disable_decoding=True)):
                    return heard
        return None

    def _sound(self, message: Sequence[bytes]) -> Sound | Expiry | None:
        """One message as a sound: an event's text is the key's name, a head's is the time, its channel the bell's."""
        if message[0] not in MESSAGES:
            return None
        channel, data = message[-2:]
        if what := self._names.events_heard.get(channel):
            if self._names.is_bell(data, self._own):
                return Sound(what, data.decode(errors="replace"))
            watched = what is What.EXPIRED and self._names.watched.has(data)
            return Expiry(data, self._quiet_at) if watched else None
        key = channel[: -len(b"head")] + b"bell"
        at = hung_at(data)
        if at is None or not self._names.is_bell(key, self._own):
            return None
        bell = key.decode(errors="replace")
        return Sound(What.HEAD, bell, at) if bell == self._canary or self._has(bell) else None

    def covers(self, bells: Sequence[str]) -> bool:
        """True if the heads of all these bells can be heard."""
        return self._names.every_head in self._heads or all(head_of(bell) in self._heads for bell in bells)

    def close(self) -> None:
        """End the connection."""
        self._connection.disconnect()
        self._pool.release(self._connection)
