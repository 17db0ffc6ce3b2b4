"""The client for asyncio: the verbs of `Client`, each run on a thread of a bounded pool, so that no loop waits."""

import asyncio
import os
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial, wraps
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar, Unpack

from duecourse.client.client import Client, ReminderClient, ScheduleClient
from duecourse.client.settings import ClientSettings
from duecourse.errors import ClientClosed, FieldError, InvalidSettings
from duecourse.ledger.task import DEFAULT_QUEUE, DEFAULT_TENANT, Span, Task

C = TypeVar("C")
P = ParamSpec("P")
R = TypeVar("R")

THREADS = 8
MAX_THREADS = 256


class ClientThreads:
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


class OnThreads(Generic[C]):
    """A client, and the threads on which its verbs run."""

    def __init__(self, client: C, pool: ClientThreads) -> None:
        self._client = client
        self._pool = pool


def on_thread(verb: Callable[Concatenate[C, P], R]) -> Callable[Concatenate[OnThreads[C], P], Coroutine[Any, Any, R]]:
    """Make a verb of a client a coroutine of its asynchronous one, with the same parameters and docstring."""

    @wraps(verb)
    async def call(self: OnThreads[C], /, *args: P.args, **kwargs: P.kwargs) -> R:
        return await self._pool.run(partial(verb, self._client, *args, **kwargs))

    return call


class AsyncReminderClient(OnThreads[ReminderClient]):
    """Reminders of one tenant, with the verbs of `ReminderClient`, each to be awaited."""

    add = on_thread(ReminderClient.add)
    preview = on_thread(ReminderClient.preview)
    preview_standing = on_thread(ReminderClient.preview_standing)
    get = on_thread(ReminderClient.get)
    move = on_thread(ReminderClient.move)
    change = on_thread(ReminderClient.change)
    cancel = on_thread(ReminderClient.cancel)
    move_occurrence = on_thread(ReminderClient.move_occurrence)
    cancel_occurrence = on_thread(ReminderClient.cancel_occurrence)


class AsyncScheduleClient(OnThreads[ScheduleClient]):
    """Schedules of one tenant, with the verbs of `ScheduleClient`, each to be awaited."""

    add = on_thread(ScheduleClient.add)
    get = on_thread(ScheduleClient.get)
    list = on_thread(ScheduleClient.list)
    change = on_thread(ScheduleClient.change)
    delete = on_thread(ScheduleClient.delete)
    purge = on_thread(ScheduleClient.purge)
    run = on_thread(ScheduleClient.run)
    backfill = on_thread(ScheduleClient.backfill)
    preview = on_thread(ScheduleClient.preview)


class AsyncClient(OnThreads[Client]):
    """Tasks, queries and queues, with the verbs of `Client`, each to be awaited; `reminders` has those on reminders.

    Each verb raises what that of `Client` raises. A verb whose await is cancelled may still take effect.
    """

    def __init__(
        self, store: str, *, tenant: str = DEFAULT_TENANT, threads: int = THREADS, **settings: Unpack[ClientSettings]
    ) -> None:
        """Make a client as `Client` does; at most `threads` of its verbs run at the same time, the others wait."""
        pool = ClientThreads(threads)
        self._begin(Client(store, tenant=tenant, **settings), pool)

    @classmethod
    def from_env(cls, tenant: str = DEFAULT_TENANT, *, threads: int = THREADS) -> Self:
        """Make a client as `Client.from_env` does; at most `threads` of its verbs run at the same time."""
        client = cls.__new__(cls)
        client._begin(Client.from_env(tenant), ClientThreads(threads))  # noqa: SLF001 - of its own class
        return client

    def _begin(self, client: Client, pool: ClientThreads) -> None:
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
        return await client._app_handle.waiting.wait_async(*asked, self._pool.run)  # noqa: SLF001 - the same App

    add = on_thread(Client.add)
    add_many = on_thread(Client.add_many)
    get = on_thread(Client.get)
    move = on_thread(Client.move)
    cancel = on_thread(Client.cancel)
    replay = on_thread(Client.replay)
    replay_dead = on_thread(Client.replay_dead)
    list_dead = on_thread(Client.list_dead)
    purge = on_thread(Client.purge)
    cancel_many = on_thread(Client.cancel_many)
    why = on_thread(Client.why)
    list = on_thread(Client.list)
    list_queues = on_thread(Client.list_queues)
    queue_history = on_thread(Client.queue_history)
    get_queue = on_thread(Client.get_queue)
    set_queue = on_thread(Client.set_queue)
    query = on_thread(Client.query)
    get_query = on_thread(Client.get_query)
