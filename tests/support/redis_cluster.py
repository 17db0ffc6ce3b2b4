"""A real Redis Cluster of a test's own: three primaries with a replica each, on loopback ports, gone with the test."""

import signal
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import redis
from redis.cluster import RedisCluster
from redis.crc import key_slot
from redis.exceptions import RedisClusterException

from tests.support.redis_server import RedisServer, need, newest
from tests.support.wait import until

SLOTS = 16_384
BUS = 10_000
NODE_TIMEOUT_MS = 1_000


class ClusterServers:
    """Six servers that know each other; `url` names two of them."""

    def __init__(self, binary: Path | None = None) -> None:
        self._binary = binary or need(newest())
        self._running = ExitStack()
        self.servers: dict[int, RedisServer] = {}

    def __enter__(self) -> "ClusterServers":
        for port in free_ports(6):
            self.servers[port] = self._running.enter_context(self._server(port))
        self._form()
        return self

    def __exit__(self, *_: object) -> None:
        self._running.close()

    @property
    def ports(self) -> list[int]:
        return list(self.servers)

    @property
    def url(self) -> str:
        return f"redis-cluster://127.0.0.1:{self.ports[0]},127.0.0.1:{self.ports[-1]}"

    def node(self, port: int) -> redis.Redis:
        """A new client of one server."""
        return self.servers[port].client(decode_responses=True)

    def primaries(self) -> list[int]:
        """The ports of those that are primaries now, and up."""
        return [port for port in self.ports if self._role(port) == "master"]

    def owner(self, key: str) -> int:
        """The port of the primary that has a key."""
        return self.owner_of_slot(key_slot(key.encode()))

    def owner_of_slot(self, slot: int) -> int:
        """The port of the primary that has a slot."""
        return until(lambda: self._owner_of_slot(slot))

    def _owner_of_slot(self, slot: int) -> int | None:
        port = next(port for port in self.ports if self._role(port))
        with self.node(port) as node:
            ranges: Any = node.execute_command("CLUSTER", "SLOTS")
        return next((int(primary[1]) for first, last, primary, *_ in ranges if first <= slot <= last), None)

    def client(self) -> RedisCluster:
        """A new client of the cluster, as redis-py makes it, once a node knows who has each slot."""
        return until(self._client)

    def _client(self) -> RedisCluster | None:
        port = next(port for port in self.ports if self._role(port))
        try:
            return RedisCluster(host="127.0.0.1", port=port)
        except RedisClusterException:
            return None  # a slot has just got another owner, and this node has not heard of it

    def kill(self, port: int) -> None:
        """Kill one server outright."""
        self.servers[port].stop(signal.SIGKILL)

    def configure(self, settings: dict[str, str]) -> None:
        """Set these at every server that is up."""
        for port in (port for port in self.ports if self.servers[port].runs):
            with self.node(port) as node:
                for name, value in settings.items():
                    node.config_set(name, value)

    @contextmanager
    def without_slot(self, slot: int) -> Iterator[None]:
        """One slot nobody's, for a while; the cluster goes on without it."""
        owner = self.owner_of_slot(slot)
        self.configure({"cluster-require-full-coverage": "no"})
        for port in self.ports:
            self._do(port, "DELSLOTS", slot)
        try:
            yield
        finally:
            self._do(owner, "ADDSLOTS", slot)
            self.configure({"cluster-require-full-coverage": "yes"})
            self.wait_whole()

    def replica_of(self, port: int) -> int:
        """The port of a primary's replica, once it has one."""

        def replicas() -> Any:
            role: Any = node.role()
            return isinstance(role[2], list) and role[2]  # a replica has its primary's port there

        with self.node(port) as node:
            return int(until(replicas)[0][1])

    @contextmanager
    def paused(self, port: int) -> Iterator[None]:
        """One server stopped for a while, shorter than others take it for dead."""
        process = self.servers[port].process
        process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            process.send_signal(signal.SIGCONT)

    @contextmanager
    def cut_off(self, port: int) -> Iterator[None]:
        """One replica stopped, and its primary without it: what is written meanwhile never reaches it if that dies."""
        with self.node(port) as replica, self.node(int(_role(replica)[2])) as primary:
            written = _role(primary)[1]
            until(lambda: _role(replica)[4] >= written)
            with self.paused(port):
                primary.client_kill_filter(_type="replica")
                yield

    def wait_failover(self) -> None:
        """Wait until a replica has taken a killed primary's place."""
        others = [other for other in self.ports if self.servers[other].runs]
        until(lambda: len(self.primaries()) == 3)
        until(lambda: all(self._info(other)["cluster_state"] == "ok" for other in others))

    def move_slot(self, slot: int, source: int, target: int) -> None:
        """Move a slot and its keys from one primary to another, as `redis-cli --cluster reshard` does."""
        self.begin_move(slot, source, target)
        self.move_keys(slot, source, target)
        self.end_move(slot, target)
        until(lambda: self.owner_of_slot(slot) == target)  # a replica hears of it by gossip

    def move_slot_at_once(self, slot: int, source: int, target: int) -> None:
        """Move a slot and its keys in one step, as Valkey has done since 9.0."""
        self._do(source, "MIGRATESLOTS", "SLOTSRANGE", slot, slot, "NODE", self._do(target, "MYID"))
        until(lambda: self.owner_of_slot(slot) == target)

    def move_keys(self, slot: int, source: int, target: int) -> None:
        """Move the keys of a slot."""
        with self.node(source) as node:
            while keys := node.execute_command("CLUSTER GETKEYSINSLOT", slot, 100):
                node.execute_command("MIGRATE", "127.0.0.1", target, "", 0, 5_000, "KEYS", *keys)

    def begin_move(self, slot: int, source: int, target: int) -> None:
        """Declare that a slot moves."""
        self._do(target, "SETSLOT", slot, "IMPORTING", self._do(source, "MYID"))
        self._do(source, "SETSLOT", slot, "MIGRATING", self._do(target, "MYID"))

    def end_move(self, slot: int, target: int) -> None:
        """Declare that a slot has moved."""
        owner = self._do(target, "MYID")
        for port in (target, *(other for other in self.primaries() if other != target)):
            self._do(port, "SETSLOT", slot, "NODE", owner)

    def revive(self, port: int) -> None:
        """Start one that was killed, and wait until the cluster is whole again."""
        self.servers[port].start()
        self.wait_whole()

    def wait_whole(self) -> None:
        """Wait until all six agree that all is well, each replica in step."""
        until(lambda: all(map(self._is_well, self.ports)), every=0.02)

    def emptied(self) -> "ClusterServers":
        """This cluster, whole and with nothing in it."""
        for port, server in self.servers.items():
            if not server.runs:
                self.revive(port)
        self.wait_whole()
        for port in self.primaries():
            with self.node(port) as node:
                node.flushall()
                node.config_set("notify-keyspace-events", "")
        return self

    def _server(self, port: int) -> RedisServer:
        options = {
            "bind": "127.0.0.1",
            "port": str(port),
            "cluster-enabled": "yes",
            "cluster-node-timeout": str(NODE_TIMEOUT_MS),
            "cluster-replica-validity-factor": "0",
            "repl-diskless-sync-delay": "0",
            "repl-ping-replica-period": "1",
        }
        return RedisServer(self._binary, *(word for name, value in options.items() for word in (f"--{name}", value)))

    def _form(self) -> None:
        primaries, replicas = self.ports[:3], self.ports[3:]
        for index, port in enumerate(self.ports):
            self._do(port, "SET-CONFIG-EPOCH", index + 1)
            self._do(port, "MEET", "127.0.0.1", self.ports[0])
        for index, port in enumerate(primaries):
            self._do(port, "ADDSLOTS", *range(index * SLOTS // 3, (index + 1) * SLOTS // 3))
        until(lambda: all(self._info(port)["cluster_known_nodes"] == "6" for port in self.ports))
        for primary, replica in zip(primaries, replicas, strict=True):
            self._do(replica, "REPLICATE", self._do(primary, "MYID"))
        self.wait_whole()

    def _do(self, port: int, *command: object) -> Any:
        with self.node(port) as node:
            return node.execute_command("CLUSTER", *command)

    def _info(self, port: int) -> dict[str, str]:
        with self.node(port) as node:
            info: Any = node.execute_command("CLUSTER INFO")
            return info

    def _role(self, port: int) -> str:
        try:
            with self.node(port) as node:
                return str(node.role()[0]) if self.servers[port].runs else ""
        except redis.RedisError:
            return ""

    def _is_well(self, port: int) -> bool:
        try:
            with self.node(port) as node:
                role = node.role()
                in_step = role[3] == "connected" if role[0] == "slave" else len(role[2]) == 1
                return in_step and self._info(port)["cluster_state"] == "ok"
        except redis.RedisError:
            return False


def _role(node: redis.Redis) -> Any:
    """A primary's offset second; a replica's primary's port third, and its own offset fifth."""
    return node.role()


def free_ports(count: int) -> list[int]:
    """Free ports on loopback, each with a free one for the cluster's bus 10,000 above."""
    found: list[int] = []
    with ExitStack() as held:
        while len(found) < count:
            listener = held.enter_context(socket.create_server(("127.0.0.1", 0)))
            port = int(listener.getsockname()[1])
            try:
                held.enter_context(socket.create_server(("127.0.0.1", port + BUS)))
            except (OSError, OverflowError):
                continue
            found.append(port)
    return found
