"""Warmth on Redis: two scripts, and one hash of functions under a hash tag of its own, without TTL."""

from collections.abc import Sequence

from duecourse.adapters.redis.keys import functions_key
from duecourse.adapters.redis.verbs import Verbs
from duecourse.domain.task import Shard

TENANTS = 8
"""How many tenants' tasks are looked at: those whose heads come due first."""


class RedisWarmth:
    """What comes due soon, and what was invoked (ports.warmth.Warmth), beside a ledger on the same client."""

    def __init__(self, verbs: Verbs, namespace: str) -> None:
        self._verbs = verbs
        self._key = functions_key(namespace)

    def coming(self, shard: Shard, within_ms: int) -> list[str]:
        """See Warmth."""
        heads = self._verbs.keys(shard).heads
        [first] = self._verbs.scripts.read(lambda pipe: pipe.zrange(heads, 0, TENANTS - 1))
        if not first:
            return []
        tenants = [tenant.decode() for tenant in first]
        kinds = self._verbs.run("coming", shard, tenants, [within_ms], again=True)
        return [kind.decode() for kind in kinds] if isinstance(kinds, list) else []

    def idle(self, functions: Sequence[str], idle_ms: int) -> list[str]:
        """See Warmth."""
        scripts = self._verbs.scripts
        clock = str(scripts.travel.now()) if scripts.travel else ""
        return [
            name.decode() for name in scripts.evaluate("idle", 1, (self._key, clock, idle_ms, *functions), again=True)
        ]
