"""Upkeep that a tick does and the rounds that it notes (ports.upkeep)."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from duecourse.adapters.redis import eviction, server_time
from duecourse.adapters.redis.answers import SweepAnswer
from duecourse.adapters.redis.connect import primaries_of
from duecourse.adapters.redis.idempotency import RedisIdempotency
from duecourse.adapters.redis.keys import rounds_key
from duecourse.adapters.redis.ledger import RedisLedger
from duecourse.adapters.redis.queues import copy_settings, lagging
from duecourse.adapters.redis.scripts import Request, Scripts
from duecourse.adapters.redis.verbs import Question
from duecourse.domain.task import Shard
from duecourse.errors import StoreMisused, StoreUnavailable
from duecourse.ports.ledger import Away
from duecourse.ports.queues import FORGET_MS
from duecourse.ports.upkeep import Outlook, Swept


class RedisRounds:
    """Instants at which parts of the shards were swept (ports.upkeep.Rounds): a hash beside the shards' record."""

    def __init__(self, scripts: Scripts, namespace: str) -> None:
        self._scripts = scripts
        self._key = rounds_key(namespace)

    def swept_at(self) -> dict[int, int]:
        """See Rounds."""
        noted = self._scripts.command("HGETALL", self._key).items()
        return {int(part): int(at) for part, at in noted if part.isdigit() and at.isdigit()}

    def note(self, parts: Iterable[int], at: int) -> None:
        """See Rounds."""
        self._scripts.command("HSET", self._key, *(word for part in parts for word in (part, at)))


class RedisUpkeep(RedisLedger):
    """Sweeps and outlooks of shards, and the records beside them."""

    def idempotency(self) -> RedisIdempotency:
        """See Upkeep."""
        return RedisIdempotency(self._scripts, self._namespace, self._verbs.wait)

    def rounds(self) -> RedisRounds:
        """See Upkeep."""
        return RedisRounds(self._scripts, self._namespace)

    def warnings(self) -> list[str]:
        """See Upkeep: those of all primaries, each once."""
        checks = [eviction.warning] if self._scripts.travel else [eviction.warning, server_time.warning]
        asked = [partial(check, server) for server in primaries_of(self._client).values() for check in checks]
        found = [self._scripts.call(one) for one in asked]
        return [warning for warning in dict.fromkeys(found) if warning]

    def outlook_of(self, shards: Sequence[Shard]) -> list[Outlook | Away]:
        """See Upkeep: a round trip a node."""
        return self._verbs.ask_all(Question("outlook", self._outlook_request, self._read_outlook), shards)

    def _outlook_request(self, shard: Shard) -> Request:
        fixed = self._verbs.keys(shard).fixed
        return len(fixed), (*fixed, self._sharding.count(shard.queue))

    def _read_outlook(self, _shard: Shard, answer: Any) -> Outlook:
        now, next_at, dead = answer
        travel = self._scripts.travel
        return Outlook(next_at or 0, dead, travel.now() if travel else now)

    def sweep(self, shard: Shard, *, retention_ms: int, dead_retention_ms: int | None = None) -> Swept:
        """See Store."""
        swept = self._verbs.ask(self._sweep(retention_ms, dead_retention_ms), shard)
        self._update_lagging({shard: swept})
        return swept

    def sweep_all(
        self, shards: Sequence[Shard], *, retention_ms: int, dead_retention_ms: int | None = None
    ) -> list[Swept | Away]:
        """See Upkeep: a round trip a node, and another where shards are not their queue's first."""
        answers = self._verbs.ask_all(self._sweep(retention_ms, dead_retention_ms), shards)
        self._update_lagging(dict(zip(shards, answers, strict=True)))
        return answers

    def _update_lagging(self, swept: Mapping[Shard, Swept | Away]) -> None:
        """Give shards that lag the settings of their queue; the next sweep tries again."""
        revisions = {shard: one.revision for shard, one in swept.items() if isinstance(one, Swept)}
        with suppress(StoreUnavailable, StoreMisused):
            copy_settings(self._verbs, lagging(self._verbs, revisions))

    def _sweep(self, retention_ms: int, dead_retention_ms: int | None) -> Question[Swept]:
        quotas = () if self._quotas is None else (self._quotas,)
        arguments = (*self._ending, retention_ms, "" if dead_retention_ms is None else dead_retention_ms, *quotas)

        def request(shard: Shard) -> Request:
            return self._verbs.request(shard, self._verbs.met(shard), arguments)

        return Question("sweep", request, self._read_swept)

    def _read_swept(self, shard: Shard, answer: Any) -> Swept:
        got = SweepAnswer(*answer)
        self._verbs.meet(shard, got.want)
        if got.idle_ms >= FORGET_MS:
            self._record.forget(shard, partial(self._leave, shard))
        return Swept(
            got.reclaimed, got.died, got.pruned, bool(got.more or got.want), got.bell_at, got.now,
            got.revision.decode(), got.spared_until,
        )  # fmt: skip

    def _leave(self, shard: Shard) -> bool:
        _, _, left = self._verbs.run("leave", shard, (), (FORGET_MS,))
        return bool(left)
