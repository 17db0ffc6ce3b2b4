"""Upkeep of the ledger, as a tick does it: sweeps, what is due next, and warnings of its servers."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from duecourse.errors import StoreMisused, StoreUnavailable
from duecourse.ledger import connect, script_calls
from duecourse.ledger.connect import primaries_of
from duecourse.ledger.operation_types import FORGET_MS, Away, Outlook, Swept
from duecourse.ledger.operations.base import LedgerBase, ScriptRequest
from duecourse.ledger.operations.queues import copy_settings, lagging
from duecourse.ledger.script_calls import Request
from duecourse.ledger.script_codec import SweepAnswer
from duecourse.ledger.task import Shard


class UpkeepOperations(LedgerBase):
    """Operations that keep the ledger in order."""

    def warnings(self) -> list[str]:
        """Faults of the primaries by which tasks can be lost or come at a wrong time, each once and in a sentence."""
        checks = (
            [connect.eviction_warning] if self._scripts.travel else [connect.eviction_warning, script_calls.check_clock]
        )
        calls = [partial(check, server) for server in primaries_of(self._client).values() for check in checks]
        found = [self._scripts.call(call) for call in calls]
        return [warning for warning in dict.fromkeys(found) if warning]

    def outlook_of(self, shards: Sequence[Shard]) -> list[Outlook | Away]:
        """Next work of many shards, or the error for one: a few reads a shard, a round trip a node, and no change."""
        return self._runner.ask_all(ScriptRequest("outlook", self._outlook_request, self._read_outlook), shards)

    def _outlook_request(self, shard: Shard) -> Request:
        fixed = self._runner.keys(shard).fixed
        return len(fixed), (*fixed, self._sharding.count(shard.queue))

    def _read_outlook(self, _shard: Shard, answer: Any) -> Outlook:
        now, next_at, dead = answer
        travel = self._scripts.travel
        return Outlook(next_at or 0, dead, travel.now() if travel else now)

    def sweep(self, shard: Shard, *, retention_ms: int, dead_retention_ms: int | None = None) -> Swept:
        """Sweep one shard as `sweep_all` does."""
        swept = self._runner.ask(self._sweep(retention_ms, dead_retention_ms), shard)
        self._update_lagging({shard: swept})
        return swept

    def sweep_all(
        self, shards: Sequence[Shard], *, retention_ms: int, dead_retention_ms: int | None = None
    ) -> list[Swept | Away]:
        """Take back lapsed leases, forget what finished over `retention_ms` ago, hang the bell: a bounded step a shard.

        Answers for each shard what was done, or why nothing was. A queue's own `retention_ms` goes before the one
        given. Dead tasks are kept if `dead_retention_ms` is None. Otherwise they are forgotten that long after their
        death, and that long after the first such sweep at the earliest. A shard without tasks or settings may be
        forgotten as a whole. A round trip a node, and another where shards are not their queue's first.
        """
        answers = self._runner.ask_all(self._sweep(retention_ms, dead_retention_ms), shards)
        self._update_lagging(dict(zip(shards, answers, strict=True)))
        if self._log:
            self._log.swept(shards, answers)
        return answers

    def _update_lagging(self, swept: Mapping[Shard, Swept | Away]) -> None:
        """Give shards that lag the settings of their queue; the next sweep tries again."""
        revisions = {shard: one.revision for shard, one in swept.items() if isinstance(one, Swept)}
        with suppress(StoreUnavailable, StoreMisused):
            copy_settings(self._runner, lagging(self._runner, revisions))

    def _sweep(self, retention_ms: int, dead_retention_ms: int | None) -> ScriptRequest[Swept]:
        quotas = () if self._runner.quotas is None else (self._runner.quotas,)
        arguments = (*self._ending, retention_ms, "" if dead_retention_ms is None else dead_retention_ms, *quotas)

        def request(shard: Shard) -> Request:
            return self._runner.request(shard, self._runner.tenants_of(shard), arguments)

        return ScriptRequest("sweep", request, self._read_swept)

    def _read_swept(self, shard: Shard, answer: Any) -> Swept:
        got = SweepAnswer(*answer)
        self._runner.note_tenants(shard, got.want)
        if got.idle_ms >= FORGET_MS:
            self._registry.forget(shard, partial(self._leave, shard))
        return Swept(
            got.reclaimed, got.died, got.pruned, bool(got.more or got.want), got.bell_at, got.now,
            got.revision.decode(), got.spared_until, got.lapsed, got.lapsed_at_target,
        )  # fmt: skip

    def _leave(self, shard: Shard) -> bool:
        _, _, left = self._runner.run("leave", shard, (), (FORGET_MS,))
        return bool(left)
