"""The shards on record in Redis, and what is said where a queue has another number of them than the settings say."""

import secrets
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NoReturn

from duecourse.adapters.redis.keys import keys_of, leaving_key, ledger_key, shards_key
from duecourse.adapters.redis.layout import NEWEST
from duecourse.adapters.redis.scripts import Scripts
from duecourse.domain.shards import Sharding
from duecourse.domain.task import Shard
from duecourse.errors import StoreMisused, StoreUnavailable

KEPT_S = 60.0
"""How long a process takes for granted that a shard is on record: a failover may lose that."""
GRACE_S = 5.0
"""How soon it is looked up again after the record did not answer."""
TRUSTED_S = 1.0
"""How long what was read of all queues will do for another: a thousand queues are not read a thousand times."""


class ShardsOnRecord:
    """The set `<namespace>:shards`, whose members are `<queue>/<number>/<count>`.

    `wait` is how many replicas must know of a member.
    """

    def __init__(self, scripts: Scripts, namespace: str, sharding: Sharding, wait: int) -> None:
        self._scripts = scripts
        self._namespace = namespace
        self._sharding = sharding
        self._keys = (shards_key(namespace), leaving_key(namespace), ledger_key(namespace))
        self._wait = wait
        self._known: set[str] = set()
        self._counts: dict[str, set[int]] = {}
        self._seen: dict[Shard, tuple[float, int]] = {}
        self._met: dict[Shard, float] = {}
        self._read_at = -TRUSTED_S

    def all(self) -> list[Shard]:
        """Every shard on record."""
        return sorted(Shard(queue, number) for queue, number, _ in self.members())

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
        raise StoreUnavailable(f"The shards of queue {shard.queue} have just been changed: try again")

    def register(self, shard: Shard) -> int:
        """Put a shard on record, and have as many replicas know as must; answers which version its records have if new.

        Raises StoreMisused where its queue has another number of shards, StoreUnavailable where too few replicas know.
        """
        version = self._register(shard, self._wait)
        self._see(shard)
        return version

    def keep(self, shard: Shard) -> None:
        """Put a shard that is to have tasks on record again should it not be there, looked up now and then.

        Raises as `register`. One that this process knows of is taken for granted while the record does not answer.
        """
        if self._is_sure(shard):
            return
        try:
            # That it is on record says nothing of replicas: where they count, it is written once more.
            if self._wait or not self._is_there(shard):
                self._register(shard, self._wait)
            self._see(shard)
        except StoreUnavailable:
            if self._wait and shard not in self._seen:
                raise
            self._see(shard, for_s=GRACE_S)

    def meet(self, shard: Shard) -> None:
        """Put a shard that was found to have tasks on record again should it not be there; what is away is let be."""
        if self._is_sure(shard) or self._met.get(shard, 0) > time.monotonic():
            return
        self._met[shard] = time.monotonic() + GRACE_S
        with suppress(StoreUnavailable, StoreMisused):
            if not self._is_there(shard):
                self._register(shard, 0)
            self._met[shard] = time.monotonic() + KEPT_S

    def _register(self, shard: Shard, replicas: int) -> int:
        count = self._sharding.count(shard.queue)
        arguments = (*self._keys, shard.queue, shard.number, count, int(bool(replicas)), NEWEST)
        answer = int(self._scripts.evaluate("register", len(self._keys), arguments, again=True, replicas=replicas))
        if answer > 0:
            self._compare(shard.queue, str(answer))
        return -answer

    def _is_there(self, shard: Shard) -> bool:
        key, member = shards_key(self._namespace), f"{shard}/{self._sharding.count(shard.queue)}"
        return bool(self._scripts.call(lambda: self._scripts.client.sismember(key, member), again=True))

    def _is_sure(self, shard: Shard) -> bool:
        until, outages = self._seen.get(shard, (0.0, 0))
        return until > time.monotonic() and outages == self._scripts.outages

    def _see(self, shard: Shard, for_s: float = KEPT_S) -> None:
        self._seen[shard] = (time.monotonic() + for_s, self._scripts.outages)

    def forget(self, shard: Shard, leave: Callable[[], bool]) -> None:
        """Take a shard off the record once `leave` has had it refuse what is added without being put there again.

        Marked first: whoever puts it on record meanwhile takes the mark away, and it stays.
        """
        leaving, member = self._keys[1], f"{shard}/{self._sharding.count(shard.queue)}"
        mark = f"{member}#{secrets.token_hex(8)}"  # its own: another who forgets it at once may mark it again
        self._scripts.call(lambda: self._scripts.client.sadd(leaving, mark), again=True)
        if leave():
            self._scripts.evaluate("unregister", 2, (*self._keys[:2], member, mark), again=True)
        else:
            self._scripts.call(lambda: self._scripts.client.srem(leaving, mark), again=True)

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
        for queue, number, count in self.members():
            counts.setdefault(queue, set()).add(count)
            if not self._wait:
                self._see(Shard(queue, number))
        self._read_at, self._counts = at, counts

    def members(self) -> list[tuple[str, int, int]]:
        """Every shard on record: queue, number, and how many the queue has."""
        key = shards_key(self._namespace)
        members: Any = self._scripts.call(lambda: self._scripts.client.smembers(key), again=True)
        parts = (member.decode().split("/") for member in members)
        return [(queue, int(number), int(count)) for queue, number, count in parts]
