"""`python .ci/install.py LABEL WORDS…`: run `pip install WORDS…` in this venv, and say how far it is.

pip is silent for a minute or two, or prints several lines a package. This prints a line each ten seconds; on a terminal
one line that changes. What pip prints is shown where it fails.
"""

import os
import re
import selectors
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator
from pathlib import Path

PIP = (sys.executable, "-m", "pip", "install", "--disable-pip-version-check", "--progress-bar", "off")
EVERY_S = 10.0
ON_TERMINAL_S = 0.5
TERMINAL = sys.stdout.isatty()
CLEAR = "\r\033[K"


def main(label: str, *words: str) -> int:
    """Install, and return pip's exit code."""
    began, before, total, found, printed = time.monotonic(), installed(), wanted(words), 0, []
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen([*PIP, *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment) as pip:
        for line in lines(pip):
            printed.append(line)
            found += line.startswith(("Collecting ", "Processing "))
            if not line:
                done = installed() - before
                stage = f"{done}{total} installed" if done else f"{found}{total} downloaded"
                show(f"{label}: {time.monotonic() - began:3.0f} s, {stage}")
    if pip.returncode:
        sys.stdout.write(CLEAR if TERMINAL else "")
        sys.stdout.flush()
        sys.stderr.write("".join(printed))
    else:
        show(f"{label}: {installed() - before} packages in {time.monotonic() - began:.0f} s", last=True)
    return pip.returncode


def lines(pip: "subprocess.Popen[bytes]") -> Iterator[str]:
    """Each line that pip prints, and "" whenever it is time to say how far it is."""
    every = ON_TERMINAL_S if TERMINAL else EVERY_S
    said, rest = time.monotonic(), b""
    assert pip.stdout
    with selectors.DefaultSelector() as ready:
        ready.register(pip.stdout, selectors.EVENT_READ)
        while True:
            if ready.select(max(0.0, said + every - time.monotonic())):
                read = os.read(pip.stdout.fileno(), 65536)
                *whole, rest = (rest + read).split(b"\n")
                yield from (f"{line.decode(errors='replace')}\n" for line in whole)
                if not read:
                    return
            if time.monotonic() >= said + every:
                said = time.monotonic()
                yield ""


def installed() -> int:
    """Number of packages in this venv."""
    return len(list(Path(sysconfig.get_path("purelib")).glob("*.dist-info")))


def wanted(words: tuple[str, ...]) -> str:
    """The number of pinned packages, in words: "" where pip is to choose."""
    files = [words[n + 1] for n, word in enumerate(words) if word == "-r"]
    pins = [pin for file in files for pin in re.findall(r"^[\w.-]+==", Path(file).read_text(), re.MULTILINE)]
    return f" of {len(pins)} packages" if pins else " packages"


def show(text: str, *, last: bool = False) -> None:
    """One line; on a terminal, the same one again until the last."""
    sys.stdout.write(f"{CLEAR}{text}" + ("\n" if last else "") if TERMINAL else f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    try:
        sys.exit(main(*sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
