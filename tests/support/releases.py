"""Code of an earlier commit, as a project that the harness runs beside this tree's own.

A folder of `tests/fixtures` is named by its commit, and has the wheel as `pip wheel --no-deps` built it.
"""

import shutil
import zipfile
from pathlib import Path

from tests.support.project import ROOT

FIXTURES = ROOT / "tests" / "fixtures"
EARLIER = "8630147"
"""The newest release, and before the first one a commit on the way to it."""


def unpack_release(commit: str, folder: Path) -> Path:
    """Write the project of a commit to `folder`; answers its template."""
    [wheel] = (FIXTURES / commit).glob("*.whl")
    with zipfile.ZipFile(wheel) as archived:
        archived.extractall(layer_of(folder))
    shutil.copytree(layer_of(folder) / "duecourse_local" / "bundle", folder, dirs_exist_ok=True)
    return folder / "template.yaml"


def layer_of(project: Path) -> Path:
    """The search path of a project's own code."""
    return project / "layers" / "core"
