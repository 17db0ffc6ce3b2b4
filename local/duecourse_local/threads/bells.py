"""The bells of a ledger in this process, for a bridge beside it: they ring by the bridge's timer."""

import queue
from collections.abc import Sequence
from threading import Event

from duecourse.adapters.embedded.store import EmbeddedStore
from duecourse.adapters.redis.keys import keys_of, new_canary
from duecourse.domain.task import Shard
from duecourse.ports.bells import Sound, View, What


class EmbeddedSubscription:
    """Every head, as the store hangs it, and what `look` found gone; until closed."""

    def __init__(self, subscriptions: set["EmbeddedSubscription"]) -> None:
        self.sounds: queue.SimpleQueue[Sound] = queue.SimpleQueue()
        self._subscriptions = subscriptions
        subscriptions.add(self)

    def hear(self, timeout: float) -> Sound | None:
        """The next sound, or None after `timeout` seconds without one."""
        try:
            return self.sounds.get(timeout=timeout)
        except queue.Empty:
            return None

    def covers(self, _bells: Sequence[str]) -> bool:
        """It hears all there are."""
        return True

    def close(self) -> None:
        """End the subscription."""
        self._subscriptions.discard(self)


class EmbeddedBells:
    """The bells (ports.bells) of one store, named as in `namespace`; no server rings them, and there is no other."""

    events = True
    watches = False

    def __init__(self, store: EmbeddedStore, namespace: str) -> None:
        self._store = store
        self._namespace = namespace
        self._subscriptions: set[EmbeddedSubscription] = set()
        self._shards: dict[str, Shard] = {}
        self._rung: dict[str, int] = {}
        self.canary = new_canary(namespace)
        self.changed = Event()
        self._end_listening = store.listen(self._on_head)

    def channel(self, what: What) -> str:
        """Name of the channel that a ring reports."""
        return f"{self._namespace}:{what}"

    def primaries(self) -> dict[str, "EmbeddedBells"]:
        """There is one, without a name."""
        return {"": self}

    def owner_of(self, _bell: str) -> str:
        """The one that there is."""
        return ""

    def check_primary(self) -> None:
        """There is no other."""

    def enable_events(self) -> str:
        """Nothing is missing."""
        return ""

    def subscribe(self) -> EmbeddedSubscription:
        """A subscription to all of them."""
        return EmbeddedSubscription(self._subscriptions)

    def known(self) -> list[str]:
        """The bell of every shard that was ever added to."""
        return [self._bell_of(shard) for shard in self._store.shards()]

    def look(self, bells: Sequence[str]) -> View:
        """Times of these bells in the ledger; a bell whose time is over is absent, and its expiry is heard once."""
        now = self._store.now()
        return View(now, [self._look(bell, now) for bell in bells])

    def try_canary(self) -> bool:
        """Let the canary be heard to go, then its head."""
        self._report(Sound(What.EXPIRED, self.canary))
        self._report(Sound(What.HEAD, self.canary))
        return True

    def close(self) -> None:
        """Hear no more of the store."""
        self._end_listening()

    def _look(self, bell: str, now: int) -> int | None:
        at = self._store.bell_at(self._shards[bell]) if bell in self._shards else 0
        if at >= now:
            return at
        if at and self._rung.get(bell) != at:
            self._rung[bell] = at
            self._report(Sound(What.EXPIRED, bell))
        return None

    def _on_head(self, shard: Shard, at: int) -> None:
        self._report(Sound(What.HEAD, self._bell_of(shard), at))

    def _report(self, sound: Sound) -> None:
        for subscription in list(self._subscriptions):  # a copy: one may come or go meanwhile
            subscription.sounds.put(sound)

    def _bell_of(self, shard: Shard) -> str:
        bell = keys_of(self._namespace, shard).bell
        self._shards[bell] = shard
        return str(bell)
