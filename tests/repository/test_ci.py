"""What a newcomer and a gate run first: `make setup` where Python is not as it should be, and `.ci/run`'s last line."""

import os
import pty
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.support.project import ROOT
from tests.support.wait import until

pytestmark = pytest.mark.slow

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
  $HANGS) sleep 60 & echo $! > "$HOME/pid"; wait;;
  test) printf '%s' "$GOOD" > "$report"; exit 0;;
  test-matrix) printf '%s' "$REPORT" > "$report"; exit $SUITE;;
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


def started(
    folder: Path, *, report: str = GOOD, suite: int = 0, fails: str = "-", hangs: str = "-", bound: str = "60s"
) -> subprocess.Popen[str]:
    """`.ci/run` in a project whose `make` answers as it is told to."""
    executable(folder / "bin" / "make", MADE)
    (folder / ".ci").mkdir()
    shutil.copy(ROOT / ".ci/run", folder / ".ci")
    told = {"CALLS": str(folder / "calls"), "GOOD": GOOD, "REPORT": report, "SUITE": str(suite)}
    environment = {"PATH": f"{folder / 'bin'}:/usr/bin:/bin", "HOME": str(folder), "STEP_BOUND": bound, **told}
    environment |= {"FAILS": fails, "HANGS": hangs}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen([folder / ".ci/run"], env=environment, **pipes)  # type: ignore[call-overload, no-any-return]


def gate(folder: Path, **told: Any) -> subprocess.CompletedProcess[str]:
    """What that has said at its end."""
    with started(folder, **told) as running:
        out, err = running.communicate(timeout=60)
    return subprocess.CompletedProcess([], running.returncode, out, err)


def calls(folder: Path) -> list[str]:
    return [line.split()[1] for line in (folder / "calls").read_text().splitlines() if "-s" not in line]


def test_the_last_line_counts_the_whole(tmp_path: Path) -> None:
    done = gate(tmp_path)
    assert done.stdout.splitlines()[-1] == "77 passed, 0 failed, 6 skipped", (
        "37 tests of each suite, the demo, two checks"
    )
    assert done.returncode == 0
    assert calls(tmp_path) == ["setup", "setup-browser", "demo", "test", "test-matrix", "check-format", "check-api"]


@pytest.mark.parametrize(
    ("told", "last"),
    [
        ({"fails": "demo"}, "76 passed, 1 failed, 6 skipped"),
        ({"fails": "check-format"}, "76 passed, 1 failed, 6 skipped"),
        ({"report": REPORT.format(errors=1, failures=2), "suite": 1}, "74 passed, 3 failed, 6 skipped"),
        ({"suite": 1}, "77 passed, 1 failed, 6 skipped"),
        ({"report": "", "suite": 4}, "40 passed, 1 failed, 3 skipped"),
    ],
)
def test_whatever_fails_the_rest_is_run_and_the_last_line_counts_it(
    tmp_path: Path, told: dict[str, Any], last: str
) -> None:
    done = gate(tmp_path, **told)
    assert done.stdout.splitlines()[-1] == last
    assert done.returncode == 1
    assert calls(tmp_path)[-1] == "check-api"


def gone(folder: Path) -> bool:
    """Whether what hung has ended too; who has it as a child may not have asked for its status."""
    try:
        return psutil.Process(int((folder / "pid").read_text())).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


@pytest.mark.parametrize(
    ("hangs", "last"),
    [("demo", "76 passed, 1 failed, 6 skipped"), ("test-matrix", "40 passed, 1 failed, 3 skipped")],
)
def test_a_step_that_hangs_is_ended_and_counts_as_failed_and_the_rest_is_run(
    tmp_path: Path, hangs: str, last: str
) -> None:
    done = gate(tmp_path, hangs=hangs, bound="1s")
    assert done.stdout.splitlines()[-1] == last
    assert f"make {hangs}: not done in 1s, and ended" in done.stderr
    assert done.returncode == 1
    assert calls(tmp_path)[-1] == "check-api"
    until(lambda: gone(tmp_path))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_one_that_is_stopped_ends_its_step_and_says_what_it_has(tmp_path: Path, number: signal.Signals) -> None:
    with started(tmp_path, hangs="test-matrix") as running:
        until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text())
        running.send_signal(number)
        out, _ = running.communicate(timeout=30)
    assert out.splitlines()[-1] == "38 passed, 1 failed, 3 skipped"
    assert calls(tmp_path)[-1] == "test-matrix"
    until(lambda: gone(tmp_path))


HANGING = """
import threading

def test_hangs():
    thread = threading.Thread(target=threading.Event().wait, daemon=True)
    thread.start()
    thread.join()

def test_after_it():
    pass
"""


def test_a_test_that_hangs_beside_threads_is_one_failure_and_the_next_one_runs(tmp_path: Path) -> None:
    (tmp_path / "test_hanging.py").write_text(HANGING)
    words = [
        "--config-file",
        ROOT / "pyproject.toml",
        "-o",
        "timeout=1",
        "--numprocesses",
        "1",
        "-p",
        "no:cacheprovider",
    ]
    command = [sys.executable, "-m", "pytest", *words, tmp_path / "test_hanging.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60)
    assert "1 failed, 1 passed" in done.stdout
    assert "Timeout (>1.0s) from pytest-timeout" in done.stdout


PIP = """
import pathlib, sys, time

print("Collecting one\\nCollecting two\\n  Downloading two.whl")
while not pathlib.Path("go").exists():
    time.sleep(0.01)
sys.exit("ERROR: no such version" if "wrong" in sys.argv else 0)
"""


@contextmanager
def installing(folder: Path, *words: str) -> Iterator[tuple["subprocess.Popen[bytes]", int]]:
    """`.ci/install.py` on a terminal, with a pip that waits for a file; and the terminal's other end."""
    (folder / "pip").mkdir()
    (folder / "pip/__init__.py").touch()
    (folder / "pip/__main__.py").write_text(PIP)
    (folder / "pins").write_text("one==1 \\\n    --hash=x\ntwo==2\nthree==3\n")
    ours, its = pty.openpty()
    words = (sys.executable, str(ROOT / ".ci/install.py"), "setup", "-r", "pins", *words)
    environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(folder)}
    try:
        with subprocess.Popen(words, cwd=folder, env=environment, stdout=its, stderr=subprocess.PIPE) as process:
            os.close(its)
            yield process, ours
    finally:
        os.close(ours)


def read_until(terminal: int, text: str) -> None:
    """Read what is shown until the text is in it; the test's own time limit ends the wait."""
    shown = ""
    while text not in shown:
        shown += os.read(terminal, 1024).decode()


def test_an_installation_shows_how_far_it_is(tmp_path: Path) -> None:
    with installing(tmp_path) as (process, terminal):
        read_until(terminal, "2 of 3 packages downloaded")
        (tmp_path / "go").touch()
        read_until(terminal, "setup: 0 packages in")
        assert process.wait(60) == 0


def test_a_failed_installation_shows_all_that_pip_printed(tmp_path: Path) -> None:
    (tmp_path / "go").touch()
    with installing(tmp_path, "wrong") as (process, _):
        _, err = process.communicate(timeout=60)
        assert (process.returncode, b"Collecting one\n" in err, b"no such version" in err) == (1, True, True)


def test_where_nothing_can_be_set_up_that_is_the_one_failure(tmp_path: Path) -> None:
    done = gate(tmp_path, fails="setup")
    assert done.stdout.splitlines()[-1] == "0 passed, 1 failed, 0 skipped"
    assert calls(tmp_path) == ["setup"]


def test_the_checks_of_the_gate_are_those_of_make_check() -> None:
    said = subprocess.run([MAKE, "-s", "checks"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    planned = subprocess.run([MAKE, "-n", "-B", "check"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert [name.partition("-")[0] for name in said] == ["check"] * len(said)
    for tool in ("ruff format --check", "ruff check", "mypy", "tests.fuzz", "tests.template_rules"):
        assert tool in planned


def test_each_test_is_in_one_of_the_suites() -> None:
    planned = {
        target: subprocess.run([MAKE, "-n", target], cwd=ROOT, capture_output=True, text=True, check=True).stdout
        for target in ("test", "test-matrix")
    }
    assert '-m "not deployed and not matrix"' in planned["test"]
    assert '-m "not deployed and matrix"' in planned["test-matrix"]


@pytest.mark.parametrize("fails", ["-", "not deployed and not matrix", "not deployed and matrix"])
def test_all_is_both_suites_whichever_fails(tmp_path: Path, fails: str) -> None:
    shutil.copy(ROOT / "Makefile", tmp_path)
    for name in ("requirements/dev.txt", "pyproject.toml", ".venv/.ready"):
        executable(tmp_path / name, "")
    executable(tmp_path / "python", BASH + 'echo "$@" >> "$0.calls"; case "$*" in *"-m $FAILS"*) exit 1;; esac')
    words = [MAKE, "test-all", f"PY={tmp_path / 'python'}", "ARGS=-x"]
    environment = {"PATH": "/usr/bin:/bin", "FAILS": fails}
    done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=60)
    ran = (tmp_path / "python.calls").read_text().splitlines()
    assert [line.partition(" -m not deployed and ")[2] for line in ran] == ["not matrix -x", "matrix -x"]
    assert (done.returncode == 0) == (fails == "-")


def setup(folder: Path, **pythons: str) -> subprocess.CompletedProcess[str]:
    """`make setup` in a project of its own, with these as all that PATH has."""
    (folder / "bin").mkdir()
    for name, text in pythons.items():
        executable(folder / "bin" / name.replace("_", "."), BASH + text)
    (folder / "requirements").mkdir()
    for name in ("Makefile", "requirements/dev.txt", "pyproject.toml"):
        shutil.copy(ROOT / name, folder / name)
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
