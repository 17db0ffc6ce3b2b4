"""Parts of a function's process: its command, its code, the packages that it lists, and its environment variables.

Packages that this Python has already are left out: the function's process finds them there.
"""

import asyncio
import hashlib
import importlib.util
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeAlias

from ..errors import HarnessError
from .aws.account import ACCOUNT, CREDENTIALS
from .template import Function

NODE = Path(__file__).with_name("node") / "bootstrap.mjs"


class NoRuntime(HarnessError):
    """This machine has nothing that runs the function."""


def is_python(function: Function) -> bool:
    """True if the function's handler is Python."""
    return function.runtime.startswith("python")


def runtime_command(function: Function) -> tuple[str, ...]:
    """The command of one process of the function. Raises NoRuntime, saying what is missing."""
    if is_python(function):
        return (sys.executable, "-m", "awslambdaric", function.handler)
    if not function.runtime.startswith("nodejs"):
        raise NoRuntime(f"{function.runtime} cannot be run here: Python and Node functions can")
    node = shutil.which("node")
    if node is None:
        raise NoRuntime(f"{function.runtime} needs a node on PATH: install Node.js 20 or newer")
    return (node, str(NODE), function.handler)


Version: TypeAlias = frozenset[tuple[str, int]]

WRITTEN_BY_TOOLS = ("__pycache__", "node_modules")


class CodeFolder:
    """The files of a folder, and when they were written; `version` changes as they do.

    A look holds for `look_every` seconds: at a folder with a thousand files it takes some milliseconds.
    """

    def __init__(self, folder: Path, look_every: float) -> None:
        self._folder = folder
        self._look_every = look_every
        self._looked_at = -look_every
        self._version: Version = frozenset()

    @property
    def version(self) -> Version:
        """Files and their times, now or at the last look."""
        now = time.monotonic()
        if now - self._looked_at >= self._look_every:
            self._version, self._looked_at = frozenset(_files(self._folder)), now
        return self._version


def _files(folder: Path) -> Iterator[tuple[str, int]]:
    for place, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if name not in WRITTEN_BY_TOOLS and not name.startswith(".")]
        for name in names:
            with suppress(FileNotFoundError):  # an editor's own, which is gone again
                if not name.startswith("."):
                    yield f"{place}/{name}", Path(place, name).stat().st_mtime_ns


REQUIREMENTS = "requirements.txt"
PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input")
NO_PIP = "No module named pip"


async def with_packages(functions: Iterable[Function], folder: Path, progress: Callable[[str], None]) -> list[Function]:
    """The functions, each with the folder of its packages within `folder`. Raises HarnessError.

    `progress` gets a line before an installation, which takes seconds.
    """
    return [await asyncio.to_thread(_with_packages, function, folder, progress) for function in functions]


def _with_packages(function: Function, folder: Path, progress: Callable[[str], None]) -> Function:
    listed = function.code / REQUIREMENTS
    if not is_python(function) or not listed.is_file():
        return function
    place = folder / _packages_key(listed)
    if not place.is_dir():
        _install(listed, place, progress)
    return replace(function, packages=place)


def _packages_key(listed: Path) -> str:
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
        if missing := _missing_packages(listed, Path(beside)):
            progress(f"installing for {_packages_shown(listed)}: {', '.join(missing)} …")
            _pip(listed, "install", "--target", str(made), "--no-deps", "--no-warn-conflicts", *missing)
        if not place.is_dir():  # another stack of this project may have been as quick
            made.rename(place)


def _missing_packages(listed: Path, folder: Path) -> list[str]:
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
        raise HarnessError(f"{_packages_shown(listed)} cannot be installed: {_reason_of_pip(done.stderr.splitlines())}")


def _reason_of_pip(lines: Sequence[str]) -> str:
    """The last error that pip names, without the word."""
    if any(NO_PIP in line for line in lines):
        return f"{sys.executable} has no pip; run {sys.executable} -m ensurepip"
    errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ")]
    return (errors or list(lines) or ["pip says nothing"])[-1]


def _packages_shown(listed: Path) -> str:
    return "/".join(listed.parts[-3:])


STAND_IN = Path(__file__).with_name("standin")
PASSED_ON = ("PATH", "LD_LIBRARY_PATH", "TMPDIR")
"""All that a child sees of the host's environment, besides the settings of the product itself."""
SETTINGS = "DUECOURSE_"
TARGETS = "DUECOURSE_TARGETS"
EGRESS_ALLOW = "DUECOURSE_EGRESS_ALLOW"
STORE, STORE_SECRET = "DUECOURSE_STORE", "DUECOURSE_STORE_SECRET"
SEAL_KEY = "DUECOURSE_SEAL_KEY"
AMQP, AMQP_SECRET = "DUECOURSE_AMQP", "DUECOURSE_AMQP_SECRET"
SIGNED_BY = "DUECOURSE_SIGNING_SECRET"
TENANT_FROM = "DUECOURSE_TENANT_FROM"
TENANTS = {"DUECOURSE_TENANT_HEADER": "X-Tenant"}
"""Tenants by header where no caller has to prove its own, for a laptop only.

The template does not set this, so a deployed function ignores the header.
"""


def host_settings() -> dict[str, str]:
    """The product's own settings in the host's environment: they win over the template's.

    Secrets and a key named there are a deployed stack's: this one has a store, an emulator and a key of its own.
    """
    own = {STORE_SECRET, AMQP_SECRET, SEAL_KEY, SIGNED_BY}
    return {name: value for name, value in os.environ.items() if name.startswith(SETTINGS) and name not in own}


@dataclass(frozen=True)
class Environment:
    """Environment that all functions share: addresses of services, and variables that win over the template's."""

    aws: str
    lambda_url: str
    store: str
    overrides: Mapping[str, str] = field(default_factory=dict)
    pure_python: bool = False
    """Use the substitute for the runtime client's native part even where that part is installed."""

    def base(self) -> dict[str, str]:
        """Variables of every child of the harness, the bridge too."""
        return {
            **{name: os.environ[name] for name in PASSED_ON if name in os.environ},
            **CREDENTIALS,
            "LANG": "C.UTF-8",
            "AWS_ENDPOINT_URL": self.aws,
            "AWS_ENDPOINT_URL_LAMBDA": self.lambda_url,
        }

    def settings(self, function: Function) -> dict[str, str]:
        """The template's variables for `function`, as overridden here; targets given here join the template's."""
        given = {**function.environment, **self.overrides, STORE: self.store}
        if not function.environment.get(SEAL_KEY):  # as deployed: a function without a key gets its tasks opened
            given.pop(SEAL_KEY, None)
        given = TENANTS | given if function.routes and not given.get(TENANT_FROM) else given
        for secret, plain in ((STORE_SECRET, STORE), (AMQP_SECRET, AMQP)):
            if given.get(secret):
                given[plain] = ""  # it is read from the emulator, and is in no process's environment
        own, added = function.environment.get(TARGETS), self.overrides.get(TARGETS)
        return given if own is None or added is None else given | {TARGETS: _joined(own, added)}

    def of(self, function: Function, runtime_api: str) -> dict[str, str]:
        """The environment of one process of `function`, with the variables that Lambda sets."""
        return {
            **self.base(),
            "TZ": ":UTC",
            **({"PYTHONPATH": os.pathsep.join(map(str, self._path(function)))} if is_python(function) else {}),
            "_HANDLER": function.handler,
            "AWS_EXECUTION_ENV": f"AWS_Lambda_{function.runtime}",
            "AWS_LAMBDA_FUNCTION_NAME": function.name,
            "AWS_LAMBDA_FUNCTION_VERSION": "$LATEST",
            "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": str(function.memory_mb),
            "AWS_LAMBDA_INITIALIZATION_TYPE": "on-demand",
            "AWS_LAMBDA_LOG_GROUP_NAME": function.log_group,
            "AWS_LAMBDA_LOG_STREAM_NAME": f"local/[$LATEST]{runtime_api}",
            "AWS_LAMBDA_RUNTIME_API": runtime_api,
            "AWS_ACCOUNT_ID": ACCOUNT,
            "LAMBDA_TASK_ROOT": str(function.code),
            "LAMBDA_RUNTIME_DIR": str(Path(sys.executable).parent),
            **self.settings(function),
        }

    def of_bridge(self, function: Function) -> dict[str, str]:
        """The environment of the bridge, whose rings invoke `function`: the same settings and code."""
        return {
            **self.base(),
            **self.settings(function),
            "DUECOURSE_ON_EXPIRED_FUNCTION": function.name,
            "PYTHONPATH": os.pathsep.join(map(str, function.layers)),
        }

    def _path(self, function: Function) -> list[Path]:
        missing = importlib.util.find_spec("runtime_client") is None
        stand_in = [STAND_IN] if self.pure_python or missing else []
        packages = [function.packages] if function.packages else []
        return [*stand_in, function.code, *packages, *function.layers]


def _joined(own: str, added: str) -> str:
    """Targets of the template and those given beside it; none for a function that hands nothing on.

    Without the template's, reminders would be worked inline, by functions that have nothing to send them with.
    """
    return json.dumps(json.loads(own) | json.loads(added)) if own and added else own
