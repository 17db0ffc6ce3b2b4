"""The client for asyncio: the verbs of `Client`, each run on a thread of a bounded pool, so that no loop waits."""

import asyncio
import os
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial, wraps
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar, Unpack

from duecourse.client import Client
from duecourse.client_reminders import ReminderClient
from duecourse.client_schedules import ScheduleClient
from duecourse.client_settings import ClientSettings
from duecourse.domain.outcomes import Span
from duecourse.domain.task import DEFAULT_QUEUE, DEFAULT_TENANT, Task
from duecourse.errors import ClientClosed, FieldError, InvalidSettings

C = TypeVar("C")
P = ParamSpec("P")
R = TypeVar("R")

THREADS = 8
MAX_THREADS = 256


class Pool:
    """Threads of one client, at most `size`; in a forked child, threads of its own."""

    def __init__(self, size: int) -> None:
        if not 1 <= size <= MAX_THREADS:
            raise InvalidSettings([FieldError("threads", f"must be 1 to {MAX_THREADS}")])
        self._size = size
        self._open()

    def _open(self) -> None:
        self._pid = os.getpid()
        self._threads: ThreadPoolExecutor | None = ThreadPoolExecutor(self._size, "duecourse-client")

    async def run(self, work: Callable[[], R]) -> R:
        """Result of the work, in this context. Raises ClientClosed after `close`.

        If its await is cancelled, work that has begun is finished, and other work does not begin.
        """
        if self._threads and self._pid != os.getpid():
            self._open()
        if not self._threads:
            raise ClientClosed
        return await asyncio.get_running_loop().run_in_executor(self._threads, partial(copy_context().run, work))

    async def close(self) -> None:
        """Begin nothing more, and wait for the work in progress; the loop is not held up."""
        threads, self._threads = self._threads, None
        if threads and self._pid == os.getpid():
            await asyncio.to_thread(threads.shutdown)


class Pooled(Generic[C]):
    """A client, and the threads on which its verbs run."""

    def __init__(self, client: C, pool: Pool) -> None:
        self._client = client
        self._pool = pool


def awaited(verb: Callable[Concatenate[C, P], R]) -> Callable[Concatenate[Pooled[C], P], Coroutine[Any, Any, R]]:
    """Make a verb of a client a coroutine of its asynchronous one, with the same parameters and docstring."""

    @wraps(verb)
    async def call(self: Pooled[C], /, *args: P.args, **kwargs: P.kwargs) -> R:
        return await self._pool.run(partial(verb, self._client, *args, **kwargs))

    return call


class AsyncReminderClient(Pooled[ReminderClient]):
    """Reminders of one tenant, with the verbs of `ReminderClient`, each to be awaited."""

    add = awaited(ReminderClient.add)
    preview = awaited(ReminderClient.preview)
    preview_standing = awaited(ReminderClient.preview_standing)
    get = awaited(ReminderClient.get)
    move = awaited(ReminderClient.move)
    change = awaited(ReminderClient.change)
    cancel = awaited(ReminderClient.cancel)
    move_occurrence = awaited(ReminderClient.move_occurrence)
    cancel_occurrence = awaited(ReminderClient.cancel_occurrence)


class AsyncScheduleClient(Pooled[ScheduleClient]):
    """Schedules of one tenant, with the verbs of `ScheduleClient`, each to be awaited."""

    add = awaited(ScheduleClient.add)
    get = awaited(ScheduleClient.get)
    list = awaited(ScheduleClient.list)
    change = awaited(ScheduleClient.change)
    delete = awaited(ScheduleClient.delete)
    purge = awaited(ScheduleClient.purge)
    run = awaited(ScheduleClient.run)
    backfill = awaited(ScheduleClient.backfill)
    preview = awaited(ScheduleClient.preview)


class AsyncClient(Pooled[Client]):
    """Tasks, queries and queues, with the verbs of `Client`, each to be awaited; `reminders` has those on reminders.

    Each verb raises what that of `Client` raises. A verb whose await is cancelled may still take effect.
    """

    def __init__(
        self, store: str, *, tenant: str = DEFAULT_TENANT, threads: int = THREADS, **settings: Unpack[ClientSettings]
    ) -> None:
        """Make a client as `Client` does; at most `threads` of its verbs run at the same time, the others wait."""
        pool = Pool(threads)
        self._begin(Client(store, tenant=tenant, **settings), pool)

    @classmethod
    def from_env(cls, tenant: str = DEFAULT_TENANT, *, threads: int = THREADS) -> Self:
        """Make a client as `Client.from_env` does; at most `threads` of its verbs run at the same time."""
        client = cls.__new__(cls)
        client._begin(Client.from_env(tenant), Pool(threads))  # noqa: SLF001 - of its own class
        return client

    def _begin(self, client: Client, pool: Pool) -> None:
        super().__init__(client, pool)
        self.reminders = AsyncReminderClient(client.reminders, pool)
        self.schedules = AsyncScheduleClient(client.schedules, pool)

    async def close(self) -> None:
        """Finish what was begun, then end threads and connections; each later verb raises ClientClosed."""
        await self._pool.close()
        await asyncio.to_thread(self._client.close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"Async{self._client!r}"

    async def wait(self, id: str, queue: str = DEFAULT_QUEUE, *, timeout: Span | None = None) -> Task:
        """Return a task once it is done, dead or cancelled; the ledger publishes when, so that nothing is polled.

        Raises WaitTimedOut, a TimeoutError, after `timeout`; without one, there is no limit.
        """
        # Not on the pool: the loop takes a thread only to read the task.
        client = self._client
        asked = client._wait_for(id, queue, timeout)  # noqa: SLF001 - the same checks
        return await client._link.waiting.wait_async(*asked, self._pool.run)  # noqa: SLF001 - the same link

    add = awaited(Client.add)
    add_many = awaited(Client.add_many)
    get = awaited(Client.get)
    move = awaited(Client.move)
    cancel = awaited(Client.cancel)
    replay = awaited(Client.replay)
    replay_dead = awaited(Client.replay_dead)
    list_dead = awaited(Client.list_dead)
    purge = awaited(Client.purge)
    cancel_many = awaited(Client.cancel_many)
    why = awaited(Client.why)
    list = awaited(Client.list)
    list_queues = awaited(Client.list_queues)
    get_queue = awaited(Client.get_queue)
    set_queue = awaited(Client.set_queue)
    query = awaited(Client.query)
    get_query = awaited(Client.get_query)
