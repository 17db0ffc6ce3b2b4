"""What the peers need, put into `.venv-peers` at the first run; what is not to be had is told."""

import shutil
import subprocess
import sys
from pathlib import Path

from rich.console import Console

from tests.support.project import ROOT

FOLDER = ROOT / ".venv-peers"
NODE = FOLDER / "node"
HERE = Path(__file__).parent
PINS = ROOT / "requirements" / "peers.txt"
BULLMQ = ("bullmq@6.7.0", "ioredis@5.11.1")
"""BullMQ, and the client of Redis that it is developed with."""


class Lacking(Exception):
    """What a peer needs and this machine does not have."""


def bullmq(console: Console) -> list[str]:
    """The command that serves BullMQ's adds, but for the server's URL and the folder of its modules."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if not node or not npm:
        raise Lacking("it needs node and npm")
    if not all((NODE / "node_modules" / name.partition("@")[0]).exists() for name in BULLMQ):
        NODE.mkdir(parents=True, exist_ok=True)
        install = [npm, "install", "--prefix", str(NODE), "--no-audit", "--no-fund", "--silent", *BULLMQ]
        _run(console, " and ".join(BULLMQ), install)
    return [node, str(HERE / "bullmq.mjs")]


def python(console: Console) -> str:
    """The Python that has docket and Celery."""
    made, wanted = FOLDER / "bin" / "python", PINS.read_text()
    ready = FOLDER / ".ready"
    if not ready.exists() or ready.read_text() != wanted:
        _run(console, "a venv", [sys.executable, "-m", "venv", str(FOLDER)])
        install = [str(made), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        _run(console, " and ".join(wanted.split()), [*install, "-r", str(PINS)])
        ready.write_text(wanted)
    return str(made)


def _run(console: Console, what: str, command: list[str]) -> None:
    console.print(f"installing {what} into {FOLDER.name} …")
    done = subprocess.run(command, cwd=FOLDER.parent, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Lacking(f"{what} cannot be installed: {(done.stderr or done.stdout).strip()[-300:]}")
