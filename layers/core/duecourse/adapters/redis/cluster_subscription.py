"""What is heard of a cluster's bells: one subscription to each primary, heard as one."""

import threading
import time
from collections import deque
from collections.abc import Sequence
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING

from duecourse.adapters.redis.bells import RedisSubscription, translated
from duecourse.errors import StoreUnavailable
from duecourse.ports.bells import Expiry, Sound, What

if TYPE_CHECKING:
    from duecourse.adapters.redis.cluster_bells import ClusterBells

HEAR_S = 0.2
CHANGED = "the cluster's primaries, or their slots, are others now"


class ClusterSubscription:
    """One subscription to each primary, each with a thread that listens; for one thread that hears them all."""

    def __init__(
        self, bells: "ClusterBells", subscriptions: dict[str, RedisSubscription], canaries: dict[str, str]
    ) -> None:
        self._bells = bells
        self._subscriptions = subscriptions
        self._canaries = canaries
        self._inbox: SimpleQueue[tuple[str, Sound | Expiry] | StoreUnavailable] = SimpleQueue()
        self._told: deque[Sound | Expiry] = deque()
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
        """The next sound of a bell that is where it was heard, or a watched key's expiry; a canary's when all were."""
        end = time.monotonic() + timeout
        while not self._told and (left := end - time.monotonic()) > 0:
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
        return self._told.popleft() if self._told else None

    def covers(self, bells: Sequence[str]) -> bool:
        """Whether the heads of all these bells can be heard."""
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
            self._told.append(sound)
        elif sound.bell == self._canaries[name]:
            self._on_canary(name, sound.what)
        elif sound.what is not What.HEAD or self._bells.owner_of(sound.bell) == name:
            self._told.append(sound)  # what is published reaches every node, and over several links in another order

    def _on_canary(self, name: str, what: What) -> None:
        """All canaries are told as one: it went if all did, and its head comes with the last of theirs."""
        if what is not What.HEAD:
            self._went.add(name)
            return
        self._proved.add(name)
        if len(self._proved) == len(self._canaries):
            if len(self._went) == len(self._canaries):
                self._told.append(Sound(What.EXPIRED, self._bells.canary))
            self._told.append(Sound(What.HEAD, self._bells.canary))
            self._proved, self._went = set(), set()
