"""The project's own sources, parsed for the tests that judge them."""

import ast
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from duecourse_local.project import bundle
from tests.support.project import ROOT

LAYER = ROOT / "layers/core"
HARNESS = ROOT / "local"
OURS = bundle.functions()
Definition = ast.FunctionDef | ast.AsyncFunctionDef


class Import(NamedTuple):
    """One imported module (dotted), and the line it is imported in."""

    module: str
    line: int


class Source:
    """One Python file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.name = str(path.relative_to(ROOT))

    @cached_property
    def text(self) -> str:
        """What is written."""
        return self.path.read_text()

    @cached_property
    def tree(self) -> ast.Module:
        """What it means."""
        return ast.parse(self.text)

    @property
    def module(self) -> str:
        """The dotted name by which it is imported."""
        home = next((home for home in (LAYER, HARNESS) if self.path.is_relative_to(home)), ROOT)
        return ".".join(self.path.relative_to(home).with_suffix("").parts).removesuffix(".__init__")

    @property
    def imports(self) -> Iterator[Import]:
        """Everything imported, at whatever depth; `from package import module` counts as that module."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                yield from (Import(name.name, node.lineno) for name in node.names)
            elif isinstance(node, ast.ImportFrom):
                module = self._whole(node)
                yield from (Import(_target(module, name.name), node.lineno) for name in node.names)

    def _whole(self, node: ast.ImportFrom) -> str:
        """The dotted name of a module that may be given as seen from this one."""
        if not node.level:
            return node.module or ""
        inside = self.module.split(".") + ["__init__"] * (self.path.name == "__init__.py")
        return ".".join([*inside[: -node.level], *filter(None, [node.module])])

    @property
    def functions(self) -> Iterator[Definition]:
        """Every function, method and inner function."""
        return (node for node in ast.walk(self.tree) if isinstance(node, Definition))

    @property
    def catch_alls(self) -> Iterator[ast.ExceptHandler]:
        """Handlers that stop an exception of any kind; one that raises again only cleans up."""
        for node in ast.walk(self.tree):
            if (
                isinstance(node, ast.ExceptHandler)
                and _is_broad(node.type)
                and not isinstance(node.body[-1], ast.Raise)
            ):
                yield node


def _target(package: str, name: str) -> str:
    folder = LAYER.joinpath(*package.split("."))
    inside = folder.joinpath(name).with_suffix(".py").exists() or (folder / name / "__init__.py").exists()
    return f"{package}.{name}" if inside else package


def _is_broad(caught: ast.expr | None) -> bool:
    names = caught.elts if isinstance(caught, ast.Tuple) else [caught]
    return any(name is None or getattr(name, "id", "") in ("Exception", "BaseException") for name in names)


def sources(*folders: str) -> list[Source]:
    """Every Python file of the project's own below the folders."""
    return [Source(path) for folder in folders for path in sorted((ROOT / folder).rglob("*.py")) if _is_ours(path)]


def _is_ours(path: Path) -> bool:
    """False for what `duecourse new` wrote into `functions`."""
    place = path.relative_to(ROOT).parts
    return place[0] != "functions" or place[1] in OURS


def length(function: Definition) -> int:
    """A function's lines, from `def` on, its docstring aside."""
    whole = (function.end_lineno or function.lineno) - function.lineno + 1
    first = function.body[0]
    if ast.get_docstring(function, clean=False) is None:
        return whole
    return whole - ((first.end_lineno or first.lineno) - first.lineno + 1)
