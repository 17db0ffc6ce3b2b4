"""What the peers need, put into `.venv-peers` at the first run; what is not to be had is said."""

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from tests.support.project import ROOT

FOLDER = ROOT / ".venv-peers"
NODE = FOLDER / "node"
HERE = Path(__file__).parent
PINS = {
    line.partition("==")[0].partition("[")[0]: line
    for line in (ROOT / "requirements" / "peers.txt").read_text().splitlines()
}
"""The pin of each peer in Python: each has a venv of its own, for they want different clients of Redis."""
BULLMQ = ("bullmq@6.7.0", "ioredis@5.11.1")
"""BullMQ, and the client of Redis that it is developed with."""
INSTALLATION_S = 180
"""npm asks again for minutes, without a word, where no registry answers."""

Say = Callable[[str], object]


class Lacking(Exception):
    """What a peer needs and this machine does not have."""


def bullmq(say: Say) -> tuple[str, ...]:
    """BullMQ's program. Raises Lacking."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if not node or not npm:
        raise Lacking("it needs node and npm")
    ready = NODE / ".ready"
    if not ready.exists() or ready.read_text() != str(BULLMQ):
        NODE.mkdir(parents=True, exist_ok=True)
        quick = ["--no-audit", "--no-fund", "--fetch-timeout=20000", "--fetch-retries=1", "--loglevel=error"]
        install = [npm, "install", "--prefix", str(NODE), *quick, *BULLMQ]
        _run(say, " and ".join(BULLMQ), install)
        ready.write_text(str(BULLMQ))
    return (node, str(HERE / "bullmq.mjs"), str(NODE))


def python(say: Say, name: str, module: str) -> tuple[str, ...]:
    """The program of a peer in Python. Raises Lacking."""
    folder, pin = FOLDER / name, PINS[name]
    made, ready = folder / "bin" / "python", folder / ".ready"
    wanted = f"{pin} {sys.version}"  # the same build of Python as ours has
    if not ready.exists() or ready.read_text() != wanted:
        _run(say, "a venv", [sys.executable, "-m", "venv", "--clear", str(folder)])
        _run(say, pin, [str(made), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", pin])
        ready.write_text(wanted)
    return (str(made), "-m", f"{__package__}.{module}")


def versions() -> str:
    """The versions of the peers, as they are pinned, and of node."""
    pins = [*PINS.values(), *(name.replace("@", "==") for name in BULLMQ)]
    named = sorted(pin.replace("[redis]", "").replace("==", " ") for pin in pins)
    return ", ".join([*named, *_node()])


def _node() -> list[str]:
    if not (node := shutil.which("node")):
        return []
    return [f"node {subprocess.run([node, '--version'], capture_output=True, text=True, check=True).stdout.strip()}"]


def _run(say: Say, what: str, command: list[str]) -> None:
    say(f"installing {what} into {FOLDER.name}, {INSTALLATION_S} s at most …")
    try:
        done = subprocess.run(
            command, cwd=FOLDER.parent, capture_output=True, text=True, check=False, timeout=INSTALLATION_S
        )
    except subprocess.TimeoutExpired:
        raise Lacking(f"{what} was not installed within {INSTALLATION_S} s: is the registry in reach?") from None
    if done.returncode:
        raise Lacking(f"{what} cannot be installed: {(done.stderr or done.stdout).strip()[-300:]}")
