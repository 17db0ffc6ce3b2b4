"""The servers of a storm, and how each part is made to fail."""

import contextlib
import os
import signal
import struct
import subprocess
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

import redis

from duecourse.ledger.connect import Client, open_client
from duecourse_local.harness.addresses import free_port
from tests.support.redis_cluster import ClusterServers
from tests.support.redis_sentinel import SentinelServers
from tests.support.redis_server import RedisServer, need, newest
from tests.whole.storm.parts import LocalStack, Workers, descendants, freeze, kill
from tests.whole.storm.plan import Fault, Stage
from tests.whole.storm.weather import Weather

LOGIN = ("storm", "in the teeth of it")
DAYS_30_S = 30 * 86_400
COMPILER = "cc"


class Servers:
    """The servers of one stage. `url` is everyone's; `ledger` is a way to them that no fault is on."""

    wait = 0
    """DUECOURSE_WAIT: the number of replicas that must have a change."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.parts = ExitStack()
        self.faults: dict[str, Callable[[float, int], None]] = {"scripts-flushed": self._flush}
        self.url = self.ledger = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.parts.close()

    def client(self) -> Client:
        """A client that no fault is on."""
        return open_client(self.ledger, socket_timeout=30)

    def calm(self) -> None:
        """See that every server runs, and none fails any more."""

    def nodes(self) -> list[redis.Redis]:
        """A client of each server that runs."""
        raise NotImplementedError

    def _flush(self, _seconds: float, _which: int) -> None:
        for node in self.nodes():
            with node:
                node.script_flush()


class Alone(Servers):
    """One Redis that writes all to its disk, behind the weather, with a clock that can be moved."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.port = free_port(0, "")
        self._clock = folder / "clock"
        self._clock.write_bytes(struct.pack("q", 0))
        self.server = RedisServer(
            need(newest()), "--bind", "127.0.0.1", "--port", str(self.port), "--appendonly", "yes", "--appendfsync",
            "always", environment=self._clocked(),
        )  # fmt: skip
        self.faults |= {
            "redis-killed": self._kill,
            "redis-frozen": self._freeze,
            "redis-stalled": self._freeze,
            "replies-cut": self._cut,
            "bytes-held": self._hold,
            "connections-silent": self._silence,
            "right-taken": self._take_right,
            "key-in-the-way": self._be_in_the_way,
            "clock-ahead": self._clock_ahead,
            "clock-behind": self._clock_behind,
        }

    def __enter__(self) -> Self:
        self.parts.enter_context(self.server)
        self.weather = self.parts.enter_context(Weather(("127.0.0.1", self.port)))
        user, password = LOGIN
        with self.server.client() as client:
            client.acl_setuser(
                user, enabled=True, passwords=[f"+{password}"], keys=["*"], channels=["*"], categories=["+@all"]
            )
        self.url = f"redis://{user}:{password.replace(' ', '%20')}@127.0.0.1:{self.weather.port}/0"
        self.ledger = self.server.url
        return self

    def nodes(self) -> list[redis.Redis]:
        return [self.server.client()]

    def calm(self) -> None:
        if not self.server.runs:
            self._start()

    def _clocked(self) -> dict[str, str]:
        library = self.folder / "clock.so"
        source = Path(__file__).with_name("clock.c")
        subprocess.run([COMPILER, "-shared", "-fPIC", "-O1", "-o", library, source, "-ldl"], check=True)
        return {**os.environ, "LD_PRELOAD": str(library), "STORM_CLOCK": str(self._clock)}

    def _start(self) -> None:
        self.server.start()
        user, password = LOGIN  # a login lives in no file here
        with self.server.client() as client:
            client.acl_setuser(
                user, enabled=True, passwords=[f"+{password}"], keys=["*"], channels=["*"], categories=["+@all"]
            )

    def _kill(self, seconds: float, _which: int) -> None:
        self.server.stop(signal.SIGKILL)
        time.sleep(seconds)
        self._start()

    def _freeze(self, seconds: float, _which: int) -> None:
        freeze(self.server.process.pid, seconds)

    def _cut(self, seconds: float, _which: int) -> None:
        self.weather.cut_replies(seconds)
        time.sleep(seconds)

    def _hold(self, seconds: float, _which: int) -> None:
        self.weather.hold_bytes(seconds)
        time.sleep(seconds)

    def _silence(self, seconds: float, _which: int) -> None:
        self.weather.fall_silent()
        time.sleep(seconds)

    def _take_right(self, seconds: float, _which: int) -> None:
        with self.server.client() as client:
            client.execute_command("ACL", "SETUSER", LOGIN[0], "-evalsha")
            time.sleep(seconds)
            client.execute_command("ACL", "SETUSER", LOGIN[0], "+evalsha")

    def _be_in_the_way(self, seconds: float, which: int) -> None:
        """Another program's text lies where a shard's leases are."""
        with self.server.client() as client:
            keys: Any = sorted(client.scan_iter("*}:leased"))
            if not keys:
                return
            key = keys[which % len(keys)]
            with contextlib.suppress(redis.ResponseError):  # its last lease has ended meanwhile
                client.renamenx(key, b"aside:" + key)
            client.set(key, "another program's")
            time.sleep(seconds)
            pipe = client.pipeline()
            pipe.delete(key)
            if client.exists(b"aside:" + key):
                pipe.rename(b"aside:" + key, key)
            pipe.execute()

    def _clock_ahead(self, seconds: float, _which: int) -> None:
        self._move(DAYS_30_S, seconds)

    def _clock_behind(self, seconds: float, _which: int) -> None:
        self._move(-10, seconds)

    def _move(self, by_s: int, seconds: float) -> None:
        self._set(by_s)
        time.sleep(seconds)
        self._set(0)

    def _set(self, offset_s: int) -> None:
        with self._clock.open("r+b") as clock:
            clock.write(struct.pack("q", offset_s * 1_000_000))


class Service(Servers):
    """A primary with a replica, and the Sentinel that watches them."""

    wait = 1

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._servers = SentinelServers()
        self.faults |= {"primary-killed": self._kill, "primary-frozen": self._freeze}

    def __enter__(self) -> Self:
        self.parts.enter_context(self._servers)
        self.url = self.ledger = self._servers.url
        return self

    def nodes(self) -> list[redis.Redis]:
        return [self._servers.client(port) for port, server in self._servers.servers.items() if server.runs]

    def _kill(self, seconds: float, _which: int) -> None:
        port = self._servers.primary()
        self._servers.kill(port)
        self._pass(port, seconds)
        self._servers.servers[port].start()
        self._servers.wait_both()

    def _freeze(self, seconds: float, _which: int) -> None:
        port = self._servers.primary()
        freeze(self._servers.servers[port].process.pid, seconds)
        self._servers.wait_both()

    def _pass(self, port: int, seconds: float) -> None:
        ends = time.monotonic() + seconds
        while self._servers.primary() == port and time.monotonic() < ends + 20:
            time.sleep(0.05)
        time.sleep(max(0.0, ends - time.monotonic()))


class Cluster(Servers):
    """Three primaries with a replica each."""

    wait = 1

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._servers = ClusterServers()
        self.faults |= {
            "primary-killed": self._kill,
            "primary-frozen": self._freeze,
            "replica-killed": self._kill_replica,
        }

    def __enter__(self) -> Self:
        self.parts.enter_context(self._servers)
        self.url = self.ledger = self._servers.url
        return self

    def nodes(self) -> list[redis.Redis]:
        return [self._servers.node(port) for port in self._servers.primaries()]

    def _kill(self, seconds: float, which: int) -> None:
        self._gone(sorted(self._servers.primaries())[which % 3], seconds)

    def _kill_replica(self, seconds: float, which: int) -> None:
        primary = sorted(self._servers.primaries())[which % 3]
        self._gone(self._servers.replica_of(primary), seconds)

    def _gone(self, port: int, seconds: float) -> None:
        self._servers.kill(port)
        time.sleep(seconds)
        self._servers.wait_failover()
        self._servers.servers[port].start()
        self._servers.wait_whole()

    def _freeze(self, seconds: float, which: int) -> None:
        port = sorted(self._servers.primaries())[which % 3]
        freeze(self._servers.servers[port].process.pid, seconds)
        self._servers.wait_whole()


SERVERS: Mapping[Stage, type[Servers]] = {Stage.ALONE: Alone, Stage.SENTINEL: Service, Stage.CLUSTER: Cluster}


class Faults:
    """Has the parts fail, one after another, as a plan says. `happened` has each with when it began and ended (ms).

    `killed` has the processes that were killed, `stopped` those that were told to stop, each with when (ms).
    `frozen` has those that froze, with from when to when.
    """

    def __init__(self, faults: tuple[Fault, ...], servers: Servers, workers: Workers, stack: LocalStack | None) -> None:
        self._faults, self._workers = faults, workers
        self._ways = {**servers.faults, **self._of_workers(), **(self._of_stack(stack) if stack else {})}
        self.happened: list[tuple[str, int, int]] = []
        self.killed: dict[int, int] = {}
        self.stopped: dict[int, int] = {}
        self.frozen: list[tuple[int, int, int]] = []

    def run(self, beginning: float, say: Callable[[str], None]) -> None:
        """Return after the last one. Call it in the thread that started the servers, for they end with it."""
        for fault in self._faults:
            way = self._ways.get(fault.name)
            if way is None:
                continue
            time.sleep(max(0.0, beginning + fault.at - time.monotonic()))
            began = now_ms()
            say(f"  {time.monotonic() - beginning:.0f} s: {fault.name}")
            way(fault.seconds, fault.which)
            self.happened.append((fault.name, began, now_ms()))

    def _of_workers(self) -> dict[str, Callable[[float, int], None]]:
        workers = self._workers
        return {
            "process-killed": lambda _seconds, which: self._kill(workers.processes(), which),
            "process-frozen": lambda seconds, which: self._freeze(workers.processes(), which, seconds),
            "process-frozen-past-its-lease": lambda seconds, which: self._freeze(workers.processes(), which, seconds),
            "worker-killed": lambda _seconds, which: self._kill(workers.parents(), which),
            "worker-stopped": lambda _seconds, which: self._kill(workers.parents(), which, signal.SIGTERM),
        }

    def _of_stack(self, stack: LocalStack) -> dict[str, Callable[[float, int], None]]:
        return {
            "bridge-killed": lambda _seconds, which: self._kill(stack.bridges(), which),
            "function-killed": lambda _seconds, which: self._kill(stack.functions(), which),
            "function-frozen": lambda seconds, which: self._freeze(stack.functions(), which, seconds),
        }

    def _kill(self, pids: list[int], which: int, how: signal.Signals = signal.SIGKILL) -> None:
        """End one of them, if there is any, and those below it, which may outlive it by a moment."""
        if pids:
            pid = pids[which % len(pids)]
            ended = self.killed if how == signal.SIGKILL else self.stopped
            ended |= dict.fromkeys([pid, *descendants(pid, "")], now_ms())
            kill(pid, how)

    def _freeze(self, pids: list[int], which: int, seconds: float) -> None:
        """Stop one of them for a while, if there is any."""
        if pids:
            pid, began = pids[which % len(pids)], now_ms()
            freeze(pid, seconds)
            self.frozen.append((pid, began, now_ms()))


def now_ms() -> int:
    """This machine's time (epoch ms)."""
    return time.time_ns() // 1_000_000
