"""Bells as Redis keys: of one server, of a Sentinel's primary, or of each primary of a cluster.

In a cluster each bell is looked at on its own primary, which may be another one soon. A canary hangs in one of each
primary's slots: its key event is that node's alone, and proves that it is heard.
"""

import threading
import time
from collections.abc import Sequence
from functools import partial
from typing import Any, cast

import redis
from redis.crc import key_slot
from redis.exceptions import SlotNotCoveredError

from duecourse.adapters.redis.connect import is_cluster, learn, open_client, primaries_of
from duecourse.adapters.redis.keys import hung_at, keys_of, new_canary, on_record, shards_key
from duecourse.adapters.redis.login import Login
from duecourse.adapters.redis.subscription import CHANGED, Ear, Names, RedisSubscription, head_of, translated
from duecourse.domain.batches import grouped
from duecourse.domain.watch import Watchlist
from duecourse.errors import EventsRejected, NotPrimary, StoreUnavailable
from duecourse.ports.bells import View, What

NEEDED = "Exe"
"""Flags of notify-keyspace-events: events by their name, of expired and of evicted keys."""
ALL = frozenset("g$lshztxe")
"""Flags that "A" has meant in every version since 6.2."""
TIMEOUT_S = 5.0


def missing_flags(flags: str) -> str:
    """The flags in NEEDED that are not in `flags`, a value of notify-keyspace-events."""
    given = set(flags) | (ALL if "A" in flags else set())
    return "".join(flag for flag in NEEDED if flag not in given)


class Primary:
    """One server of the ledger, and the canary that hangs there."""

    def __init__(self, client: redis.Redis, canary: str) -> None:
        self.client = client
        self.canary = canary

    def check(self) -> None:
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

    def ask(self, *commands: Sequence[str]) -> tuple[float, list[Any]]:
        """Its time, and answers to commands, errors among them; one round trip."""
        with self.client.pipeline(transaction=False) as pipe:
            for command in (["TIME"], *commands):
                pipe.execute_command(*command)  # type: ignore[no-untyped-call]
            now, *answers = pipe.execute(raise_on_error=False)
        seconds, micros = _checked(now)
        return seconds * 1000 + micros / 1000, answers

    def try_canary(self, *, events: bool) -> bool:
        """Hang the canary for a millisecond, touch it until it is gone, publish its head."""
        with translated():
            hung = events and self._hang_canary()
            # Redis deletes a key whose time is over, and sends its event, when somebody asks for it; else at leisure.
            # After a millisecond it is gone at the first asking, unless the server's clock was set back meanwhile.
            for _ in range(100 if hung else 0):
                time.sleep(0.002)
                if not self.client.exists(self.canary):
                    break
            self.client.publish(head_of(self.canary), "0")
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


class RedisBells:
    """The bells of one namespace in one database; without `events` they are heard by their heads alone.

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
        self.canary = new_canary(namespace)
        self._url = url
        self._login = login
        self._namespace = namespace
        self._in_cluster = is_cluster(url)
        self._meeting = threading.RLock()
        """Lock on opening the store and meeting its primaries. The keeper and the timer both do so after a failover,
        and the new connections of one would be lost, still open, in the new table of the other."""
        self._opened: Any = None
        self._primaries: dict[str, Primary] = {}
        """Primaries by their names; a new table each time, so that readers need no lock."""
        self.canaries: dict[str, str] = {}
        """The canary of each primary, by its name; different ones after primaries or their slots have changed."""
        self._left: list[Primary] = []
        """Former primaries: closed, but a thread that was using one may have connected again."""
        self._behind: dict[str, float] = {}
        """Milliseconds by which each primary's clock is behind the foremost."""
        db = 0 if self._in_cluster else self._client().get_connection_kwargs().get("db") or 0
        self._names = Names(namespace, db, watched or Watchlist())

    def channel(self, what: What) -> str:
        """See Bells."""
        return self._names.events[what]

    def check_primary(self) -> None:
        """Ask where the slots are, and every primary whether it is one."""
        with translated():
            learn(self._client())
            self._meet()
        for primary in self._primaries.values():
            primary.check()

    def enable_events(self) -> str:
        """Turn on the missing flags at every primary; answers those that any of them lacked."""
        added = [primary.enable_events() for primary in self._primaries.values()]
        return "".join(dict.fromkeys("".join(added)))

    def subscribe(self) -> RedisSubscription:
        """A subscription to every primary."""
        ears: dict[str, Ear] = {}
        try:
            for name, primary in self._primaries.items():
                ears[name] = self._listen(primary)
        except StoreUnavailable:
            for ear in ears.values():
                ear.close()
            raise
        return RedisSubscription(self, ears)

    def _listen(self, primary: Primary) -> Ear:
        """An ear for all heads by pattern; by name, for those that exist, where patterns are not allowed."""
        with translated():
            listen = partial(Ear, primary.client.connection_pool, self._names, primary.canary, events=self.events)
            try:
                return listen(["PSUBSCRIBE", self._names.every_head])
            except redis.ResponseError:
                return listen(["SUBSCRIBE", *map(head_of, [primary.canary, *self.known()])])

    def known(self) -> list[str]:
        """The bells of `<namespace>:shards`."""
        with translated():
            members = on_record(self._client().smembers(shards_key(self._namespace)))
        return sorted({keys_of(self._namespace, shard).bell for shard, _ in members})

    def look(self, bells: Sequence[str]) -> View:
        """Times of the bells, each from its own primary; with no bells, the time alone.

        The time is that of the clock that is ahead of all others. A bell whose primary's clock is behind is asked for
        too early, and again each millisecond, rather than too late.
        """
        with translated():
            if not bells:
                return View(self._compare_clocks(), [])
            now, values = 0.0, dict[str, bytes | None]()
            for name, mine in (grouped(bells, self.owner_of) if self._in_cluster else {"": bells}).items():
                now, found = self._look(name, mine)
                values |= zip(mine, found, strict=True)
        return View(now, [hung_at(values[bell]) for bell in bells])

    def try_canary(self) -> bool:
        """Try the canary of every primary, though one has failed."""
        hung = [primary.try_canary(events=self.events) for primary in self._primaries.values()]
        return all(hung)

    def owner_of(self, bell: str) -> str:
        """The name of the primary that has a bell, as far as is known; "" if no node has its slot, or it is alone."""
        if not self._in_cluster:
            return ""
        try:
            return str(self._client().nodes_manager.get_node_from_slot(key_slot(bell.encode())).name)
        except SlotNotCoveredError:
            return ""

    def close(self) -> None:
        """Leave every server."""
        for primary in (*self._primaries.values(), *self._left):
            primary.close()
        if self._opened:
            self._opened.close()

    def _client(self) -> Any:
        with self._meeting:
            if not self._opened:
                self._opened = open_client(
                    self._url, self._login, socket_timeout=TIMEOUT_S, socket_connect_timeout=TIMEOUT_S
                )
            return self._opened

    def _meet(self) -> None:
        """Learn each primary that exists, with a canary in one of its slots."""
        with self._meeting:
            met, known = primaries_of(self._client()), self._primaries
            kept = {name: one for name, one in known.items() if name in met and self.owner_of(one.canary) == name}
            for name, primary in known.items():
                if name not in kept:
                    primary.close()
                    self._left.append(primary)
            new = {name: self._primary(name, client) for name, client in met.items() if name not in kept}
            self._primaries = kept | new
            self.canaries = {name: primary.canary for name, primary in self._primaries.items()}

    def _primary(self, name: str, client: redis.Redis) -> Primary:
        if self._in_cluster:  # on connections of its own: the cluster's client closes its own at will
            pool = client.connection_pool
            mine = redis.ConnectionPool(connection_class=pool.connection_class, **pool.connection_kwargs)
            client = redis.Redis.from_pool(mine)
        while self.owner_of(canary := new_canary(self._namespace)) != name:
            pass
        return Primary(client, canary)

    def _look(self, name: str, bells: Sequence[str]) -> tuple[float, list[bytes | None]]:
        if name not in self._primaries:
            self._meet()
        if name not in self._primaries:
            raise StoreUnavailable(CHANGED)
        if not self._in_cluster:
            now, [values] = self._primaries[name].ask(["MGET", *bells])
            return now, _checked(values)
        # No MGET: they are in several slots, and one that has moved would fail them all.
        now, values = self._primaries[name].ask(*(["GET", bell] for bell in bells))
        return now + self._behind.get(name, 0.0), list(map(self._follow, bells, values))

    def _follow(self, bell: str, value: Any) -> bytes | None:
        """The value of a bell, from elsewhere if its primary answered that it is there now, or on its way."""
        if isinstance(value, redis.ResponseError):
            value = self._client().get(bell)
            self._meet()
        return cast("bytes | None", value)

    def _compare_clocks(self) -> float:
        """Note how far each primary's clock is behind the foremost, and answer the time of that one."""
        offsets: dict[str, float] = {}
        began = time.monotonic()
        for name, primary in self._primaries.items():
            sent = time.monotonic()
            now, _ = primary.ask()
            offsets[name] = now - _half_way(sent) * 1000
        if not offsets:
            raise StoreUnavailable("the cluster has no primaries")
        foremost = max(offsets.values())
        self._behind = {name: foremost - offset for name, offset in offsets.items()}
        return foremost + _half_way(began) * 1000


def _half_way(sent: float) -> float:
    """The instant between a question and now, its answer."""
    return (sent + time.monotonic()) / 2


def _checked(answer: Any) -> Any:
    """An answer that is no error."""
    if isinstance(answer, Exception):
        raise answer
    return answer
