"""The README's first-task section, followed line by line against a running stack."""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from local.stack import Stack

README = Path(__file__).parents[2] / "README.md"


class Step(NamedTuple):
    command: str
    answer: str


def steps() -> list[Step]:
    blocks = re.findall(r"```console\n(.*?)```", README.read_text(), re.DOTALL)
    pairs = re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", "".join(blocks), re.MULTILINE)
    return [Step(command, answer.strip()) for command, answer in pairs]


@pytest.fixture(scope="module")
def api() -> Iterator[str]:
    with Stack() as stack:
        yield stack.api


def test_each_line_of_the_first_task_section_answers_what_it_shows(api: str) -> None:
    assert len(steps()) > 8
    for step in steps():
        command = step.command.replace("http://localhost:3000", api).replace("localhost:3000", api)
        shown = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True, timeout=30)
        wanted = re.escape(step.answer).replace("…", ".*")
        assert re.fullmatch(wanted, shown.stdout.strip()), f"{step.command}\n{shown.stdout}\nis not\n{step.answer}"
