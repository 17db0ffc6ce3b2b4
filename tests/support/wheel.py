"""The wheel and the sdist, built from this tree, and a Python that has the wheel and not this tree."""

import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from pathlib import Path

from tests.support.project import ROOT


def build(target: str, into: Path, source: Path = ROOT) -> Path:
    """Build the wheel or the sdist of `source`; answers the one file."""
    words = [sys.executable, "-m", "hatchling", "build", "--target", target, "--directory", str(into)]
    subprocess.run(words, cwd=source, check=True, capture_output=True, text=True)
    [made] = into.glob({"wheel": "*.whl", "sdist": "*.tar.gz"}[target])
    return made


def contents(wheel: Path) -> dict[str, bytes]:
    """Each file of a wheel, by its name."""
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def unpacked(sdist: Path, into: Path) -> Path:
    """The one folder of an sdist."""
    with tarfile.open(sdist) as archive:
        archive.extraction_filter = getattr(tarfile, "data_filter", None)  # which 3.11.2 lacks
        archive.extractall(into)  # noqa: S202 - made by us
    [folder] = into.iterdir()
    return folder


def installed(wheel: Path, folder: Path) -> Path:
    """The folder of commands of a venv with the wheel; what the wheel needs is found where this Python has it.

    The line for the search path adds this Python's packages and not what their own `.pth` files name, this tree.
    """
    venv.create(folder, with_pip=False, symlinks=True)
    words = [sys.executable, "-m", "pip", "--python", str(folder), "install", "--quiet", "--no-deps", "--no-index"]
    subprocess.run([*words, str(wheel)], check=True, capture_output=True, text=True)
    [packages] = folder.glob("lib/python3.*/site-packages")
    (packages / "needs.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return folder / "bin"
