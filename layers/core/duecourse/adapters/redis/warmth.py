"""Warmth on Redis: two scripts, and one hash of functions under a hash tag of its own, without TTL."""

from collections.abc import Sequence

from duecourse.adapters.redis.keys import functions_key
from duecourse.adapters.redis.scripts import load
from duecourse.adapters.redis.verbs import Verbs
from duecourse.domain.task import Shard

WORKED = ("claim", "fire", "work", "settle", "extend")
"""Verbs that a worker of tasks uses."""
TENANTS = 8
"""Number of tenants whose tasks are looked at: those whose heads come due first."""


class RedisWarmth:
    """Kinds due soon, and functions by their last invocation (ports.warmth.Warmth), beside a ledger."""

    def __init__(self, verbs: Verbs) -> None:
        self._verbs = verbs
        self._scripts = verbs.scripts

    def get_ready(self) -> None:
        """See Warmth; in a source tree the scripts are put together, which takes some 50 ms."""
        self._scripts.command("HLEN", functions_key(self._verbs.namespace))
        for verb in WORKED:
            load(verb)

    def coming(self, shard: Shard, within_ms: int) -> list[str]:
        """See Warmth."""
        first = self._scripts.command("ZRANGE", self._verbs.keys(shard).heads, 0, TENANTS - 1)
        kinds = self._verbs.run("coming", shard, [tenant.decode() for tenant in first], [within_ms]) if first else []
        return [kind.decode() for kind in kinds]

    def idle(self, functions: Sequence[str], idle_ms: int) -> list[str]:
        """See Warmth."""
        key, clock = functions_key(self._verbs.namespace), self._scripts.clock()
        return [name.decode() for name in self._scripts.evaluate("idle", (1, (key, clock, idle_ms, *functions)))]
