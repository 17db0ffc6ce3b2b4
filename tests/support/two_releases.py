"""Two releases of the product on one Redis: each with its functions and its HTTP API, and no bridge yet."""

import json
import os
import re
import shutil
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import urllib3

from duecourse_local.harness.options import PARAMETERS, Options, Precision
from duecourse_local.harness.stack import Stack
from tests.support.api import Api
from tests.support.bridges import NAMESPACE, Served
from tests.support.http_server import ReceivedRequest, Reply
from tests.support.project import ROOT, add_resource, copy_project
from tests.support.releases import EARLIER, layer_of, unpack_release

OWN = ROOT / "tests" / "whole" / "fixtures" / "report"
FUNCTION = """
  {kind}Function:
    Type: AWS::Serverless::Function
    Properties:
      Handler: app.handler
      CodeUri: {folder}
      Timeout: 10
      Environment:
        Variables:
          DUECOURSE_TARGETS: ""
"""
LEASE = {"DUECOURSE_LEASE": "PT10S", "DUECOURSE_DELIVERY_LEASE": "PT10S", "DUECOURSE_NAMESPACE": NAMESPACE}


class Release(NamedTuple):
    """A release that runs: its stack, where its code is, and its API."""

    stack: Stack
    layer: Path
    api: Api


class Releases(NamedTuple):
    """The earlier one and this tree's."""

    old: Release
    new: Release


class Receiver:
    """It takes what tasks of both releases send: runs, whose first fails at `/twice`, and ends at `/ended`.

    A run is answered once the gate is open.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.url = ""
        self.gate = threading.Event()
        self.gate.set()
        self.runs = Counter[str]()
        self.ends = Counter[str]()

    def __call__(self, asked: ReceivedRequest) -> Reply:
        body = json.loads(asked.body)
        with self._lock:
            if asked.path == "/ended":
                self.ends[body["data"]["id"]] += 1
                return Reply()
            self.runs[body["id"]] += 1
            fails = asked.path == "/twice" and self.runs[body["id"]] == 1
        self.gate.wait(30)
        return Reply(503 if fails else 200)


def kill(release: Release, function: str) -> None:
    """End a function's processes outright."""
    _signal(release, function, signal.SIGKILL)


@contextmanager
def stopped(release: Release, function: str) -> Iterator[None]:
    """A function's processes suspended meanwhile."""
    _signal(release, function, signal.SIGSTOP)
    try:
        yield
    finally:
        _signal(release, function, signal.SIGCONT)


def _signal(release: Release, function: str, how: signal.Signals) -> None:
    for pid in release.stack.pids()["functions"][function]:
        with suppress(ProcessLookupError):
            os.kill(pid, how)


@contextmanager
def both_releases(server: Served, folder: Path) -> Iterator[Releases]:
    """Both on one server. Each has functions of a user's own: `own`, and `crossed` with the other's layer."""
    for project in ("old", "new"):
        (folder / project).mkdir()
    templates = unpack_release(EARLIER, folder / "old"), copy_project(folder / "new")
    layers = [layer_of(template.parent) for template in templates]
    projects = list(zip(templates, layers, strict=True))
    with ExitStack() as running:
        http = running.enter_context(urllib3.PoolManager(retries=False, timeout=30, maxsize=10))
        made = []
        for (template, layer), other in zip(projects, reversed(projects), strict=True):
            _add_functions(template, *other)
            options = _options(template, server, LEASE)
            stack = running.enter_context(Stack(options))
            made.append(Release(stack, layer, Api(http, stack.api)))
        yield Releases(*made)


def _add_functions(template: Path, other: Path, other_layer: Path) -> None:
    """Code in a function's own folder comes before its layers, and runs as the other release's template deploys it."""
    crossed = template.parent / "crossed"
    shutil.copytree(OWN, crossed)
    (crossed / "duecourse").symlink_to(other_layer / "duecourse")
    app, unknown = crossed / "app.py", sorted(_variables(template) - _variables(other))
    app.write_text(f"import os\n\nfor name in {unknown}:\n    os.environ.pop(name, None)\n\n{app.read_text()}")
    for kind, folder in (("own", OWN), ("crossed", crossed)):
        add_resource(template, FUNCTION.format(kind=kind, folder=folder))


def _variables(template: Path) -> set[str]:
    """The settings that a template gives its functions: a release rejects those that it does not know."""
    return set(re.findall(r"DUECOURSE_[A-Z_]+", template.read_text()))


def _options(template: Path, server: Served, environment: dict[str, str]) -> Options:
    targets = '"own": "lambda:ownFunction", "crossed": "lambda:crossedFunction"'
    return Options(
        template=template,
        parameters={**PARAMETERS, "Targets": targets},
        store=server.url,
        precision=Precision.TICK,
        tick=0,
        environment=environment,
        retry_waits=(0.2, 0.5),
    )
