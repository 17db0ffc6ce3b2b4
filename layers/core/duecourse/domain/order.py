"""A task as a message asks for it."""

from typing import NamedTuple, TypeAlias

from duecourse.domain.task import NewTask, Task
from duecourse.errors import DuecourseError


class Taken(NamedTuple):
    """What an add did: the task as it stands now, and whether this add made it."""

    task: Task
    created: bool


Item: TypeAlias = Taken | DuecourseError
"""What became of one task of many: it stands, or why it was refused."""


class Order(NamedTuple):
    """A new task.

    `once`: its id is the message's own, so that where it stands already, done or dead too, the message came twice.
    """

    task: NewTask
    once: bool
