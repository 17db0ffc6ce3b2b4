"""Bells as Redis keys: looked at by MGET, heard by keyspace events and by the shards' head channels."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, cast

import redis
from redis.exceptions import RedisClusterException

from duecourse.adapters.redis.connect import open_client
from duecourse.adapters.redis.keys import CANARY, keys_of, new_canary, on_record, shards_key
from duecourse.domain.watch import Watchlist
from duecourse.errors import EventsRejected, NotPrimary, StoreUnavailable
from duecourse.ports.bells import Expiry, Sound, View, What

NEEDED = "Exe"
"""Flags of notify-keyspace-events: events by their name, of expired and of evicted keys."""
ALL = frozenset("g$lshztxe")
"""Flags that "A" has meant in every version since 6.2."""
TIMEOUT_S = 5.0


def missing_flags(flags: str) -> str:
    """The flags in NEEDED that are not in `flags`, a value of notify-keyspace-events."""
    given = set(flags) | (ALL if "A" in flags else set())
    return "".join(flag for flag in NEEDED if flag not in given)


def hung_at(value: bytes | None) -> int | None:
    """Time of a bell with this value, None for one that is gone."""
    return int(value) if value and value.isdigit() else None


@contextmanager
def translated() -> Iterator[None]:
    """Redis's errors as this product's."""
    try:
        yield
    except redis.ReadOnlyError as error:
        raise NotPrimary from error
    except (redis.RedisError, RedisClusterException, OSError) as error:
        raise StoreUnavailable(f"Redis: {error}") from error


class Names:
    """Names of a bridge's keys and channels."""

    def __init__(self, namespace: str, db: int, canary: str = "") -> None:
        self.namespace = namespace
        self.canary = canary or new_canary(namespace)
        self.every_head = f"{namespace}:{{*}}:head"
        self.events = {what: f"__keyevent@{db}__:{what}" for what in (What.EXPIRED, What.EVICTED)}
        self.events_heard = {name.encode(): what for what, name in self.events.items()}
        self._prefix = f"{namespace}:{{".encode()
        self._canaries = f"{namespace}:{{{CANARY}".encode()
        self._own = self.canary.encode()

    def is_bell(self, key: bytes) -> bool:
        """True for a bell of ours. Another bridge's canary is none: there is no shard behind it."""
        if not (key.startswith(self._prefix) and key.endswith(b"}:bell")):
            return False
        return key == self._own or not key.startswith(self._canaries)


class RedisSubscription:
    """One connection that listens to heads and, as `events` has it, to expiries and evictions of all keys."""

    def __init__(
        self, pool: redis.ConnectionPool, names: Names, heads: Sequence[str], *, events: bool, watched: Watchlist
    ) -> None:
        self._pool = pool
        self._names = names
        self._watched = watched
        self._quiet_at = time.monotonic()
        self._heads = set(heads[1:])
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
        for _ in range(sum(len(command) - 1 for command in commands)):
            self._connection.read_response(disable_decoding=True)

    def hear(self, timeout: float) -> Sound | Expiry | None:
        """The next sound of a bell of ours, or a watched key's expiry; other keys' events are passed over."""
        with translated():
            end = time.monotonic() + timeout
            while (left := end - time.monotonic()) > 0 and self._can_read(left):
                heard = self._sound(self._connection.read_response(disable_decoding=True))
                if heard:
                    return heard
        return None

    def _can_read(self, timeout: float) -> bool:
        """Wait for a message, and note since when it can have been there: this process may have been frozen."""
        asked_at = time.monotonic()
        if self._connection.can_read(timeout=0):
            return True
        self._quiet_at = asked_at
        return bool(self._connection.can_read(timeout=timeout))

    def _sound(self, message: Sequence[bytes]) -> Sound | Expiry | None:
        """One message as a sound: an event's text is the key's name, a head's is the time, its channel the bell's."""
        channel, data = message[-2:]
        if what := self._names.events_heard.get(channel):
            if self._names.is_bell(data):
                return Sound(what, data.decode(errors="replace"))
            return Expiry(data, self._quiet_at) if what is What.EXPIRED and self._watched.has(data) else None
        bell = channel[: -len(b"head")] + b"bell"
        known = data.isdigit() and self._names.is_bell(bell)
        return Sound(What.HEAD, bell.decode(errors="replace"), int(data)) if known else None

    def covers(self, bells: Sequence[str]) -> bool:
        """See Subscription."""
        return self._names.every_head in self._heads or all(_head(bell) in self._heads for bell in bells)

    def close(self) -> None:
        """End the connection."""
        self._connection.disconnect()
        self._pool.release(self._connection)


class KeyBells:
    """Common part of the bells of one server and of a cluster."""

    def __init__(
        self, namespace: str, db: int, *, events: bool = True, canary: str = "", watched: Watchlist | None = None
    ) -> None:
        self.events = events
        self._watched = watched or Watchlist()
        self.watches = bool(self._watched)
        self._names = Names(namespace, db, canary)
        self.canary = self._names.canary

    def channel(self, what: What) -> str:
        """See Bells."""
        return self._names.events[what]

    def _known(self, client: Any) -> list[str]:
        """The bells of `<namespace>:shards`."""
        namespace = self._names.namespace
        with translated():
            members = on_record(client.smembers(shards_key(namespace)))
        return sorted({keys_of(namespace, shard).bell for shard, _ in members})


class RedisBells(KeyBells):
    """The bells of one namespace in one database; without `events` they are heard by their heads alone.

    `canary` is drawn unless it is given. `watched` are keys of other programs in that database.
    """

    def __init__(
        self,
        client: redis.Redis,
        namespace: str,
        *,
        events: bool = True,
        canary: str = "",
        watched: Watchlist | None = None,
    ) -> None:
        db = client.get_connection_kwargs().get("db") or 0
        super().__init__(namespace, db, events=events, canary=canary, watched=watched)
        self.client = client

    @classmethod
    def from_url(
        cls, url: str, namespace: str, *, events: bool = True, watched: Watchlist | None = None
    ) -> "RedisBells":
        """Bells at one server's address, or a Sentinel's primary. Nothing is connected yet, and nothing is retried."""
        client = open_client(url, socket_timeout=TIMEOUT_S, socket_connect_timeout=TIMEOUT_S)
        if not isinstance(client, redis.Redis):
            raise TypeError("a cluster has bells of its own: ClusterBells")
        return cls(client, namespace, events=events, watched=watched)

    def check_primary(self) -> None:
        """Ask ROLE; a server that does not answer it is taken for a primary."""
        with translated():
            try:
                role = cast("list[bytes]", self.client.role())
            except redis.ResponseError:
                return
        if role[0] != b"master":
            self.client.connection_pool.disconnect(inuse_connections=False)  # the address may lead elsewhere by now
            raise NotPrimary

    def enable_events(self) -> str:
        """Add the missing flags to notify-keyspace-events, and answer them; other programs' flags stay."""
        with translated():
            try:
                flags = str(self.client.config_get("notify-keyspace-events")["notify-keyspace-events"])
                added = missing_flags(flags)
                if added:
                    self.client.config_set("notify-keyspace-events", flags + added)
            except (redis.ResponseError, KeyError) as error:
                raise EventsRejected(f"notify-keyspace-events cannot be read and set: {error}") from error
        return added

    def subscribe(self) -> RedisSubscription:
        """Subscribe to all heads by pattern; by name, to those that exist, where patterns are not allowed."""
        with translated():
            try:
                return self._subscribe("PSUBSCRIBE", self._names.every_head)
            except redis.ResponseError:
                return self._subscribe("SUBSCRIBE", *map(_head, [self.canary, *self.known()]))

    def _subscribe(self, *heads: str) -> RedisSubscription:
        pool = self.client.connection_pool
        return RedisSubscription(pool, self._names, heads, events=self.events, watched=self._watched)

    def known(self) -> list[str]:
        """See Bells."""
        return self._known(self.client)

    def look(self, bells: Sequence[str]) -> View:
        """TIME and the bells' values in one round trip."""
        with translated(), self.client.pipeline(transaction=False) as pipe:
            pipe.time()
            if bells:
                pipe.mget(bells)
            (seconds, micros), *values = pipe.execute()
        return View(seconds * 1000 + micros / 1000, [hung_at(value) for value in (values[0] if values else [])])

    def try_canary(self) -> bool:
        """Hang the canary for a millisecond, touch it until it is gone, publish its head."""
        with translated():
            hung = self.events and self._hang_canary()
            # Redis deletes a key whose time is over, and sends its event, when somebody asks for it; else at leisure.
            # After a millisecond it is gone at the first asking, unless the server's clock was set back meanwhile.
            for _ in range(100 if hung else 0):
                time.sleep(0.002)
                if not self.client.exists(self.canary):
                    break
            self.client.publish(_head(self.canary), "0")
        return hung

    def _hang_canary(self) -> bool:
        try:
            return bool(self.client.set(self.canary, "0", px=1))
        except redis.ReadOnlyError:
            raise  # a replica: it proves nothing, and is to be left
        except redis.ResponseError:
            return False  # a primary that takes no writes now (OOM, MISCONF) may send events all the same

    def close(self) -> None:
        """Close every connection."""
        self.client.close()
        self.client.connection_pool.disconnect()


def _head(bell: str) -> str:
    return bell.removesuffix("bell") + "head"
