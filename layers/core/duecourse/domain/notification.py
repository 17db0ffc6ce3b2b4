"""Completion notifications: each is a task in the ended task's shard, which reports the end.

The id of a notification names the ended task, its generation and its last run; the `~` in it keeps it apart from any id
that a user can give. The step that ends the task also adds the notification. It has the ended task's group only to be
in the same shard.
"""

from typing import NamedTuple

from duecourse.domain.history import Run
from duecourse.domain.task import MARK, Json, NewTask, RetryPolicy, Status, Task, dump_json

ENDED = "task.ended"
"""Kind that notifies a URL."""
DEAD = "task.dead"
"""Kind that reports a death."""
RESERVED = "task."
"""Beginning of reserved kinds, which no user's kind has."""
BY = "duecourse"
POLICY = RetryPolicy(max_attempts=16, backoff_ms=2_000)
"""At most five hours of trying, with full jitter half of that."""


class Ended(NamedTuple):
    """Reference to the ended task and its end, as the notification's payload keeps it; `at` in epoch ms."""

    id: str
    generation: int
    run: int
    state: str
    at: int
    error: str = ""
    url: str = ""


class Notify(NamedTuple):
    """Receiver of a notification, a URL or a kind, and what it includes: `payload`. A record keeps both in one text."""

    address: str
    include: tuple[str, ...] = ()

    @classmethod
    def of(cls, text: str) -> "Notify":
        """Read the text of a record; neither a URL nor a kind's name has a space."""
        address, *include = text.split(" ")
        return cls(address, tuple(include))

    def text(self) -> str:
        """The same as a record keeps it."""
        return " ".join((self.address, *self.include))


def is_notification(id: str) -> bool:
    """True if the task is a completion notification."""
    return MARK in id


def is_url(notify: str) -> bool:
    """True if the receiver is a URL, False for a kind's target."""
    return "://" in notify


def notifications(task: Task, now: int, *, deaths: bool) -> list[NewTask]:
    """Completion notifications of this task, due at once; with `deaths`, also one for each death."""
    if is_notification(task.id):
        return []
    found = []
    if task.notify:
        found.append(_notification(task, now, "n", ENDED if is_url(task.notify) else Notify.of(task.notify).address))
    if deaths and task.status is Status.DEAD:
        found.append(_notification(task, now, "d", DEAD))
    return found


def ended_of(payload: Json) -> Ended | None:
    """Reference in a notification's payload; None for any other payload."""
    return Ended(**payload["ended"]) if isinstance(payload, dict) and payload.keys() == {"ended"} else None


def _notification(task: Task, now: int, mark: str, kind: str) -> NewTask:
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
