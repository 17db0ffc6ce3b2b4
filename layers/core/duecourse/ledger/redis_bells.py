"""Bells as Redis keys: set and heard on one server, on a Sentinel's primary, or on each primary of a cluster."""

import select
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, cast

import redis
from redis.crc import key_slot
from redis.exceptions import RedisClusterException, SlotNotCoveredError

from duecourse.errors import EventsRejected, NotPrimary, StoreUnavailable
from duecourse.ledger.bells import BellEvent, BellMessage, BellTimes, KeyExpiry
from duecourse.ledger.connect import (
    Login,
    check_primary_address,
    is_cluster,
    node_of,
    open_client,
    primaries_of,
    refresh_slots,
)
from duecourse.ledger.keys import CANARY, bell_time, keys_of, new_canary, parse_shards, shards_key
from duecourse.ledger.watched_keys import Watchlist

# Bells heard: a connection to one primary, for one thread.
#
# Key events are a node's own. Published messages reach every node of a cluster: a head counts on its bell's node, so
# that the heads of a bell keep their order.

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


class BellNames:
    """Names of a bridge's keys and channels; `watched` are keys of other programs in the same database."""

    def __init__(self, namespace: str, db: int, watched: Watchlist) -> None:
        self.watched = watched
        self.every_head = f"{namespace}:{{*}}:head"
        self.pattern = ("PSUBSCRIBE", self.every_head)
        self.events = {what: f"__keyevent@{db}__:{what}" for what in (BellEvent.EXPIRED, BellEvent.EVICTED)}
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
        names: BellNames,
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

    def hear(self, timeout: float) -> BellMessage | KeyExpiry | None:
        """See Subscription; other keys' events, and heads of other primaries' bells, are passed over."""
        end = time.monotonic() + timeout
        while self._kept:
            if heard := self._sound(self._kept.popleft()):
                return heard
        with translated():
            check_primary_address(self._pool, self._connection)
            while (asked_at := time.monotonic()) < end:
                if not self._connection.can_read(timeout=0):
                    self._quiet_at = asked_at  # later messages came since: this process may have been frozen
                    self._poll.poll((end - asked_at) * 1000)
                elif heard := self._sound(self._connection.read_response(disable_decoding=True)):
                    return heard
        return None

    def _sound(self, message: Sequence[bytes]) -> BellMessage | KeyExpiry | None:
        """One message as a sound: an event's text is the key's name, a head's is the time, its channel the bell's."""
        if message[0] not in MESSAGES:
            return None
        channel, data = message[-2:]
        if what := self._names.events_heard.get(channel):
            if self._names.is_bell(data, self._own):
                return BellMessage(what, data.decode(errors="replace"))
            watched = what is BellEvent.EXPIRED and self._names.watched.has(data)
            return KeyExpiry(data, self._quiet_at) if watched else None
        key = channel[: -len(b"head")] + b"bell"
        at = bell_time(data)
        if at is None or not self._names.is_bell(key, self._own):
            return None
        bell = key.decode(errors="replace")
        return BellMessage(BellEvent.HEAD, bell, at) if bell == self._canary or self._has(bell) else None

    def covers(self, bells: Sequence[str]) -> bool:
        """True if the heads of these bells are all heard."""
        return self._names.every_head in self._heads or all(head_of(bell) in self._heads for bell in bells)

    def close(self) -> None:
        """End the connection."""
        self._connection.disconnect()
        self._pool.release(self._connection)


# Bells as Redis keys: of one server, of a Sentinel's primary, or of each primary of a cluster.
#
# In a cluster each bell is looked at on its own primary, which may be another one soon. A canary hangs in one of each
# primary's slots: its key event is that node's alone, and proves that it is heard. Nothing that is asked of one primary
# waits for another, but for the record of shards, which is on one of them.

NEEDED = "Exe"
"""Flags of notify-keyspace-events: events by their name, of expired and of evicted keys."""
ALL = frozenset("g$lshztxe")
"""Flags that "A" has meant in every version since 6.2."""
TIMEOUT_S = 5.0
RECORD_S = 5.0
"""Pause before the record of shards is read again after its server did not answer: each beat would wait for it."""


def missing_flags(flags: str) -> str:
    """The flags in NEEDED that are not in `flags`, a value of notify-keyspace-events."""
    given = set(flags) | (ALL if "A" in flags else set())
    return "".join(flag for flag in NEEDED if flag not in given)


class ServerBells:
    """The bells of one primary, called `name`, and this bridge's canary there."""

    def __init__(self, ledger: "RedisBells", name: str, client: redis.Redis, canary: str) -> None:
        self._ledger = ledger
        self._name = name
        self._client = client
        self.canary = canary
        self.events = ledger.events
        self.watches = ledger.watches

    def channel(self, what: BellEvent) -> str:
        """See Bells."""
        return self._ledger.channel(what)

    def check_primary(self) -> None:
        """Ask ROLE; a server that does not answer it is taken for a primary."""
        with translated():
            try:
                role = cast("list[bytes]", self._client.role())
            except redis.ResponseError:
                return
        if role[0] != b"master":
            self._client.connection_pool.disconnect(inuse_connections=False)  # the address may lead elsewhere by now
            raise NotPrimary

    def enable_events(self) -> str:
        """Add the missing flags to notify-keyspace-events, and answer them; other programs' flags stay."""
        with translated():
            try:
                flags = str(self._client.config_get("notify-keyspace-events")["notify-keyspace-events"])
                added = missing_flags(flags)
                if added:
                    self._client.config_set("notify-keyspace-events", flags + added)
            except (redis.ResponseError, KeyError) as error:
                raise EventsRejected(f"notify-keyspace-events cannot be read and set: {error}") from error
        return added

    def subscribe(self) -> RedisSubscription:
        """A subscription to all heads by pattern; by name, to those that exist, where patterns are not allowed."""
        pool, names = self._client.connection_pool, self._ledger.names
        with translated():
            try:
                return RedisSubscription(pool, names, self.canary, self.has, [*names.pattern], events=self.events)
            except redis.ResponseError:
                heads = ["SUBSCRIBE", *map(head_of, [self.canary, *(self.known() or ())])]
                return RedisSubscription(pool, names, self.canary, self.has, heads, events=self.events)

    def known(self) -> list[str] | None:
        """The bells here of `<namespace>:shards`."""
        every = self._ledger.every_bell()
        return None if every is None else [bell for bell in every if self.has(bell)]

    def has(self, bell: str) -> bool:
        """True if this primary has the bell, as far as is known."""
        return self._ledger.owner_of(bell) == self._name

    def look(self, bells: Sequence[str]) -> BellTimes:
        """See Bells; with no bells, the time alone."""
        with translated():
            if not self._ledger.in_cluster:
                now, [values] = self._ask(["MGET", *bells]) if bells else (self._ask()[0], [()])
                return BellTimes(now, [bell_time(value) for value in _checked(values)])
            # No MGET: they are in several slots, and one that has moved would fail them all.
            now, values = self._ask(*(["GET", bell] for bell in bells))
            return BellTimes(
                now, [bell_time(self._follow(bell, value)) for bell, value in zip(bells, values, strict=True)]
            )

    def try_canary(self) -> bool:
        """Hang the canary for a millisecond, touch it until it is gone, publish its head."""
        with translated():
            hung = self.events and self._hang_canary()
            # Redis deletes a key whose time is over, and sends its event, when somebody asks for it; else at leisure.
            # After a millisecond it is gone at the first asking, unless the server's clock was set back meanwhile.
            for _ in range(100 if hung else 0):
                time.sleep(0.002)
                if not self._client.exists(self.canary):
                    break
            self._client.publish(head_of(self.canary), "0")
        return hung

    def close(self) -> None:
        """Close every connection."""
        self._client.close()
        self._client.connection_pool.disconnect()

    def _hang_canary(self) -> bool:
        try:
            return bool(self._client.set(self.canary, "0", px=1))
        except redis.ReadOnlyError:
            raise  # a replica: it proves nothing, and is to be left
        except redis.ResponseError:
            return False  # a primary that takes no writes now (OOM, MISCONF) may send events all the same

    def _ask(self, *commands: Sequence[str]) -> tuple[float, list[Any]]:
        """Its time, and answers to commands, errors among them; one round trip."""
        with self._client.pipeline(transaction=False) as pipe:
            for command in (["TIME"], *commands):
                pipe.execute_command(*command)  # type: ignore[no-untyped-call]
            now, *answers = pipe.execute(raise_on_error=False)
        seconds, micros = _checked(now)
        return seconds * 1000 + micros / 1000, answers

    def _follow(self, bell: str, value: Any) -> bytes | None:
        """The value of a bell, from elsewhere if its primary answered that it is there now, or on its way."""
        if isinstance(value, redis.ResponseError):
            value = self._ledger.value_of(bell)
        return cast("bytes | None", value)


class RedisBells:
    """The bells of one namespace in one database (BellServers); without `events` they are heard by their heads alone.

    `watched` are keys of other programs in that database. Nothing is connected before the first use, and nothing is
    retried.
    """

    def __init__(
        self,
        url: str,
        namespace: str,
        *,
        events: bool = True,
        watched: Watchlist | None = None,
        login: Login | None = None,
    ) -> None:
        self.events = events
        self.watches = bool(watched)
        self.in_cluster = is_cluster(url)
        self.changed = threading.Event()
        self._url = url
        self._login = login
        self._namespace = namespace
        self._meeting = threading.RLock()
        """Lock on opening the store and meeting its primaries: the connections of one of two threads would be lost."""
        self._opened: Any = None
        self._primaries: dict[str, ServerBells] = {}
        """Primaries by their names; a new table each time, so that readers need no lock."""
        self._reading = threading.Lock()
        self._every: list[str] | None = None
        self._read_at = 0.0
        db = 0 if self.in_cluster else self._client().get_connection_kwargs().get("db") or 0
        self.names = BellNames(namespace, db, watched or Watchlist())

    def channel(self, what: BellEvent) -> str:
        """See Bells."""
        return self.names.events[what]

    def primaries(self) -> Mapping[str, ServerBells]:
        """See BellServers; a cluster is asked where its slots are."""
        with translated():
            refresh_slots(self._client())
            self._meet()
        return self._primaries

    def every_bell(self) -> list[str] | None:
        """The bell of every registered shard; those last read while the registry's server is away, None for never."""
        with self._reading:
            if time.monotonic() >= self._read_at:
                try:
                    self._every = self._read_record()
                except StoreUnavailable:
                    if not self.in_cluster:
                        raise
                    self._read_at = time.monotonic() + RECORD_S
            return self._every

    def owner_of(self, bell: str) -> str:
        """See BellServers."""
        if not self.in_cluster:
            return ""
        try:
            return str(self._client().nodes_manager.get_node_from_slot(key_slot(bell.encode())).name)
        except SlotNotCoveredError:
            return ""

    def value_of(self, bell: str) -> Any:
        """The value of a bell whose slot has moved, or is about to."""
        self.changed.set()
        return self._client().get(bell)

    def close(self) -> None:
        """Leave every server."""
        for primary in self._primaries.values():
            primary.close()
        if self._opened:
            self._opened.close()

    def _read_record(self) -> list[str]:
        key = shards_key(self._namespace)
        with translated():
            node: Any = node_of(self._client(), key)
            members = parse_shards(node.smembers(key))
        return sorted({keys_of(self._namespace, shard).bell for shard, _ in members})

    def _client(self) -> Any:
        with self._meeting:
            if not self._opened:
                self._opened = open_client(
                    self._url, self._login, socket_timeout=TIMEOUT_S, socket_connect_timeout=TIMEOUT_S
                )
            return self._opened

    def _meet(self) -> None:
        """Learn each primary that exists, with a canary in one of its slots.

        A primary gets another object where its canary's slot has moved. Users of those that have gone close them.
        """
        with self._meeting:
            met, known = primaries_of(self._client()), self._primaries
            kept = {name: one for name, one in known.items() if name in met and one.has(one.canary)}
            self._primaries = kept | {name: self._primary(name, one) for name, one in met.items() if name not in kept}

    def _primary(self, name: str, client: redis.Redis) -> ServerBells:
        if self.in_cluster:  # on connections of its own: the cluster's client closes its own at will
            pool = client.connection_pool
            mine = redis.ConnectionPool(connection_class=pool.connection_class, **pool.connection_kwargs)
            client = redis.Redis.from_pool(mine)
        while self.owner_of(canary := new_canary(self._namespace)) != name:
            pass
        return ServerBells(self, name, client, canary)


def _checked(answer: Any) -> Any:
    """An answer that is no error."""
    if isinstance(answer, Exception):
        raise answer
    return answer
