"""A store in memory that does not answer for one of its shards, as a cluster whose primary has gone."""

from duecourse.adapters.keyvalue.store import MemoryStore
from duecourse.domain.queues import Stats
from duecourse.domain.task import Shard
from duecourse.errors import StoreUnavailable
from duecourse.ports.store import Swept


class Partly(MemoryStore):
    """Its queue `dead` does not answer; with `away` none does."""

    away = False

    def ping(self) -> None:
        if self.away:
            raise StoreUnavailable

    def stats(self, shard: Shard) -> Stats:
        if self.away or shard.queue == "dead":
            raise StoreUnavailable
        return super().stats(shard)

    def sweep(self, shard: Shard, *, retention_ms: int) -> Swept:
        assert shard.queue != "dead", "what did not answer is left alone"
        return super().sweep(shard, retention_ms=retention_ms)
