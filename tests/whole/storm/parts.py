"""The parts of a storm that run handlers: workers, and a local stack with functions and a bridge."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

from duecourse_local.cli.scaffold import NewFunction, with_function
from duecourse_local.harness.aws.account import CREDENTIALS
from duecourse_local.harness.options import PARAMETERS
from tests.support.drainer import ENVIRONMENT
from tests.support.project import ROOT, copy_project
from tests.support.redis_server import tie
from tests.support.workers import command

GRACE_MS = 5_000
"""Time that a worker which is stopped gives its handlers."""
HANDLERS = Path(__file__).with_name("handlers")
CLEAN = {name: value for name, value in ENVIRONMENT.items() if not name.startswith(("DUECOURSE_", "AWS_"))}
SETTINGS = {
    "RETENTION": "P400D",
    "DEAD_RETENTION": "P400D",
    "SHARDS": '{"wide": 4}',
    "LEASE": "PT30S",
    "RESULTS_TABLE": "",
}
"""Settings of every process: what ended is kept until it was compared, whatever the server's clock does."""


def targets(sqs: str, rabbit: str) -> str:
    """DUECOURSE_TARGETS: workers, the function and the queues."""
    worked = ("quick", "slow", "flaky", "loop", "tick", "killer")
    found = {f"w.{how}": "worker" for how in worked}
    found |= {f"f.{how}": "lambda:StormFunction" for how in worked if how != "killer"}
    found["to-sqs"] = f"sqs:{sqs}"
    if rabbit:
        found["to-rabbit"] = f"amqp:{rabbit}"
    return json.dumps(found)


def environment(url: str, log: Path, **settings: str) -> dict[str, str]:
    """The environment of a process of the storm."""
    given = {"DUECOURSE_STORE": url, "STORM_LOG": str(log), "PYTHONPATH": f"{HANDLERS}:{ROOT / 'layers/core'}"}
    return CLEAN | given | {f"DUECOURSE_{name}": value for name, value in (SETTINGS | settings).items()}


def sender(aws: str) -> dict[str, str]:
    """What a worker needs to send reminders by the emulator, as the functions do: it takes any that is due."""
    return {**CREDENTIALS, "AWS_ENDPOINT_URL": aws, "DUECOURSE_MAIL_FROM": PARAMETERS["MailFrom"]}


class Workers:
    """Worker processes as a service manager runs them: what ends is started again, until `close`."""

    def __init__(self, count: int, given: Mapping[str, str], folder: Path) -> None:
        self._given, self._folder = dict(given), folder
        self._over = threading.Event()
        self._running: list[subprocess.Popen[str] | None] = [None] * count
        self._threads = [threading.Thread(target=self._serve, args=(n,), daemon=True) for n in range(count)]
        self._ready = [threading.Event() for _ in range(count)]

    def start(self) -> None:
        """Start all, and wait until they are ready."""
        for thread in self._threads:
            thread.start()
        for ready in self._ready:
            assert ready.wait(60), "a worker is not ready: see its log"

    def _serve(self, n: int) -> None:
        line = command(
            "--import", "storm_kinds", "--processes", "2", "--concurrency", "8", "--grace", f"PT{GRACE_MS // 1_000}S"
        )
        while not self._over.is_set():
            with (
                (self._folder / f"worker-{n}.log").open("ab") as errors,
                subprocess.Popen(
                    [*map(str, tie()), *line],
                    env=self._given,
                    cwd=HANDLERS,
                    stdout=subprocess.PIPE,
                    stderr=errors,
                    text=True,
                ) as process,
            ):
                self._running[n] = process
                assert process.stdout
                if process.stdout.readline().startswith("worker ready"):
                    self._ready[n].set()
                process.wait()
            self._over.wait(0.5)

    def parents(self) -> list[int]:
        """The processes that were started, each the parent of its own."""
        return [process.pid for process in self._running if process and process.poll() is None]

    def processes(self) -> list[int]:
        """The processes that run handlers."""
        return [pid for parent in self.parents() for pid in descendants(parent, "duecourse.worker.child")]

    def close(self) -> None:
        """End all of them, in good order."""
        self._over.set()
        for process in self._running:
            if process and process.poll() is None:
                process.send_signal(signal.SIGTERM)
        for thread in self._threads:
            thread.join(15)
        for process in self._running:
            if process and process.poll() is None:
                process.kill()


def descendants(pid: int, word: str) -> list[int]:
    """Those below a process whose command line has the word, in the order of their numbers."""
    found = []
    with contextlib.suppress(psutil.Error):
        for one in psutil.Process(pid).children(recursive=True):
            with contextlib.suppress(psutil.Error):
                if word in " ".join(one.cmdline()):
                    found.append(one.pid)
    return sorted(found)


class LocalStack:
    """`duecourse up` in a project with the storm's function."""

    def __init__(self, process: "subprocess.Popen[str]", addresses: Mapping[str, Any]) -> None:
        self._process = process
        self.api: str = addresses["api"]
        self.aws: str = addresses["aws"]

    def bridges(self) -> list[int]:
        """The bridge."""
        return descendants(self._process.pid, "duecourse.bridge")

    def functions(self) -> list[int]:
        """The processes of functions."""
        found = []
        for one in psutil.Process(self._process.pid).children(recursive=True):
            with contextlib.suppress(psutil.Error):
                if "AWS_LAMBDA_FUNCTION_NAME" in one.environ() and "duecourse.bridge" not in " ".join(one.cmdline()):
                    found.append(one.pid)
        return sorted(found)


@contextmanager
def local_stack(folder: Path, given: Mapping[str, str]) -> Iterator[LocalStack]:
    """A stack on free ports, ready; stopped at the end."""
    template = copy_project(folder)
    template.write_text(with_function(template.read_text(), NewFunction("storm", "f.quick")))
    own = template.parent / "functions/storm"
    own.mkdir()
    for name in ("app.py", "storm_work.py"):
        shutil.copy(HANDLERS / name, own)
    (own / "log.txt").write_text(given["STORM_LOG"])
    options = (
        "--port",
        "0",
        "--lambda-port",
        "0",
        "--aws-port",
        "0",
        "--tick",
        "5",
        "--json",
        "--store",
        given["DUECOURSE_STORE"],
    )
    line = [*map(str, tie()), sys.executable, "-m", "duecourse_local", "up", *options]
    stack = {name: value for name, value in given.items() if name not in {"DUECOURSE_STORE", "PYTHONPATH"}}
    with (
        (folder / "up.log").open("ab") as errors,
        subprocess.Popen(line, env=stack, cwd=folder, stdout=subprocess.PIPE, stderr=errors, text=True) as process,
    ):
        try:
            assert process.stdout
            said = process.stdout.readline()
            assert said, f"the stack did not start: {folder / 'up.log'}"
            yield LocalStack(process, json.loads(said))
        finally:
            process.send_signal(signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(20)
            process.kill()


def freeze(pid: int, seconds: float) -> None:
    """Stop a process for a while."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGSTOP)
    time.sleep(seconds)
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGCONT)


def kill(pid: int, how: signal.Signals = signal.SIGKILL) -> None:
    """Signal a process that may have gone."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, how)
