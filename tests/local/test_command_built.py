"""Measurements of `duecourse built`, and its warnings: on a small build of the test's own."""

import json
import os
import platform
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import typer

from duecourse_local.cli import build as built
from tests.support.project import ROOT

pytestmark = pytest.mark.slow

HERE = built.MACHINES[platform.machine()]


@pytest.fixture
def build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A built template of one function and its layer, which `built` looks at."""
    function = {"CodeUri": "One", "Handler": "app.handler", "Runtime": "python3.11", "Layers": [{"Ref": "Shared"}]}
    resources = {
        "One": {"Type": "AWS::Serverless::Function", "Properties": function},
        "Shared": {"Type": "AWS::Serverless::LayerVersion", "Properties": {"ContentUri": "Shared"}},
    }
    build = tmp_path / ".aws-sam/build"
    (build / "One").mkdir(parents=True)
    (build / "Shared/python").mkdir(parents=True)
    (build / "One/app.py").write_text("import shared\n")
    (build / "Shared/python/shared.py").write_text("")
    (build / "template.yaml").write_text(json.dumps({"Resources": resources}))
    project = SimpleNamespace(template=lambda: tmp_path / "template.yaml", bundle=None)
    monkeypatch.setattr(built, "here", lambda: project)
    return build


def code(capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """The exit code of the command, and what it complained of."""
    ended = 0
    try:
        built.built(HERE, sys.executable)
    except typer.Exit as error:
        ended = error.exit_code
    return ended, capsys.readouterr().err


def test_a_build_within_its_bounds_passes(build: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert build.exists()
    assert code(capsys) == (0, "")


def test_a_layer_that_is_too_large_is_warned_of(build: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (build / "Shared/python/large").write_bytes(b"\0" * 30_000_001)
    ended, complaint = code(capsys)
    assert ended == 0, "a deployment goes on"
    assert "warning: layer Shared, unzipped is over its bound: 30.0 of 30 MB" in complaint


@pytest.mark.parametrize(("starts", "warned"), [(4, False), (60, True)])
def test_a_cold_import_is_measured_in_starts_of_the_interpreter(
    build: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, starts: int, warned: bool
) -> None:
    monkeypatch.setattr(built, "ROUNDS", 2)
    busy = f"import time\nstart = time.process_time()\nwhile time.process_time() < {1 + starts} * start:\n    pass"
    (build / "Shared/python/shared.py").write_text(busy)
    ended, complaint = code(capsys)
    assert ended == 0, "a deployment goes on"
    assert ("warning: cold import of One" in complaint) == warned
    assert f"of {built.STARTS:g} starts" in complaint or not warned


def test_a_function_that_cannot_be_imported_is_told(build: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (build / "One/app.py").write_text("import nowhere")
    ended, complaint = code(capsys)
    assert ended == 2
    assert "One cannot be imported" in complaint


def test_nothing_built_is_told(build: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (build / "template.yaml").unlink()
    assert code(capsys)[0] == 2


@pytest.mark.parametrize(("words", "environment"), [(["ARCH=x86_64"], {}), ([], {"ARCH": "x86_64"})])
def test_make_sam_takes_its_architecture_as_a_word_and_from_the_environment(
    words: list[str], environment: dict[str, str]
) -> None:
    told = {name: value for name, value in os.environ.items() if name != "ARCH"} | environment
    made = subprocess.run(
        ["make", "--dry-run", "sam", *words], cwd=ROOT, env=told, capture_output=True, text=True, check=True
    )
    assert "Architecture=x86_64" in made.stdout
    assert "--architecture x86_64" in made.stdout
