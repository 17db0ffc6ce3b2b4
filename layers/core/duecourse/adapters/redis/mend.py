"""Repair of a ledger whose keys another program deleted, or the server evicted: what is left is worked again."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from duecourse.adapters.redis.arguments import tenants_of
from duecourse.adapters.redis.connect import Client
from duecourse.adapters.redis.keys import keys_of, on_record, shards_key
from duecourse.adapters.redis.scan import SUCCESSOR, Item, Scan
from duecourse.adapters.redis.scripts import RESHARDED, Scripts
from duecourse.domain.task import Shard
from duecourse.errors import StoreMisused
from duecourse.ports.clock import Clock


class Mended(NamedTuple):
    """Number of tasks that were looked at, of entries that were put back, and of records that cannot be read."""

    tasks: int
    put_back: int
    unreadable: int


class Mend:
    """One repair of one ledger; `tell` receives a line for each shard that needed it.

    The queues stay open. Raises StoreMisused and StoreUnavailable.
    """

    def __init__(
        self,
        client: Client,
        namespace: str,
        lease_ms: int,
        tell: Callable[[str], object],
        clock: Clock | None = None,
    ) -> None:
        """`clock` is in place of the server's, for a ledger in this process."""
        self._scripts = Scripts(client, clock)
        self._namespace = namespace
        self._lease_ms = lease_ms
        self._tell = tell

    def run(self) -> Mended:
        """Look at every task of every shard on record, and put back what is missing."""
        members = sorted(on_record(self._scripts.command("SMEMBERS", shards_key(self._namespace))))
        found = [self._mend(shard, count) for shard, count in members]
        return Mended(*map(sum, zip(*found, strict=True))) if found else Mended(0, 0, 0)

    def _mend(self, shard: Shard, count: int) -> Mended:
        scan, tasks, put_back = Scan(self._scripts, self._namespace, shard.queue), 0, 0
        for batch in scan.batches(shard):
            items = [item for item in batch if not item.sid.endswith(SUCCESSOR)]
            put_back += self._put_back(shard, count, items)
            tasks += len(items)
        put_back += self._put_back(shard, count, [], anew=True)
        if put_back:
            self._tell(f"{shard}: put {put_back} entries back")
        for sid, problem in scan.unreadable.items():
            self._tell(f"{shard}: the record of {sid} cannot be read: {problem}")
        return Mended(tasks, put_back, len(scan.unreadable))

    def _put_back(self, shard: Shard, count: int, items: Sequence[Item], *, anew: bool = False) -> int:
        """Number of entries that were missing of some tasks; with `anew` the script recounts them too."""
        tenants, sids = tenants_of(item.task for item in items), [item.sid for item in items]
        request = self._scripts.request(
            keys_of(self._namespace, shard), tenants, (self._lease_ms, int(anew), *sids), count
        )
        answer = self._scripts.evaluate("mend", request)
        if answer == RESHARDED:
            raise StoreMisused(f"The number of shards of {shard.queue} is being changed: run this again after that")
        return int(answer[2])
