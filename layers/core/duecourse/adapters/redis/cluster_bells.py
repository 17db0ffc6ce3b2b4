"""The bells of a cluster: each heard and looked at on its own primary, which may be another one soon.

Key events are a node's own, so there is a subscription to every primary, with a canary in one of its slots. What is
published reaches all nodes: a head counts where its bell is, so that the heads of a bell keep their order.
"""

import threading
import time
from collections.abc import Sequence
from typing import Any

import redis
from redis.crc import key_slot
from redis.exceptions import SlotNotCoveredError

from duecourse.adapters.redis.bells import TIMEOUT_S, Names, RedisBells, RedisSubscription, hung_at, translated
from duecourse.adapters.redis.cluster_subscription import CHANGED, ClusterSubscription
from duecourse.adapters.redis.connect import learn, open_client
from duecourse.adapters.redis.keys import bells_on_record, new_canary, shards_key
from duecourse.domain.watch import Watchlist
from duecourse.errors import StoreUnavailable
from duecourse.ports.bells import View, What


class ClusterBells:
    """The bells of one namespace in a cluster; nothing is connected before its first use."""

    def __init__(self, url: str, namespace: str, *, events: bool = True, watched: Watchlist | None = None) -> None:
        self._url = url
        self.events = events
        self._watched = watched or Watchlist()
        self.watches = bool(self._watched)
        self._names = Names(namespace, 0)
        self._meeting = threading.RLock()
        """Held while the cluster is opened or its primaries are met: the keeper and the timer both do so after a
        failover, and one's new connections would be lost, still open, in the other's new table."""
        self._opened: Any = None
        self._primaries: dict[str, RedisBells] = {}
        """By their names; a new table each time, so that who reads needs no lock."""
        self._left: list[RedisBells] = []
        """Of primaries that are none any more: closed, but a thread that was using one may have connected again."""
        self._behind: dict[str, float] = {}
        self.canary = self._names.canary

    def channel(self, what: What) -> str:
        """The channel of a key event."""
        return self._names.events[what]

    def check_primary(self) -> None:
        """Ask where the slots are, and every primary whether it is one."""
        with translated():
            learn(self._cluster())
            self._meet()
        for bells in self._primaries.values():
            bells.check_primary()

    @property
    def canaries(self) -> dict[str, str]:
        """The canary of each primary, by its name. Where they are others, primaries or their slots have changed."""
        return {name: bells.canary for name, bells in self._primaries.items()}

    def enable_events(self) -> str:
        """Turn on what is missing at every primary; answers the flags that one or the other had not."""
        added = [bells.enable_events() for bells in self._primaries.values()]
        return "".join(dict.fromkeys("".join(added)))

    def subscribe(self) -> ClusterSubscription:
        """A subscription to every primary."""
        primaries, subscriptions = self._primaries, dict[str, RedisSubscription]()
        try:
            for name, bells in primaries.items():
                subscriptions[name] = bells.subscribe()
        except StoreUnavailable:
            for subscription in subscriptions.values():
                subscription.close()
            raise
        return ClusterSubscription(self, subscriptions, {name: bells.canary for name, bells in primaries.items()})

    def known(self) -> list[str]:
        """The bells of `<namespace>:shards`."""
        with translated():
            members: set[bytes] = self._cluster().smembers(shards_key(self._names.namespace))
        return bells_on_record(self._names.namespace, members)

    def look(self, bells: Sequence[str]) -> View:
        """The bells as they hung, each on its own primary; of none, the time.

        The time is that of the clock that is ahead of all others: a bell whose primary's is behind is asked for too
        early, and again each millisecond, rather than too late.
        """
        with translated():
            if not bells:
                return View(self._compare_clocks(), [])
            places: dict[str, list[str]] = {}
            for bell in bells:
                places.setdefault(self.owner_of(bell), []).append(bell)
            now, hung = 0.0, dict[str, int | None]()
            for name, mine in places.items():
                now, values = self._look(name, mine)
                hung |= dict(zip(mine, values, strict=True))
            return View(now, [hung[bell] for bell in bells])

    def try_canary(self) -> bool:
        """Try the canary of every primary, though one has failed."""
        hung = [bells.try_canary() for bells in self._primaries.values()]
        return all(hung)

    def owner_of(self, bell: str) -> str:
        """The name of the primary that has a bell, as far as is known; "" where its slot is nobody's."""
        try:
            node: Any = self._cluster().nodes_manager.get_node_from_slot(key_slot(bell.encode()))
        except SlotNotCoveredError:
            return ""
        return str(node.name)

    def close(self) -> None:
        """Leave every node."""
        for bells in (*self._primaries.values(), *self._left):
            bells.close()
        if self._opened:
            self._opened.close()

    def _cluster(self) -> Any:
        with self._meeting:
            if not self._opened:
                self._opened = open_client(self._url, socket_timeout=TIMEOUT_S, socket_connect_timeout=TIMEOUT_S)
            return self._opened

    def _meet(self) -> None:
        """Have bells for each primary that there is, with a canary that is its own."""
        with self._meeting:
            nodes: list[Any] = self._cluster().get_primaries()
            met = {node.name: node for node in nodes}
            kept = {
                name: bells
                for name, bells in self._primaries.items()
                if name in met and self.owner_of(bells.canary) == name
            }
            for name, bells in self._primaries.items():
                if name not in kept:
                    bells.close()
                    self._left.append(bells)
            new = {name: self._bells_of(node) for name, node in met.items() if name not in kept}
            self._primaries = kept | new

    def _bells_of(self, node: Any) -> RedisBells:
        """Bells on connections of their own: the cluster's client closes its own at will."""
        pool = node.redis_connection.connection_pool
        mine = redis.ConnectionPool(connection_class=pool.connection_class, **pool.connection_kwargs)
        client, canary = redis.Redis.from_pool(mine), self._canary_of(node.name)
        return RedisBells(client, self._names.namespace, events=self.events, canary=canary, watched=self._watched)

    def _canary_of(self, name: str) -> str:
        """A canary in one of a primary's slots: its key event is that node's alone, and proves that it is heard."""
        while True:
            canary = new_canary(self._names.namespace)
            if self.owner_of(canary) == name:
                return canary

    def _look(self, name: str, bells: list[str]) -> tuple[float, list[int | None]]:
        if name not in self._primaries:
            self._meet()
        if name not in self._primaries:
            raise StoreUnavailable(CHANGED)
        with self._primaries[name].client.pipeline(transaction=False) as pipe:
            pipe.time()
            for bell in bells:  # no MGET: they are in several slots, and one that has moved would fail them all
                pipe.get(bell)
            (seconds, micros), *values = pipe.execute(raise_on_error=False)
        now = seconds * 1000 + micros / 1000 + self._behind.get(name, 0.0)
        return now, [self._value(bell, value) for bell, value in zip(bells, values, strict=True)]

    def _value(self, bell: str, value: Any) -> int | None:
        if isinstance(value, redis.ResponseError):  # it is elsewhere now, or on its way
            value = self._cluster().get(bell)
            self._meet()
        return hung_at(value)

    def _compare_clocks(self) -> float:
        """Learn how far each primary's clock is behind the foremost, and answer what that says."""
        offsets: dict[str, float] = {}
        for name, bells in self._primaries.items():
            sent = time.monotonic()
            told = bells.look([]).now
            looked_at = (sent + time.monotonic()) / 2  # half-way between question and answer
            offsets[name] = told - looked_at * 1000
        if not offsets:
            raise StoreUnavailable("the cluster has no primaries")
        foremost = max(offsets.values())
        self._behind = {name: foremost - offset for name, offset in offsets.items()}
        return foremost + time.monotonic() * 1000
