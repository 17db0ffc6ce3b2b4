"""The bundle: the product's template, its functions, their events, and what their layers are built from."""

import hashlib
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import duecourse

PACKAGED = Path(__file__).parents[1] / "bundle"
REPOSITORY = Path(__file__).parents[3]
PARTS = ("template.yaml", "functions", "layers", "events")
CORE = Path("layers", "core", "duecourse")
"""Place of the library in the bundle; a wheel has the library once, as the installed package."""
MARK = "written-from"
CONSTRAINTS = "constraints.txt"
"""Version of the library, for pip: functions get the one that the bundle has."""
COMPILED = "__pycache__"
BUILT_IN = "WorkingDirectory: !Sub "
"""Folder that a layer is built in: sam reads it from the folder of the outermost template."""


def bundle() -> Path:
    """Folder of the bundle: within the installed package, or the root of the repository in a clone."""
    return PACKAGED if PACKAGED.is_dir() else REPOSITORY


def is_current(folder: Path) -> bool:
    """True if `folder` is a bundle written from what is installed now."""
    mark = folder / MARK
    return mark.is_file() and mark.read_text() == _fingerprint()


def write(root: Path, place: Path) -> None:
    """Write the bundle to the `place` in the project at `root`, instead of an earlier one, and never a part of it."""
    folder = root / place
    folder.parent.mkdir(0o700, parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f"{folder.name}-", dir=folder.parent) as beside:
        made, former = Path(beside, "made"), Path(beside, "former")
        for name, source in _files():
            target = made / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target)
        template = made / "template.yaml"
        template.write_text(template.read_text().replace(BUILT_IN, f"{BUILT_IN}{place}/"))
        (made / CONSTRAINTS).write_text(f"duecourse=={duecourse.__version__}\n")
        (made / MARK).write_text(_fingerprint())
        if folder.exists():
            folder.rename(former)
        made.rename(folder)


def _files() -> Iterator[tuple[Path, Path]]:
    """Each file's name in the bundle, and the file."""
    root, library = bundle(), Path(duecourse.__file__).parent
    for part in PARTS:
        for path in _within(root / part):
            name = path.relative_to(root)
            if not name.is_relative_to(CORE):
                yield name, path
    for path in _within(library):
        yield CORE / path.relative_to(library), path


def _within(path: Path) -> Iterator[Path]:
    found = sorted(path.rglob("*")) if path.is_dir() else [path]
    return (one for one in found if one.is_file() and COMPILED not in one.parts)


def _fingerprint() -> str:
    """The version, and a digest that tells apart what has the same version: builds of a clone."""
    digest = hashlib.sha256()
    for name, path in _files():
        content = path.read_bytes()
        digest.update(f"{name} {len(content)}\n".encode() + content)
    return f"{duecourse.__version__} {digest.hexdigest()}\n"
