"""What a function's own requirements.txt lists: installed once, seen by that function alone."""

import asyncio
import json
import sys
import zipfile
from pathlib import Path

import pytest

from duecourse_local.errors import HarnessError
from duecourse_local.harness.environment import with_packages
from duecourse_local.harness.intrinsics import Addresses
from duecourse_local.harness.options import Options
from duecourse_local.harness.stack import Stack
from duecourse_local.harness.template import Function, Template
from tests.support.harness import NOWHERE
from tests.support.matrix import LENGTHY, MATRIX

pytestmark = [LENGTHY, pytest.mark.slow]

TEMPLATE = {
    "Resources": {
        id: {"Type": "AWS::Serverless::Function", "Properties": {"CodeUri": folder, "Handler": "app.handler"}}
        for id, folder in (("Weighs", "weighs"), ("Plain", "plain"))
    }
}
APP = """
def handler(event, context):
    try:
        import scales
    except ImportError as error:
        return str(error)
    return [scales.UNIT, scales.weigh()]
"""


def package(index: Path, name: str, version: str, text: str, *needs: str) -> None:
    """A wheel of one module, in a folder that pip takes for an index."""
    info = f"{name}-{version}.dist-info"
    needed = "".join(f"Requires-Dist: {need}\n" for need in needs)
    with zipfile.ZipFile(index / f"{name}-{version}-py3-none-any.whl", "w") as wheel:
        wheel.writestr(f"{name}.py", text)
        wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needed}")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", f"{name}.py,,\n{info}/METADATA,,\n{info}/WHEEL,,\n{info}/RECORD,,\n")


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """All that pip finds: `scales`, whose work needs `weights`, and of both a second version."""
    found = tmp_path / "index"
    found.mkdir()
    for version in ("1.0", "2.0"):
        late = "def weigh():\n    from weights import HEAVIEST\n    return HEAVIEST\n"
        package(found, "scales", version, f"UNIT = 'kg {version}'\n{late}", "weights", "redis")
        package(found, "weights", version, f"HEAVIEST = {version}\n")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(found))
    return found


@pytest.fixture
def template(tmp_path: Path) -> Path:
    for name in ("weighs", "plain"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "app.py").write_text(APP)
    (tmp_path / "weighs" / "requirements.txt").write_text("scales==1.0\nredis\n")
    path = tmp_path / "template.yaml"
    path.write_text(json.dumps(TEMPLATE))
    return path


def installed(template: Path, said: list[str] | None = None) -> dict[str, Function]:
    functions = Template(template, Addresses("", "", "")).functions
    heard = said if said is not None else []
    found = asyncio.run(with_packages(functions, template.parent / "packages", heard.append))
    return {function.name: function for function in found}


def names(function: Function) -> set[str]:
    assert function.packages
    return {path.name for path in function.packages.iterdir() if path.suffix == ".py"}


@pytest.mark.usefixtures("index")
@pytest.mark.parametrize("store", [None, "memory://"], ids=["processes", "threads"])
def test_a_function_imports_what_it_lists_at_its_start_and_later(
    template: Path, store: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])  # which functions in threads share with this process
    said: list[str] = []
    with Stack(Options(template=template, store=store, aws=NOWHERE, tick=0, progress=said.append)) as stack:
        assert json.loads(stack.invoke("Weighs", {}).payload) == ["kg 1.0", 2.0]
        if store is None:  # threads share a process, and what was imported there
            assert json.loads(stack.invoke("Plain", {}).payload) == "No module named 'scales'"
    listed = f"{template.parent.name}/weighs/requirements.txt"
    assert said == [f"installing for {listed}: scales==1.0, weights==2.0 …"]


def test_only_what_this_python_lacks_is_installed_and_only_once(index: Path, template: Path) -> None:
    said: list[str] = []
    first = installed(template, said)
    assert names(first["Weighs"]) == {"scales.py", "weights.py"}
    assert first["Plain"].packages is None
    for wheel in index.iterdir():
        wheel.unlink()  # nothing can be installed any more
    assert installed(template, said)["Weighs"].packages == first["Weighs"].packages
    assert len(said) == 1


@MATRIX
@pytest.mark.usefixtures("index")
def test_another_list_gets_another_folder(template: Path) -> None:
    before = installed(template)["Weighs"]
    (template.parent / "weighs" / "requirements.txt").write_text("-r requirements-more.txt\n")
    more = template.parent / "weighs" / "requirements-more.txt"
    more.write_text("scales==1.0\n")
    between = installed(template)["Weighs"]
    more.write_text("scales==2.0\n")
    after = installed(template)["Weighs"]
    assert len({before.packages, between.packages, after.packages}) == 3
    assert after.packages
    assert "kg 2.0" in (after.packages / "scales.py").read_text()
    assert before.packages
    assert "kg 1.0" in (before.packages / "scales.py").read_text()


@pytest.mark.usefixtures("index")
def test_what_cannot_be_installed_is_one_line_that_names_the_list_and_leaves_nothing(template: Path) -> None:
    (template.parent / "weighs" / "requirements.txt").write_text("absent-package\n")
    with pytest.raises(HarnessError) as failed:
        installed(template)
    [line] = str(failed.value).splitlines()
    assert "weighs/requirements.txt cannot be installed: No matching distribution found for absent-package" in line
    assert list((template.parent / "packages").iterdir()) == []


def test_a_list_that_is_there_already_asks_no_index(template: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    (template.parent / "weighs" / "requirements.txt").write_text("redis\nduecourse\n")
    assert names(installed(template)["Weighs"]) == set()
