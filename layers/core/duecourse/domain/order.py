"""A task as a message asks for it."""

from typing import NamedTuple

from duecourse.domain.task import NewTask


class Order(NamedTuple):
    """A new task.

    `once`: its id is the message's own, so that where it stands already, done or dead too, the message came twice.
    """

    task: NewTask
    once: bool
