"""Code of an earlier release, as a project that the harness runs beside this tree's own.

A folder of `tests/fixtures` is named by its commit: the wheel as `pip wheel --no-deps` built it, and the rest of what
was deployed, as `git archive --format=tar COMMIT functions template.yaml layers/templates | gzip -9n` wrote it.
"""

import tarfile
import zipfile
from pathlib import Path

from tests.support.project import ROOT

FIXTURES = ROOT / "tests" / "fixtures"
FIRST = "743e568"
"""The first release, 0.1.0."""


def unpack_release(commit: str, folder: Path) -> Path:
    """Write the project of a release to `folder`; answers its template."""
    [wheel] = (FIXTURES / commit).glob("*.whl")
    with tarfile.open(FIXTURES / commit / "functions.tar.gz") as archive:
        archive.extraction_filter = getattr(tarfile, "data_filter", None)  # which 3.11.2 lacks
        archive.extractall(folder)  # noqa: S202 - written by us
    with zipfile.ZipFile(wheel) as archived:
        archived.extractall(layer_of(folder))  # noqa: S202 - written by us
    return folder / "template.yaml"


def layer_of(project: Path) -> Path:
    """The search path of a project's own code."""
    return project / "layers" / "core"
