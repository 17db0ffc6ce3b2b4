"""Data keys on Redis (ports.seals): one hash beside the record of shards, without TTL."""

from collections.abc import Sequence

from duecourse.adapters.redis.keys import ledger_key, seals_key
from duecourse.adapters.redis.layout import NEWEST
from duecourse.adapters.redis.verbs import Verbs
from duecourse.domain.task import Shard
from duecourse.ports.seals import SealState, WrappedKey

CURRENT = "current"
"""Field with the id of the data key that seals now; the other fields are the keys by their ids."""


class RedisSealKeys:
    """The data keys of a namespace, beside a ledger; as many replicas have them as must have a task."""

    def __init__(self, verbs: Verbs) -> None:
        self._verbs = verbs
        self._scripts = verbs.scripts
        self._key = seals_key(verbs.namespace)

    def look(self, shards: Sequence[Shard]) -> SealState:
        """See SealKeys: one round trip a node, and one more for the data key, which is seldom another."""
        metas = [("HMGET", self._verbs.keys(shard).meta, "layout", "fence") for shard in shards]
        for shard in shards:
            self._verbs.record.keep(shard)
        ledger, id, *found = self._scripts.read(
            ("HGET", ledger_key(self._verbs.namespace), "layout"), ("HGET", self._key, CURRENT), *metas
        )
        ready = [shard for shard, (layout, fence) in zip(shards, found, strict=True) if _version(layout, fence, ledger)]
        wrapped = self.get(id.decode()) if id else None
        return SealState(WrappedKey(id.decode(), wrapped) if wrapped else None, ready)

    def get(self, id: str) -> bytes | None:
        """See SealKeys."""
        wrapped: bytes | None = self._scripts.command("HGET", self._key, id)
        return wrapped

    def put(self, key: WrappedKey, instead_of: str) -> WrappedKey:
        """See SealKeys."""
        arguments = (1, (self._key, self._scripts.clock(), key.id, key.wrapped, instead_of))
        id, wrapped = self._scripts.evaluate("rekey", arguments, replicas=self._verbs.wait)
        return WrappedKey(id.decode(), wrapped)


def _version(layout: bytes | None, fence: bytes | None, ledger: bytes | None) -> bool:
    """True if a shard's records are of the newest version; one that never drew a fence gets the ledger's."""
    version = layout or (None if fence else ledger)
    return bool(version and version.isdigit() and len(version) < 4 and int(version) >= NEWEST)
