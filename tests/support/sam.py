"""SAM: its own parts without a container engine, and its commands that need one."""

import json
import os
import platform
import secrets
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import pytest
import urllib3

from duecourse_local.harness.addresses import LOOPBACK, free_port
from duecourse_local.harness.options import LOOPBACK as ALLOWED
from duecourse_local.harness.template import Function
from tests.support.project import ROOT
from tests.support.redis_server import RedisServer, need, newest
from tests.support.wait import until

SAM = ROOT / ".venv-sam/bin/sam"
SAM_PYTHON = ROOT / ".venv-sam/bin/python"
HOST = "redis-host"
"""This machine as containers call it."""
MACHINES = {"x86_64": "x86_64", "aarch64": "arm64"}
BUILDER = """
import json, sys
from samcli.local.lambdafn.env_vars import EnvironmentVariables
given = json.loads(sys.argv[1])
print(json.dumps(EnvironmentVariables(**given).resolve()))
"""
FIND = "import pathlib, samcli.local.rapid as it; print(pathlib.Path(list(it.__path__)[0]))"


def need_engine(what: str) -> None:
    """Skip the test, saying `what` was not run, where no container engine answers."""
    try:
        answers = subprocess.run(["docker", "info"], capture_output=True, check=False, timeout=20).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        answers = False
    if not answers:
        pytest.skip(f"no container engine answers `docker info`: {what} was not run")


def env_vars(folder: Path, store: str) -> Path:
    """A file for --env-vars: the secret that sam does not read, no results table, and calls to this machine allowed."""
    path = folder / "env.json"
    given = {"DUECOURSE_STORE": store, "DUECOURSE_RESULTS_TABLE": "", "DUECOURSE_EGRESS_ALLOW": ALLOWED}
    path.write_text(json.dumps({"Parameters": given}))
    return path


@contextmanager
def reachable_redis() -> Iterator[tuple[str, str]]:
    """A Redis that containers reach too, so with a password: its URL here, and its URL there.

    A container's loopback is its own, and sam does not hand on a network called host.
    """
    port, password = free_port(0, ""), secrets.token_hex(16)
    options = ["--port", str(port), "--bind", LOOPBACK, _bridge(), "--requirepass", password]
    with RedisServer(need(newest()), *options, password=password):
        yield f"redis://:{password}@{LOOPBACK}:{port}/0", f"redis://:{password}@{HOST}:{port}/0"


def _bridge() -> str:
    """This machine's address on the bridge of containers; an engine that has just begun tells the network alone."""
    words = ["docker", "network", "inspect", "bridge"]
    found = json.loads(subprocess.run(words, capture_output=True, text=True, check=True).stdout)
    config = found[0]["IPAM"]["Config"][0]
    return str(config.get("Gateway") or ip_network(config["Subnet"])[1])


def in_container(variables: Path) -> list[str]:
    """Options by which a container finds this machine as HOST; SAM_LOCAL_OPTIONS adds more (an image, say)."""
    own = os.environ.get("SAM_LOCAL_OPTIONS", "").split()
    parameters = [f"Architecture={MACHINES[platform.machine()]}", "Precision=tick"]  # as the harness: no tick lingers
    found = ["--parameter-overrides", *parameters, "--add-host", f"{HOST}:host-gateway"]
    return ["--env-vars", str(variables), *found, *own]


def sam_local(words: list[str], event: str) -> str:
    """What a `sam local` command prints when it is given an event."""
    return subprocess.run(
        [SAM, "local", *words], input=event, capture_output=True, text=True, check=True, cwd=ROOT
    ).stdout


def sam_environment(function: Function, logging: Mapping[str, Any]) -> dict[str, str]:
    """What sam's own code gives a function's process, `logging` being its LoggingConfig."""
    given = {
        "function_name": function.name,
        "function_memory": function.memory_mb,
        "function_timeout": int(function.timeout),
        "function_handler": function.handler,
        "function_logging_config": dict(logging),
        "variables": dict(function.environment),
    }
    found: dict[str, str] = json.loads(_sam(BUILDER, json.dumps(given)))
    return found


def _sam(code: str, *words: str) -> str:
    return subprocess.run([SAM_PYTHON, "-c", code, *words], capture_output=True, text=True, check=True).stdout


@contextmanager
def emulated(function: Function, environment: Mapping[str, str]) -> Iterator[str]:
    """The URL at which the emulator that sam ships runs the function, under AWS's client, one request at a time."""
    port, inner = free_port(0, ""), free_port(0, "")
    rie = Path(_sam(FIND).strip()) / f"aws-lambda-rie-{MACHINES[platform.machine()]}"
    addresses = ["--runtime-interface-emulator-address", f"127.0.0.1:{port}"]
    addresses += ["--runtime-api-address", f"127.0.0.1:{inner}", "--log-level", "error"]
    command = [rie, *addresses, sys.executable, "-m", "awslambdaric", function.handler]
    with subprocess.Popen(
        command, cwd=function.code, env=dict(environment), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        try:
            until(lambda: _listens(port), seconds=15)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()


@contextmanager
def start_api(variables: Path) -> Iterator[str]:
    """The URL of `sam local start-api`."""
    with _served("start-api", "EAGER", variables) as url:
        yield url


@contextmanager
def start_lambda(variables: Path) -> Iterator[str]:
    """The URL of `sam local start-lambda`, which keeps a container for each function that was invoked."""
    with _served("start-lambda", "LAZY", variables) as url:
        yield url


@contextmanager
def _served(command: str, warm: str, variables: Path) -> Iterator[str]:
    port = free_port(0, "")
    words = [SAM, "local", command, "--port", str(port), "--warm-containers", warm, *in_container(variables)]
    with subprocess.Popen(words, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            until(lambda: _listens(port), seconds=120, every=0.5)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()


def _listens(port: int) -> bool:
    with urllib3.PoolManager(retries=False, timeout=1) as http:
        try:
            return http.request("GET", f"http://127.0.0.1:{port}/").status > 0
        except urllib3.exceptions.HTTPError:
            return False


def ask(url: str, event: Any, function: str = "function") -> Any:
    """What the function at an emulator of Lambda answers to an event."""
    with urllib3.PoolManager(retries=False, timeout=60) as http:
        return http.request("POST", f"{url}/2015-03-31/functions/{function}/invocations", json=event).json()
