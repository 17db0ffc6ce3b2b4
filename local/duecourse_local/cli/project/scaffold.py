"""A new function written into a project: its folder, its places in template.yaml, a saved event."""

import json
import keyword
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import cfn_flip  # type: ignore[import-untyped]

from duecourse.domain.task import NAME_PATTERN
from duecourse.wire.settings.targets import BUILT_IN, read_targets

from ...project.bundle import COMPILED, functions
from ...stack.problems import HarnessError
from .shapes import filled, shape_of

NAME = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")
MAX_NAME = 40


class New(NamedTuple):
    """A function to be written: its folder's name, and the kind that it works."""

    name: str
    kind: str

    @property
    def id(self) -> str:
        """Logical id in the template: SendReportFunction for `send_report`."""
        return "".join(part.capitalize() for part in self.name.split("_")) + "Function"

    @property
    def words(self) -> Mapping[str, str]:
        """Words of the texts."""
        return {**self._asdict(), "id": self.id}


def write(root: Path, new: New) -> list[Path]:
    """Write the function into the project at `root`; answers the files written or changed.

    Raises HarnessError, with nothing written, for a name or kind that is taken or not fit.
    """
    files = planned(root, (root / "template.yaml").read_text(), new)
    write_all(files)
    return list(files)


def planned(root: Path, template: str, new: New) -> dict[Path, str]:
    """The files of the function and the changed template, nothing written. Raises HarnessError, as `write` does."""
    shape = shape_of(template).files
    own = {root / path.format(**new.words): made.format(**new.words) for path, made in shape.items()}
    _check_name(root, new, own)
    _check_kind(template, new)
    event = {root / "events" / new.name / "one_task.json": json.dumps(_event(new), indent=2) + "\n"}
    return {**own, **event, root / "template.yaml": described(template, new)}


def write_all(files: Mapping[Path, str]) -> None:
    """Write all files, or none: after an error each path is as it was."""
    before = {path: path.read_bytes() for path in files if path.is_file()}
    folders = [folder for path in files for folder in path.parents if not folder.exists()]
    try:
        for path, text in files.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    except BaseException:
        _restore(files, before, folders)
        raise


def _restore(paths: Iterable[Path], before: Mapping[Path, bytes], folders: Iterable[Path]) -> None:
    for path in paths:
        if path in before:
            path.write_bytes(before[path])
        else:
            with suppress(OSError):  # a folder above it is a file, or was not made
                path.unlink()
    for folder in sorted(set(folders), key=lambda folder: len(folder.parts), reverse=True):
        with suppress(OSError):
            folder.rmdir()


def described(template: str, new: New) -> str:
    """The template's text with the function in it, each other line as it was. Raises HarnessError."""
    if new.id in _declared(template):
        raise HarnessError(f"template.yaml already has a {new.id}: choose another name")
    text: str | None = template
    for place in shape_of(template).places:
        text = text and filled(place, text, new.words)
    if text is None or new.id not in _declared(text):
        raise HarnessError(
            "template.yaml has no place where the function fits: write it by hand, as docs/how-to/own-function.md says"
        )
    return text


def _check_name(root: Path, new: New, files: Mapping[Path, str]) -> None:
    if not NAME.fullmatch(new.name) or len(new.name) > MAX_NAME or keyword.iskeyword(new.name):
        raise HarnessError(
            f"NAME: {new.name!r} must be up to {MAX_NAME} characters of a-z 0-9 _, beginning with a letter: report"
        )
    folders = [root / folder / new.name for folder in ("functions", "events")]
    for path in (*folders, *files):
        if path.exists() and not _is_left_over(path):
            raise HarnessError(f"NAME: {path.relative_to(root)} already exists: choose another name")
    if new.name in functions():
        raise HarnessError(f"NAME: {new.name} is a function of duecourse: choose another name")


def _is_left_over(folder: Path) -> bool:
    """True for a folder that has compiled code alone: git leaves such a folder where it removes the sources."""
    return folder.is_dir() and {path.name for path in folder.iterdir()} <= {COMPILED}


def _check_kind(template: str, new: New) -> None:
    if not re.fullmatch(NAME_PATTERN, new.kind):
        raise HarnessError(f"KIND: {new.kind!r} must be 1 to 64 characters of A-Z a-z 0-9 . _ : @ -")
    if f'"{new.kind}": "lambda:${{' in template or new.kind in BUILT_IN:
        raise HarnessError(f"KIND: {new.kind} already has a target: choose another kind with --kind")
    try:
        read_targets({new.kind: f"lambda:{new.id}"})
    except ValueError as error:
        raise HarnessError(f"KIND: {error}") from error


def _declared(template: str) -> Mapping[str, object]:
    found: Mapping[str, object] = cfn_flip.load_yaml(template)["Resources"]
    return found


def _event(new: New) -> Mapping[str, object]:
    task = {
        "id": f"{new.name}-1",
        "queue": "default",
        "tenant": "-",
        "kind": new.kind,
        "group": "",
        "payload": {"hello": "world"},
        "state": None,
        "run": 1,
        "attempt": 1,
        "due_at": 1_790_000_000_000,
        "lease": {"token": "0000000000080011223344556677", "expires_at": 1_790_000_030_000},
        "idempotency_key": f"{new.name}-1:7",
    }
    return {"source": "duecourse", "version": "1", "tasks": [task]}
