"""Watched keys: the expiry of a key that any program set becomes a task, once however many heard it."""

from collections.abc import Sequence
from typing import NamedTuple

from duecourse.domain.task import DEADLINES_MS, NewTask
from duecourse.domain.watch import Expired, Watch
from duecourse.engine.tasks import add_all
from duecourse.ports.tasks import Reply, TaskStore


class Noted(NamedTuple):
    """Results of expiries: the number of new tasks, and the keys that no pattern matches."""

    added: int
    unknown: list[bytes]


class Watches:
    """The tasks that expiries make; of watches that match one key, the first."""

    def __init__(self, store: TaskStore, namespace: str, watches: Sequence[Watch]) -> None:
        self._store = store
        self._namespace = namespace
        self._watches = watches

    def note(self, expired: Sequence[Expired]) -> Noted:
        """Make a task of each, but where its key has one within its watch's window.

        Raises StoreUnavailable; the same expiries again then make nothing twice.
        """
        made = [(one, self._task(one)) for one in expired]
        replies = add_all(self._store, [task for _, task in made if task])
        return Noted(replies.count(Reply.CREATED), [one.key for one, task in made if not task])

    def _task(self, expired: Expired) -> NewTask | None:
        for watch in self._watches:
            parts = watch.pattern.match(expired.key)
            if parts is not None:
                task = watch.task(self._namespace, expired, parts)
                return task._replace(deadline_ms=DEADLINES_MS.get(watch.kind))
        return None
