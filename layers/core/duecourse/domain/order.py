"""Adds: a task as a message asks for it, and what an add answers."""

from typing import NamedTuple, TypeAlias

from duecourse.domain.task import NewTask, Task
from duecourse.domain.values import value
from duecourse.errors import DuecourseError


@value(frozen=True, slots=True)
class AddResult:
    """Result of an add: the task, and `created`, True if this add made it."""

    task: Task
    created: bool


Item: TypeAlias = AddResult | DuecourseError
"""Result for one task of many: the task, or the error that rejected it."""


class Order(NamedTuple):
    """A new task. With `once` its id is the message's own: if that id exists, done or dead too, it came twice."""

    task: NewTask
    once: bool
