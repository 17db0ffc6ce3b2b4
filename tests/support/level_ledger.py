"""A ledger in a folder, whose keys must be in order when it is closed."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from duecourse.base.times import Clock
from duecourse.ledger.embedded.ledger import EmbeddedLedger
from duecourse.ledger.embedded.leveldb import LevelDisk
from duecourse.ledger.sharding import Sharding
from tests.support import redis_ledger


@contextmanager
def level_ledger(
    folder: Path, clock: Clock | None = None, sharding: Sharding | None = None, **options: Any
) -> Iterator[EmbeddedLedger]:
    """A ledger in `folder`; what it wrote is true when it is closed."""
    ledger = EmbeddedLedger(clock, sharding, **options, disk=LevelDisk(str(folder)))
    try:
        yield ledger
        for shard in ledger.shards():
            redis_ledger.check(ledger.client, shard)
    finally:
        ledger.close()
