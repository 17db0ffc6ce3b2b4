"""The worker's command and the parent of its processes: starts them, replaces the dead, serves health."""

import asyncio
import json
import logging
import os
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus
from pathlib import Path
from threading import Thread
from types import FrameType
from typing import Any

from duecourse import open_ledger
from duecourse.errors import FieldError, InvalidSettings, StoreMisused, StoreUnavailable
from duecourse.ledger.address import WITHOUT_BELLS, split
from duecourse.running.leases import LeaseReturner
from duecourse.running.run import STOPPED
from duecourse.settings import Settings, parse
from duecourse.worker.child import AWAY, WRONG, Board
from duecourse.worker.options import STOPS, Options, log_to_stderr

# Health of a worker on a port: `/live` while its parent runs, `/ready` while it can work tasks.

Ping = Callable[[], object]
"""Asks the store to answer. Raises StoreUnavailable."""
Health = dict[str, Any]

REQUEST_S = 5.0
"""Time that a caller has to send a request, and to take the answer."""
LOOK_S = 5.0
"""Time that the store has to answer; after that the worker is not ready."""
MOST = 64
"""The most connections at the same time; further ones are closed at once."""
MAX_REQUEST = 8_192
"""Maximum size of a request, in bytes."""
LOOPBACK, EVERYWHERE = "127.0.0.1", ""
MARKS = (Path("/.dockerenv"), Path("/run/.containerenv"))
"""Files that Docker and Podman put into each container."""
NAMES = ("KUBERNETES_SERVICE_HOST", "ECS_CONTAINER_METADATA_URI_V4")
"""Variables that Kubernetes and ECS set in each container."""


def health(ping: Ping, ready: Callable[[], int], wanted: int, left_out: Callable[[], int]) -> Health:
    """State of the worker: of its store, of its processes, and the number of shards that they leave out."""
    try:
        ping()
        store = "ok"
    except (StoreUnavailable, StoreMisused):
        store = "unavailable"
    processes = {"ready": ready(), "wanted": wanted}
    status = "ok" if store == "ok" and processes["ready"] else "unavailable"
    return {"status": status, "store": store, "processes": processes, "left_out": left_out()}


def default_host() -> str:
    """Every address in a container, where probes come from outside; else this machine's own."""
    is_marked = any(mark.exists() for mark in MARKS) or any(name in os.environ for name in NAMES)
    return EVERYWHERE if is_marked or os.getpid() == 1 else LOOPBACK


@contextmanager
def served(host: str, port: int, look: Callable[[], Health]) -> Iterator[int]:
    """Serve health at this address, "" for every one, and this port, 0 for a free one; answers the port.

    One thread serves all connections, and another asks the store. Raises OSError where it cannot listen.
    """
    listener = _listening(host, port)
    loop = asyncio.new_event_loop()
    server = loop.run_until_complete(_start(listener, _Answers(look)))
    thread = Thread(target=loop.run_forever, name="health", daemon=True)
    thread.start()
    try:
        yield listener.getsockname()[1]
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.run_until_complete(_stop(server))
        loop.close()


def _listening(host: str, port: int) -> socket.socket:
    if host == EVERYWHERE and socket.has_dualstack_ipv6():
        return socket.create_server((host, port), family=socket.AF_INET6, dualstack_ipv6=True)
    return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)


async def _start(listener: socket.socket, answers: "_Answers") -> asyncio.Server:
    return await asyncio.start_server(answers.serve, sock=listener, limit=MAX_REQUEST)


async def _stop(server: asyncio.Server) -> None:
    server.close()
    serving = asyncio.all_tasks() - {asyncio.current_task()}
    for task in serving:
        task.cancel()
    await asyncio.gather(*serving, return_exceptions=True)
    await asyncio.sleep(0)  # transports are closed by the loop, one turn later


class _Answers:
    """Answers requests; concurrent ones share one ping of the store."""

    def __init__(self, look: Callable[[], Health]) -> None:
        self._look = look
        self._looking: asyncio.Future[Health] | None = None
        self._open = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request of a connection. A caller that hangs up, or is slow, is not logged."""
        self._open += 1
        try:
            with suppress(OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
                if self._open <= MOST:
                    async with asyncio.timeout(REQUEST_S):
                        request = await reader.readuntil(b"\r\n\r\n")
                    status, body = await self._answer(request)
                    async with asyncio.timeout(REQUEST_S):
                        writer.write(_written(status, body, is_head=request.startswith(b"HEAD ")))
                        await writer.drain()
        finally:
            self._open -= 1
            writer.close()

    async def _answer(self, request: bytes) -> tuple[HTTPStatus, Health]:
        method, path = (*request.split(b" ", 2), b"", b"")[:2]
        if method not in {b"GET", b"HEAD"}:
            return HTTPStatus.METHOD_NOT_ALLOWED, {"status": "unknown", "methods": ["GET", "HEAD"]}
        if path == b"/live":
            return HTTPStatus.OK, {"status": "ok"}
        if path != b"/ready":
            return HTTPStatus.NOT_FOUND, {"status": "unknown", "paths": ["/live", "/ready"]}
        found = await self._found()
        return HTTPStatus.OK if found["status"] == "ok" else HTTPStatus.SERVICE_UNAVAILABLE, found

    async def _found(self) -> Health:
        if self._looking is None or self._looking.done():
            self._looking = asyncio.get_running_loop().run_in_executor(None, self._look)
        try:
            return await asyncio.wait_for(asyncio.shield(self._looking), LOOK_S)
        except TimeoutError:
            return {"status": "unavailable", "store": "unavailable"}


def _written(status: HTTPStatus, body: Health, *, is_head: bool) -> bytes:
    text = json.dumps(body).encode()
    head = f"HTTP/1.1 {status.value} {status.phrase}\r\nContent-Type: application/json\r\n"
    head += f"Content-Length: {len(text)}\r\nConnection: close\r\n\r\n"
    return head.encode() + (b"" if is_head else text)


# Parent of a worker's processes: starts them, replaces each that dies, and ends them together.

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

    def __init__(self, options: Options, returner: LeaseReturner) -> None:
        self._options = options
        self._returner = returner
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
            command = [sys.executable, "-m", "duecourse.worker.child", self._options.dump(), str(board.file)]
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
        """Read a child's socket: the child is ready, or has ended."""
        try:
            said = child.socket.recv(1)
        except ConnectionResetError:
            said = b""
        child.is_ready = bool(said)
        if not said:
            self._on_exit(child)
            self._reap()

    def _on_exit(self, child: Child) -> None:
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
        """Return the leases of a process that has ended, on a thread, for the store may be away."""
        held = board.held()
        board.close()
        if held:
            how = f"signal {-code}" if code < 0 else f"exit code {code}"
            do = self._returner.release if self._stopping else self._returner.give_back
            thread = Thread(
                target=do, args=(held, STOPPED if self._stopping else how), name="lease-return", daemon=True
            )
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
                    return  # its socket says so too, and `_on_exit` reaps it
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
    receiver, sender = socket.socketpair()
    sender.setblocking(False)
    handlers = {number: signal.signal(number, _nothing) for number in (*STOPS, signal.SIGCHLD)}
    before = signal.set_wakeup_fd(sender.fileno())

    def hear() -> None:
        on_signal(receiver.recv(1)[0])

    selector.register(receiver, selectors.EVENT_READ, hear)
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)
        for number, handler in handlers.items():
            signal.signal(number, handler)
        selector.unregister(receiver)
        receiver.close()
        sender.close()


def _nothing(_number: int, _frame: FrameType | None) -> None:
    """Python must have a handler, or the signal ends the process."""


# The worker's command: check the settings, start the parent, serve health, stay.

NO_STORE = "is required: give --store URL, set DUECOURSE_STORE, or, beside duecourse up, begin with duecourse run"


def run(options: Options) -> int:
    """Work until SIGTERM or Ctrl-C; returns the exit code: 0 then, 2 for wrong settings, else a process's own."""
    log_to_stderr()
    try:
        settings = _settings(options.check())
        parent = Parent(options, LeaseReturner(partial(open_ledger.open_ledger, settings)))
        with ExitStack() as stack:
            health_at = _open_health(stack, options, settings, parent)
            return parent.run(partial(_announce, options, _place(settings), health_at))
    except InvalidSettings as error:
        log.critical("wrong settings: %s", error)
        return WRONG
    except StoreUnavailable as error:
        log.critical("the store does not answer: %s", error)
        return AWAY


def _settings(options: Options) -> Settings:
    settings = parse(options.environment(os.environ))
    if not (settings.store or settings.store_secret):
        raise InvalidSettings([FieldError("--store", NO_STORE)])
    scheme = split(settings.store).scheme
    if scheme in WITHOUT_BELLS:
        problem = (
            f"must be a Redis: a store at {scheme}:// is within one process, and a worker has processes of its own"
        )
        raise InvalidSettings([FieldError("DUECOURSE_STORE", problem)])
    return settings


def _open_health(stack: ExitStack, options: Options, settings: Settings, parent: Parent) -> str:
    if options.health_port is None:
        return ""
    ledger = open_ledger.open_ledger(settings)
    look = partial(health, ledger.ping, parent.ready, options.processes, parent.left_out)
    host = default_host() if options.health_host is None else options.health_host
    try:
        port = stack.enter_context(served(host, options.health_port, look))
    except OSError as error:
        problem = f"cannot be listened on, at {host or 'every address'}: {error}"
        raise InvalidSettings([FieldError(f"--health-port {options.health_port}", problem)]) from error
    return f", health on port {port} of {host or 'every address'}"


def _place(settings: Settings) -> str:
    """Place of the ledger for people; no password is in it."""
    return f"the secret {settings.store_secret}" if settings.store_secret else split(settings.store).place


def _announce(options: Options, place: str, health_at: str) -> None:
    queues = f"queues {', '.join(options.queues)}" if options.queues else "every queue"
    with suppress(BrokenPipeError):  # whoever started it reads no more
        processes = "1 process" if options.processes == 1 else f"{options.processes} processes"
        sys.stdout.write(f"worker ready: {processes}, {queues} at {place}{health_at}\n")
        sys.stdout.flush()
