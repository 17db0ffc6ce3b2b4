"""`python -m duecourse.worker.child`: one process of a worker, its board of leases, and what it serves."""

import gc
import logging
import mmap
import os
import random
import select
import signal
import socket
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from importlib.util import find_spec
from math import inf
from types import FrameType
from typing import NoReturn, Self

from duecourse.app import PROCESS, App
from duecourse.base.json_text import Json
from duecourse.errors import DuecourseError, InvalidSettings, InvocationRejected, StoreMisused, StoreUnavailable
from duecourse.ledger.reminder import KIND as REMINDER
from duecourse.ledger.task import STEP_MS, Lost, Outcome, Settlement, Shard, Task, Trigger
from duecourse.ledger.watched_keys import ExpiredKey
from duecourse.ringing.bridge import SWITCH_S, Bridge
from duecourse.ringing.bridge_event import Ring, shards_of
from duecourse.ringing.dispatch import daemon
from duecourse.running.drain import ContinuousDrain, DrainResult
from duecourse.running.event_loop import LOOP, cancels_after_s
from duecourse.running.leases import LeaseExtender, LeaseState, ProcessLease
from duecourse.running.run import STOPPED, AsyncKind, Kind, is_suspect
from duecourse.running.threads import Threads, places
from duecourse.task_handlers import TaskHandler
from duecourse.worker.isolated import IsolatedRunner
from duecourse.worker.options import STOPS, Options, find_handlers, log_to_stderr

# Board of a worker's process: its leases, in memory that it shares with its parent.

SLOTS = 1_024
"""The most leases that are shown: what a process runs, 256 tasks at most, and some that wait or have ended."""
SLOT = 1_024
"""Bytes of one task: the longest names fit, and some."""
LENGTH = 2
STATE = 1
HEADER = 4
SEPARATOR = "\n"
"""Between the names of a task, none of which contains it."""
WAITING = bytes([LeaseState.WAITS])


class Board:
    """A file in memory: the number of shards that the process leaves out, and the leases that it has.

    A lease is shown from its claim until its end is settled, while there is room. The process writes and its parent
    reads. That costs no system call, and what a killed process wrote stays.
    """

    def __init__(self, file: int) -> None:
        self.file = file
        self._memory = mmap.mmap(file, HEADER + SLOTS * SLOT)
        self._free = deque(range(SLOTS))
        self._places: dict[str, int] = {}
        """Place of the lease with a token, in bytes."""

    @classmethod
    def make(cls) -> Self:
        """A board with nothing on it; its file has no name."""
        file = os.memfd_create("duecourse-worker") if hasattr(os, "memfd_create") else _temporary()
        os.truncate(file, HEADER + SLOTS * SLOT)
        return cls(file)

    def close(self) -> None:
        """Close the file. The memory lives as long as this object, which another thread may still read."""
        os.close(self.file)

    @property
    def left_out(self) -> int:
        """Number of shards that the process leaves out."""
        return int.from_bytes(self._memory[:HEADER])

    @left_out.setter
    def left_out(self, count: int) -> None:
        self._memory[:HEADER] = count.to_bytes(HEADER)

    def hold(self, tasks: Iterable[Task]) -> None:
        """Show the leases of tasks that were claimed."""
        for task in tasks:
            if not self._free:
                return
            at = self._free.popleft() * SLOT + HEADER
            text = SEPARATOR.join((task.queue, task.id, task.tenant, task.group, task.token)).encode()
            begin = at + LENGTH
            self._memory[begin : begin + STATE + len(text)] = WAITING + text
            self._memory[at:begin] = len(text).to_bytes(LENGTH)  # last: until then nothing is shown
            self._places[task.token] = at

    def drop(self, tokens: Iterable[str]) -> None:
        """Show these leases no longer."""
        for token in tokens:
            if (at := self._places.pop(token, None)) is not None:
                self._memory[at : at + LENGTH] = bytes(LENGTH)
                self._free.append((at - HEADER) // SLOT)

    def mark(self, token: str, state: LeaseState) -> None:
        """Show another state of the lease with this token, if it is shown."""
        if (at := self._places.get(token)) is not None:
            self._memory[at + LENGTH] = state

    def held(self) -> list[ProcessLease]:
        """The leases that are shown."""
        return list(self._shown())

    def _shown(self) -> Iterator[ProcessLease]:
        for at in range(HEADER, HEADER + SLOTS * SLOT, SLOT):
            if length := int.from_bytes(self._memory[at : at + LENGTH]):
                begin = at + LENGTH + STATE
                queue, id, tenant, group, token = self._memory[begin : begin + length].decode().split(SEPARATOR)
                yield ProcessLease(queue, id, tenant, group, token, LeaseState(self._memory[begin - STATE]))


def _temporary() -> int:
    with tempfile.TemporaryFile() as made:
        return os.dup(made.fileno())


# One process of a worker: a bridge, a tick, and a continuous drain that runs the handlers.

log = logging.getLogger("duecourse.worker")

TICK_S = 60.0


class WorkerProcess:
    """Serves the rings of a ledger in this process, from `start` to `stop`.

    `queues` are the queues to serve; none: all. `concurrency` is the number of tasks that run at the same time, None
    for the default. The `board` shows its leases. `isolated` runs a task whose process has died before.

    Raises InvalidSettings where the ledger has no bells, and StoreUnavailable where a cluster does not answer.
    """

    def __init__(
        self,
        app: App,
        handlers: Mapping[str, TaskHandler],
        queues: Collection[str],
        board: Board,
        isolated: Callable[[Task], Settlement],
        concurrency: int | None = None,
    ) -> None:
        self._app = app
        self._board = board
        self._isolated = isolated
        self._queues = frozenset(queues)
        self._own = frozenset(handlers)
        self._ends_at = inf
        self._extender = LeaseExtender(app.ledger, mark=board.mark)
        self._threads = Threads(size_of(app, handlers, concurrency))
        kinds: dict[str, Kind] = _built_in(app)
        kinds.update({kind: partial(handler.run, app) for kind, handler in handlers.items()})
        kept = {kind: self._with_lease(run) for kind, run in kinds.items()}
        awaited = {
            kind: self._with_lease_async(partial(handler.run_async, app))
            for kind, handler in handlers.items()
            if handler.run_async
        }
        # A kind of its own is never handed over, whatever the settings say.
        runner = app.runner(kept.get, app.seals.opened, self._run_isolated, awaited.get)
        targets = app.targets_with(kept, own=handlers)
        self._drain = ContinuousDrain(app.ledger, runner, targets, self._threads, STEP_MS, app.fire, board)
        self._bridge = Bridge(app.open_bells(), self, in_flight=1)
        self._stopped = threading.Event()
        self._faulty = threading.Event()
        parts = {"drain": self._drain.run, "leases": self._extender.run, "tick": self._tick}
        self._parts = {name: daemon(name, run, self._end) for name, run in parts.items()}

    def start(self) -> None:
        """Begin to connect and to work; returns at once."""
        sys.setswitchinterval(SWITCH_S)
        for part in self._parts.values():
            part.start()
        self._bridge.start()

    def warm(self) -> None:
        """Load modules that the first task needs, and store the kinds; while the store is away, a tick does that."""
        self._app.load_calendar()
        with suppress(StoreUnavailable, StoreMisused):
            self._app.ledger.warmth().get_ready()
            self._app.write_deployed(self._own)

    def wait_ready(self, timeout: float) -> bool:
        """Wait until rings are heard; False after `timeout` seconds."""
        return self._bridge.wait_ready(timeout)

    def show(self) -> None:
        """Show on the board how many shards are left out."""
        self._board.left_out = self._drain.left_out

    @property
    def is_faulty(self) -> bool:
        """True if one of its threads has ended by a fault."""
        return self._faulty.is_set() or self._bridge.wait_ended(0)

    def stop(self, grace_s: float) -> bool:
        """Claim no more, release tasks that have not begun, and let running ones finish; False if some did not.

        Async handlers that run still are cancelled shortly before. Tasks that still run after `grace_s` are released,
        due again at once: the process is to end then.
        """
        self._ends_at = time.monotonic() + grace_s
        self._stopped.set()
        self._drain.stop()
        cancel_s = cancels_after_s(grace_s)
        self._bridge.stop(cancel_s)
        drain = self._parts["drain"]
        drain.join(max(0.0, self._ends_at - grace_s + cancel_s - time.monotonic()))
        LOOP.stop(STOPPED)
        drain.join(max(0.0, self._ends_at - time.monotonic()))
        finished = not drain.is_alive()
        if not finished:
            count = self._extender.give_up(STOPPED)
            log.error("%d tasks run still after %g s: each runs again elsewhere", count, grace_s)
        self._extender.stop()
        return finished

    def drain(self, rings: Sequence[Ring]) -> Json:
        """See RingHandler. The drain looks at the shards; this call does not wait for it."""
        resolved = shards_of({ring.key: ring.trigger for ring in rings}, self._app.settings.namespace)
        self._look({shard: resolved.triggers[shard] for shard in resolved.shards})
        return {}

    def note(self, expired: Sequence[ExpiredKey]) -> Json:
        """See RingHandler."""
        try:
            return self._app.watches.note(expired)._asdict()
        except DuecourseError as error:
            raise InvocationRejected(f"no tasks were made of watched keys: {error}") from error

    def drain_reachable(
        self, shards: Sequence[Shard], remaining_ms: object, triggers: Mapping[Shard, Trigger]
    ) -> DrainResult:
        """See ShardDrainer."""
        return self._drain.drain_reachable([one for one in shards if self._serves(one)], remaining_ms, triggers)

    def _look(self, triggers: Mapping[Shard, Trigger]) -> None:
        self._drain.ring({shard: trigger for shard, trigger in triggers.items() if self._serves(shard)})

    def _serves(self, shard: Shard) -> bool:
        return not self._queues or shard.queue in self._queues

    def _with_lease(self, kind: Kind) -> Kind:
        def run(task: Task) -> Outcome | None:
            running = self._with_signals(task)
            with self._extender.while_running(running):
                return kind(running)

        return run

    def _with_lease_async(self, kind: AsyncKind) -> AsyncKind:
        async def run(task: Task) -> Outcome | None:
            running = self._with_signals(task)
            async with self._extender.while_running(running):
                return await kind(running)

        return run

    def _run_isolated(self, task: Task) -> Settlement | None:
        if task.kind not in self._own or not is_suspect(task):
            return None
        running = self._with_signals(task)
        with self._extender.while_running(running, LeaseState.ISOLATED):
            return self._isolated(running)

    def _with_signals(self, task: Task) -> Task:
        """The task as its handler gets it: with its time left, and the signal of a lost lease."""
        until = time.monotonic() + (task.lease_expires_at - task.claimed_at) / 1_000
        return task.under(self._left_ms, Lost(until))

    def _left_ms(self) -> float:
        return (self._ends_at - time.monotonic()) * 1_000

    def _tick(self) -> None:
        """Sweep every shard about once a minute, so that a worker needs no other tick."""
        sweeper, pause_s = self._app.sweeper_with(self), 0.0
        while not self._stopped.wait(pause_s):
            ends_at = time.monotonic() + TICK_S
            try:
                with suppress(StoreUnavailable):  # one server's, while others have work
                    self._app.write_deployed(self._own)
                found = sweeper.survey(partial(self._tick_left_ms, ends_at))
                sweeper.tick(found, partial(self._tick_left_ms, ends_at))
            except (StoreUnavailable, StoreMisused) as error:
                log.warning("a tick is left out: %s", error)
            pause_s = random.uniform(0.5, 1.5) * TICK_S

    def _tick_left_ms(self, ends_at: float) -> int:
        return 0 if self._stopped.is_set() else int((ends_at - time.monotonic()) * 1_000)

    def _end(self) -> None:
        if not self._stopped.is_set():
            self._faulty.set()


def size_of(app: App, handlers: Mapping[str, TaskHandler], concurrency: int | None = None) -> int:
    """Number of tasks that a process runs at the same time: no more than any of its handlers allows."""
    are_async = all(handler.run_async for handler in handlers.values())
    most = places(concurrency or app.settings.parallel, concurrency, are_async=are_async)
    return min([most, *(handler.parallel for handler in handlers.values() if handler.parallel)])


def _built_in(app: App) -> dict[str, Kind]:
    """Built-in kinds; without boto3, none that sends reminders."""
    return {kind: run for kind, run in app.kinds.items() if kind != REMINDER or find_spec("boto3")}


# `python -m duecourse.worker.child`: one process of a worker, which its parent starts with a socket as its input.

WRONG, FAULTY, AWAY = 2, 1, 75
"""Exit codes: for wrong settings, after a fault, and where the store was away (sysexits.h: a temporary failure)."""
HEED_S = 1.0
"""Length of one wait: a signal just before a wait is heeded when the wait ends."""
READY = b"r"


def main(text: str, board: str) -> int:
    """Serve until SIGTERM, Ctrl-C or the parent's end; returns the exit code. `board` is the file of the board."""
    log_to_stderr()
    options = Options.load(text)
    sys.path.insert(0, os.getcwd())  # `python -m` has put it there; a frozen or isolated start has not
    try:
        app = PROCESS.app()
        isolated = IsolatedRunner(options, random.Random())
        handlers = find_handlers(options.imports)
        process = WorkerProcess(app, handlers, options.queues, Board(int(board)), isolated.run, options.concurrency)
    except InvalidSettings as error:
        log.critical("wrong settings: %s", error)
        return WRONG
    except StoreUnavailable as error:
        log.critical("the store does not answer: %s", error)
        return AWAY
    return _serve(process, options.grace_ms / 1_000)


def _serve(process: WorkerProcess, grace_s: float) -> int:
    for number in STOPS:
        signal.signal(number, _interrupt)
    faulty = False
    parent = socket.socket(fileno=sys.stdin.fileno())
    try:
        process.start()
        faulty = _stay(process, parent)
    except KeyboardInterrupt:
        log.info("stopping: what runs has %g s", grace_s)
    process.stop(grace_s)
    parent.detach()  # it stays open as long as the process: by its end the parent knows that this one has gone
    return FAULTY if faulty else 0


def _interrupt(_number: int, _frame: FrameType | None) -> NoReturn:
    """Stop once: systemd, the parent and a terminal may each send a signal."""
    for number in STOPS:
        signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


def _stay(process: WorkerProcess, parent: socket.socket) -> bool:
    """Signal the parent once rings are heard, and wait for its end; True after a fault."""
    while not process.wait_ready(HEED_S):
        if process.is_faulty or _is_over(parent, 0):
            return process.is_faulty
    process.warm()
    gc.freeze()
    with suppress(OSError):  # a parent that has died meanwhile is noticed below, and what runs has its time
        parent.sendall(READY)
    while not process.is_faulty:
        process.show()
        if _is_over(parent, HEED_S):
            log.warning("the worker's parent has gone: stopping")
            return False
    return True


def _is_over(parent: socket.socket, timeout: float) -> bool:
    """True if the parent has closed its end, or has died."""
    readable, _, _ = select.select([parent], [], [], timeout)
    try:
        return bool(readable) and not parent.recv(1)
    except ConnectionResetError:  # it died without reading what was sent to it
        return True


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
