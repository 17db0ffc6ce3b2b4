"""Repair of a ledger whose keys another program deleted, or the server evicted: what is left is worked again."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from duecourse.adapters.redis.arguments import Argument, tenants_of
from duecourse.adapters.redis.connect import Client
from duecourse.adapters.redis.keys import keys_of, on_record, shards_key
from duecourse.adapters.redis.scan import SUCCESSOR, Item, Scan
from duecourse.adapters.redis.scripts import RESHARDED, Scripts
from duecourse.domain.batches import pieces
from duecourse.domain.task import Shard
from duecourse.errors import StoreMisused
from duecourse.ports.clock import Clock

MOST_LEASES = 5_000
"""Number of leases up to which a script counts them in one go."""
AT_ONCE = 1_000
TRIES = 5
ALL, ALL_BUT_LEASES = 1, 2
"""What the script counts anew."""


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
        few = self._leases(shard)[1] <= MOST_LEASES
        put_back += self._put_back(shard, count, [], anew=ALL if few else ALL_BUT_LEASES)
        if not few and not any(self._count_leases(shard, count) for _ in range(TRIES)):
            self._tell(f"{shard}: leases changed while they were counted: run this again at a quieter time")
        if put_back:
            self._tell(f"{shard}: put {put_back} entries back")
        for sid, problem in scan.unreadable.items():
            self._tell(f"{shard}: the record of {sid} cannot be read: {problem}")
        return Mended(tasks, put_back, len(scan.unreadable))

    def _put_back(self, shard: Shard, count: int, items: Sequence[Item], *, anew: int = 0) -> int:
        """Number of entries that were missing of some tasks; `anew` is what the script counts anew."""
        tenants, sids = tenants_of(item.task for item in items), [item.sid for item in items]
        return self._run(shard, count, tenants, (anew, *sids))

    def _leases(self, shard: Shard) -> tuple[int, int]:
        """The shard's newest fence and number of leases: where both stay, so do the leases."""
        keys = keys_of(self._namespace, shard)
        fence, leased = self._scripts.read(("HGET", keys.meta, "fence"), ("ZCARD", keys.leased))
        return int(fence or 0), leased

    def _count_leases(self, shard: Shard, count: int) -> bool:
        """Count the leases of each tenant in steps; False where they changed meanwhile."""
        fence, leased = self._leases(shard)
        keys = keys_of(self._namespace, shard)
        sids = dict(self._every("ZSCAN", keys.leased))
        running = Counter(b"running:" + sid.partition(b"/")[0] for sid in sids)
        told = {name: int(value) for name, value in self._every("HSCAN", keys.meta) if name.startswith(b"running:")}
        wrong = [name for name in running | told if running[name] != told.get(name)]
        for some in pieces(wrong, AT_ONCE):
            counts = (word for name in some for word in (name, running[name] or ""))
            if self._run(shard, count, (), (f"{fence} {leased}", *counts)) < 0:
                return False
        return self._leases(shard) == (fence, leased)

    def _every(self, command: str, key: str) -> Iterator[tuple[bytes, Any]]:
        """All pairs of a large collection, a bounded step at a time; one that changes may come twice."""
        cursor = 0
        while True:
            cursor, found = self._scripts.command(command, key, cursor, "COUNT", AT_ONCE)
            yield from found.items() if isinstance(found, dict) else found
            if not int(cursor):
                return

    def _run(self, shard: Shard, count: int, tenants: Sequence[str], arguments: Sequence[Argument]) -> int:
        request = self._scripts.request(keys_of(self._namespace, shard), tenants, (self._lease_ms, *arguments), count)
        answer = self._scripts.evaluate("mend", request)
        if answer == RESHARDED:
            raise StoreMisused(f"The number of shards of {shard.queue} is being changed: run this again after that")
        return int(answer[2])
