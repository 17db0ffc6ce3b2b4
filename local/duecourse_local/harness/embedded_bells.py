"""The bells of a ledger in this process, for a bridge beside it: they ring by the bridge's timer."""

import queue
from collections.abc import Sequence
from threading import Event

from duecourse.ledger.bells import BellEvent, BellMessage, BellTimes
from duecourse.ledger.embedded.ledger import EmbeddedLedger
from duecourse.ledger.keys import keys_of, new_canary
from duecourse.ledger.task import Shard


class EmbeddedSubscription:
    """Every head that the store sets, and every expiry that `look` found, until closed."""

    def __init__(self, subscriptions: set["EmbeddedSubscription"]) -> None:
        self.sounds: queue.SimpleQueue[BellMessage] = queue.SimpleQueue()
        self._subscriptions = subscriptions
        subscriptions.add(self)

    def hear(self, timeout: float) -> BellMessage | None:
        """The next sound, or None after `timeout` seconds without one."""
        try:
            return self.sounds.get(timeout=timeout)
        except queue.Empty:
            return None

    def covers(self, _bells: Sequence[str]) -> bool:
        """True: it hears every bell."""
        return True

    def close(self) -> None:
        """End the subscription."""
        self._subscriptions.discard(self)


class EmbeddedBells:
    """The bells of one store in this process, named as in `namespace`; the bridge's timer rings them."""

    events = True
    watches = False

    def __init__(self, ledger: EmbeddedLedger, namespace: str) -> None:
        self._ledger = ledger
        self._namespace = namespace
        self._subscriptions: set[EmbeddedSubscription] = set()
        self._shards: dict[str, Shard] = {}
        self._rung: dict[str, int] = {}
        self.canary = new_canary(namespace)
        self.changed = Event()
        self._end_listening = ledger.listen(self._on_head)

    def channel(self, what: BellEvent) -> str:
        """Name of the channel that a ring reports."""
        return f"{self._namespace}:{what}"

    def primaries(self) -> dict[str, "EmbeddedBells"]:
        """This one, without a name."""
        return {"": self}

    def owner_of(self, _bell: str) -> str:
        """Name of the only primary."""
        return ""

    def check_primary(self) -> None:
        """Nothing to check: there is one primary."""

    def enable_events(self) -> str:
        """Nothing to enable: no flag is missing."""
        return ""

    def subscribe(self) -> EmbeddedSubscription:
        """A subscription to every bell."""
        return EmbeddedSubscription(self._subscriptions)

    def known(self) -> list[str]:
        """The bell of every shard that was ever added to."""
        return [self._bell_of(shard) for shard in self._ledger.shards()]

    def look(self, bells: Sequence[str]) -> BellTimes:
        """Times of these bells in the ledger; a bell whose time is over is absent, and its expiry is heard once."""
        now = self._ledger.now()
        return BellTimes(now, [self._look(bell, now) for bell in bells])

    def try_canary(self) -> bool:
        """Report the expiry of the canary, then its head."""
        self._report(BellMessage(BellEvent.EXPIRED, self.canary))
        self._report(BellMessage(BellEvent.HEAD, self.canary))
        return True

    def close(self) -> None:
        """Stop listening to the store."""
        self._end_listening()

    def _look(self, bell: str, now: int) -> int | None:
        at = self._ledger.bell_at(self._shards[bell]) if bell in self._shards else 0
        if at >= now:
            return at
        if at and self._rung.get(bell) != at:
            self._rung[bell] = at
            self._report(BellMessage(BellEvent.EXPIRED, bell))
        return None

    def _on_head(self, shard: Shard, at: int) -> None:
        self._report(BellMessage(BellEvent.HEAD, self._bell_of(shard), at))

    def _report(self, sound: BellMessage) -> None:
        for subscription in list(self._subscriptions):  # a copy: one may come or go meanwhile
            subscription.sounds.put(sound)

    def _bell_of(self, shard: Shard) -> str:
        bell = keys_of(self._namespace, shard).bell
        self._shards[bell] = shard
        return str(bell)
