"""A project as a user has it: a copy of this one's template, functions and events, in which things can be written."""

import shutil
from pathlib import Path

ROOT = Path(__file__).parents[2]


def copy_project(folder: Path) -> Path:
    """Copy to `folder` what belongs to a user, and the harness, beside the layer; answers the template."""
    for name in ("functions", "events", "local"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "layers").symlink_to(ROOT / "layers")
    return Path(shutil.copy(ROOT / "template.yaml", folder))


def add_resource(template: Path, text: str) -> None:
    """Write one more resource into a template."""
    template.write_text(template.read_text().replace("\nResources:\n", f"\nResources:\n{text}\n", 1))
