"""Shards that have tasks and are not on record: a failover may lose the record, which is on a node of its own."""

import time
from functools import partial
from typing import Any

from duecourse.adapters.redis.connect import primaries_of
from duecourse.adapters.redis.keys import keys_of, shard_of_tasks_key, tasks_pattern
from duecourse.adapters.redis.scripts import Scripts
from duecourse.adapters.redis.shards import ShardsOnRecord
from duecourse.domain.shards import Sharding
from duecourse.domain.task import Shard
from duecourse.errors import StoreMisused, StoreUnavailable

STEP = 1_000
"""How many keys are looked at for them in one step, on each node."""
EVERY_S = 30.0
"""How often a step is made, at most: less than a tick's minute."""


class LostShards:
    """Looks for them step by step, over all keys of a node and again from the first."""

    def __init__(self, scripts: Scripts, namespace: str, sharding: Sharding, record: ShardsOnRecord) -> None:
        self._scripts = scripts
        self._namespace = namespace
        self._sharding = sharding
        self._record = record
        self._cursors: dict[str, int] = {}
        self._looked_at = -EVERY_S

    def look(self) -> None:
        """Make a step where one is due, and put on record what it finds. What is away is looked at another time."""
        if time.monotonic() - self._looked_at < EVERY_S:
            return
        self._looked_at = time.monotonic()
        for name, node in primaries_of(self._scripts.client).items():
            try:
                for shard in filter(self._is_ours, self._step(name, node)):
                    self._record.meet(shard)
            except (StoreUnavailable, StoreMisused):
                continue

    def _step(self, name: str, node: Any) -> list[Shard]:
        cursor = self._cursors.get(name, 0)
        pattern = tasks_pattern(self._namespace)
        found: Any = self._scripts.call(partial(node.scan, cursor, match=pattern, count=STEP), again=True)
        self._cursors[name], keys = found
        return [shard for key in keys if (shard := shard_of_tasks_key(self._namespace, key.decode()))]

    def _is_ours(self, shard: Shard) -> bool:
        """Whether its queue has as many shards as the settings say, by the shard's own word."""
        meta = keys_of(self._namespace, shard).meta
        told: Any = self._scripts.call(lambda: self._scripts.client.hget(meta, "shards"), again=True)
        return (told or b"1").decode() == str(self._sharding.count(shard.queue))
