"""The shards on record in Redis, and what is said where a queue has another number of them than the settings say."""

import time
from typing import Any, NoReturn

from duecourse.adapters.redis_keys import keys_of, shards_key
from duecourse.adapters.redis_scripts import Scripts
from duecourse.domain.shards import Sharding
from duecourse.domain.task import Shard
from duecourse.errors import StoreMisused, StoreUnavailable

TRUSTED_S = 1.0
"""How long what was read of all queues will do for another: a thousand queues are not read a thousand times."""


class ShardsOnRecord:
    """The set `<namespace>:shards`, whose members are `<queue>/<number>/<count>`."""

    def __init__(self, scripts: Scripts, namespace: str, sharding: Sharding) -> None:
        self._scripts = scripts
        self._namespace = namespace
        self._sharding = sharding
        self._known: set[str] = set()
        self._counts: dict[str, set[int]] = {}
        self._read_at = -TRUSTED_S

    def all(self) -> list[Shard]:
        """Every shard on record."""
        return sorted(Shard(queue, number) for queue, number, _ in self._members())

    def check(self, queue: str) -> None:
        """Return if the queue has as many shards as the settings say; looked up once. Raises StoreMisused."""
        if queue in self._known:
            return
        if time.monotonic() - self._read_at > TRUSTED_S or not self._agrees(queue):
            self._read()
        for told in self._counts.get(queue, ()):
            self._compare(queue, str(told))
        self._known.add(queue)

    def compare(self, queue: str, told: bytes | None) -> None:
        """Return if that is how many shards the queue has, as its shard's meta tells. Raises as `refuse`."""
        if told:
            self._compare(queue, told.decode())

    def refuse(self, shard: Shard) -> NoReturn:
        """Raise StoreUnavailable while the queue's shards are changed, StoreMisused where they are another number."""
        meta = keys_of(self._namespace, shard).meta
        told: Any = self._scripts.call(lambda: self._scripts.client.hget(meta, "shards"), again=True)
        self.compare(shard.queue, told)
        raise StoreUnavailable(f"The shards of queue {shard.queue} have just been changed: ask again")

    def register(self, shard: Shard) -> None:
        """Put a shard on record. Raises StoreMisused where its queue has another number of shards."""
        count = self._sharding.count(shard.queue)
        arguments = (shards_key(self._namespace), shard.queue, shard.number, count)
        on_record = self._scripts.evaluate("register", 1, arguments, again=True)
        if on_record:
            self._compare(shard.queue, str(on_record))

    def _compare(self, queue: str, told: str) -> None:
        count = str(self._sharding.count(queue))
        if ">" in told:
            changed = told.partition("#")[0].replace(">", " to ")
            raise StoreUnavailable(f"The shards of queue {queue} are being changed, from {changed}")
        if told != count:
            raise StoreMisused(
                f"Queue {queue} has {told} shards on record and DUECOURSE_SHARDS says {count}: "
                f"run `python -m local reshard {queue} {count}`, or set it to {told}"
            )

    def _agrees(self, queue: str) -> bool:
        return self._counts.get(queue, set()) <= {self._sharding.count(queue)}

    def _read(self) -> None:
        at = time.monotonic()
        counts: dict[str, set[int]] = {}
        for queue, _, count in self._members():
            counts.setdefault(queue, set()).add(count)
        self._read_at, self._counts = at, counts

    def _members(self) -> list[tuple[str, int, int]]:
        key = shards_key(self._namespace)
        members: Any = self._scripts.call(lambda: self._scripts.client.smembers(key), again=True)
        parts = (member.decode().split("/") for member in members)
        return [(queue, int(number), int(count)) for queue, number, count in parts]
