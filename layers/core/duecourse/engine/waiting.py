"""Verb of callers that wait for the completion of a task, on a thread or in an event loop."""

import time
from collections.abc import Awaitable, Callable
from functools import partial
from math import inf
from typing import Protocol

from duecourse.domain.task import DEFAULT_TENANT, Shard, Task
from duecourse.engine.waits import Ended, Waits
from duecourse.errors import WaitTimedOut

Get = Callable[[str, str, str], Task]
"""Reader of one task, by its queue, id and tenant. Raises TaskNotFound and ResultsUnavailable."""

Reading = Callable[[], Task]
"""One reading, for a thread."""


class Ledger(Protocol):
    """The part of the ledger that finds a task's shard."""

    def shard_of(self, queue: str, id: str, group: str = "") -> Shard:
        """See ports.ledger."""


class Waiting:
    """Waiting for the completion of a task: it is done, dead or cancelled. `get` reads it.

    The id is followed, not one run or generation: a replacement is waited for, and a replay that came before the
    dead task could be read. Both verbs raise WaitTimedOut after `timeout_s` (None: never), TaskNotFound for a task that
    is not there or is deleted meanwhile, and ResultsUnavailable. An outage of the store is waited out.
    """

    def __init__(self, get: Get, waits: Waits, ledger: Callable[[], Ledger]) -> None:
        self._get = get
        self._waits = waits
        self._ledger = ledger

    def wait(self, queue: str, id: str, tenant: str = DEFAULT_TENANT, timeout_s: float | None = None) -> Task:
        """The task once it has ended; this thread waits."""
        end = _end_of(timeout_s)
        while not (task := self._get(queue, id, tenant)).is_over:
            ended = self._ended(task)
            try:
                ended.result(_left(end))
            except TimeoutError:
                return self._last(task, timeout_s)
            finally:
                ended.cancel()
        return task

    async def wait_async(
        self, queue: str, id: str, tenant: str, timeout_s: float | None, run: Callable[[Reading], Awaitable[Task]]
    ) -> Task:
        """The task once it has ended; `run` reads it on a thread, and no thread is in use while it is waited for."""
        import asyncio  # which few processes have

        read = partial(self._get, queue, id, tenant)
        end = _end_of(timeout_s)
        while not (task := await run(read)).is_over:
            try:
                await asyncio.wait_for(asyncio.wrap_future(self._ended(task)), _left(end))
            except TimeoutError:
                return await run(partial(self._last, task, timeout_s))
        return task

    def _ended(self, task: Task) -> Ended:
        return self._waits.end_of(task, self._ledger().shard_of(task.queue, task.id, task.group))

    def _last(self, task: Task, timeout_s: float | None) -> Task:
        """The task if it has ended by now, though nobody published it. Raises WaitTimedOut, with its state."""
        found = self._get(task.queue, task.id, task.tenant)
        if found.is_over:
            return found
        raise WaitTimedOut(f"Task {task.id} of queue {task.queue} is still {found.status} after {timeout_s:g} s.")


def _end_of(timeout_s: float | None) -> float:
    return inf if timeout_s is None else time.monotonic() + timeout_s


def _left(end: float) -> float | None:
    """Seconds until then, None for no end."""
    return None if end == inf else max(0.0, end - time.monotonic())
