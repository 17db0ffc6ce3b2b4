"""A function of one's own in a clone changes neither the wheel nor what the suite looks at."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from duecourse_local.project import bundle
from tests.support.commands import run
from tests.support.matrix import LENGTHY
from tests.support.project import PRODUCT, copy_clone
from tests.support.wheel import build, contents, installed, unpacked

pytestmark = LENGTHY

AFFECTED = (
    "tests/local/test_project.py::test_it_runs_the_functions_of_both_templates",
    "tests/local/test_project.py::test_the_schedules_of_a_project_are_in_its_bundle_beside_the_tick",
    "tests/local/test_project.py::test_init_takes_a_folder_with_a_repository_and_a_venv",
    "tests/local/test_harness_environment.py::"
    "test_the_functions_that_drain_hand_reminders_to_their_sender_by_the_template_alone",
    "tests/template/test_variants.py::test_what_each_deployment_gives_its_functions_are_settings_that_pass",
    "tests/repository/test_architecture.py::test_a_function_stands_in_one_file",
)
"""Unit tests that looked at the function and its lines in the template as if the product had them."""


def paths(clone: Path) -> str:
    """The search path of a Python that has the clone's code and no other."""
    return os.pathsep.join(map(str, (clone / "layers/core", clone / "local")))


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the clone as it is."""
    return copy_clone(tmp_path_factory.mktemp("plain") / "clone")


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the clone after `duecourse new report`, with schedules and with another function's compiled code."""
    folder = copy_clone(tmp_path_factory.mktemp("own") / "clone")
    made = run("new", "report", project=folder, PYTHONPATH=paths(folder))
    assert made.returncode == 0, made.stderr
    (folder / "functions/gone/__pycache__").mkdir(parents=True)
    (folder / bundle.APPLIED_FROM).write_text("number: 1\nschedules: []\n")
    shown = run("init", str(folder.parent / "project"), project=folder, PYTHONPATH=paths(folder))
    assert shown.returncode == 0, shown.stderr
    assert (folder / bundle.VIEW / "layers").is_symlink(), "what a build must not walk"
    return folder


@pytest.fixture(scope="module")
def wheel(clone: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("wheel", tmp_path_factory.mktemp("dist"), clone)


def test_the_wheel_is_the_same_before_and_after_a_new_function(plain: Path, wheel: Path, tmp_path: Path) -> None:
    assert contents(wheel) == contents(build("wheel", tmp_path, plain))


def test_the_sdist_has_the_products_functions_alone(clone: Path, tmp_path: Path) -> None:
    source = unpacked(build("sdist", tmp_path / "sdist", clone), tmp_path / "source")
    assert sorted(path.name for path in (source / "functions").iterdir()) == sorted(bundle.functions())
    assert (source / "layers/core/duecourse/client/client.py").is_file()
    assert (source / "template.yaml").read_bytes() == (PRODUCT / "template.yaml").read_bytes()


def test_init_from_such_a_wheel_writes_a_project_with_a_report(wheel: Path, tmp_path: Path) -> None:
    project = tmp_path / "billing"
    done = run("init", str(project), program=(str(installed(wheel, tmp_path / "venv") / "duecourse"),))
    assert done.returncode == 0, done.stderr
    assert (project / "functions/report/app.py").is_file()


def test_the_suite_passes_with_a_function_of_ones_own_in_the_clone(clone: Path) -> None:
    words = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *AFFECTED]
    environment = {**os.environ, "PYTHONPATH": paths(clone)}
    environment.pop("PYTEST_XDIST_WORKER", None)
    done = subprocess.run(words, cwd=clone, env=environment, capture_output=True, text=True, check=False, timeout=500)
    assert done.returncode == 0, done.stdout
    assert "passed" in done.stdout


def templates(clone: Path) -> tuple[Path, Path]:
    """The template that a clone runs, and the one that its demo runs."""
    words = "from duecourse_local.project import bundle, place; print(place.here().template(), bundle.template())"
    done = subprocess.run(
        [sys.executable, "-c", words], cwd=clone, env={**os.environ, "PYTHONPATH": paths(clone)},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    own, product = map(Path, done.stdout.split())
    return own, product


def test_the_clone_runs_the_function_and_the_demo_does_without_it(clone: Path) -> None:
    own, product = templates(clone)
    assert not (product.parent / bundle.APPLIED_FROM).exists()
    assert ["duecourse new" in path.read_text() for path in (own, product)] == [True, False]


def test_the_clone_applies_schedules_of_ones_own_and_the_demo_does_without_them(tmp_path: Path) -> None:
    folder = copy_clone(tmp_path / "clone")
    (folder / bundle.APPLIED_FROM).write_text("number: 1\nschedules: []\n")
    own, product = templates(folder)
    assert [(path.parent / bundle.APPLIED_FROM).exists() for path in (own, product)] == [True, False]
