"""The bridge's image and unit: what its Containerfile builds, built in a folder, starts; systemd takes the unit."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from duecourse.settings import variables
from tests.support.matrix import LENGTHY, MATRIX
from tests.support.project import ROOT
from tests.support.redis_server import FLOOR, RedisServer, need

pytestmark = [LENGTHY, pytest.mark.slow]

HERE = ROOT / "layers/core/duecourse/bridge"
CONTAINERFILE = (HERE / "Containerfile").read_text()
UNIT = (HERE / "duecourse-bridge.service").read_text()
INSIDE = "/opt/duecourse"
"""Where both have the bridge's Python and code."""
PYTHON = sys.executable if sys.version_info[:2] == (3, 11) else shutil.which("python3.11")


def lines() -> list[tuple[str, str]]:
    """Instruction and arguments, continued lines joined."""
    joined = re.sub(r"\\\n", " ", CONTAINERFILE)
    return [(line.split(" ", 1)[0], line.split(" ", 1)[1]) for line in joined.splitlines() if re.match("[A-Z]", line)]


def build(folder: Path) -> Path:
    """Do in `folder` what the first stage does; answers what stands for INSIDE."""
    inside, work = folder / "opt", folder / "build"
    work.mkdir()
    stage = [line for line in lines()[: [word for word, _ in lines()].index("FROM", 1)] if line[0] in ("COPY", "RUN")]
    for word, text in stage:
        given = text.replace(INSIDE, str(inside)).replace("python -m venv", f"{PYTHON} -m venv")
        if word == "RUN":
            subprocess.run(["sh", "-ec", given], cwd=work, check=True, capture_output=True)
            continue
        source, target = given.split()
        copy = shutil.copytree if (ROOT / source).is_dir() else shutil.copy
        copy(ROOT / source, work / target)
    return inside


def test_all_that_is_copied_into_the_image_is_there() -> None:
    sources = [text.split()[0] for word, text in lines() if word == "COPY" and not text.startswith("--from")]
    assert len(sources) == 2
    assert all((ROOT / source).exists() for source in sources)


def test_the_image_runs_as_nobody_and_its_python_is_the_functions() -> None:
    assert ("USER", "65534:65534") in lines()
    assert {text.split()[0] for word, text in lines() if word == "FROM"} == {
        "docker.io/library/python:3.11-slim-bookworm"
    }
    assert "Runtime: python3.11" in (ROOT / "template.yaml").read_text()


@MATRIX
@pytest.mark.skipif(PYTHON is None, reason="the image has Python 3.11, and there is none here")
def test_what_the_image_holds_is_a_bridge_that_gets_ready(tmp_path: Path) -> None:
    inside = build(tmp_path)
    (_, entry) = next(line for line in lines() if line[0] == "ENTRYPOINT")
    command = shlex.split(entry.strip("[]").replace(",", " ").replace(INSIDE, str(inside)))
    with RedisServer(need(FLOOR)) as server:
        environment = {
            "DUECOURSE_STORE": server.url,
            "AWS_DEFAULT_REGION": "eu-central-1",
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
        }
        with subprocess.Popen(command, cwd="/", env=environment, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout
            ready = process.stdout.readline()
            process.terminate()
            process.communicate(timeout=30)
    assert ready.startswith("bridge ready")
    assert process.returncode == 0


def test_the_units_settings_are_settings() -> None:
    known = {one.name for one in variables()}
    named = set(re.findall(r"DUECOURSE_[A-Z_]+", UNIT))
    assert named
    assert named <= known
    assert f"ExecStart={INSIDE}/bin/python -m duecourse.bridge" in UNIT


def test_the_unit_is_started_again_however_often_it_fails() -> None:
    before_service = UNIT.partition("[Service]")[0]
    assert "\nStartLimitIntervalSec=0\n" in before_service, "else systemd gives up at the fifth failure in ten seconds"
    assert "\nRestart=always\n" in UNIT


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd here")
def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    unit = tmp_path / "duecourse-bridge.service"
    unit.write_text(UNIT.replace(f"{INSIDE}/bin/python", os.path.realpath(sys.executable)))
    said = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True, check=False)
    assert said.returncode == 0
    assert unit.name not in said.stderr
