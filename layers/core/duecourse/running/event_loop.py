"""The event loop of this process, on which async handlers run; a watch reports what blocks it."""

import logging
import os
import sys
import threading
import traceback
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextvars import Context, copy_context
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from duecourse.ledger.task import Lost

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop
    from asyncio import Task as AsyncioTask

# asyncio is imported with the first async handler: a cold start without one does not pay for it.

log = logging.getLogger("duecourse.engine")

R = TypeVar("R")

ASYNC_PARALLEL = 100
"""Number of tasks that run at the same time on an event loop, unless a handler or a worker sets another."""
BLOCKED_S = 1.0
"""Time for which a handler may keep the loop from all others before that is reported."""
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
        self._tasks: set[AsyncioTask[None]] = set()  # the loop itself holds them weakly
        self._handlings: set[_Handling] = set()
        self._is_wanted = threading.Event()
        """Set while handlers run."""

    def start(self, work: Callable[[], Coroutine[Any, Any, None]], context: Context | None = None) -> None:
        """Have a coroutine run, in a new context or a copy of this one; it must not raise. Any thread may call this."""
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

        self.start(run, copy_context())
        return ended.result()

    async def handle(self, handler: Coroutine[Any, Any, R], lost: Lost) -> R:
        """Await a handler's coroutine, on this loop.

        It is cancelled when its lease is lost, or by `cancel`; RunCancelled is raised if it ends by that.
        """
        import asyncio

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
        except asyncio.CancelledError:
            if handling.why:
                raise RunCancelled(handling.why) from None
            raise
        finally:
            handling.end()
            self._handlings.discard(handling)

    def cancel(self, why: str) -> None:
        """Cancel all handlers that run, for this reason; returns at once. Any thread may call this."""
        if self._loop:
            self._loop.call_soon_threadsafe(self._cancel, why)

    def _cancel(self, why: str) -> None:
        for handling in list(self._handlings):
            handling.cancel(why)

    def _begin(self, loop: "AbstractEventLoop", work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        task = loop.create_task(work())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _started(self) -> "AbstractEventLoop":
        import asyncio

        with self._starting:
            if not self._loop:
                loop = asyncio.new_event_loop()
                # Daemons: a handler that never returns must not keep a process from ending.
                serving = threading.Thread(target=_serve, args=(loop,), name="duecourse-loop", daemon=True)
                serving.start()
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
