"""Bells heard: a connection to each primary, and what one thread hears of all of them.

Key events are a node's own. Published messages reach every node of a cluster: a head counts on its bell's node, so that
the heads of a bell keep their order.
"""

import select
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import redis
from redis.exceptions import RedisClusterException

from duecourse.adapters.redis.keys import CANARY, hung_at
from duecourse.domain.watch import Watchlist
from duecourse.errors import NotPrimary, StoreUnavailable
from duecourse.ports.bells import Expiry, Sound, What

if TYPE_CHECKING:
    from duecourse.adapters.redis.bells import RedisBells

CONFIRMED = frozenset({b"subscribe", b"psubscribe"})
MESSAGES = frozenset({b"message", b"pmessage"})
"""Kinds of a server's replies on a connection that subscribes, which may come in any order."""
CHANGED = "the cluster's primaries, or their slots, are others now"


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
        self.events = {what: f"__keyevent@{db}__:{what}" for what in (What.EXPIRED, What.EVICTED)}
        self.events_heard = {name.encode(): what for what, name in self.events.items()}
        self._prefix = f"{namespace}:{{".encode()
        self._canaries = f"{namespace}:{{{CANARY}".encode()

    def is_bell(self, key: bytes, canary: bytes) -> bool:
        """True for a bell of ours. A canary but this one is another bridge's: there is no shard behind it."""
        if not (key.startswith(self._prefix) and key.endswith(b"}:bell")):
            return False
        return key == canary or not key.startswith(self._canaries)


class Ear:
    """One connection that listens to heads and, with `events`, to expiries and evictions of all keys."""

    def __init__(
        self, pool: redis.ConnectionPool, names: Names, canary: str, heads: Sequence[str], *, events: bool
    ) -> None:
        """Raises as redis-py: ResponseError where the server does not allow it."""
        self.canary = canary
        self._pool = pool
        self._names = names
        self._own = canary.encode()
        self._heads = set(heads[1:])
        self._kept: deque[Sequence[bytes]] = deque()
        """Messages that came between confirmations: a busy server sends some as soon as it has the first channel."""
        self._quiet_at = time.monotonic()
        self._connection: Any = pool.get_connection()
        try:
            self._confirm(*([["SUBSCRIBE", *names.events.values()]] if events else []), heads)
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
        """The socket's descriptor, for a poll."""
        return int(self._connection._sock.fileno())  # noqa: SLF001 - redis-py has no word for it

    def hear(self, end: float) -> Sound | Expiry | None:
        """The next sound that is here, read before `end` (time.monotonic()); other keys' events are passed over."""
        while self._kept:
            if heard := self._sound(self._kept.popleft()):
                return heard
        while (asked_at := time.monotonic()) < end:
            if not self._connection.can_read(timeout=0):
                self._quiet_at = asked_at  # later messages came since: this process may have been frozen
                return None
            if heard := self._sound(self._connection.read_response(disable_decoding=True)):
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
        bell = channel[: -len(b"head")] + b"bell"
        at = hung_at(data)
        known = at is not None and self._names.is_bell(bell, self._own)
        return Sound(What.HEAD, bell.decode(errors="replace"), at or 0) if known else None

    def covers(self, bells: Sequence[str]) -> bool:
        """True if the heads of all these bells can be heard."""
        return self._names.every_head in self._heads or all(head_of(bell) in self._heads for bell in bells)

    def close(self) -> None:
        """End the connection."""
        self._connection.disconnect()
        self._pool.release(self._connection)


class RedisSubscription:
    """An ear on each primary, by its name."""

    def __init__(self, bells: "RedisBells", ears: Mapping[str, Ear]) -> None:
        self._bells = bells
        self._ears = ears
        self._canaries = {name: ear.canary for name, ear in ears.items()}
        self._heard: deque[Sound | Expiry] = deque()
        self._went: set[str] = set()
        self._proved: set[str] = set()
        self._poll = select.poll()
        for ear in ears.values():
            self._poll.register(ear, select.POLLIN)

    def hear(self, timeout: float) -> Sound | Expiry | None:
        """The next sound of a bell on the primary that has it, of the canaries once all were heard, or an expiry."""
        end = time.monotonic() + timeout
        with translated():
            while not self._heard and (left := end - time.monotonic()) > 0:
                is_silent = True
                for name, ear in self._ears.items():
                    if sound := ear.hear(end):
                        self._judge(name, sound)
                        is_silent = False
                if is_silent:
                    self._poll.poll(left * 1000)
        if self._bells.canaries != self._canaries:
            raise StoreUnavailable(CHANGED)
        return self._heard.popleft() if self._heard else None

    def covers(self, bells: Sequence[str]) -> bool:
        """See Subscription."""
        return all(ear.covers(bells) for ear in self._ears.values())

    def close(self) -> None:
        """End all of them."""
        for ear in self._ears.values():
            ear.close()

    def _judge(self, name: str, sound: Sound | Expiry) -> None:
        if isinstance(sound, Expiry):
            self._heard.append(sound)
        elif sound.bell == self._canaries[name]:
            self._on_canary(name, sound.what)
        elif sound.what is not What.HEAD or self._bells.owner_of(sound.bell) == name:
            self._heard.append(sound)  # a message reaches every node, and over several links in another order

    def _on_canary(self, name: str, what: What) -> None:
        """Report all canaries as one: it expired if all did, and its head comes with the last of theirs."""
        if what is not What.HEAD:
            self._went.add(name)
            return
        self._proved.add(name)
        if len(self._proved) == len(self._canaries):
            if len(self._went) == len(self._canaries):
                self._heard.append(Sound(What.EXPIRED, self._bells.canary))
            self._heard.append(Sound(What.HEAD, self._bells.canary))
            self._proved, self._went = set(), set()
