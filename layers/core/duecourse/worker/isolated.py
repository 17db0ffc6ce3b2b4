"""`python -m duecourse.worker.isolated`: a process for one task, whose process before died while it ran beside others.

If the process dies again, this task is the cause, for no other task runs in it.
"""

import logging
import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import replace
from functools import partial
from math import inf
from multiprocessing.connection import Connection, Pipe
from threading import Thread, Timer
from types import FrameType
from typing import Any

from duecourse.app import PROCESS
from duecourse.ledger.task import Lost, Settlement, Task
from duecourse.running.event_loop import LOOP, cancels_after_s
from duecourse.running.run import STOPPED, killed, postpone
from duecourse.worker.options import STOPS, Options, find_handlers, log_to_stderr

log = logging.getLogger("duecourse.worker")

LOOK_S = 0.5
"""Time between two looks at the task's time left and its lease, whose changes its process hears."""
END_S = 5.0
"""Time that a process has to end once it has answered."""
GONE = (EOFError, OSError)


class IsolatedRunner:
    """Runs each task in a process of its own."""

    def __init__(self, options: Options, rng: random.Random) -> None:
        self._options = options
        self._rng = rng

    def run(self, task: Task) -> Settlement:
        """Run a task in a new process; returns the end of its lease, a failed attempt if the process dies."""
        ours, its = Pipe()
        with its:
            command = [sys.executable, "-m", "duecourse.worker.isolated", self._options.dump()]
            process = subprocess.Popen(command, stdin=its.fileno())  # noqa: S603 our own module
        with ours:
            try:
                ours.recv()
            except GONE:
                return postpone(task, self._rng, f"no process of its own could be started: exit code {process.wait()}")
            try:
                return _answer(ours, task)
            except GONE:
                return killed(task, _how(process.wait()), self._rng)
            finally:
                _end(process)


def _answer(process: "Connection[Any, Any]", task: Task) -> Settlement:
    """Send the task, then changes of its time and its lease, until it is answered. Raises EOFError or OSError."""
    left_ms = task.left_ms or (lambda: inf)
    bare = replace(task, left_ms=None, signal=None)
    said = left_ms() < inf, bool(task.lost)
    process.send((bare, left_ms(), said[1]))
    while not process.poll(LOOK_S):
        now = left_ms() < inf, bool(task.lost)
        if now != said:
            process.send((left_ms(), now[1]))
            said = now
    answer: Settlement = process.recv()
    return answer


def _end(process: "subprocess.Popen[bytes]") -> None:
    try:
        process.wait(END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _how(code: int) -> str:
    return f"signal {-code}" if code < 0 else f"exit code {code}"


class _ParentLink:
    """Reports of the parent on the run: when it is ended, and that its lease is gone."""

    def __init__(self, parent: "Connection[Any, Any]", left_ms: float, is_lost: bool) -> None:
        self._parent = parent
        self.lost = Lost()
        self._note(left_ms, is_lost)

    def _note(self, left_ms: float, is_lost: bool) -> None:
        self._ends_at = time.monotonic() + left_ms / 1_000
        if is_lost:
            self.lost.set()
        if left_ms < inf:
            cancelling = Timer(cancels_after_s(left_ms / 1_000), LOOP.stop, [STOPPED])
            cancelling.daemon = True
            cancelling.start()

    def left_ms(self) -> float:
        return (self._ends_at - time.monotonic()) * 1_000

    def listen(self) -> None:
        """Receive changes until the parent has gone; then end this process, for another worker has the lease."""
        try:
            while True:
                self._note(*self._parent.recv())
        except GONE:
            os._exit(1)


def main(text: str) -> int:
    """Run the one task that comes by the standard input, and answer its end; returns the exit code."""
    log_to_stderr()
    for number in STOPS:
        signal.signal(number, _leave_to_the_parent)
    options = Options.load(text)
    sys.path.insert(0, os.getcwd())
    app = PROCESS.app()
    handlers = find_handlers(options.imports)
    parent: Connection[Any, Any] = Connection(os.dup(sys.stdin.fileno()))
    parent.send(True)
    task, left_ms, is_lost = parent.recv()
    link = _ParentLink(parent, left_ms, is_lost)
    Thread(target=link.listen, name="parent", daemon=True).start()
    kinds = {kind: partial(handler.run, app) for kind, handler in handlers.items()}
    end = app.runner(kinds.get, app.seals.opened).run(replace(task, left_ms=link.left_ms, signal=link.lost))
    parent.send(end)
    return 0


def _leave_to_the_parent(_number: int, _frame: FrameType | None) -> None:
    """Do nothing: a terminal or a unit signals all processes, and the worker's process decides when this one ends."""
    # To ignore the signal instead would make the handler's own processes ignore it too.


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
