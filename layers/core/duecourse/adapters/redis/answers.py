"""Answers of the scripts, each place by its name; the order is that of a script's RETURNS."""

from typing import Any, NamedTuple


class Claimed(NamedTuple):
    """Answer of claim.lua; `flat` are stored ids and records in turn.

    `bodies` are payloads that stand apart, each behind the place of its record among those. `want` and `following` are
    tenants that the next claim declares.
    """

    now: int
    bell_at: int
    died: int
    backlog: int
    want: list[bytes]
    flat: list[bytes]
    lease_ms: int
    priority: int
    held: int
    following: list[bytes]
    aside: int
    bodies: list[Any]


class AddResult(NamedTuple):
    """Answer of take.lua; `record` is empty where the task was not taken, `body` where it has its payload."""

    now: int
    bell_at: int
    want: list[bytes]
    record: bytes
    lease_ms: int
    body: bytes


class Changed(NamedTuple):
    """Answer of each script that changes tasks: `each` has one place a task, as many as its bounds allowed."""

    now: int
    bell_at: int
    each: list[int]


class Worked(NamedTuple):
    """Answer of work.lua; `flat` are tokens and runs in turn."""

    now: int
    bell_at: int
    flat: list[Any]
    expires_at: int


class Swept(NamedTuple):
    """Answer of sweep.lua; `idle_ms` is how long the shard has had neither tasks nor settings, -1 where it has some."""

    now: int
    bell_at: int
    reclaimed: int
    died: int
    pruned: int
    more: int
    want: list[bytes]
    idle_ms: int
