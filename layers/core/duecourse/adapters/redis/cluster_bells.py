"""Bells of a cluster: each heard and looked at on its own primary, which may be another one soon.

Key events are a node's own, so there is a subscription to every primary, with a canary in one of its slots. Published
messages reach all nodes: a head counts on its bell's node, so that the heads of a bell keep their order.
"""

import threading
import time
from collections import deque
from collections.abc import Sequence
from queue import Empty, SimpleQueue
from typing import Any

import redis
from redis.crc import key_slot
from redis.exceptions import SlotNotCoveredError

from duecourse.adapters.redis.bells import TIMEOUT_S, KeyBells, RedisBells, RedisSubscription, hung_at, translated
from duecourse.adapters.redis.connect import learn, open_client
from duecourse.adapters.redis.keys import new_canary
from duecourse.domain.watch import Watchlist
from duecourse.errors import StoreUnavailable
from duecourse.ports.bells import Expiry, Sound, View, What

HEAR_S = 0.2
"""Time for which a thread waits for a sound before it looks whether its subscription is closing."""
CHANGED = "the cluster's primaries, or their slots, are others now"


class ClusterBells(KeyBells):
    """The bells of one namespace in a cluster; nothing is connected before its first use."""

    def __init__(self, url: str, namespace: str, *, events: bool = True, watched: Watchlist | None = None) -> None:
        super().__init__(namespace, 0, events=events, watched=watched)
        self._url = url
        self._meeting = threading.RLock()
        """Lock on opening the cluster and meeting its primaries. The keeper and the timer both do so after a failover,
        and the new connections of one would be lost, still open, in the new table of the other."""
        self._opened: Any = None
        self._primaries: dict[str, RedisBells] = {}
        """Bells of each primary by its name; a new table each time, so that readers need no lock."""
        self._left: list[RedisBells] = []
        """Bells of former primaries: closed, but a thread that was using one may have connected again."""
        self._behind: dict[str, float] = {}

    def check_primary(self) -> None:
        """Ask where the slots are, and every primary whether it is one."""
        with translated():
            learn(self._cluster())
            self._meet()
        for bells in self._primaries.values():
            bells.check_primary()

    @property
    def canaries(self) -> dict[str, str]:
        """The canary of each primary, by its name; different ones after primaries or their slots have changed."""
        return {name: bells.canary for name, bells in self._primaries.items()}

    def enable_events(self) -> str:
        """Turn on the missing flags at every primary; answers those that any of them lacked."""
        added = [bells.enable_events() for bells in self._primaries.values()]
        return "".join(dict.fromkeys("".join(added)))

    def subscribe(self) -> "ClusterSubscription":
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
        """See Bells."""
        return self._known(self._cluster())

    def look(self, bells: Sequence[str]) -> View:
        """Times of the bells, each from its own primary; with no bells, the time alone.

        The time is that of the clock that is ahead of all others. A bell whose primary's clock is behind is asked for
        too early, and again each millisecond, rather than too late.
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
        """The name of the primary that has a bell, as far as is known; "" if no node has its slot."""
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
        """Make bells for each primary that exists, with a canary in one of its slots."""
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
        """Note how far each primary's clock is behind the foremost, and answer the time of that one."""
        offsets: dict[str, float] = {}
        for name, bells in self._primaries.items():
            sent = time.monotonic()
            now = bells.look([]).now
            looked_at = (sent + time.monotonic()) / 2  # half-way between question and answer
            offsets[name] = now - looked_at * 1000
        if not offsets:
            raise StoreUnavailable("the cluster has no primaries")
        foremost = max(offsets.values())
        self._behind = {name: foremost - offset for name, offset in offsets.items()}
        return foremost + time.monotonic() * 1000


class ClusterSubscription:
    """One subscription to each primary, each with a thread that listens; for one thread that hears them all."""

    def __init__(
        self, bells: ClusterBells, subscriptions: dict[str, RedisSubscription], canaries: dict[str, str]
    ) -> None:
        self._bells = bells
        self._subscriptions = subscriptions
        self._canaries = canaries
        self._inbox: SimpleQueue[tuple[str, Sound | Expiry] | StoreUnavailable] = SimpleQueue()
        self._heard: deque[Sound | Expiry] = deque()
        self._went: set[str] = set()
        self._proved: set[str] = set()
        self._closing = False
        self._threads = [
            threading.Thread(target=self._listen, args=item, name=f"ear-{item[0]}", daemon=True)
            for item in subscriptions.items()
        ]
        for thread in self._threads:
            thread.start()

    def hear(self, timeout: float) -> Sound | Expiry | None:
        """The next sound of a bell on the node that has it, of the canaries once all were heard, or an expiry."""
        end = time.monotonic() + timeout
        while not self._heard and (left := end - time.monotonic()) > 0:
            try:
                heard = self._inbox.get(timeout=left)
            except Empty:
                break
            if isinstance(heard, StoreUnavailable):
                raise heard
            with translated():
                self._judge(*heard)
        if self._bells.canaries != self._canaries:
            raise StoreUnavailable(CHANGED)
        return self._heard.popleft() if self._heard else None

    def covers(self, bells: Sequence[str]) -> bool:
        """See Subscription."""
        return all(subscription.covers(bells) for subscription in self._subscriptions.values())

    def close(self) -> None:
        """End all of them, within HEAR_S."""
        self._closing = True
        for thread in self._threads:
            thread.join()

    def _listen(self, name: str, subscription: RedisSubscription) -> None:
        try:
            while not self._closing:
                sound = subscription.hear(HEAR_S)
                if sound:
                    self._inbox.put((name, sound))
        except StoreUnavailable as error:
            self._inbox.put(error)
        finally:
            subscription.close()

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
