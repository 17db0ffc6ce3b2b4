"""Verbs of operators on queues: show them, set them."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from duecourse.base.batches import cut, grouped
from duecourse.base.hints import alike
from duecourse.errors import ChangedSince, QueueNotFound, StoreMisused
from duecourse.ledger.operation_types import Away, KeyedTry
from duecourse.ledger.queue import (
    QueueChanges,
    QueueSettings,
    QueueStatus,
    ShardStatus,
    Stats,
    merge_histograms,
    quantile,
)
from duecourse.ledger.queue_history import HistorySpan, QueueHistory, history_of
from duecourse.ledger.task import Shard

if TYPE_CHECKING:
    from duecourse.ledger.operations.ledger import Ledger

log = logging.getLogger("duecourse.queues")

HOW_TO_CREATE = "add a task to it, or set it with `create` true"
"""Advice to a caller who sets a queue that is not there."""

MAX_TOGETHER = 200
"""Number of shards that are read at a time."""
MAX_SHARDS = 2_000
"""Number of shards at which a page of queues ends: an answer has a part for each."""


class Queues:
    """The verbs on queues."""

    def __init__(self, ledger: "Ledger") -> None:
        self._ledger = ledger

    def every(self, tenant: str | None = None) -> list[QueueStatus]:
        """All queues that were ever added to or set, by name. Raises StoreUnavailable.

        With a tenant, those in which it has tasks, with its own numbers; lateness, which is the queue's, is left out.
        A queue with another number of shards than the settings say is left out, with an error in the log.
        """
        return list(self._each("", tenant))

    def page(self, after: str, limit: int, tenant: str | None = None) -> tuple[list[QueueStatus], str]:
        """Some of these queues, those after a name, and the name after which the next page begins; "" for no more.

        A page ends early where its queues have many shards. It ends at a queue that is shown, never at another's.
        """
        found, shards = list[QueueStatus](), 0
        for one in self._each(after, tenant):
            if len(found) == limit or shards >= MAX_SHARDS:
                return found, found[-1].name
            found.append(one)
            shards += len(one.shards)
        return found, ""

    def get(self, queue: str, tenant: str | None = None, *, owners: bool = False) -> QueueStatus:
        """One queue, as `every` shows it, with `owners` also whose its dead tasks are.

        Raises QueueNotFound where `every` would not show it, and StoreUnavailable.
        """
        shards = [shard for shard in self._ledger.shards() if shard.queue == queue]
        stats = [_known(one) for one in self._stats(shards, tenant)]
        if not shards or _is_foreign(stats, tenant):
            raise QueueNotFound(queue, self._near(queue, tenant))
        [settings], late = self._ledger.settings_of([queue]), self._lateness(shards, tenant)
        seen = _view(queue, settings, shards, stats, late)
        return replace(seen, dead_by_tenant=self._ledger.dead_by_tenant(shards)) if owners else seen

    def history(self, queue: str, span: HistorySpan) -> QueueHistory:
        """Numbers of a queue over a span up to now. Raises QueueNotFound and StoreUnavailable."""
        shards = [shard for shard in self._ledger.shards() if shard.queue == queue]
        if not shards:
            raise QueueNotFound(queue, self._near(queue, None))
        return history_of(queue, span, self._ledger.history_of(shards), self._ledger.now())

    def configure(
        self, queue: str, changes: QueueChanges, *, create: bool = False, keyed: KeyedTry | None = None
    ) -> QueueStatus:
        """Change the settings of a queue; with `create` it need not exist, so that no slip of a name makes one.

        A repeat of a request with a key changes nothing twice. Raises QueueNotFound, InvalidInput, StoreUnavailable,
        and ChangedSince where another change came, and that of the first try is not known.
        """
        if not (create or any(shard.queue == queue for shard in self._ledger.shards())):
            raise QueueNotFound(queue, self._near(queue, None), HOW_TO_CREATE)
        mark = keyed.mark() if keyed else b""
        saw: str = keyed.first_saw(lambda: self._ledger.mark_of(queue)) if keyed else ""
        seen = saw if keyed and keyed.is_repeat else None
        if not self._ledger.configure(queue, changes, mark=mark, seen=seen):
            raise ChangedSince
        return self.get(queue)

    def _each(self, after: str, tenant: str | None) -> Iterator[QueueStatus]:
        queues = grouped(self._ledger.shards(), lambda shard: shard.queue)
        names = sorted(name for name in queues if name > after)
        for some in cut(names, lambda name: len(queues[name]), most=MAX_TOGETHER, max_bytes=MAX_TOGETHER):
            yield from self._views(some, queues, tenant)

    def _near(self, queue: str, tenant: str | None) -> str:
        """Name most like this one, "" for none; of a tenant, among those alone in which it has tasks."""
        queues = grouped(self._ledger.shards(), lambda shard: shard.queue)
        names = alike(queue, (name for name in queues if name != queue))
        if tenant is None:
            return next(iter(names), "")
        # Whatever other names there are, the answer is the same: each that is like this one is looked at.
        for some in cut(names, lambda name: len(queues[name]), most=MAX_TOGETHER, max_bytes=MAX_TOGETHER):
            shards = [shard for name in some for shard in queues[name]]
            answers = dict(zip(shards, self._stats(shards, tenant), strict=True))
            for name in some:
                if self._is_shown(name, [answers[shard] for shard in queues[name]], tenant):
                    return name
        return ""

    def _views(self, names: list[str], queues: Mapping[str, list[Shard]], tenant: str | None) -> Iterator[QueueStatus]:
        """Some queues, asked for together."""
        every = [shard for name in names for shard in queues[name]]
        answers = dict(zip(every, self._stats(every, tenant), strict=True))
        shown = [name for name in names if self._is_shown(name, [answers[shard] for shard in queues[name]], tenant)]
        shards = [shard for name in shown for shard in queues[name]]
        late = dict(zip(shards, self._lateness(shards, tenant), strict=True))
        for name, settings in zip(shown, self._ledger.settings_of(shown), strict=True):
            own = queues[name]
            yield _view(name, settings, own, [_known(answers[one]) for one in own], [late[one] for one in own])

    def _stats(self, shards: list[Shard], tenant: str | None) -> list[Stats | Away]:
        return self._ledger.stats_of(shards) if tenant is None else self._ledger.stats_of_tenant(shards, tenant)

    def _lateness(self, shards: list[Shard], tenant: str | None) -> list[dict[int, int]]:
        return self._ledger.lateness_of(shards) if tenant is None else [{} for _ in shards]

    def _is_shown(self, queue: str, answers: list[Stats | Away], tenant: str | None) -> bool:
        misused = [one for one in answers if isinstance(one, StoreMisused)]
        for error in misused[:1]:
            log.error("queue %s is not shown: %s", queue, error)
        return not misused and not _is_foreign(answers, tenant)


def _is_foreign(stats: Sequence[Stats | Away], tenant: str | None) -> bool:
    """True if a tenant, one being given, has no task in any of these shards."""
    every = [one for one in stats if isinstance(one, Stats)]
    has = any(one.scheduled or one.leased or one.done or one.dead for one in every)
    return tenant is not None and len(every) == len(stats) and not has


def _known(answer: Stats | Away) -> Stats:
    if isinstance(answer, Stats):
        return answer
    raise answer


def _view(
    queue: str, settings: QueueSettings, shards: list[Shard], stats: list[Stats], late: list[dict[int, int]]
) -> QueueStatus:
    total, schedules = merge_histograms(late), [one.schedules for one in stats if one.schedules is not None]
    return QueueStatus(
        name=queue,
        settings=settings,
        scheduled=sum(one.scheduled for one in stats),
        running=sum(one.leased for one in stats),
        done=sum(one.done for one in stats),
        dead=sum(one.dead for one in stats),
        oldest_overdue_ms=max(one.overdue_ms for one in stats),
        late_p50_ms=quantile(total, 0.5),
        late_p99_ms=quantile(total, 0.99),
        shards=[ShardStatus(s.number, one.leased, one.settings) for s, one in zip(shards, stats, strict=True)],
        schedules=sum(schedules) if schedules else None,
        fires_at=min((one.fires_at for one in stats if one.fires_at), default=None),
        lapsed=sum(one.lapsed for one in stats),
        lapsed_at_target=sum(one.lapsed_at_target for one in stats),
    )
