"""A ledger in memory that does not answer for one of its shards, as a cluster whose primary has gone."""

from collections.abc import Sequence
from functools import partial
from typing import Any

from duecourse.errors import StoreMisused, StoreUnavailable
from duecourse.ledger.embedded.ledger import EmbeddedLedger
from duecourse.ledger.operation_types import Away, Claim, Outlook, Swept, answered
from duecourse.ledger.queue import Stats
from duecourse.ledger.task import Shard


class OneByOne(EmbeddedLedger):
    """A ledger that asks each of many shards by itself."""

    def stats_of(self, shards: Sequence[Shard]) -> list[Stats | Away]:
        return [answered(partial(self.stats, shard)) for shard in shards]

    def outlook_of(self, shards: Sequence[Shard]) -> list[Outlook | Away]:
        return [answered(partial(self.outlook, shard)) for shard in shards]

    def outlook(self, shard: Shard) -> Outlook:
        [outlook] = super().outlook_of([shard])
        assert isinstance(outlook, Outlook)
        return outlook

    def sweep_all(
        self, shards: Sequence[Shard], *, retention_ms: int, dead_retention_ms: int | None = None
    ) -> list[Swept | Away]:
        sweep = partial(self.sweep, retention_ms=retention_ms, dead_retention_ms=dead_retention_ms)
        return [answered(partial(sweep, shard)) for shard in shards]


class PartlyUnreachable(OneByOne):
    """Its queue `dead` does not answer, for which `why` is told; with `away` none does."""

    away = False
    rejects = False
    """Whether it is only its scripts that it refuses, as one whose shards were changed under a warm function."""
    why: type[StoreUnavailable | StoreMisused] = StoreUnavailable

    def ping(self) -> None:
        if self.away:
            raise StoreUnavailable

    def outlook(self, shard: Shard) -> Outlook:
        if self.away:
            raise StoreUnavailable
        if shard.queue == "dead" and not self.rejects:
            raise self.why
        return super().outlook(shard)

    def stats(self, shard: Shard) -> Stats:
        assert self.rejects or shard.queue != "dead", "what did not answer is left alone"
        return super().stats(shard)

    def sweep(self, shard: Shard, *, retention_ms: int, dead_retention_ms: int | None = None) -> Swept:
        if self.rejects and shard.queue == "dead":
            raise self.why
        assert shard.queue != "dead", "what did not answer is left alone"
        return super().sweep(shard, retention_ms=retention_ms, dead_retention_ms=dead_retention_ms)

    def claim(self, shard: Shard, limit: int, **options: Any) -> Claim:
        if shard.queue == "dead":
            raise self.why
        return super().claim(shard, limit, **options)
