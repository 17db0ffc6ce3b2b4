"""The ledger in this process: the store of Redis, on a server that is here."""

import re
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from duecourse.adapters.embedded.client import EmbeddedRedis
from duecourse.adapters.embedded.server import Server
from duecourse.adapters.redis.keys import keys_of
from duecourse.adapters.redis.store import RedisStore
from duecourse.domain.shards import Sharding
from duecourse.domain.task import Shard
from duecourse.errors import StoreMisused
from duecourse.ports.clock import Clock

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


class EmbeddedStore(RedisStore):
    """The ledger (ports.store.Store) of one process; in memory where no `disk` is given."""

    def __init__(
        self,
        clock: Clock | None = None,
        sharding: Sharding | None = None,
        *,
        deaths: bool = False,
        disk: "LevelDisk | None" = None,
    ) -> None:
        """Raises StoreMisused where a queue has another number of shards on the disk, which is closed then."""
        clock = clock or SystemClock()
        self._server = Server(clock, disk)
        self._listeners: dict[object, Heard] = {}
        self._server.heard = self._on_head
        self.client = EmbeddedRedis(self._server)
        # Time is this process's: each script is told it, and hangs its bell in the shard's meta, where none expires.
        super().__init__(self.client, sharding=sharding, travel=clock, deaths=deaths)
        self._check_counts(sharding or Sharding())

    def bell_at(self, shard: Shard) -> int:
        """Time of a shard's bell, perhaps past; 0 if none hangs."""
        value = self.client.hget(keys_of(self._namespace, shard).meta, "bell_at")
        return int(value or 0)

    def listen(self, heard: Heard) -> Callable[[], object]:
        """Call `heard` for each bell that is hung from now on, until the returned function is called."""
        listener = object()
        self._listeners[listener] = heard
        return lambda: self._listeners.pop(listener, None)

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

    def _on_head(self, channel: bytes, at: bytes) -> None:
        found = CHANNEL.search(channel.decode())
        if found:
            for heard in list(self._listeners.values()):  # a copy: a listener may come or go meanwhile
                heard(Shard(found["queue"], int(found["number"])), int(at))


class MemoryStore(EmbeddedStore):
    """The ledger of one process, gone with it; for tests."""
