"""The client for asyncio: the verbs of `Client` on threads of a bounded pool, so that no loop waits."""

import asyncio
import os
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import Context, copy_context
from functools import partial, wraps
from typing import Any, Concatenate, Generic, NamedTuple, ParamSpec, Self, TypeVar, Unpack
from weakref import WeakKeyDictionary

from duecourse.base.json_text import Json
from duecourse.client.client import SOURCE, Client, ReminderClient, ScheduleClient
from duecourse.client.keyword_settings import ClientSettings
from duecourse.client.typed_dicts import AddFields
from duecourse.errors import ClientClosed, DuecourseError, FieldError, InvalidSettings
from duecourse.ledger.operation_types import MAX_SHARED, MAX_SHARED_BYTES
from duecourse.ledger.script_codec import task_size
from duecourse.ledger.task import DEFAULT_QUEUE, DEFAULT_TENANT, AddResult, Item, NewTask, Span, Task
from duecourse.tasks.fast_parse import read_task

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
        self.size = size
        self._open()

    def _open(self) -> None:
        self._pid = os.getpid()
        self._threads: ThreadPoolExecutor | None = ThreadPoolExecutor(self.size, "duecourse-client")

    async def run(self, work: Callable[[], R]) -> R:
        """Result of the work, in this context. Raises ClientClosed after `close`.

        If its await is cancelled, work that has begun is finished, and other work does not begin.
        """
        return await self.start(work)

    def start(self, work: Callable[[], R]) -> asyncio.Future[R]:
        """Future of the work, which begins in this context once a thread is free. Raises ClientClosed after `close`."""
        if self._threads and self._pid != os.getpid():
            self._open()
        if not self._threads:
            raise ClientClosed
        return asyncio.get_running_loop().run_in_executor(self._threads, partial(copy_context().run, work))

    async def close(self) -> None:
        """Begin nothing more, and wait for the work in progress; the loop is not held up."""
        threads, self._threads = self._threads, None
        if threads and self._pid == os.getpid():
            await asyncio.to_thread(threads.shutdown)


# Adds of many coroutines that are made as one.
#
# Those that begin in one turn of the loop go together, and so do those that come while every thread adds.


class _Add(NamedTuple):
    """One coroutine's add: its task, its future, and its context."""

    task: NewTask
    future: asyncio.Future[AddResult]
    context: Context


class SharedAdds:
    """Adds of the coroutines of one loop, many at a time on each thread; `add_each` adds tasks of separate callers."""

    def __init__(self, add_each: Callable[[Sequence[NewTask]], Sequence[Item]], pool: ClientThreads) -> None:
        self._add_each = add_each
        self._pool = pool
        self._waiting: deque[_Add] = deque()
        self._running = 0

    def add(self, task: NewTask) -> asyncio.Future[AddResult]:
        """Add a task, unless its future is cancelled before a thread begins with it."""
        loop = asyncio.get_running_loop()
        if not self._waiting:
            loop.call_soon(self._start)
        future: asyncio.Future[AddResult] = loop.create_future()
        self._waiting.append(_Add(task, future, copy_context()))
        return future

    def start_all(self) -> None:
        """Give all waiting adds to the pool."""
        while self._waiting:
            self._start_next()

    def _start(self) -> None:
        while self._waiting and self._running < self._pool.size:
            self._start_next()

    def _start_next(self) -> None:
        batch, size = [self._waiting.popleft()], 0
        size += task_size(batch[0].task)
        while self._waiting and len(batch) < MAX_SHARED:
            size += task_size(self._waiting[0].task)
            if size > MAX_SHARED_BYTES:
                break
            batch.append(self._waiting.popleft())
        try:
            adding = batch[0].context.run(self._pool.start, partial(self._run, batch))
        except (ClientClosed, RuntimeError) as error:  # the latter at the end of the process, or of its memory
            _fail(batch, error)
        else:
            self._running += 1
            adding.add_done_callback(partial(self._finish, batch))

    def _run(self, batch: Sequence[_Add]) -> Sequence[tuple[_Add, Item]]:
        wanted = [one for one in batch if not one.future.cancelled()]
        return [*zip(wanted, self._add_each([one.task for one in wanted]), strict=True)]

    def _finish(self, batch: Sequence[_Add], adding: asyncio.Future[Sequence[tuple[_Add, Item]]]) -> None:
        self._running -= 1
        self._start()
        if error := adding.exception():
            _fail(batch, error)
            return
        for one, item in adding.result():
            if isinstance(item, DuecourseError):
                _fail([one], item)
            elif not one.future.done():
                one.future.set_result(item)


def _fail(batch: Sequence[_Add], error: BaseException) -> None:
    for one in batch:
        if not one.future.done():
            one.future.set_exception(error)


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
        self._adds: WeakKeyDictionary[asyncio.AbstractEventLoop, SharedAdds] = WeakKeyDictionary()
        self.reminders = AsyncReminderClient(client.reminders, pool)
        self.schedules = AsyncScheduleClient(client.schedules, pool)

    async def close(self) -> None:
        """Finish what was begun, then end threads and connections; each later verb raises ClientClosed.

        Adds that wait for a thread in another thread's loop raise it too.
        """
        if adds := self._adds.get(asyncio.get_running_loop()):
            adds.start_all()
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

    async def add(self, kind: str, payload: Json, **fields: Unpack[AddFields]) -> AddResult:
        """Schedule a task; `fields` are those of POST /tasks, and times may be datetime and timedelta too.

        An omitted id is generated, so two calls add two tasks.
        """
        client, loop = self._client, asyncio.get_running_loop()
        task = read_task({"kind": kind, "payload": payload, **fields}, client._tenant, SOURCE)  # noqa: SLF001 - as there
        adds = self._adds.get(loop)
        if adds is None:
            for closed in [one for one in [*self._adds] if one.is_closed()]:
                self._adds.pop(closed, None)  # what still waited there has its loop, which would stay for good
            adds = self._adds[loop] = SharedAdds(client._add_each, self._pool)  # noqa: SLF001 - for this class
        return await adds.add(task)

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
