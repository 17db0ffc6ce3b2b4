"""A ledger that logs what happens to tasks: a line of JSON on the standard output for each, one for many at once."""

import json
import sys
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple, cast

from duecourse.domain.outcomes import Settlement
from duecourse.domain.spoken import span
from duecourse.domain.task import DEFAULT_QUEUE, DEFAULT_TENANT, NewTask, Shard, Task
from duecourse.domain.times import format_instant
from duecourse.ports.leases import Begun, Claim, Lease, Settled
from duecourse.ports.ledger import Away
from duecourse.ports.store import Store
from duecourse.ports.tasks import AddReply, Move, Reply
from duecourse.ports.upkeep import Swept

LOGGER = "duecourse.tasks"
MOST = 8
"""Maximum number of tasks of one step that get a line each; more get a count."""
ON_THE_WAY = "out of attempts, or past the deadline"


class Happened(NamedTuple):
    """Event of one task: in a word, and in a few for people."""

    task: str
    event: str
    text: str


def logged(store: Store) -> Store:
    """The same store, and a line for each task that it changes."""
    return cast(Store, LoggedStore(store))


class LoggedStore:
    """The verbs by which the product changes tasks, with a line of log; all others are the store's own."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def add(self, tasks: Sequence[NewTask], **options: Any) -> list[AddReply]:
        """See Store."""
        answers = self._store.add(tasks, **options)
        _log([_added(task, one.reply) for task, one in zip(tasks, answers, strict=False)])  # all of them, or none
        return answers

    def claim(self, shard: Shard, limit: int, **options: Any) -> Claim:
        """See Store."""
        claim = self._store.claim(shard, limit, **options)
        _log([_claimed(task) for task in claim.tasks])
        _log_count(claim.died, "dead", f" in queue {shard.queue}: {ON_THE_WAY}")
        return claim

    def take(self, queue: str, id: str, tenant: str = DEFAULT_TENANT, **options: Any) -> Task | None:
        """See Store."""
        task = self._store.take(queue, id, tenant, **options)
        _log([_claimed(task)] if task else [])
        return task

    def begin(self, shard: Shard, deliveries: Sequence[Lease], *rest: Any) -> list[Begun]:
        """See Store."""
        answers = self._store.begin(shard, deliveries, *rest)
        begun = [(one, lease.late_ms) for one, lease in zip(deliveries, answers, strict=True) if lease.token]
        _log([Happened(_name(shard.queue, one.id, one.tenant), "started", _late(ms)) for one, ms in begun])
        return answers

    def settle(self, shard: Shard, settlements: Sequence[Settlement]) -> list[Settled]:
        """See Store."""
        answers = self._store.settle(shard, settlements)
        ends = zip(settlements, answers, strict=True)
        _log([_settled(shard, *end) for end in ends if end[0].detail or end[1] is not Settled.RELEASED])
        return answers

    def move(self, queue: str, moves: Sequence[Move], tenant: str = DEFAULT_TENANT, **options: Any) -> list[Reply]:
        """See Store."""
        answers = self._store.move(queue, moves, tenant, **options)
        moved = [one for one, answer in zip(moves, answers, strict=True) if answer is Reply.OK]
        _log([Happened(_name(queue, one.id, tenant), "moved", _when(one.due_at, one.delay_ms)) for one in moved])
        return answers

    def cancel(self, queue: str, ids: Sequence[str], *, tenant: str = DEFAULT_TENANT, **options: Any) -> list[Reply]:
        """See Store."""
        answers = self._store.cancel(queue, ids, tenant=tenant, **options)
        _log(_changed(queue, ids, tenant, answers, "cancelled"))
        return answers

    def replay(self, queue: str, ids: Sequence[str], tenant: str = DEFAULT_TENANT, **options: Any) -> list[Reply]:
        """See Store."""
        answers = self._store.replay(queue, ids, tenant, **options)
        _log(_changed(queue, ids, tenant, answers, "replayed"))
        return answers

    def sweep_all(self, shards: Sequence[Shard], **options: Any) -> list[Swept | Away]:
        """See Store."""
        answers = self._store.sweep_all(shards, **options)
        for shard, answer in zip(shards, answers, strict=True):
            if isinstance(answer, Swept):
                _log_count(answer.reclaimed, "taken back", f" in queue {shard.queue}: the lease lapsed")
                _log_count(answer.died, "dead", f" in queue {shard.queue}: {ON_THE_WAY}")
        return answers


def _added(task: NewTask, reply: Reply) -> Happened:
    name, when = _name(task.queue, task.id, task.tenant), _when(task.due_at, task.delay_ms)
    if reply is Reply.CREATED:
        return Happened(name, "added", f"{task.kind}, {when}")
    texts = {
        Reply.KEPT: "its id exists already, and the task stays as it is",
        Reply.REPLACED: when,
        Reply.DEBOUNCED: when,
    }
    return Happened(name, reply.value, texts.get(reply, "rejected"))


def _claimed(task: Task) -> Happened:
    after_ms = task.claimed_at - task.due_at
    after = f"{span(after_ms)} after it was due" if after_ms > 0 else "on time"
    again = f", attempt {task.attempt} of {task.retry.max_attempts}" if task.attempt > 1 else ""
    event = "handed over" if task.target else "claimed"
    return Happened(_name(task.queue, task.id, task.tenant), event, after + again)


def _late(late_ms: int) -> str:
    """Lateness of a handler: from its due time to its first line."""
    return f"{span(late_ms)} late" if late_ms > 0 else "on time"


def _settled(shard: Shard, end: Settlement, became: Settled) -> Happened:
    texts = {
        Settled.DONE: "",
        Settled.AGAIN: f"runs again {_when(end.due_at, end.delay_ms)}",
        Settled.RETRIED: f"{end.detail}; next attempt {_when(end.due_at, end.delay_ms)}",
        Settled.DEAD: end.detail,
        Settled.RELEASED: end.detail,
        Settled.STALE: "its lease had ended: another worker may have the task",
    }
    words = {Settled.AGAIN: "not yet", Settled.RETRIED: "failed", Settled.RELEASED: "given back"}
    return Happened(_name(shard.queue, end.id, end.tenant), words.get(became, became.value), texts[became])


def _changed(queue: str, ids: Sequence[str], tenant: str, answers: Sequence[Reply], event: str) -> list[Happened]:
    changed = [id for id, answer in zip(ids, answers, strict=True) if answer is Reply.OK]
    return [Happened(_name(queue, id, tenant), event, "") for id in changed]


def _name(queue: str, id: str, tenant: str) -> str:
    """A task's id, with its queue and tenant where they are not the usual ones."""
    where = id if queue == DEFAULT_QUEUE else f"{queue}/{id}"
    return where if tenant == DEFAULT_TENANT else f"{where} (tenant {tenant})"


def _when(due_at: int | None, delay_ms: int) -> str:
    if due_at is not None:
        return f"at {format_instant(due_at)}"
    return f"in {span(delay_ms)}" if delay_ms > 0 else "now"


def _log(happened: Sequence[Happened]) -> None:
    if len(happened) > MOST:
        for event, count in Counter(one.event for one in happened).items():
            _log_count(count, event)
        return
    for one in happened:
        _write(f"{one.task} {one.event}" + (f": {one.text}" if one.text else ""), event=one.event, task=one.task)


def _log_count(count: int, event: str, why: str = "") -> None:
    if count:
        _write(f"{count:,} task{'s' if count > 1 else ''} {event}{why}", event=event, count=count)


def _write(message: str, **fields: str | int) -> None:
    """Write a line in one call: threads write beside each other."""
    record = {"level": "INFO", "logger": LOGGER, "message": message, **fields}
    sys.stdout.write(json.dumps(record, ensure_ascii=False) + "\n")
    sys.stdout.flush()
