"""Content of a reminder: the templates and data of all its messages, stored once where that saves much.

A task of its own holds it, in the reminders' queue. The messages' payloads then name it, and hold the rest. Its id
holds its hash: a task's content never changes, and a reminder's next content has another id.
"""

from collections.abc import Callable
from hashlib import sha256
from typing import TypeAlias

from duecourse.domain.notification import RESERVED
from duecourse.domain.task import Json, NewTask, OnDuplicate, RetryPolicy, dump_json
from duecourse.domain.times import DAY_MS

Digest: TypeAlias = Callable[[bytes], str]
"""Maker of a hash, in hexadecimal. For a content with credentials it takes a key: an id is no secret."""
KIND = f"{RESERVED}content"
FIELDS = ("subject", "message", "html", "data")
NAME = "content"
"""Field in which a message's payload names its content: the content's hash."""
SAVED_BYTES = 16 * 1024
"""Size of the copies from which a content is stored apart: below that, its task would cost more than it saves."""
LOOK_MS = DAY_MS
"""Time after an add, after a start and between two looks, at which a content's task asks if a message needs it."""
POLICY = RetryPolicy(max_attempts=1_000, backoff_ms=60_000, max_backoff_ms=DAY_MS)
"""Years of trying: a content that were dead would be forgotten, and its messages could not be sent."""


def is_worth_sharing(content: Json, messages: int) -> bool:
    """True if a content is stored apart for so many messages."""
    return (messages - 1) * len(dump_json(content).encode()) > SAVED_BYTES


def plain_digest(text: bytes) -> str:
    """SHA-256, which anybody can make."""
    return sha256(text).hexdigest()


def hash_of(content: Json, digest: Digest) -> str:
    """Name of a content, for the messages of its reminder."""
    return digest(dump_json(content).encode())[:32]


def id_of(reminder: str, name: str) -> str:
    """Id of the task with a reminder's content of this name."""
    return f"{reminder}:{NAME}:{name}"


def task_of(reminder: str, name: str, content: Json, queue: str, tenant: str, by: str) -> NewTask:
    """The task that holds the content of this name, until no message needs it."""
    return NewTask(
        id=id_of(reminder, name),
        kind=KIND,
        payload=dump_json({"reminder": reminder, **content}),
        queue=queue,
        tenant=tenant,
        delay_ms=LOOK_MS,
        retry=POLICY,
        on_duplicate=OnDuplicate.REPLACE,
        by=by,
    )


def named_by(payload: Json) -> str:
    """Name of the content that a message's payload needs; "" for one that holds it itself."""
    return str(payload.get(NAME, ""))


def unfilled(payload: Json, digest: Digest) -> Json:
    """A message's payload that names its content, whether it did or held it: equal for equal messages."""
    if named_by(payload):
        return payload
    content = {field: payload.get(field) for field in FIELDS}
    return {NAME: hash_of(content, digest)} | {field: value for field, value in payload.items() if field not in FIELDS}
