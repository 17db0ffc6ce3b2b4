"""The programs of this folder run as their docstrings say, each copied to a folder of its own, and print what is there.

`…` in a docstring is for what varies.
"""

import ast
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.pages import links, pages
from tests.support.redis_server import RedisServer
from tests.support.workers import CLEAN, working

HERE = Path(__file__).parent
TEST = HERE / "test_invoice.py"
PROGRAMS = sorted(set(HERE.glob("*.py")) - {Path(__file__), TEST})
WORKED = [path for path in PROGRAMS if "duecourse worker" in path.read_text()]
ALONE = [path for path in PROGRAMS if path not in WORKED]
INDENTED = re.compile(r"^    (.+)$", re.MULTILINE)
PUBLIC = {"duecourse", "duecourse.errors", "duecourse.testing"}


def in_its_docstring(program: Path) -> tuple[list[str], list[str]]:
    """The commands that a program's docstring gives, and the lines that the last of them prints."""
    commands, _, printed = (ast.get_docstring(tree_of(program)) or "").partition("prints:\n")
    return INDENTED.findall(commands), INDENTED.findall(printed)


def tree_of(program: Path) -> ast.Module:
    return ast.parse(program.read_text())


def check(program: Path, folder: Path, store: str = "") -> None:
    """Run a copy of the program, and compare what it prints with its docstring."""
    copy, (_, expected) = shutil.copy(program, folder), in_its_docstring(program)
    words, given = [sys.executable, "-W", "error", copy], CLEAN | ({"DUECOURSE_STORE": store} if store else {})
    done = subprocess.run(words, cwd=folder, env=given, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert expected
    assert re.fullmatch(re.escape("\n".join(expected)).replace("…", ".*"), done.stdout.strip()), done.stdout


def named(program: Path) -> str:
    return program.stem


@pytest.mark.parametrize("program", ALONE, ids=named)
def test_a_program_by_itself_prints_what_its_docstring_says(program: Path, tmp_path: Path) -> None:
    assert in_its_docstring(program)[0] == [f"python {program.name}"]
    check(program, tmp_path)


@pytest.mark.parametrize("program", WORKED, ids=named)
def test_a_program_beside_a_worker_prints_what_its_docstring_says(
    program: Path, tmp_path: Path, redis_server: RedisServer
) -> None:
    assert in_its_docstring(program)[0] == [f"duecourse worker --import {program.stem}", f"python {program.name}"]
    shutil.copy(program, tmp_path)
    with working(redis_server.url, log=tmp_path / "worker.log", path=str(tmp_path), module=program.stem):
        check(program, tmp_path, store=redis_server.url)


def test_the_test_of_a_handler_passes_in_a_folder_of_its_own(tmp_path: Path) -> None:
    shutil.copy(TEST, tmp_path)
    # The plug-in of duecourse is given by name, for a suite may have turned off the search for plug-ins.
    words = [sys.executable, "-m", "pytest", "-p", "no:schemathesis", "-p", "duecourse.testing.plugin", TEST.name]
    done = subprocess.run(words, cwd=tmp_path, env=CLEAN, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed in " in done.stdout.splitlines()[-1]


@pytest.mark.parametrize("program", [*PROGRAMS, TEST], ids=named)
def test_a_program_needs_nothing_but_public_names_and_the_standard_library(program: Path) -> None:
    for node in ast.walk(tree_of(program)):
        if isinstance(node, ast.Import):
            assert {name.name for name in node.names} <= sys.stdlib_module_names
        elif isinstance(node, ast.ImportFrom):
            assert node.module in PUBLIC or str(node.module).partition(".")[0] in sys.stdlib_module_names


def test_a_page_and_the_index_link_to_each_program() -> None:
    for linking in (pages(), [HERE / "README.md"]):
        assert {*PROGRAMS, TEST} - {(page.parent / link).resolve() for page in linking for link in links(page)} == set()


def test_each_link_of_the_index_leads_somewhere() -> None:
    index = HERE / "README.md"
    assert [link for link in links(index) if not (index.parent / link).exists()] == []
