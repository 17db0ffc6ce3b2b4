"""Which shards are on record in an ordered map, each under `shard NUL <queue>/<number>` with its queue's count."""

from duecourse.adapters.keyvalue.map import Batch
from duecourse.domain.task import Shard

SHARD = b"shard\0"


def register(batch: Batch, shard: Shard, count: int) -> None:
    """Put a shard on record, as one of so many."""
    batch.put(SHARD + str(shard).encode(), str(count).encode())


def shards_on_record(batch: Batch) -> dict[Shard, int]:
    """Every shard that was ever added to or set, and how many its queue had then."""
    found = {}
    for key, count in batch.range(SHARD, SHARD + b"\xff"):
        queue, _, number = key.partition(b"\0")[2].decode().rpartition("/")
        found[Shard(queue, int(number))] = int(count)
    return found
