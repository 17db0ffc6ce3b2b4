"""Which tasks are of a group: keys `group NUL <shard> NUL tenant/group NUL stored id`, with nothing in them."""

from duecourse.adapters.keyvalue.map import Batch
from duecourse.domain.task import Task


class Groups:
    """The groups of one shard within one batch."""

    def __init__(self, batch: Batch, shard: bytes) -> None:
        self._batch = batch
        self._start = b"group\0" + shard + b"\0"

    def join(self, sid: str, task: Task) -> None:
        """Let a task be a member of its group."""
        if task.member_of:
            self._batch.put(self._members_of(task.tenant, task.group) + sid.encode(), b"")

    def leave(self, sid: str, task: Task) -> None:
        """Let it be one no more."""
        if task.member_of:
            self._batch.delete(self._members_of(task.tenant, task.group) + sid.encode())

    def members(self, tenant: str, group: str) -> list[str]:
        """The stored ids of a group, in order."""
        start = self._members_of(tenant, group)
        return [key[len(start) :].decode() for key, _ in self._batch.range(start, start + b"\xff")]

    def has_within(self, tenant: str, group: str, first: str, last: str) -> bool:
        """Whether a group has a stored id from the first to the last of those two."""
        start = self._members_of(tenant, group)
        return any(True for _ in self._batch.range(start + first.encode(), start + last.encode() + b"\0"))

    def _members_of(self, tenant: str, group: str) -> bytes:
        return self._start + f"{tenant}/{group}\0".encode()
