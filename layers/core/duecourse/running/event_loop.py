"""The event loop of this process, on which async handlers run; a watch reports what blocks it."""

import logging
import os
import sys
import threading
import traceback
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import Context, copy_context
from functools import partial
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, TypeVar

from duecourse.ledger.task import Lost

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop
    from asyncio import Task as AsyncioTask

# asyncio is imported with the first async handler: a cold start without one does not pay for it.

log = logging.getLogger("duecourse.running")

R = TypeVar("R")

ASYNC_PARALLEL = 100
"""Number of tasks that run at the same time on an event loop, unless a handler or a worker sets another."""
BLOCKED_S = 1.0
"""Time for which a handler may keep the loop from all others before that is reported."""
OWN_THREADS = 4
"""Number of threads for duecourse's own calls of async runs: seals, results, first extensions of short leases."""
LOOK_S = 0.1
"""Time between two looks at the loop, while handlers run on it."""

CANCEL_S = 1.0
"""Time before the end of the grace time at which async handlers are cancelled: they have it to clean up."""

LOST = "its lease was lost before the handler returned"


class RunCancelled(Exception):
    """Reason for which duecourse cancelled a handler, by no fault of the handler's."""


class _Handling:
    """One handler that is awaited, and the reason for which it was cancelled, "" for none. Only the loop uses it."""

    def __init__(self, task: "AsyncioTask[Any]") -> None:
        self._task = task
        self._is_over = False
        self.why = ""

    def cancel(self, why: str) -> None:
        """Cancel the handler once, unless it has ended: the rest of its run settles the task."""
        if not (self._is_over or self.why):
            self.why = why
            self._task.cancel()

    def end(self) -> None:
        """Note that the handler has ended."""
        self._is_over = True


class DaemonThreads(ThreadPoolExecutor):
    """Executor whose threads let their process end: one that never returns would keep it, as asyncio's own do."""

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self._size, self._count = size, 0
        self._inbox: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._starting = threading.Lock()

    def submit(self, call: Callable[..., R], /, *given: Any, **named: Any) -> "Future[R]":
        """Have a call made on one of the threads."""
        ended: Future[R] = Future()

        def do() -> None:
            if ended.set_running_or_notify_cancel():
                try:
                    ended.set_result(call(*given, **named))
                except BaseException as error:  # noqa: BLE001 the caller's
                    ended.set_exception(error)

        with self._starting:
            if self._count < self._size:
                self._count += 1
                threading.Thread(target=self._serve, name="duecourse-call", daemon=True).start()
        self._inbox.put(do)
        return ended

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Leave the threads: they end with the process."""

    def _serve(self) -> None:
        while True:
            self._inbox.get()()


class EventLoop:
    """An event loop on a thread of its own, which starts with the first async handler and lasts as long as the process.

    A process has one, so that a client which a module keeps for its handlers stays on the loop of its connections.
    """

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Have no loop: in a forked child, the thread of its parent's is not there."""
        self._starting = threading.Lock()
        self._loop: AbstractEventLoop | None = None
        self._serving: threading.Thread | None = None
        self._tasks: set[AsyncioTask[None]] = set()  # the loop itself holds them weakly
        self._handlings: set[_Handling] = set()
        self._stopped_for = ""
        self._is_wanted = threading.Event()
        """Set while handlers run."""
        self._own_threads = DaemonThreads(OWN_THREADS)

    def start(self, work: Callable[[], Coroutine[Any, Any, None]], context: Context | None = None) -> None:
        """Have a coroutine run, in a new context or a copy of this one; any thread may call this.

        It must not raise. If it is cancelled before it returns, which no code of duecourse's does, it begins again.
        """
        loop = self._loop or self._started()
        loop.call_soon_threadsafe(self._begin, loop, work, context=context or Context())

    def run(self, work: Callable[[], Coroutine[Any, Any, R]]) -> R:
        """Run a coroutine in a copy of this context, and wait for it; returns or raises what it does."""
        ended: Future[R] = Future()

        async def run() -> None:
            try:
                ended.set_result(await work())
            except BaseException as error:  # noqa: BLE001 the caller's: SystemExit would end the loop
                ended.set_exception(error)

        if threading.current_thread() is self._serving:
            raise RuntimeError("an async handler cannot wait for another one by a plain call: await it")
        self.start(run, copy_context())
        return ended.result()

    async def on_thread(self, call: Callable[..., R], *given: Any) -> R:
        """Make a call of duecourse's own that may block, on a thread that handlers cannot fill; returns its result.

        A handler that cancels all of `asyncio.all_tasks()` does not end the wait.
        """
        import asyncio

        do = partial(copy_context().run, call, *given)
        made = asyncio.get_running_loop().run_in_executor(self._own_threads, do)
        while True:
            try:
                return await asyncio.shield(made)
            except asyncio.CancelledError:
                # The call goes on, and its outcome counts. What counts cancels must not see this one in the handler.
                if current := asyncio.current_task():
                    current.uncancel()

    async def handle(self, handler: Coroutine[Any, Any, R], lost: Lost) -> R:
        """Await a handler's coroutine, on this loop.

        It is cancelled when its lease is lost, or by `stop`. RunCancelled is raised if it then ends without an outcome,
        from the error of its clean-up, if there is one. After `stop`, the handler does not begin.
        """
        import asyncio

        if self._stopped_for:  # nothing would cancel it any more
            handler.close()
            raise RunCancelled(self._stopped_for)
        current, loop = asyncio.current_task(), asyncio.get_running_loop()
        assert current  # noqa: S101 - a coroutine runs in a task
        handling = _Handling(current)
        lose = partial(loop.call_soon_threadsafe, handling.cancel, LOST)
        self._handlings.add(handling)
        self._is_wanted.set()
        try:
            with lost.listening(lose):
                if lost:
                    lose()
                return await handler
        except BaseException as error:
            if not handling.why:
                raise
            raise RunCancelled(handling.why) from (None if isinstance(error, asyncio.CancelledError) else error)
        finally:
            handling.end()
            self._handlings.discard(handling)

    def stop(self, why: str) -> None:
        """Cancel all handlers that run, for this reason, and let no other begin; any thread may call this."""
        self._stopped_for = why  # first: a loop that starts meanwhile begins none either
        if self._loop:
            self._loop.call_soon_threadsafe(self._cancel, why)

    def _cancel(self, why: str) -> None:
        for handling in list(self._handlings):
            handling.cancel(why)

    def _begin(self, loop: "AbstractEventLoop", work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        returned = list[bool]()

        async def run() -> None:
            await work()
            returned.append(True)

        task = loop.create_task(run())
        self._tasks.add(task)
        task.add_done_callback(partial(self._end, loop, work, returned))

    def _end(
        self,
        loop: "AbstractEventLoop",
        work: Callable[[], Coroutine[Any, Any, None]],
        returned: Sequence[bool],
        task: "AsyncioTask[None]",
    ) -> None:
        self._tasks.discard(task)
        # By a handler that cancels all of `asyncio.all_tasks()`: others' runs may not have begun. Its own run counts as
        # cancelled too, where it returns without a further await.
        if task.cancelled() and not returned:
            self._begin(loop, work)

    def _started(self) -> "AbstractEventLoop":
        import asyncio

        with self._starting:
            if not self._loop:
                loop = asyncio.new_event_loop()
                loop.set_default_executor(DaemonThreads(min(32, (os.cpu_count() or 1) + 4)))  # as many as asyncio's own
                # Daemons: a handler that never returns must not keep a process from ending.
                serving = threading.Thread(target=_serve, args=(loop,), name="duecourse-loop", daemon=True)
                serving.start()
                self._serving = serving
                watching = partial(self._watch, loop, serving)
                threading.Thread(target=watching, name="duecourse-loop-watch", daemon=True).start()
                self._loop = loop
            return self._loop

    def _watch(self, loop: "AbstractEventLoop", serving: threading.Thread) -> None:
        """Look at the loop while handlers run, and report each block once."""
        resting = threading.Event()
        while True:
            self._is_wanted.wait()
            answered = threading.Event()
            loop.call_soon_threadsafe(self._look, answered)
            # A block may have begun just after the look before.
            if not answered.wait(BLOCKED_S - LOOK_S):
                _report(serving)
                answered.wait()
            resting.wait(LOOK_S)

    def _look(self, answered: threading.Event) -> None:
        """Answer the watch, which sleeps while no handler runs."""
        answered.set()
        if not self._handlings:
            self._is_wanted.clear()


def cancels_after_s(left_s: float) -> float:
    """Time until handlers are cancelled that have so much left, in seconds."""
    return max(0.0, left_s - CANCEL_S, left_s / 2)


def _serve(loop: "AbstractEventLoop") -> None:
    while True:
        try:
            loop.run_forever()
        except BaseException:  # SystemExit of a task that a handler started: the loop is all handlers'
            log.exception("an asyncio task of a handler wanted to end the event loop, which goes on")


def _report(serving: threading.Thread) -> None:
    frame = sys._current_frames().get(serving.ident or 0)  # noqa: SLF001 - the one way to another thread's stack
    stack = "".join(traceback.format_stack(frame)) if frame else ""
    log.warning(
        "an async handler has blocked the event loop for %g s, and every other async task waits: await, or use "
        "asyncio.to_thread. It is at\n%s",
        BLOCKED_S,
        stack,
    )


LOOP = EventLoop()
"""The loop of this process."""
os.register_at_fork(after_in_child=LOOP.forget)
