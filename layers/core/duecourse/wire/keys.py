"""What a caller in Python names: whose tasks, and which."""

from pydantic import StrictBool

from duecourse.domain.task import DEFAULT_QUEUE
from duecourse.wire.fields import AnyTaskId, Name, Strict


class TenantKey(Strict):
    """Whose tasks a caller in Python means."""

    tenant: Name


class TaskKey(Strict):
    """What names one task: one of a user's, or a follow-up."""

    id: AnyTaskId
    queue: Name = DEFAULT_QUEUE


class CancelTask(TaskKey):
    """What a caller in Python names to cancel a task."""

    force: StrictBool = False
