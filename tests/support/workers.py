"""Workers as their users start them: `python -m duecourse.worker`, with the handlers of a test's folder."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import urllib3

from duecourse.worker.child import Board
from tests.support.drainer import ENVIRONMENT
from tests.support.project import ROOT

HANDLERS = ROOT / "tests/worker/fixtures"
CLEAN = {name: value for name, value in ENVIRONMENT.items() if not name.startswith(("DUECOURSE_", "AWS_"))}


def command(*options: str) -> list[str]:
    """A worker's command line."""
    return [sys.executable, "-W", "error", "-m", "duecourse.worker", *options]


def environment(url: str, path: str = "", **settings: str) -> dict[str, str]:
    """The environment of a worker: `path` is where it looks for modules first, `settings` are DUECOURSE_*."""
    given = {"DUECOURSE_STORE": url, "PYTHONPATH": f"{path}:{ROOT / 'layers/core'}"}
    return CLEAN | given | {f"DUECOURSE_{name}": value for name, value in settings.items()}


class Worker:
    """A worker that is ready."""

    def __init__(self, process: "subprocess.Popen[str]", said: str) -> None:
        self.process = process
        self.said = said

    def children(self) -> list[int]:
        """The numbers of its processes."""
        found = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        return [int(pid) for pid in found.read_text().split()]

    def health(self, path: str) -> tuple[int, Any]:
        """Status and body of a probe."""
        port = re.search(r"port (\d+)", self.said)
        assert port, self.said
        answer = urllib3.request("GET", f"http://127.0.0.1:{port[1]}{path}", timeout=30, retries=False)
        return answer.status, json.loads(answer.data)

    def term(self) -> None:
        """Have it stop."""
        self.process.send_signal(signal.SIGTERM)


@contextmanager
def working(
    url: str,
    *options: str,
    log: Path,
    path: str = "",
    module: str = "kinds",
    launcher: Sequence[str] = (),
    **settings: str,
) -> Iterator[Worker]:
    """A worker with a module of `HANDLERS`, ready; its processes end with it, for their input closes."""
    line = [*launcher, *command("--import", module, *options)]
    given = environment(url, path, **settings)
    with (
        log.open("ab") as errors,
        subprocess.Popen(line, env=given, cwd=HANDLERS, stdout=subprocess.PIPE, stderr=errors, text=True) as process,
    ):
        try:
            assert process.stdout
            said = process.stdout.readline()
            assert said.startswith("worker ready"), (said, log.read_text())
            yield Worker(process, said)
        finally:
            process.kill()


def board_of(pid: int) -> Board:
    """The board of a worker's process, as its parent sees it."""
    files = Path(f"/proc/{pid}/fd").iterdir()
    return Board(os.open(next(file for file in files if "duecourse-worker" in os.readlink(file)), os.O_RDWR))
