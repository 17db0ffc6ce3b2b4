"""A real primary with a replica, and the Sentinel that watches them, on loopback ports, gone with the test."""

import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import TracebackType

import redis

from tests.support.redis_cluster import free_ports
from tests.support.redis_server import RedisServer, need, newest, tie
from tests.support.wait import until

SERVICE = "main"
PASSWORD = "let me in"
OTHER_PASSWORD = "let nobody in"
DOWN_AFTER_MS = 500


class SentinelServers:
    """A service of two servers that want a password; `url` names its one Sentinel."""

    def __init__(self) -> None:
        self._binary = need(newest())
        self._running = ExitStack()
        self.primary_port, self.replica_port, self.port = free_ports(3)
        self.servers: dict[int, RedisServer] = {}

    def __enter__(self) -> "SentinelServers":
        with ExitStack() as starting:
            for port in (self.primary_port, self.replica_port):
                self.servers[port] = starting.enter_context(self._server(port))
            with self.client(self.replica_port) as replica:
                replica.replicaof("127.0.0.1", str(self.primary_port))
            starting.callback(self._stop_sentinel)
            self._start_sentinel()
            until(self._knows_both)
            self._running = starting.pop_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._running.close()

    @property
    def url(self) -> str:
        return f"redis+sentinel://:{PASSWORD.replace(' ', '%20')}@127.0.0.1:{self.port}/{SERVICE}/0"

    def client(self, port: int) -> redis.Redis:
        """A new client of one server."""
        return redis.Redis(port=port, password=PASSWORD)

    def kill(self, port: int) -> None:
        """Kill one server outright."""
        self.servers[port].stop(signal.SIGKILL)

    @contextmanager
    def forgotten(self, port: int) -> Iterator[redis.Redis]:
        """The primary stopped until another has taken over, and let go on: the Sentinel cannot demote it.

        Yields a client of it, by a password that it has alone.
        """
        process = self.servers[port].process
        with redis.Redis(port=port, password=OTHER_PASSWORD) as former:
            process.send_signal(signal.SIGSTOP)
            try:
                until(lambda: self.primary() != port)
            finally:
                process.send_signal(signal.SIGCONT)
            with self.client(port) as known:
                known.config_set("requirepass", OTHER_PASSWORD)
                for one in known.client_list():
                    if one["name"].startswith("sentinel"):
                        known.client_kill_filter(_id=one["id"])
            yield former

    @contextmanager
    def without_sentinel(self) -> Iterator[None]:
        """The Sentinel stopped for a while."""
        self._sentinel.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._sentinel.send_signal(signal.SIGCONT)

    def primary(self) -> int:
        """The port of the primary, as the Sentinel tells."""
        with redis.Redis(port=self.port, decode_responses=True) as sentinel:
            return int(sentinel.sentinel_get_master_addr_by_name(SERVICE)[1])

    def wait_both(self) -> None:
        """Wait until the Sentinel has a primary, and the other server follows it.

        A Sentinel asks each server for its role every ten seconds, and tells a former primary its role after three of
        these at most.
        """
        until(self._knows_both, seconds=90)

    def _server(self, port: int) -> RedisServer:
        options = {
            "bind": "127.0.0.1",
            "port": str(port),
            "requirepass": PASSWORD,
            "masterauth": PASSWORD,
            "repl-diskless-sync-delay": "0",
        }
        words = (word for name, value in options.items() for word in (f"--{name}", value))
        return RedisServer(self._binary, *words, password=PASSWORD)

    def _start_sentinel(self) -> None:
        config = self.servers[self.primary_port].folder / "sentinel.conf"
        config.write_text(
            f"bind 127.0.0.1\nport {self.port}\ndir {config.parent}\n"
            f"sentinel monitor {SERVICE} 127.0.0.1 {self.primary_port} 1\n"
            f'sentinel auth-pass {SERVICE} "{PASSWORD}"\n'
            f"sentinel down-after-milliseconds {SERVICE} {DOWN_AFTER_MS}\n"
            f"sentinel failover-timeout {SERVICE} 3000\n"
        )
        self._sentinel = subprocess.Popen(
            [*tie(), self._binary, config, "--sentinel"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )

    def _stop_sentinel(self) -> None:
        self._sentinel.kill()
        self._sentinel.wait()

    def _knows_both(self) -> bool:
        try:
            with redis.Redis(port=self.port, decode_responses=True) as sentinel:
                slaves = sentinel.sentinel_slaves(SERVICE)
                return bool(slaves) and slaves[0]["flags"] == "slave" and slaves[0]["master-link-status"] == "ok"
        except redis.RedisError:
            return False
