"""The rounds of upkeep on Redis: one small hash beside the record of shards."""

from collections.abc import Iterable
from typing import Any

from duecourse.adapters.redis.keys import rounds_key
from duecourse.adapters.redis.scripts import Scripts


class RedisRounds:
    """Instants at which parts of the shards were swept (ports.upkeep.Rounds), beside a ledger on the same client."""

    def __init__(self, scripts: Scripts, namespace: str) -> None:
        self._scripts = scripts
        self._key = rounds_key(namespace)

    def swept_at(self) -> dict[int, int]:
        """See Rounds."""
        found: Any = self._scripts.call(lambda: self._scripts.client.hgetall(self._key), again=True)
        return {int(part): int(at) for part, at in found.items()}

    def note(self, parts: Iterable[int], at: int) -> None:
        """See Rounds."""
        noted: Any = dict.fromkeys(map(str, parts), at)
        self._scripts.call(lambda: self._scripts.client.hset(self._key, mapping=noted), again=True)
