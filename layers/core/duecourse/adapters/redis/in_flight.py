"""Queries in flight on Redis (ports.in_flight): one hash of tenants under a hash tag of its own, without TTL."""

from duecourse.adapters.redis.keys import queries_key
from duecourse.adapters.redis.scripts import Scripts


class RedisInFlight:
    """The queries in flight of a namespace, beside a ledger on the same client."""

    def __init__(self, scripts: Scripts, namespace: str) -> None:
        self._scripts = scripts
        self._key = queries_key(namespace)

    def admit(self, tenant: str, id: str, most: int, for_ms: int) -> str:
        """See InFlight."""
        arguments = (self._scripts.clock(), tenant, id, for_ms, most)
        entry: bytes = self._scripts.evaluate("admit", (1, (self._key, *arguments)))
        return entry.decode()

    def dismiss(self, tenant: str, entry: str) -> None:
        """See InFlight."""
        self._scripts.evaluate("dismiss", (1, (self._key, self._scripts.clock(), tenant, entry)))
