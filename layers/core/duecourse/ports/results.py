"""Where results outlive their tasks."""

from typing import NamedTuple, Protocol

from duecourse.domain.task import Json, Task

PATIENCE_MS = 5_000
"""How long either verb takes at most, however the database hangs: whoever must answer in time reckons with it."""


class Result(NamedTuple):
    """What a task's newest finished run left: its value, the fence it was written under, and when (epoch ms)."""

    value: Json
    fence: int
    stored_at: int


class Results(Protocol):
    """The results database. Both verbs raise ResultsUnavailable, within PATIENCE_MS."""

    def put(self, task: Task, result_json: str, now: int) -> bool:
        """Keep the task's result; False, and nothing changed, where a newer one (a higher fence) is there."""

    def get(self, queue: str, id: str, tenant: str) -> Result | None:
        """The task's result, if it has one."""
