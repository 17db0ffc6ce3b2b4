"""Contract of the table in which results outlive their tasks."""

from typing import NamedTuple, Protocol

from duecourse.domain.task import Json, Task

PATIENCE_MS = 5_000
"""Maximum time of either verb, even if the database hangs; queries subtract it from their time."""


class Result(NamedTuple):
    """Result of a task's newest finished run: its value, the fence it was written under, and the time (epoch ms)."""

    value: Json
    fence: int
    stored_at: int


class Results(Protocol):
    """The results database. Both verbs raise ResultsUnavailable, within PATIENCE_MS."""

    @property
    def place(self) -> str:
        """Name by which a program elsewhere finds it."""

    def put(self, task: Task, result_json: str, now: int) -> bool:
        """Keep the task's result; False, and nothing changed, where a newer one (a higher fence) is there."""

    def get(self, queue: str, id: str, tenant: str) -> Result | None:
        """The task's result, if it has one."""
