"""The packages of a function's own requirements.txt, installed once for the functions that list the same.

What this Python has already is left out: the function's process finds it there.
"""

import asyncio
import hashlib
import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..stack.problems import HarnessError
from ..template.model import Function
from .runtimes import is_python

LISTED = "requirements.txt"
PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input")
NO_PIP = "No module named pip"


async def with_packages(functions: Iterable[Function], folder: Path, progress: Callable[[str], None]) -> list[Function]:
    """The functions, each with the folder of its packages within `folder`. Raises HarnessError.

    `progress` gets a line before an installation, which takes seconds.
    """
    return [await asyncio.to_thread(_with_packages, function, folder, progress) for function in functions]


def _with_packages(function: Function, folder: Path, progress: Callable[[str], None]) -> Function:
    listed = function.code / LISTED
    if not is_python(function) or not listed.is_file():
        return function
    place = folder / _key(listed)
    if not place.is_dir():
        _install(listed, place, progress)
    return replace(function, packages=place)


def _key(listed: Path) -> str:
    """Digest of the list, files of its name beside it, and the Python that has packages already."""
    digest = hashlib.sha256(f"{sys.version} {platform.machine()}".encode())
    for path in sorted(listed.parent.glob("requirements*.txt")):
        digest.update(path.read_bytes())
    for folder in sys.path:
        if os.path.isdir(folder):
            digest.update("\n".join(sorted(name for name in os.listdir(folder) if name.endswith("-info"))).encode())
    return digest.hexdigest()[:32]


def _install(listed: Path, place: Path, progress: Callable[[str], None]) -> None:
    place.parent.mkdir(0o700, parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="new-", dir=place.parent) as beside:
        made = Path(beside, "made")
        made.mkdir()
        if missing := _missing(listed, Path(beside)):
            progress(f"installing for {_shown(listed)}: {', '.join(missing)} …")
            _pip(listed, "install", "--target", str(made), "--no-deps", "--no-warn-conflicts", *missing)
        if not place.is_dir():  # another stack of this project may have been as quick
            made.rename(place)


def _missing(listed: Path, folder: Path) -> list[str]:
    """Packages that pip would install here besides those that are there, each of an exact version."""
    report = folder / "report.json"
    _pip(listed, "install", "--dry-run", "--report", str(report), "--requirement", str(listed))
    return [_exact(item) for item in json.loads(report.read_text())["install"]]


def _exact(item: dict[str, Any]) -> str:
    if item["is_direct"]:
        return f"{item['metadata']['name']} @ {item['download_info']['url']}"
    return f"{item['metadata']['name']}=={item['metadata']['version']}"


def _pip(listed: Path, *words: str) -> None:
    command = (*PIP, "--quiet", *words)
    done = subprocess.run(command, cwd=listed.parent, capture_output=True, text=True, check=False)
    if done.returncode:
        raise HarnessError(f"{_shown(listed)} cannot be installed: {_reason(done.stderr.splitlines())}")


def _reason(lines: Sequence[str]) -> str:
    """The last error that pip names, without the word."""
    if any(NO_PIP in line for line in lines):
        return f"{sys.executable} has no pip; run {sys.executable} -m ensurepip"
    errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ")]
    return (errors or list(lines) or ["pip says nothing"])[-1]


def _shown(listed: Path) -> str:
    return "/".join(listed.parts[-3:])
