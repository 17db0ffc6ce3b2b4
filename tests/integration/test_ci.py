"""What a newcomer and a gate run first: `make setup` where Python is not as it should be, and `.ci/run`'s last line."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.project import ROOT

MAKE = str(shutil.which("make"))
BASH = "#!/bin/bash\n"
MADE = (
    BASH
    + """
echo "make $*" >> "$CALLS"
for word in "$@"; do case "$word" in ARGS=--junitxml=*) report=${word#ARGS=--junitxml=};; esac; done
case "$1 $2" in
  "-s checks") echo check-format check-api;;
esac
case "$1" in
  test-all) printf '%s' "$REPORT" > "$report"; exit $SUITE;;
  $FAILS) echo "no good" >&2; exit 2;;
esac
"""
)
REPORT = (
    '<?xml version="1.0"?><testsuites name="pytest tests"><testsuite name="pytest" errors="{errors}" '
    'failures="{failures}" skipped="3" tests="40" time="1.0"><testcase name="tests=&quot;9&quot;" /></testsuite>'
)
GOOD = REPORT.format(errors=0, failures=0)


def executable(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


def gate(folder: Path, *, report: str = GOOD, suite: int = 0, fails: str = "-") -> subprocess.CompletedProcess[str]:
    """`.ci/run` in a project whose `make` answers as it is told to."""
    executable(folder / "bin" / "make", MADE)
    (folder / ".ci").mkdir()
    shutil.copy(ROOT / ".ci/run", folder / ".ci")
    told = {"CALLS": str(folder / "calls"), "REPORT": report, "SUITE": str(suite), "FAILS": fails}
    environment = {"PATH": f"{folder / 'bin'}:/usr/bin:/bin", "HOME": str(folder), **told}
    command = [folder / ".ci/run"]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=60)


def calls(folder: Path) -> list[str]:
    return [line.split()[1] for line in (folder / "calls").read_text().splitlines() if "-s" not in line]


def test_the_last_line_counts_the_whole(tmp_path: Path) -> None:
    done = gate(tmp_path)
    assert done.stdout.splitlines()[-1] == "41 passed, 0 failed, 3 skipped", "37 tests, the demo, `test`, two checks"
    assert done.returncode == 0
    assert calls(tmp_path) == ["setup", "demo", "test", "test-all", "check-format", "check-api"]


@pytest.mark.parametrize(
    ("told", "last"),
    [
        ({"fails": "demo"}, "40 passed, 1 failed, 3 skipped"),
        ({"fails": "test"}, "40 passed, 1 failed, 3 skipped"),
        ({"fails": "check-format"}, "40 passed, 1 failed, 3 skipped"),
        ({"report": REPORT.format(errors=1, failures=2), "suite": 1}, "38 passed, 3 failed, 3 skipped"),
        ({"suite": 1}, "41 passed, 1 failed, 3 skipped"),
        ({"report": "", "suite": 4}, "4 passed, 1 failed, 0 skipped"),
    ],
)
def test_whatever_fails_the_rest_is_run_and_the_last_line_counts_it(
    tmp_path: Path, told: dict[str, str | int], last: str
) -> None:
    done = gate(tmp_path, **told)  # type: ignore[arg-type]
    assert done.stdout.splitlines()[-1] == last
    assert done.returncode == 1
    assert calls(tmp_path)[-1] == "check-api"


def test_where_nothing_can_be_set_up_that_is_the_one_failure(tmp_path: Path) -> None:
    done = gate(tmp_path, fails="setup")
    assert done.stdout.splitlines()[-1] == "0 passed, 1 failed, 0 skipped"
    assert calls(tmp_path) == ["setup"]


def test_the_checks_of_the_gate_are_those_of_make_check() -> None:
    said = subprocess.run([MAKE, "-s", "checks"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    planned = subprocess.run([MAKE, "-n", "-B", "check"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert [name.partition("-")[0] for name in said] == ["check"] * len(said)
    for tool in ("ruff format --check", "ruff check", "mypy", "tests.fuzz", "tests.guard"):
        assert tool in planned


def test_only_make_test_leaves_the_matrix_out() -> None:
    planned = {
        target: subprocess.run([MAKE, "-n", target], cwd=ROOT, capture_output=True, text=True, check=True).stdout
        for target in ("test", "test-all")
    }
    assert '-m "not deployed and not matrix"' in planned["test"]
    assert '-m "' not in planned["test-all"]


def setup(folder: Path, **pythons: str) -> subprocess.CompletedProcess[str]:
    """`make setup` in a project of its own, with these as all that PATH has."""
    (folder / "bin").mkdir()
    for name, text in pythons.items():
        executable(folder / "bin" / name.replace("_", "."), BASH + text)
    for name in ("Makefile", "requirements.txt", "pyproject.toml"):
        shutil.copy(ROOT / name, folder)
    environment = {"PATH": str(folder / "bin"), "HOME": str(folder)}
    command = [MAKE, "setup"]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=60)


def test_a_machine_without_a_fitting_python_is_told_what_to_install(tmp_path: Path) -> None:
    done = setup(tmp_path, python3='if test "$1" = --version; then echo "Python 3.9.2"; else exit 1; fi')
    assert done.returncode == 2
    assert "needs Python 3.11 or 3.12, and PATH has neither (Python 3.9.2)" in done.stderr
    assert "BASE_PYTHON=" in done.stderr


def test_a_python_that_cannot_make_a_venv_is_told_what_it_lacks(tmp_path: Path) -> None:
    (tmp_path / "lacks").mkdir()
    (tmp_path / "lacks" / "ensurepip.py").write_text("raise ImportError\n")
    done = setup(tmp_path, python3_11=f'PYTHONPATH={tmp_path / "lacks"} exec {sys.executable} "$@"')
    assert done.returncode == 2
    assert "apt-get install python3-venv" in done.stderr
    assert not (tmp_path / ".venv").exists()


def test_a_shim_of_a_python_that_is_not_there_gives_way_to_the_next(tmp_path: Path) -> None:
    setup(tmp_path, python3_11="exit 127", python3_12='echo "$@" >> "$0.calls"')
    assert "-m venv --clear .venv" in (tmp_path / "bin/python3.12.calls").read_text()
