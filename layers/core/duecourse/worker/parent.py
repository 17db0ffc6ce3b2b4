"""The parent of a worker's processes: it starts them, starts another for each that dies, and ends them together."""

import logging
import os
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from threading import Thread
from types import FrameType

from duecourse.engine.bereft import Bereft
from duecourse.engine.interrupted import STOPPED
from duecourse.worker.board import Board
from duecourse.worker.options import STOPS, Options
from duecourse.worker.process import AWAY

log = logging.getLogger("duecourse.worker")

PAUSES_S = 0.5, 30.0
"""Shortest and longest pause before a process is started again: each death in a row doubles it."""
LASTING_S = 60.0
"""Life of a process after which its death is the first in a row again."""
BEYOND_S = 5.0
"""Time beyond the grace time after which a process that has not ended is killed."""


@dataclass(eq=False, kw_only=True)
class Child:
    """One process, its socket and its board; `is_ready` once the process has said so."""

    process: "subprocess.Popen[bytes]"
    socket: socket.socket
    board: Board
    began_at: float = field(default_factory=time.monotonic)
    is_ready: bool = False


class Parent:
    """Keeps `options.processes` processes alive until SIGTERM or Ctrl-C."""

    def __init__(self, options: Options, bereft: Bereft) -> None:
        self._options = options
        self._bereft = bereft
        self._children: list[Child] = []
        self._selector = selectors.DefaultSelector()
        self._stopping = self._were_ready = False
        self._deaths = 0
        self._giving_back: list[Thread] = []
        self._start_at = 0.0
        self._exit_code = 0

    def ready(self) -> int:
        """Number of processes that hear rings."""
        return sum(child.is_ready for child in list(self._children))

    def left_out(self) -> int:
        """Number of shards that the processes leave out."""
        return sum(child.board.left_out for child in list(self._children))

    def run(self, on_ready: Callable[[], None] = lambda: None) -> int:
        """Start the processes and stay; returns the exit code. `on_ready` is called once each process is ready."""
        with _signals_heard(self._selector, self._on_signal):
            while not self._stopping:
                self._start_missing()
                self._heed(self._pause_s())
                if self.ready() == self._options.processes and not self._were_ready:
                    self._were_ready = True
                    on_ready()
            self._end()
        self._selector.close()
        return self._exit_code

    def _start_missing(self) -> None:
        while len(self._children) < self._options.processes and time.monotonic() >= self._start_at:
            self._children.append(self._start())

    def _start(self) -> Child:
        ours, its = socket.socketpair()
        board = Board.make()
        with its:
            command = [sys.executable, "-m", "duecourse.worker.process", self._options.dump(), str(board.file)]
            environment = self._options.environment(os.environ)
            process = subprocess.Popen(  # noqa: S603 our own module
                command, stdin=its.fileno(), env=environment, pass_fds=[board.file]
            )
            child = Child(process=process, socket=ours, board=board)
        self._selector.register(ours, selectors.EVENT_READ, child)
        return child

    def _pause_s(self) -> float | None:
        """Time until the next start of a process; None where none is missing."""
        missing = len(self._children) < self._options.processes
        return max(0.0, self._start_at - time.monotonic()) if missing else None

    def _heed(self, timeout: float | None) -> None:
        for key, _ in self._selector.select(timeout):
            if isinstance(key.data, Child):
                self._hear(key.data)
            else:
                key.data()

    def _hear(self, child: Child) -> None:
        """A process says that it is ready, or has gone."""
        try:
            said = child.socket.recv(1)
        except ConnectionResetError:
            said = b""
        child.is_ready = bool(said)
        if not said:
            self._bury(child)
            self._reap()

    def _bury(self, child: Child) -> None:
        self._selector.unregister(child.socket)
        child.socket.close()
        self._children.remove(child)
        code = child.process.wait()
        self._give_back(child.board, code)
        if self._stopping:
            return
        if not self._were_ready and code not in (AWAY, -signal.SIGKILL):
            self._exit_code, self._stopping = code or 1, True  # it would die of the same again
            return
        lived = time.monotonic() - child.began_at
        self._deaths = 1 if lived >= LASTING_S else self._deaths + 1
        shortest, longest = PAUSES_S
        pause_s = min(shortest * 2 ** (self._deaths - 1), longest)
        self._start_at = time.monotonic() + pause_s
        log.error("process %d ended with %d: another is started in %g s", child.process.pid, code, pause_s)

    def _give_back(self, board: Board, code: int) -> None:
        """Give back what a process had that has gone, beside all else: the store may be away."""
        held = board.held()
        board.close()
        if held:
            how = f"signal {-code}" if code < 0 else f"exit code {code}"
            do = self._bereft.release if self._stopping else self._bereft.give_back
            thread = Thread(target=do, args=(held, STOPPED if self._stopping else how), name="bereft", daemon=True)
            thread.start()
            self._giving_back = [*filter(Thread.is_alive, self._giving_back), thread]

    def _end(self) -> None:
        """Have the processes stop, and kill those that take too long."""
        self._kill(signal.SIGTERM)
        ends_at = time.monotonic() + self._options.grace_ms / 1_000 + BEYOND_S
        while self._children:
            left_s = ends_at - time.monotonic()
            if left_s <= 0:
                log.error("%d processes did not end in time and are killed", len(self._children))
                self._kill(signal.SIGKILL)
            self._heed(max(left_s, BEYOND_S if left_s <= 0 else 0.0))
        for thread in self._giving_back:
            thread.join(BEYOND_S)

    def _kill(self, number: signal.Signals) -> None:
        for child in self._children:
            child.process.send_signal(number)

    def _reap(self) -> None:
        """Reap processes of others: the first process of a container is the parent of each whose own has gone."""
        ours = {child.process.pid for child in self._children}
        with suppress(ChildProcessError):
            while ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                if ended.si_pid in ours:
                    return  # its socket says so too, and `_bury` reaps it
                os.waitpid(ended.si_pid, 0)

    def _on_signal(self, number: int) -> None:
        """The first signal stops the processes in good order, a second one kills them.

        A signal of a process that has ended comes here too.
        """
        if number == signal.SIGCHLD:
            self._reap()
            return
        if self._stopping:
            self._kill(signal.SIGKILL)
        self._stopping = True


@contextmanager
def _signals_heard(selector: selectors.BaseSelector, on_signal: Callable[[int], None]) -> Iterator[None]:
    """Have `on_signal` called with a signal's number where the selector is asked.

    A signal that comes between two looks is not lost.
    """
    ears, mouth = socket.socketpair()
    mouth.setblocking(False)
    handlers = {number: signal.signal(number, _nothing) for number in (*STOPS, signal.SIGCHLD)}
    before = signal.set_wakeup_fd(mouth.fileno())

    def hear() -> None:
        on_signal(ears.recv(1)[0])

    selector.register(ears, selectors.EVENT_READ, hear)
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)
        for number, handler in handlers.items():
            signal.signal(number, handler)
        selector.unregister(ears)
        ears.close()
        mouth.close()


def _nothing(_number: int, _frame: FrameType | None) -> None:
    """Python must have a handler, or the signal ends the process."""
