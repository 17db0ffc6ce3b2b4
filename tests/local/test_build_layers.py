"""The layers as their Makefiles build them, for each architecture."""

import platform
import re
import shutil
import struct
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from duecourse.ledger import script_calls
from duecourse_local.cli.build import LAYER_MB
from tests.support.matrix import LENGTHY, MATRIX, in_turn
from tests.support.project import ROOT

MACHINES = {"arm64": 183, "x86_64": 62}
"""An architecture's number in the ELF header (e_machine)."""
OLDEST_GLIBC = 26
"""The minor version of the glibc that Lambda's python3.11 runs on."""
PYTHON = sys.executable if sys.version_info[:2] == (3, 11) else shutil.which("python3.11")

CALLS = """
from duecourse.guard.http_client import GuardedHttpClient
from duecourse.guard.http_types import HttpRequest
GuardedHttpClient(1).call(HttpRequest("GET", "http://bücher.invalid/", {}, None, 2_000, 1))
"""
WRITES = """
import zoneinfo; zoneinfo.reset_tzpath([])
from duecourse.app import PROCESS
from duecourse.reminders.send import Letter
to = {"name": "Ada", "channel": "phone", "address": "+43", "time_zone": "Europe/Vienna"}
payload = {"reminder": "a", "subject": "s", "message": "{{ starts_at }}", "html": "", "data": {}, "recipient": to}
print(PROCESS.app().write([Letter({**payload, "lead_ms": 1000}, 1774747800000)])[0].text)
"""

pytestmark = [
    pytest.mark.skipif(PYTHON is None, reason="the layer is compiled by python3.11, and there is none"),
    LENGTHY,
    pytest.mark.slow,
]


def make(*words: str, where: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["make", *words, f"PYTHON={PYTHON}"], cwd=where, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module", params=in_turn(*MACHINES))
def architecture(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def built(layer: str, architecture: str, artifacts: Path) -> Path:
    """A layer's `python` folder, made the way sam makes it: in the architecture's own folder."""
    where = ROOT / "layers/platforms" / architecture
    words = ("--makefile", f"../../{layer}/Makefile", f"build-{layer.title()}Layer", f"ARTIFACTS_DIR={artifacts}")
    made = make(*words, where=where)
    assert made.returncode == 0, made.stderr
    return artifacts / "python"


@pytest.fixture(scope="module")
def layer(architecture: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The core layer, built."""
    return built("core", architecture, tmp_path_factory.mktemp(architecture))


@pytest.fixture(scope="module")
def templates(architecture: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The layer for templates, built."""
    return built("templates", architecture, tmp_path_factory.mktemp(f"templates-{architecture}"))


def test_the_layer_for_templates_is_for_its_architecture_and_holds_nothing_else(
    templates: Path, architecture: str
) -> None:
    assert {path.name for path in templates.iterdir() if "-" not in path.name} == {
        "jinja2",
        "markupsafe",
        "phonenumbers",
    }
    [speedup] = templates.rglob("*.so")
    (machine,) = struct.unpack_from("<H", speedup.read_bytes(), 18)
    assert machine == MACHINES[architecture]
    assert all(int(minor) <= OLDEST_GLIBC for minor in re.findall(rb"GLIBC_2\.(\d+)", speedup.read_bytes()))
    assert sum(path.stat().st_size for path in templates.rglob("*") if path.is_file()) < 5_000_000


@pytest.fixture(scope="module")
def seals(architecture: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The layer for seals, built."""
    return built("seals", architecture, tmp_path_factory.mktemp(f"seals-{architecture}"))


def test_the_layer_for_seals_is_for_its_architecture_and_holds_nothing_else(seals: Path, architecture: str) -> None:
    modules = {path.name.partition(".")[0] for path in seals.iterdir() if "-" not in path.name.partition(".")[0]}
    assert modules - {"cffi", "cryptography", "pycparser", "_cffi_backend"} == set(), sorted(modules)
    for library in seals.rglob("*.so"):
        (machine,) = struct.unpack_from("<H", library.read_bytes(), 18)
        assert machine == MACHINES[architecture], library
        assert all(int(minor) <= OLDEST_GLIBC for minor in re.findall(rb"GLIBC_2\.(\d+)", library.read_bytes()))
    assert sum(path.stat().st_size for path in seals.rglob("*") if path.is_file()) < 30_000_000


@MATRIX
def test_the_layer_for_seals_seals_and_the_core_alone_says_what_is_missing(
    layer: Path, seals: Path, architecture: str
) -> None:
    if platform.machine() != architecture or sys.platform != "linux":
        pytest.skip("built for another machine than this one")
    code = (
        "import sys; sys.path[:0] = sys.argv[1:]; from duecourse import app as outside; "
        "cipher = outside._aes_gcm(bytes(32)); print(cipher.decrypt(cipher.encrypt(b'a', b'b'), b'b'))"
    )
    words = [str(PYTHON), "-I", "-S", "-W", "ignore", "-c", code, str(layer)]
    done = subprocess.run([*words, str(seals)], capture_output=True, text=True, check=True)
    assert done.stdout == "b'a'\n"
    alone = subprocess.run(words, capture_output=True, text=True, check=False)
    assert "SealUnavailable: sealing credentials needs cryptography" in alone.stderr


def test_both_layers_write_a_reminder_and_the_core_alone_says_what_is_missing(
    layer: Path, templates: Path, architecture: str
) -> None:
    if platform.machine() != architecture or sys.platform != "linux":
        pytest.skip("built for another machine than this one")
    code = f"import sys; sys.path[:0] = sys.argv[1:]; {WRITES}"
    words = [str(PYTHON), "-I", "-S", "-W", "ignore", "-c", code, str(layer)]
    done = subprocess.run([*words, str(templates)], capture_output=True, text=True, check=True)
    assert done.stdout == "Sunday, 29 March 2026 at 03:30 CEST\n"
    alone = subprocess.run(words, capture_output=True, text=True, check=False)
    assert "TemplatesMissing: Reminders need Jinja2 and phonenumbers" in alone.stderr


def test_every_shared_object_is_for_the_architecture_that_was_asked_for(layer: Path, architecture: str) -> None:
    objects = list(layer.rglob("*.so"))
    assert {path.parent.name for path in objects} >= {"hiredis", "pydantic_core"}
    for path in objects:
        (machine,) = struct.unpack_from("<H", path.read_bytes(), 18)
        assert machine == MACHINES[architecture], path


def test_no_shared_object_wants_a_newer_glibc_than_the_runtime_has(layer: Path) -> None:
    for path in layer.rglob("*.so"):
        wanted = [int(minor) for minor in re.findall(rb"GLIBC_2\.(\d+)", path.read_bytes())]
        assert max(wanted) <= OLDEST_GLIBC, path


def test_every_module_has_bytecode_that_is_taken_without_a_look_at_its_source(layer: Path) -> None:
    sources = list(layer.rglob("*.py"))
    assert len(sources) > 100
    own = {path.parent / "__pycache__" / f"{path.stem}.cpython-311.pyc" for path in sources}
    compiled = {*layer.rglob("*.pyc")}
    assert own <= compiled
    for path in compiled:
        (flags,) = struct.unpack_from("<I", path.read_bytes(), 4)
        assert flags == 0b01, path


def test_the_wheels_are_there_as_bytecode_alone(layer: Path) -> None:
    assert {path.relative_to(layer).parts[0] for path in layer.rglob("*.py")} == {"duecourse"}
    assert {"redis", "pydantic"} <= {path.parent.name for path in layer.glob("*/__init__.pyc")}


def test_the_layer_has_the_package_without_what_no_function_runs(layer: Path) -> None:
    package, built = ROOT / "layers/core/duecourse", layer / "duecourse"
    for source in [*package.rglob("*.py"), *package.rglob("*.lua")]:
        left_out = source.relative_to(package).parts[0] in {"testing", "page"}
        if not left_out and not source.is_relative_to(script_calls.LUA):
            assert (built / source.relative_to(package)).read_bytes() == source.read_bytes()
    assert not (built / "testing").exists()
    assert not (built / "page").exists()
    assert {path.suffixes[-2] for path in built.rglob("*.pyc")} == {".cpython-311"}
    assert not (layer / "bin").exists()


def test_the_layer_has_each_script_linked_and_neither_sources_nor_linker(layer: Path, tmp_path: Path) -> None:
    redis = layer / "duecourse/ledger"
    assert {path.stem: path.read_text() for path in (redis / "linked").glob("*.lua")} == {
        verb: script_calls.script_text(verb) for verb in script_calls.verbs()
    }
    assert not (redis / "lua").exists()
    assert not (layer / "lua_linker.py").exists()
    (tmp_path / "duecourse").symlink_to(layer / "duecourse")  # without the layer's packages of another architecture
    code = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r}); from duecourse.ledger import script_calls as texts; "
        "print(len(texts.verbs()), texts.script_text('add') == (texts.LINKED / 'add.lua').read_text())"
    )
    done = subprocess.run([str(PYTHON), "-I", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == f"{len(script_calls.verbs())} True\n"


def test_the_layer_is_within_its_bound(layer: Path) -> None:
    assert sum(path.stat().st_size for path in layer.rglob("*") if path.is_file()) < LAYER_MB * 1_000_000


def test_the_layer_needs_nothing_but_itself(layer: Path, architecture: str) -> None:
    if platform.machine() != architecture or sys.platform != "linux":
        pytest.skip("built for another machine than this one")
    names = "redis.connection, hiredis, pydantic, jmespath, urllib3, aws_lambda_powertools.event_handler, duecourse"
    code = f"import sys; sys.path.insert(0, {str(layer)!r}); import {names}"
    subprocess.run([str(PYTHON), "-I", "-S", "-W", "ignore", "-c", code], check=True)


def test_the_layer_calls_hosts_whose_names_are_not_ascii(layer: Path, architecture: str) -> None:
    if platform.machine() != architecture or sys.platform != "linux":
        pytest.skip("built for another machine than this one")
    words = [str(PYTHON), "-I", "-S", "-c", f"import sys; sys.path.insert(0, {str(layer)!r}); {CALLS}"]
    failed = subprocess.run(words, capture_output=True, text=True, check=False)
    assert "CallFailed: GET http://bücher.invalid/ failed: the host name is not known" in failed.stderr


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["ARTIFACTS_DIR="], "ARTIFACTS_DIR is not set"),
        (["ARTIFACTS_DIR=out", "ARCH=riscv"], "ARCH is arm64 or x86_64, not riscv"),
    ],
)
def test_a_build_without_its_folder_or_architecture_says_so(words: list[str], complaint: str) -> None:
    refused = make("build-CoreLayer", *words, where=ROOT / "layers/core")
    assert refused.returncode != 0
    assert complaint in refused.stderr


def pins_of(layer: str) -> list[str]:
    return without_hashes(ROOT / f"layers/{layer}/requirements.txt")


def without_hashes(requirements: Path) -> list[str]:
    lines = requirements.read_text().splitlines()
    return [line.removesuffix(" \\") for line in lines if not line.startswith(" ")]


@pytest.mark.parametrize("name", ["core", "templates", "seals"])
def test_a_layer_holds_the_same_whatever_patch_release_of_python_builds_it(name: str) -> None:
    # pip asks the Python that it runs on: a pin for older ones alone is left out there, and missing where they run.
    assert [pin for pin in pins_of(name) if ";" in pin] == []


def test_the_layer_starts_on_the_first_python_of_its_minor_version(layer: Path) -> None:
    assert (layer / "async_timeout").is_dir(), "redis-py imports it below Python 3.11.3"


@pytest.mark.parametrize("name", ["core", "templates", "seals"])
def test_a_layer_pins_what_the_rest_is_tested_with(name: str) -> None:
    pins = pins_of(name)
    everything = set(without_hashes(ROOT / "requirements/dev.txt"))
    assert set(pins) <= everything
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    needed = project["dependencies"] if name == "core" else project["optional-dependencies"][name]
    assert {re.split(r"[>\[]", wanted)[0] for wanted in needed} <= {re.split(r"[=\[]", pin)[0] for pin in pins}
