"""The operators' page in tests: an API that notes what it is asked, headers of the front end, and the command."""

import json
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from duecourse.in_place import ApiAnswer, ApiRequest
from tests.support.commands import BARE, IN_A_CLONE
from tests.support.project import ROOT

ORIGIN = "http://ops.example"
FRONT_END = {"origin": ORIGIN, "x-duecourse-page": "1", "content-type": "application/json"}
"""Headers of a request of the front end that may change something."""


def answered(status: int, document: Any, **headers: str) -> ApiAnswer:
    return ApiAnswer(status, json.dumps(document).encode(), {"content-type": "application/json", **headers})


class NotedApi:
    """An HTTP API that answers as a function says."""

    name = "store redis://ledger.example (namespace duecourse)"
    tenant: str | None = None

    def __init__(
        self, answer: Callable[[ApiRequest], ApiAnswer] = lambda _asked: answered(200, {"fine": True})
    ) -> None:
        self.asked: list[ApiRequest] = []
        self._answer = answer

    def send(self, request: ApiRequest) -> ApiAnswer:
        self.asked.append(request)
        return self._answer(request)


@contextmanager
def page_command(*options: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """The address of a page that `duecourse page` serves, and its process."""
    with subprocess.Popen(
        [*IN_A_CLONE, "page", "--json", *options],
        cwd=ROOT,
        env=BARE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        try:
            yield json.loads(process.stdout.readline())["page"], process
        finally:
            process.kill()


def ledger_options(folder: Path) -> tuple[str, ...]:
    """Options of a command for a ledger in a folder."""
    return ("--store", f"leveldb://{folder}/ledger", "--stack", str(folder / "state"))
