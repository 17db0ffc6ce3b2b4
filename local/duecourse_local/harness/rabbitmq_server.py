"""A RabbitMQ of one's own, from the server that is installed, in a folder of its own and without root."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from ..errors import HarnessError
from .addresses import LOOPBACK, free_port
from .children import DIE_WITH_PARENT

DEBIANS = "/usr/lib/rabbitmq/bin/rabbitmq-server"
"""Debian's own script: the one on its PATH will only run as root or as the user rabbitmq."""
READY_WITHIN = 60.0
GRACE = 20.0
AMQP_GREETING = b"AMQP\x00\x00\x09\x01"
PORT_OPTION = "--port"


def executable() -> str:
    """The server's script. Raises HarnessError."""
    found = shutil.which(DEBIANS) or shutil.which("rabbitmq-server")
    if not found:
        raise HarnessError("no RabbitMQ is installed: apt-get install rabbitmq-server, or give --amqp a broker's URL")
    return found


class RabbitMq:
    """One broker with its own Erlang port mapper, both on loopback; what it keeps is in `folder`.

    Raises HarnessError where no server is installed.
    """

    def __init__(self, folder: Path, port: int = 0) -> None:
        self._executable = executable()
        self._folder = folder
        self._ports = [free_port(port, PORT_OPTION), *(free_port(0, PORT_OPTION) for _ in range(2))]
        self._process: subprocess.Popen[bytes] | None = None
        self._mapper: subprocess.Popen[bytes] | None = None
        self.url = f"amqp://guest:guest@{LOOPBACK}:{self._ports[0]}/"

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.close()

    def start(self) -> None:
        """Start the broker and wait until it answers. Raises HarnessError."""
        self._folder.mkdir(parents=True, exist_ok=True)
        (self._folder / "plugins").write_text("[].\n")
        (self._folder / "rabbitmq.conf").write_text(f"listeners.tcp.1 = {LOOPBACK}:{self._ports[0]}\n")
        if self._mapper is None:
            self._mapper = self._spawn("epmd")
            self._wait_for(self._mapper, self._maps)
        self._process = self._spawn(self._executable)
        self._wait_for(self._process, self._answers)

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        """End the broker, by default in order, and wait for it."""
        process, self._process = self._process, None
        if process is not None:
            _end(process, how)

    def close(self) -> None:
        """End the broker and its port mapper."""
        self.stop()
        if self._mapper is not None:
            _end(self._mapper, signal.SIGTERM)

    def _spawn(self, program: str) -> "subprocess.Popen[bytes]":
        """Start a child that dies with this thread: a harness that is killed leaves nothing behind."""
        command = [sys.executable, "-I", "-S", DIE_WITH_PARENT, str(os.getpid()), shutil.which(program) or program]
        with (self._folder / "node.log").open("ab") as log:
            return subprocess.Popen(
                command, cwd=self._folder, env=self._environment(), stdin=subprocess.DEVNULL,
                stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip

    def _wait_for(self, process: "subprocess.Popen[bytes]", ready: Callable[[], bool]) -> None:
        until = time.monotonic() + READY_WITHIN
        while not ready():
            if process.poll() is not None or time.monotonic() > until:
                raise HarnessError(f"RabbitMQ does not start: see {self._folder / 'node.log'}")
            time.sleep(0.1)

    def _environment(self) -> Mapping[str, str]:
        port, distribution, mapper = map(str, self._ports)
        folder = self._folder
        return {
            "PATH": os.environ.get("PATH", os.defpath),
            "HOME": str(folder),
            "LANG": "C.UTF-8",
            "RABBITMQ_NODENAME": f"duecourse-{port}@localhost",
            "RABBITMQ_DIST_PORT": distribution,
            "RABBITMQ_MNESIA_BASE": str(folder / "data"),
            "RABBITMQ_LOG_BASE": str(folder / "log"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "plugins"),
            "RABBITMQ_CONFIG_FILE": str(folder / "rabbitmq.conf"),
            "RABBITMQ_CONF_ENV_FILE": os.devnull,
            "RABBITMQ_ALLOW_INPUT": "1",  # become the broker, with no shell that stands between it and a signal
            "RABBITMQ_SERVER_START_ARGS": "-noinput -kernel inet_dist_use_interface {127,0,0,1}",
            "ERL_EPMD_PORT": mapper,
            "ERL_EPMD_ADDRESS": LOOPBACK,
        }

    def _maps(self) -> bool:
        try:
            socket.create_connection((LOOPBACK, self._ports[2]), timeout=2).close()
        except OSError:
            return False
        return True

    def _answers(self) -> bool:
        try:
            with socket.create_connection((LOOPBACK, self._ports[0]), timeout=2) as dialled:
                dialled.sendall(AMQP_GREETING)
                return bool(dialled.recv(1))
        except OSError:
            return False


def _end(process: "subprocess.Popen[bytes]", how: signal.Signals) -> None:
    process.send_signal(how)
    try:
        process.wait(GRACE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
