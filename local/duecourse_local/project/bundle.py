"""The bundle: the product's template, its functions, their events, and what their layers are built from."""

import hashlib
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import duecourse

from .template_marks import functions_of, without_own

PACKAGED = Path(__file__).parents[1] / "bundle"
REPOSITORY = Path(__file__).parents[3]
FOLDER = ".duecourse"
"""Folder of a project that git ignores: the bundle, and the state of the stack."""
VIEW = Path(FOLDER, "product")
CODE = "app.py"
"""The one file of each of the product's functions."""
CORE = Path("layers", "core", "duecourse")
"""Place of the library in the bundle; a wheel has the library once, as the installed package."""
MARK = "written-from"
CONSTRAINTS = "constraints.txt"
"""Version of the library, for pip: functions get the one that the bundle has."""
COMPILED = "__pycache__"
SCHEDULES = "schedules.yaml"
"""File of a project's root that the tick applies; in a clone it is beside the tick's own code."""
APPLIED_FROM = Path("functions", "poll_tick", SCHEDULES)
BUILT_IN = "WorkingDirectory: !Sub "
"""Folder that a layer is built in: sam reads it from the folder of the outermost template."""


def clone() -> Path | None:
    """Root of the repository in a clone; None for an installed package."""
    return None if PACKAGED.is_dir() else REPOSITORY


def bundle() -> Path:
    """Folder of the bundle: in the installed package, or a clone without functions and schedules of the user's own."""
    root = clone()
    if root is None:
        return PACKAGED
    text = (root / "template.yaml").read_text()
    product = without_own(text)
    is_plain = product == text and not (root / APPLIED_FROM).exists()
    return root if is_plain else _view(root, product)


def template() -> Path:
    """The product's own template."""
    return bundle() / "template.yaml"


def functions() -> list[str]:
    """Names of the product's functions."""
    return functions_of(template().read_text())


def _view(root: Path, text: str) -> Path:
    """A folder with the product's template, and links to all that it names: two processes may make it at once."""
    view = root / VIEW
    view.parent.mkdir(0o700, exist_ok=True)
    for part in ("layers", "events", *(f"functions/{name}/{CODE}" for name in functions_of(text))):
        (view / part).parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileExistsError):
            (view / part).symlink_to(root / part)
    written = view / f"template.{secrets.token_hex(4)}"
    written.write_text(text)
    written.replace(view / "template.yaml")
    return view


def is_current(root: Path, place: Path) -> bool:
    """True if the bundle at the `place` in the project at `root` is of what is installed, and of its schedules."""
    mark = root / place / MARK
    return mark.is_file() and mark.read_text() == _fingerprint(root)


def write(root: Path, place: Path) -> None:
    """Write the bundle to the `place` in the project at `root`, instead of an earlier one, and never a part of it."""
    folder = root / place
    folder.parent.mkdir(0o700, parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f"{folder.name}-", dir=folder.parent) as beside:
        made, former = Path(beside, "made"), Path(beside, "former")
        for name, source in _files(root):
            target = made / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target)
        template = made / "template.yaml"
        template.write_text(template.read_text().replace(BUILT_IN, f"{BUILT_IN}{place}/"))
        (made / CONSTRAINTS).write_text(f"duecourse=={duecourse.__version__}\n")
        (made / MARK).write_text(_fingerprint(root))
        if folder.exists():
            folder.rename(former)
        made.rename(folder)


def _files(project: Path) -> Iterator[tuple[Path, Path]]:
    """Each file's name in the bundle of a project, and the file."""
    root, library = bundle(), Path(duecourse.__file__).parent
    own = [f"{part}/{name}" for part in ("functions", "events") for name in functions()]
    for part in ("template.yaml", *own, "layers"):
        for path in _within(root / part):
            name = path.relative_to(root)
            if not name.is_relative_to(CORE):
                yield name, path
    if (project / SCHEDULES).is_file():
        yield APPLIED_FROM, project / SCHEDULES
    for path in _within(library):
        yield CORE / path.relative_to(library), path


def _within(path: Path) -> Iterator[Path]:
    found = sorted(path.rglob("*")) if path.is_dir() else [path]
    return (one for one in found if one.is_file() and COMPILED not in one.parts)


def _fingerprint(project: Path) -> str:
    """The version, and a digest that tells apart what has the same version: builds of a clone."""
    digest = hashlib.sha256()
    for name, path in _files(project):
        content = path.read_bytes()
        digest.update(f"{name} {len(content)}\n".encode() + content)
    return f"{duecourse.__version__} {digest.hexdigest()}\n"
