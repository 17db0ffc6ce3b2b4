"""The ledger in this process: the store of Redis, on a server that is here."""

import re
import time
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING

from duecourse.adapters.embedded.client import EmbeddedRedis
from duecourse.adapters.embedded.server import Server
from duecourse.adapters.redis.keys import ended_channel, keys_of
from duecourse.adapters.redis.store import RedisStore
from duecourse.adapters.redis.waits import read_ended
from duecourse.domain.shards import Sharding
from duecourse.domain.task import Shard
from duecourse.errors import StoreMisused
from duecourse.ports.clock import Clock
from duecourse.ports.waits import Waited

if TYPE_CHECKING:
    from duecourse.adapters.embedded.leveldb import LevelDisk

CHANNEL = re.compile(r"\{(?P<queue>[^/}]+)/(?P<number>\d+)\}:head$")

Heard = Callable[[Shard, int], None]
"""Receiver of a shard and the new time of its bell (0: none); it must not wait, raise or call the store."""


class SystemClock:
    """This machine's time."""

    def now(self) -> int:
        """Epoch milliseconds."""
        return time.time_ns() // 1_000_000


class EmbeddedEndings:
    """Ends of tasks in this process (ports.waits.Endings)."""

    def __init__(self, server: Server, channel: bytes) -> None:
        self._server = server
        self._channel = channel
        self._heard: SimpleQueue[list[Waited]] = SimpleQueue()
        server.listeners.add(self._on_message)

    def hear(self, timeout_s: float) -> list[Waited]:
        """See Endings."""
        try:
            return self._heard.get(timeout=max(0.0, timeout_s))
        except Empty:
            return []

    def prove(self) -> None:
        """See Endings: no connection can be lost."""

    def wake(self) -> None:
        """See Endings."""
        self._heard.put([])

    def close(self) -> None:
        """See Endings."""
        self._server.listeners.discard(self._on_message)

    def _on_message(self, channel: bytes, message: bytes) -> None:
        if channel == self._channel:
            self._heard.put(read_ended(message))


class EmbeddedStore(RedisStore):
    """The ledger (ports.store.Store) of one process; in memory where no `disk` is given."""

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

    def listen(self, heard: Heard) -> Callable[[], object]:
        """Call `heard` for each bell that is hung from now on, until the returned function is called."""

        def on_message(channel: bytes, at: bytes) -> None:
            if found := CHANNEL.search(channel.decode()):
                heard(Shard(found["queue"], int(found["number"])), int(at))

        self._server.listeners.add(on_message)
        return lambda: self._server.listeners.discard(on_message)

    def endings(self) -> "EmbeddedEndings":
        """See WaitStore."""
        return EmbeddedEndings(self._server, ended_channel(self._namespace).encode())

    def close(self) -> None:
        """Close the disk."""
        self._server.close()

    def _check_counts(self, sharding: Sharding) -> None:
        for (queue, _), count in self._record.members():
            if count != sharding.count(queue):
                self.close()
                raise StoreMisused(
                    f"Queue {queue} has {count} shards on record and DUECOURSE_SHARDS says {sharding.count(queue)}: "
                    f"set it to {count}, for one process gains nothing by others"
                )


class MemoryStore(EmbeddedStore):
    """The ledger of one process, gone with it; for tests."""
