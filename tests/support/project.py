"""A project as a user has it: a copy of this one's template, functions and events, in which things can be written."""

import shutil
from pathlib import Path

from duecourse_local.project import bundle

ROOT = Path(__file__).parents[2]
PRODUCT = bundle.bundle()
"""Folder of the product's template, functions and events: the root, or a view of it without functions of one's own."""
FUNCTIONS = [PRODUCT / "functions" / name for name in bundle.functions()]


def copy_project(folder: Path) -> Path:
    """Copy to `folder` what belongs to a user, and the harness, beside the layer; answers the template."""
    unwanted = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "local", folder / "local", ignore=unwanted)
    for name in bundle.functions():
        for part in ("functions", "events"):
            shutil.copytree(PRODUCT / part / name, folder / part / name, ignore=unwanted)
    (folder / "layers").symlink_to(ROOT / "layers")
    return Path(shutil.copy(PRODUCT / "template.yaml", folder))


def copy_clone(folder: Path) -> Path:
    """Copy all that a clone has, without functions of one's own; answers the folder."""
    folder.mkdir()
    unwanted = shutil.ignore_patterns("__pycache__")
    for path in ROOT.iterdir():
        if path.is_file():
            shutil.copy(path, folder)
        elif not path.name.startswith(".") and path.name not in {"functions", "events", "dist", "build"}:
            shutil.copytree(path, folder / path.name, ignore=unwanted)
    for name in bundle.functions():
        for part in ("functions", "events"):
            shutil.copytree(PRODUCT / part / name, folder / part / name, ignore=unwanted)
    shutil.copy(PRODUCT / "template.yaml", folder)
    return folder


def add_resource(template: Path, text: str) -> None:
    """Write one more resource into a template."""
    template.write_text(template.read_text().replace("\nResources:\n", f"\nResources:\n{text}\n", 1))
