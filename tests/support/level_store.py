"""A ledger in a folder, whose keys must be in order when it is closed."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from duecourse.adapters.embedded.leveldb import LevelDisk
from duecourse.adapters.embedded.store import EmbeddedStore
from duecourse.domain.shards import Sharding
from duecourse.ports.clock import Clock
from tests.support import redis_ledger


@contextmanager
def level_store(
    folder: Path, clock: Clock | None = None, sharding: Sharding | None = None, **options: Any
) -> Iterator[EmbeddedStore]:
    """A store in `folder`; what it wrote is true when it is closed."""
    store = EmbeddedStore(clock, sharding, **options, disk=LevelDisk(str(folder)))
    try:
        yield store
        for shard in store.shards():
            redis_ledger.check(store.client, shard)
    finally:
        store.close()
