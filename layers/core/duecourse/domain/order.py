"""A task as a message asks for it."""

from typing import NamedTuple, TypeAlias

from duecourse.domain.task import NewTask, Task
from duecourse.errors import DuecourseError


class AddResult(NamedTuple):
    """Result of an add: the task, and `created`, True if this add made it."""

    task: Task
    created: bool


Item: TypeAlias = AddResult | DuecourseError
"""Result for one task of many: the task, or the error that rejected it."""


class Order(NamedTuple):
    """A new task.

    `once`: its id is the message's own, so that where it stands already, done or dead too, the message came twice.
    """

    task: NewTask
    once: bool
