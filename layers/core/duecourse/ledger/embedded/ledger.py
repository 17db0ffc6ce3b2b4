"""The ledger in this process: that of Redis on a server that is here, and time that is moved by hand."""

import re
import time
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING

from duecourse.base.times import Clock
from duecourse.errors import StoreMisused
from duecourse.ledger.embedded.in_process_redis import EmbeddedRedis, Server
from duecourse.ledger.keys import ended_channel, keys_of
from duecourse.ledger.operation_types import Waited
from duecourse.ledger.operations.completions import read_ended
from duecourse.ledger.operations.ledger import Ledger
from duecourse.ledger.sharding import Sharding
from duecourse.ledger.task import Shard

if TYPE_CHECKING:
    from duecourse.ledger.embedded.leveldb import LevelDisk

CHANNEL = re.compile(r"\{(?P<queue>[^/}]+)/(?P<number>\d+)\}:head$")

BellListener = Callable[[Shard, int], None]
"""Receiver of a shard and the new time of its bell (0: none); it must not wait, raise or call the ledger."""


class SystemClock:
    """This machine's time."""

    def now(self) -> int:
        """Epoch milliseconds."""
        return time.time_ns() // 1_000_000


class EmbeddedEndListener:
    """Ends of tasks in this process; implements EndListener."""

    def __init__(self, server: Server, channel: bytes) -> None:
        self._server = server
        self._channel = channel
        self._heard: SimpleQueue[list[Waited]] = SimpleQueue()
        server.listeners.add(self._on_message)

    def hear(self, timeout_s: float) -> list[Waited]:
        """See EndListener."""
        try:
            return self._heard.get(timeout=max(0.0, timeout_s))
        except Empty:
            return []

    def prove(self) -> None:
        """See EndListener: no connection can be lost."""

    def wake(self) -> None:
        """See EndListener."""
        self._heard.put([])

    def close(self) -> None:
        """See EndListener."""
        self._server.listeners.discard(self._on_message)

    def _on_message(self, channel: bytes, message: bytes) -> None:
        if channel == self._channel:
            self._heard.put(read_ended(message))


class EmbeddedLedger(Ledger):
    """The ledger of one process; in memory where no `disk` is given."""

    def __init__(
        self,
        clock: Clock | None = None,
        sharding: Sharding | None = None,
        *,
        deaths: bool = False,
        max_queues: int = 0,
        quotas: str | None = None,
        disk: "LevelDisk | None" = None,
    ) -> None:
        """Raises StoreMisused where a queue has another number of shards on the disk, which is closed then."""
        clock = clock or SystemClock()
        self._server = Server(clock, disk)
        self.client = EmbeddedRedis(self._server)
        # Time is this process's: each script is told it, and hangs its bell in the shard's meta, where none expires.
        super().__init__(
            self.client, sharding=sharding, travel=clock, deaths=deaths, max_queues=max_queues, quotas=quotas
        )
        self._check_counts(sharding or Sharding())

    def bell_at(self, shard: Shard) -> int:
        """Time of a shard's bell, perhaps past; 0 if none hangs."""
        value = self.client.hget(keys_of(self._namespace, shard).meta, "bell_at")
        return int(value or 0)

    def listen(self, heard: BellListener) -> Callable[[], object]:
        """Call `heard` for each bell that is hung from now on, until the returned function is called."""

        def on_message(channel: bytes, at: bytes) -> None:
            if found := CHANNEL.search(channel.decode()):
                heard(Shard(found["queue"], int(found["number"])), int(at))

        self._server.listeners.add(on_message)
        return lambda: self._server.listeners.discard(on_message)

    def end_listener(self) -> "EmbeddedEndListener":
        """Listen from now on: to ends of tasks in this process."""
        return EmbeddedEndListener(self._server, ended_channel(self._namespace).encode())

    def close(self) -> None:
        """Close the disk."""
        self._server.close()

    def _check_counts(self, sharding: Sharding) -> None:
        for (queue, _), count in self._registry.members():
            if count != sharding.count(queue):
                self.close()
                raise StoreMisused(
                    f"Queue {queue} has {count} registered shards and DUECOURSE_SHARDS says {sharding.count(queue)}: "
                    f"set it to {count}, for one process gains nothing by others"
                )


# Time that is moved by hand: a clock for a ledger in this process, and its bells in their order.

AGAIN_MS = 1_000
"""Time after which a bell that has rung rings again, where its shard still has something due."""


class TravelClock:
    """Epoch milliseconds that pass only when the clock is moved, and never back."""

    def __init__(self, at: int) -> None:
        self._at = at

    def now(self) -> int:
        """Epoch milliseconds."""
        return self._at

    def move(self, at: int) -> None:
        """Let it be `at`. Raises ValueError for an instant that is past."""
        if at < self._at:
            raise ValueError("the clock only moves forward")
        self._at = at


class BellSimulator:
    """Rings the bells of a ledger in order: it moves the clock from one bell to the next."""

    def __init__(self, ledger: EmbeddedLedger, clock: TravelClock) -> None:
        self._ledger = ledger
        self._clock = clock
        self._rang: list[Shard] = []
        self._hung = {shard: at for shard in ledger.shards() if (at := ledger.bell_at(shard))}
        self._fresh = set(self._hung)
        """Shards with a new bell since their last ring."""
        self.close = ledger.listen(self._hear)
        """Ends the listening."""

    def next(self, until: int) -> list[Shard]:
        """Move the clock to the next bell, or to `until` if none goes before; returns the shards whose bells go."""
        self._look_again()
        hung = {shard: self._goes_at(shard, at) for shard, at in list(self._hung.items())}
        at = min(hung.values(), default=until + 1)
        self._clock.move(min(at, until))
        self._rang = [shard for shard, goes in hung.items() if goes <= at] if at <= until else []
        self._fresh.difference_update(self._rang)
        return self._rang

    def _goes_at(self, shard: Shard, at: int) -> int:
        """Instant of a bell. A bell of a task that is due at once hangs a millisecond later; it rings at once here."""
        now = self._clock.now()
        return now if at <= now or (at == now + 1 and shard in self._fresh) else at

    def _hear(self, shard: Shard, at: int) -> None:
        self._fresh.add(shard)
        if at:
            self._hung[shard] = at
        else:
            self._hung.pop(shard, None)

    def _look_again(self) -> None:
        """Let a bell that rang for nothing, or whose tasks have to wait, ring again a second later."""
        for shard in set(self._rang) - self._fresh:
            if 0 < self._ledger.bell_at(shard) <= self._clock.now():
                self._hung[shard] = self._clock.now() + AGAIN_MS
