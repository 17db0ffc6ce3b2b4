"""Completion notifications: each is a task in the ended task's shard, which reports the end.

The id of a notification names the ended task, its generation and its last run; the `~` in it keeps it apart from any id
that a user can give. The step that ends the task also adds the notification. It has the ended task's group only to be
in the same shard.
"""

from typing import NamedTuple

from duecourse.domain.task import MARK, Json, RetryPolicy
from duecourse.domain.times import MAX_INSTANT
from duecourse.errors import TaskDamaged

ON_REQUEST = ("payload", "result")
"""Parts of the ended task that a notification carries only if `include` names them."""
ENDED = "task.ended"
"""Kind that notifies a URL."""
DEAD = "task.dead"
"""Kind that reports a death."""
RESERVED = "task."
"""Beginning of kinds of duecourse's own, which no user's kind has."""
AUTH = "auth="
"""Beginning of the word of a record's text that names the credential."""
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
    auth: str = ""


class Notify(NamedTuple):
    """Receiver of a notification, a URL or a kind, what it includes of ON_REQUEST, and the name of a URL's credential.

    A record keeps all of it in one text. The address of a URL may have a seal in it (domain/seals.py).
    """

    address: str
    include: tuple[str, ...] = ()
    auth: str = ""

    @classmethod
    def of(cls, text: str) -> "Notify":
        """Read the text of a record; neither a URL nor a kind's name has a space."""
        address, *more = text.split(" ")
        auth = next((word.removeprefix(AUTH) for word in more if word.startswith(AUTH)), "")
        return cls(address, tuple(word for word in more if not word.startswith(AUTH)), auth)

    def text(self) -> str:
        """The same as a record keeps it."""
        return " ".join((self.address, *self.include, *([AUTH + self.auth] if self.auth else [])))


def is_notification(id: str) -> bool:
    """True if the task is a completion notification."""
    return MARK in id


def is_url(notify: str) -> bool:
    """True if the receiver is a URL, False for a kind's target."""
    return "://" in notify


def ended_of(payload: Json) -> Ended | None:
    """Reference in a notification's payload; None for any other payload. Raises TaskDamaged."""
    if not isinstance(payload, dict) or payload.keys() != {"ended"}:
        return None
    try:
        ended = Ended(**payload["ended"])
        is_sound = all(map(isinstance, ended, Ended.__annotations__.values())) and 0 <= ended.at <= MAX_INSTANT
    except TypeError:
        is_sound = False
    if not is_sound:
        raise TaskDamaged("the payload of this notification is damaged: it names no ended task")
    return ended
