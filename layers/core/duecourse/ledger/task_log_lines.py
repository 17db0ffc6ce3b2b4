"""Log of the changes of tasks: a line of JSON on the standard output for each."""

import json
import sys
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from duecourse.base.times import format_instant, span
from duecourse.ledger.operation_types import AddReply, Away, Begun, Claim, Lease, Move, Reply, Settled, Swept
from duecourse.ledger.task import DEFAULT_QUEUE, DEFAULT_TENANT, NewTask, Settlement, Shard, Task

LOGGER = "duecourse.tasks"
MOST = 8
"""Maximum number of tasks of one step that get a line each; more get a count."""
ON_THE_WAY = "out of attempts, or past the deadline"


class LoggedEvent(NamedTuple):
    """Event of one task: in a word, and in a few for people."""

    task: str
    event: str
    text: str


class TaskLog:
    """Log of the changes of tasks; the ledger calls it after each operation that changes tasks, except these.

    `fire` logs no occurrence that it adds, `bulk` no task that it deletes or cancels. `extend` and `save` log nothing.
    The `sweep` of a single shard, which `reshard` uses, logs nothing either.
    """

    def added(self, tasks: Sequence[NewTask], answers: Sequence[AddReply]) -> None:
        """Log an add: of all tasks, or of none."""
        _log([_added(task, one.reply) for task, one in zip(tasks, answers, strict=False)])

    def claimed(self, shard: Shard, claim: Claim) -> None:
        """Log the tasks that a claim leased, and the number of those that died on the way."""
        _log([_claimed(task) for task in claim.tasks])
        _log_count(claim.died, "dead", f" in queue {shard.queue}: {ON_THE_WAY}")

    def taken(self, task: Task | None) -> None:
        """Log the task that was leased by its id."""
        _log([_claimed(task)] if task else [])

    def begun(self, shard: Shard, deliveries: Sequence[Lease], answers: Sequence[Begun]) -> None:
        """Log the tasks that a worker has begun."""
        begun = [(one, lease.late_ms) for one, lease in zip(deliveries, answers, strict=True) if lease.token]
        _log([LoggedEvent(_name(shard.queue, one.id, one.tenant), "started", _late(ms)) for one, ms in begun])

    def settled(self, shard: Shard, settlements: Sequence[Settlement], answers: Sequence[Settled]) -> None:
        """Log the ends of leases; a release without a reason is no change."""
        ends = zip(settlements, answers, strict=True)
        _log([_settled(shard, *end) for end in ends if end[0].detail or end[1] is not Settled.RELEASED])

    def moved(self, queue: str, moves: Sequence[Move], tenant: str, answers: Sequence[Reply]) -> None:
        """Log the tasks with another due time."""
        moved = [one for one, answer in zip(moves, answers, strict=True) if answer is Reply.OK]
        _log([LoggedEvent(_name(queue, one.id, tenant), "moved", _when(one.due_at, one.delay_ms)) for one in moved])

    def cancelled(self, queue: str, ids: Sequence[str], tenant: str, answers: Sequence[Reply]) -> None:
        """Log the tasks that were cancelled."""
        _log(_changed(queue, ids, tenant, answers, "cancelled"))

    def replayed(self, queue: str, ids: Sequence[str], tenant: str, answers: Sequence[Reply]) -> None:
        """Log the dead tasks that were scheduled again."""
        _log(_changed(queue, ids, tenant, answers, "replayed"))

    def swept(self, shards: Sequence[Shard], answers: Sequence[Swept | Away]) -> None:
        """Log the numbers of lapsed leases and of deaths in each shard."""
        for shard, answer in zip(shards, answers, strict=True):
            if isinstance(answer, Swept):
                _log_count(answer.reclaimed, "taken back", f" in queue {shard.queue}: the lease lapsed")
                _log_count(answer.died, "dead", f" in queue {shard.queue}: {ON_THE_WAY}")


def _added(task: NewTask, reply: Reply) -> LoggedEvent:
    name, when = _name(task.queue, task.id, task.tenant), _when(task.due_at, task.delay_ms)
    if reply is Reply.CREATED:
        return LoggedEvent(name, "added", f"{task.kind}, {when}")
    texts = {
        Reply.KEPT: "its id exists already, and the task stays as it is",
        Reply.REPLACED: when,
        Reply.DEBOUNCED: when,
    }
    return LoggedEvent(name, reply.value, texts.get(reply, "rejected"))


def _claimed(task: Task) -> LoggedEvent:
    after_ms = task.claimed_at - task.due_at
    after = f"{span(after_ms)} after it was due" if after_ms > 0 else "on time"
    again = f", attempt {task.attempt} of {task.retry.max_attempts}" if task.attempt > 1 else ""
    event = "handed over" if task.target else "claimed"
    return LoggedEvent(_name(task.queue, task.id, task.tenant), event, after + again)


def _late(late_ms: int) -> str:
    """Lateness of a handler: from its due time to its first line."""
    return f"{span(late_ms)} late" if late_ms > 0 else "on time"


def _settled(shard: Shard, end: Settlement, became: Settled) -> LoggedEvent:
    texts = {
        Settled.DONE: "",
        Settled.AGAIN: f"runs again {_when(end.due_at, end.delay_ms)}",
        Settled.RETRIED: f"{end.detail}; next attempt {_when(end.due_at, end.delay_ms)}",
        Settled.DEAD: end.detail,
        Settled.RELEASED: end.detail,
        Settled.STALE: "its lease had ended: another worker may have the task",
    }
    words = {Settled.AGAIN: "not yet", Settled.RETRIED: "failed", Settled.RELEASED: "given back"}
    return LoggedEvent(_name(shard.queue, end.id, end.tenant), words.get(became, became.value), texts[became])


def _changed(queue: str, ids: Sequence[str], tenant: str, answers: Sequence[Reply], event: str) -> list[LoggedEvent]:
    changed = [id for id, answer in zip(ids, answers, strict=True) if answer is Reply.OK]
    return [LoggedEvent(_name(queue, id, tenant), event, "") for id in changed]


def _name(queue: str, id: str, tenant: str) -> str:
    """A task's id, with its queue and tenant where they are not the usual ones."""
    where = id if queue == DEFAULT_QUEUE else f"{queue}/{id}"
    return where if tenant == DEFAULT_TENANT else f"{where} (tenant {tenant})"


def _when(due_at: int | None, delay_ms: int) -> str:
    if due_at is not None:
        return f"at {format_instant(due_at)}"
    return f"in {span(delay_ms)}" if delay_ms > 0 else "now"


def _log(happened: Sequence[LoggedEvent]) -> None:
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
