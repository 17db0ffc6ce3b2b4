"""What follows the end of a task: a task of its own, in the same shard, that tells of it.

Its id names the ended task, its generation and its last run; the `~` in it keeps it apart from any id that a user can
give. It is added by the very step that ends the task, and is of the ended task's group for the sake of its shard alone.
"""

from typing import NamedTuple

from duecourse.domain.history import Run
from duecourse.domain.task import MARK, Json, NewTask, RetryPolicy, Status, Task, dump_json

ENDED = "task.ended"
"""The kind that tells a URL."""
DEAD = "task.dead"
"""The kind that tells of a death."""
RESERVED = "task."
"""How no kind of a user's begins."""
BY = "duecourse"
POLICY = RetryPolicy(max_attempts=16, backoff_ms=2_000)
"""At most five hours of trying, with full jitter half of that."""


class Ended(NamedTuple):
    """Which end of which task is told of, as the follow-up's payload keeps it; `at` in epoch ms."""

    id: str
    generation: int
    run: int
    state: str
    at: int
    error: str = ""
    url: str = ""


class Notify(NamedTuple):
    """Who is told, a URL or a kind, and what is told besides: `payload`. A record keeps both in one text."""

    address: str
    include: tuple[str, ...] = ()

    @classmethod
    def of(cls, text: str) -> "Notify":
        """What a record keeps; neither a URL nor a kind's name holds a space."""
        address, *include = text.split(" ")
        return cls(address, tuple(include))

    def text(self) -> str:
        """The same as a record keeps it."""
        return " ".join((self.address, *self.include))


def is_follow_up(id: str) -> bool:
    """Whether the task tells of another's end."""
    return MARK in id


def is_url(notify: str) -> bool:
    """Whether a URL is told, rather than a kind's target."""
    return "://" in notify


def follow_ups(task: Task, now: int, *, deaths: bool) -> list[NewTask]:
    """The tasks that tell of this one's end, due at once; `deaths` where those are told of in any case."""
    if is_follow_up(task.id):
        return []
    told = []
    if task.notify:
        told.append(_follow_up(task, now, "n", ENDED if is_url(task.notify) else Notify.of(task.notify).address))
    if deaths and task.status is Status.DEAD:
        told.append(_follow_up(task, now, "d", DEAD))
    return told


def ended_of(payload: Json) -> Ended | None:
    """What a follow-up's payload refers to; None where it is no such payload."""
    return Ended(**payload["ended"]) if isinstance(payload, dict) and payload.keys() == {"ended"} else None


def _follow_up(task: Task, now: int, mark: str, kind: str) -> NewTask:
    url = Notify.of(task.notify).address if kind == ENDED else ""
    runs = [entry for entry in task.log if isinstance(entry, Run)]
    error = runs[-1].detail if task.status is Status.DEAD else ""
    ended = Ended(task.id, task.generation, task.run, task.status.value, now, error, url)
    return NewTask(
        id=f"{task.id}{MARK}{task.generation}.{task.run}{MARK}{mark}",
        kind=kind,
        payload=dump_json({"ended": ended._asdict()}),
        queue=task.queue,
        tenant=task.tenant,
        group=task.group or task.id,
        retry=POLICY,
        by=BY,
    )
