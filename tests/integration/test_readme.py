"""The README's first-task section, followed line by line against a running stack."""

import re
import subprocess
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from local.stack import Stack
from tests.support.project import ROOT
from tests.support.sam import env_vars, need_engine, start_api

README = ROOT / "README.md"


class Step(NamedTuple):
    command: str
    answer: str


def steps() -> list[Step]:
    blocks = re.findall(r"```console\n(.*?)```", README.read_text(), re.DOTALL)
    pairs = re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", "".join(blocks), re.MULTILINE)
    return [Step(command, answer.strip()) for command, answer in pairs]


@pytest.fixture(scope="module", params=["harness", "sam"])
def api(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The HTTP API: the harness's, then that of `sam local start-api`, where a container engine runs it."""
    if request.param == "sam":
        need_engine("sam local start-api")
    with Stack() as stack:
        if request.param == "harness":
            yield stack.api
            return
        variables = env_vars(tmp_path_factory.mktemp("sam"), stack.store)
        with start_api(variables) as url:
            yield url


def test_each_line_of_the_first_task_section_answers_what_it_shows(api: str) -> None:
    assert len(steps()) > 8
    for step in steps():
        command = step.command.replace("http://localhost:3000", api).replace("localhost:3000", api)
        shown = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True, timeout=30)
        wanted = re.escape(step.answer).replace("…", ".*")
        assert re.fullmatch(wanted, shown.stdout.strip()), f"{step.command}\n{shown.stdout}\nis not\n{step.answer}"
