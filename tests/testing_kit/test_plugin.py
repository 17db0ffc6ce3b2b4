"""The test kit's pytest plugin: known to pytest by itself, light where nobody uses it, ready where somebody does."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.support.project import ROOT

pytestmark = pytest.mark.slow

UNUSED = """
import sys
import pytest
{load}
print(*sorted(sys.modules))
"""
USED = """
import pytest

from duecourse import Done, task_handler

pytest_plugins = ("duecourse.testing.plugin",)  # which the installed plugin is, too


@task_handler
def handler(task):
    return Done(task.payload)


@pytest.mark.duecourse(start="2030-01-01T00:00:00Z")
def test_it_runs(duecourse):
    duecourse.handle("report", handler)
    task = duecourse.add(kind="report", payload={"n": 1}, delay="P1D")
    assert duecourse.advance("2030-01-02T00:00:00Z") == 1
    assert duecourse.client.get(task.id).result == {"n": 1}


def test_every_test_has_its_own(duecourse):
    assert duecourse.tasks() == []
"""


def python(*words: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *words], cwd=cwd, capture_output=True, text=True, check=False)


def loaded(load: str) -> set[str]:
    """Modules of a process that has pytest, and then does this."""
    done = python("-c", UNUSED.format(load=load))
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


def test_pytest_finds_it_by_its_entry_point() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    name = "duecourse.testing.plugin"
    assert project["entry-points"]["pytest11"] == {name: name}  # of one name, for a project that lists it as well


def test_where_nobody_uses_it_it_loads_nothing_of_the_product() -> None:
    more = loaded("import duecourse.testing.plugin") - loaded("")
    values = {name for name in more if name.startswith(("duecourse.base", "duecourse.ledger"))}
    rest = {name for name in more - values if name.startswith("duecourse")}
    assert rest == {"duecourse", "duecourse.errors", "duecourse.testing", "duecourse.testing.plugin"}
    assert {"pydantic", "redis", "lupa", "boto3", "jinja2", "urllib3"}.isdisjoint(more)


def test_a_project_with_strict_options_uses_it_without_a_word_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "test_own.py").write_text(USED)
    (tmp_path / "pyproject.toml").write_text('[tool.pytest.ini_options]\nfilterwarnings = ["error"]\n')
    options = ("--strict-markers", "--strict-config", "-p", "duecourse.testing.plugin", "-p", "no:schemathesis")
    done = python("-m", "pytest", "-q", *options, "test_own.py", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout
