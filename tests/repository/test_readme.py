"""The lines for a shell in the README and the pages, followed one by one against a running stack."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest

from duecourse_local.harness.options import Options
from tests.support.emulator import local_stack
from tests.support.pages import README, pages
from tests.support.sam import env_vars, need_engine, reachable_redis, start_api
from tests.support.wait import until

pytestmark = pytest.mark.slow


class Step(NamedTuple):
    command: str
    answer: str


def steps(page: Path) -> list[Step]:
    blocks = re.findall(r"```console\n(.*?)```", page.read_text(), re.DOTALL)
    pairs = re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", "".join(blocks), re.MULTILINE)
    return [Step(command, answer.strip()) for command, answer in pairs]


FOLLOWED = [page for page in pages() if steps(page)]


@pytest.fixture(scope="module", params=["harness", "sam"])
def api(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The HTTP API: the harness's, then that of `sam local start-api`, where a container engine runs it."""
    if request.param == "harness":
        with local_stack() as stack:
            yield stack.api
        return
    need_engine("sam local start-api")
    folder = tmp_path_factory.mktemp("sam")
    with (
        reachable_redis() as (here, there),
        # As in the containers, results are in the ledger.
        local_stack(Options(store=here, environment={"DUECOURSE_RESULTS_TABLE": ""})),
        start_api(env_vars(folder, there)) as url,
    ):
        yield url


def test_there_are_lines_to_follow() -> None:
    assert sum(len(steps(page)) for page in FOLLOWED) > 8


@pytest.mark.parametrize("page", FOLLOWED, ids=lambda page: page.stem)
def test_each_line_answers_what_it_shows(api: str, page: Path) -> None:
    own = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    for step in steps(page):
        command = step.command.replace("http://localhost:3000", api).replace("localhost:3000", api)
        # A command finds the stack of its folder; this one is of none.
        command = re.sub(r"^duecourse \w+ \w+", rf"\g<0> --url {api}", command)
        wanted = re.escape(step.answer).replace("…", ".*")
        answers = partial(_answer, re.sub(r"^sleep \d+; ", "", command), os.environ | {"PATH": own, "COLUMNS": "200"})
        if command.startswith("sleep "):
            until(lambda answers=answers, wanted=wanted: re.fullmatch(wanted, answers()), every=0.1)
        else:
            told = answers()
            assert re.fullmatch(wanted, told), f"{step.command}\n{told}\nis not\n{step.answer}"


def _answer(command: str, environment: Mapping[str, str]) -> str:
    shown = subprocess.run(
        ["bash", "-c", command], env=environment, capture_output=True, text=True, check=False, timeout=60
    )
    assert shown.returncode == 0, f"{command}\n{shown.stderr}"
    return shown.stdout.strip()


def test_the_readmes_python_runs_as_it_is() -> None:
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    settings = {"DUECOURSE_STORE": "memory://", "DUECOURSE_TARGETS": '{"report": "lambda:report"}'}
    told = [
        subprocess.run(
            [sys.executable, "-c", block],
            env=os.environ | settings,
            capture_output=True,
            text=True,
            check=True,
            timeout=30,
        ).stdout
        for block in blocks
    ]
    assert told[0] == told[2] == ""
    assert re.fullmatch(r"It is due in (59 minutes 59\.\d+ seconds|1 hour), at .*Z\.\n", told[1])
    assert sum(len(block.strip().splitlines()) for block in blocks) <= 26
