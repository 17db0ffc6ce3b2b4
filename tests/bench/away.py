"""A server that is half a millisecond away: a proxy that holds each byte for a time, each way, and keeps their order.

Bytes are delayed, not round trips: what a client sends meanwhile is on its way at the same time, as on a network.
`python -m tests.bench.away 127.0.0.1 6379` prints the proxy's own port, and runs until it is killed.
"""

import ctypes
import select
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from statistics import median
from typing import NamedTuple
from urllib.parse import urlsplit

import psutil
import redis

from duecourse_local.harness.addresses import LOOPBACK
from tests.support.project import ROOT
from tests.support.redis_server import tie

HELD_MS = 0.5
"""Time that each byte is held, each way."""
AT_ONCE = 1 << 18
MOST_HELD = 1 << 24
"""Bytes on the way to one socket from which its sender is not read: so TCP slows it down, as a network would."""
PR_SET_TIMERSLACK = 29
PINGS = 200
MEGABYTES = 50


class End:
    """One socket of a connection; what is read from it goes to `other`."""

    def __init__(self, own: socket.socket) -> None:
        own.setblocking(False)
        own.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.own = own
        self.fileno = own.fileno
        self.other = self
        self.coming = 0
        """Number of bytes on their way to this socket."""
        self.unsent = bytearray()
        self.is_open = True
        """False once all that it will say was read."""
        self.is_over = False
        """True once nothing more comes to it."""

    def send(self) -> None:
        """Send what has arrived, as much of it as the socket takes."""
        with suppress(BlockingIOError):
            sent = self.own.send(self.unsent)
            del self.unsent[:sent]
            self.coming -= sent


class DelayLine:
    """Connections to `listener` are passed on to `server`, and each byte arrives `held_s` after it was read."""

    def __init__(self, listener: socket.socket, server: tuple[str, int], held_s: float) -> None:
        self._listener = listener
        self._server = server
        self._held_s = held_s
        self._ends: set[End] = set()
        # All are held for the same time: so the first that was read is the first to arrive.
        self._on_the_way: deque[tuple[float, End, bytes]] = deque()

    def step(self) -> None:
        """Wait for bytes, or for the next ones to arrive, and pass on what is there."""
        readable = [end for end in self._ends if end.is_open and end.other.coming < MOST_HELD]
        writable = [end for end in self._ends if end.unsent]
        wait_s = max(0.0, self._on_the_way[0][0] - time.perf_counter()) if self._on_the_way else None
        # Of the ways to wait, select alone counts in microseconds.
        sources: list[End | socket.socket] = [self._listener, *readable]
        ready, free, _ = select.select(sources, writable, [], wait_s)
        for one in ready:
            if isinstance(one, End):
                self._read(one)
            else:
                self._connect()
        self._arrive(time.perf_counter())
        for end in free:
            self._send(end)

    def close(self) -> None:
        """Hang up on all."""
        for end in self._ends:
            end.own.close()

    def _connect(self) -> None:
        own, _ = self._listener.accept()
        try:
            near, far = End(own), End(socket.create_connection(self._server))
        except OSError:
            own.close()
            return
        near.other, far.other = far, near
        self._ends |= {near, far}

    def _read(self, end: End) -> None:
        try:
            data = end.own.recv(AT_ONCE)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        end.is_open = bool(data)
        end.other.coming += len(data)
        self._on_the_way.append((time.perf_counter() + self._held_s, end.other, data))

    def _arrive(self, now: float) -> None:
        while self._on_the_way and self._on_the_way[0][0] <= now:
            _, end, data = self._on_the_way.popleft()
            end.is_over = not data
            end.unsent += data
            self._send(end)

    def _send(self, end: End) -> None:
        try:
            if end.unsent:
                end.send()
            if end.is_over and not end.unsent and end in self._ends:
                end.own.shutdown(socket.SHUT_WR)
        except OSError:  # it is gone, and the other is to hear of it
            end.is_over, end.is_open = True, False
            end.unsent.clear()
            self._on_the_way.append((time.perf_counter() + self._held_s, end.other, b""))
        if end.is_over and not end.unsent and end.other.is_over and not end.other.unsent:
            for one in (end, end.other):
                self._ends.discard(one)
                one.own.close()


class Away(NamedTuple):
    """Where the server is by way of the proxy, and the proxy's process."""

    url: str
    process: psutil.Process

    def used_s(self) -> float:
        """Processor time that the proxy took so far."""
        times = self.process.cpu_times()
        return float(times.user + times.system)


@contextmanager
def away(url: str, held_ms: float = HELD_MS) -> Iterator[Away]:
    """A proxy in a process of its own, in front of the server at a redis:// URL."""
    found = urlsplit(url)
    command = [*tie(), sys.executable, "-m", "tests.bench.away", str(found.hostname), str(found.port), str(held_ms)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout
            port = int(process.stdout.readline())
            yield Away(f"redis://{LOOPBACK}:{port}{found.path}", psutil.Process(process.pid))
        finally:
            process.kill()


def round_trip_ms(url: str) -> float:
    """Median time of a PING, in milliseconds."""
    took = []
    with redis.Redis.from_url(url) as client:
        for _ in range(PINGS):
            began = time.perf_counter()
            client.ping()
            took.append((time.perf_counter() - began) * 1_000)
    return median(took)


def capacity(proxy: Away) -> float:
    """Megabytes a second that the proxy passes on, where a client sends one after another and waits for none."""
    with redis.Redis.from_url(proxy.url) as client, client.pipeline(transaction=False) as pipe:
        for _ in range(MEGABYTES):
            pipe.set("capacity", bytes(1_000_000))
        began = time.perf_counter()
        pipe.execute()
        took_s = time.perf_counter() - began
        client.delete("capacity")
    return MEGABYTES / took_s


def main(host: str, port: str, held_ms: str = str(HELD_MS)) -> None:
    """Serve."""
    if sys.platform == "linux":  # else each wait takes 50 microseconds more
        ctypes.CDLL(None).prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0)
    with socket.create_server((LOOPBACK, 0), backlog=512) as listener:
        print(listener.getsockname()[1], flush=True)
        line = DelayLine(listener, (host, int(port)), float(held_ms) / 1_000)
        while True:
            line.step()


if __name__ == "__main__":
    main(*sys.argv[1:])
