"""Keys that a caller in Python gives: the tenant and the task."""

from pydantic import StrictBool

from duecourse.domain.task import DEFAULT_QUEUE
from duecourse.wire.http.fields import AnyTaskId, Name, Strict


class TenantKey(Strict):
    """Tenant of a caller in Python."""

    tenant: Name


class TaskKey(Strict):
    """Key of one task: a user's, or a completion notification."""

    id: AnyTaskId
    queue: Name = DEFAULT_QUEUE


class CancelTask(TaskKey):
    """Key of a task to cancel, from Python."""

    force: StrictBool = False
