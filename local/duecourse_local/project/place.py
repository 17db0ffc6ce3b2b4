"""The project of the folder that a command runs in: one that `init` wrote, or a clone of the repository."""

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from ..errors import HarnessError
from . import bundle

BUNDLE = Path(bundle.FOLDER, "bundle")
NESTED = re.compile(rf"^\s+Location:\s+(\./)?{re.escape(str(BUNDLE))}/template\.yaml\s*$", re.MULTILINE)
"""The line of a template by which the bundle is a nested application."""
NO_PROJECT = "no project in {folder} or above it: run duecourse init in an empty folder"


def is_nested(template: str) -> bool:
    """True if the bundle is a nested application of the template."""
    return NESTED.search(template) is not None


@dataclass(frozen=True)
class Project:
    """A project's folder; its bundle is None in a clone, whose root is one. Where none `exists`, the current folder."""

    root: Path
    bundle: Path | None = None
    exists: bool = True

    @property
    def state(self) -> Path:
        """Folder for the stack's data and logs."""
        return self.root / bundle.FOLDER

    @property
    def events(self) -> Path:
        """Folder of saved events."""
        return self.root / "events"

    @property
    def schedules(self) -> Path:
        """The file of schedules that the tick applies, if it is there."""
        return self.root / (bundle.SCHEDULES if self.bundle else bundle.APPLIED_FROM)

    def template(self) -> Path:
        """The project's template, its bundle as installed. Raises HarnessError where no project is."""
        if not self.exists:
            raise HarnessError(NO_PROJECT.format(folder=self.root))
        self._renew_bundle()
        return self.root / "template.yaml"

    def to_run(self) -> Path:
        """The template that a stack runs: the project's, else the bundle's, which is all that workers need."""
        if self.exists:
            return self.template()
        self._renew_bundle()
        # No `init` has written a .gitignore for this folder.
        (self.state / ".gitignore").write_text("*\n")
        return self.root / BUNDLE / "template.yaml"

    def _renew_bundle(self) -> None:
        if self.bundle and not bundle.is_current(self.root, BUNDLE):
            bundle.write(self.root, BUNDLE)


@cache
def here() -> Project:
    """The project of the current folder, or the clone that this command is of."""
    current = Path.cwd()
    for folder in (current, *current.parents):
        if found := _project_at(folder):
            return found
    clone = bundle.clone()
    return Project(clone) if clone else Project(current, current / BUNDLE, exists=False)


def _project_at(folder: Path) -> Project | None:
    template = folder / "template.yaml"
    if not template.is_file():
        return None
    if (folder / bundle.CORE).is_dir() and folder.joinpath("functions").is_dir():
        return Project(folder)
    return Project(folder, folder / BUNDLE) if is_nested(template.read_text(errors="replace")) else None
