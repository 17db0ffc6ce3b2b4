"""A function's module, loaded beside the others': each has a file of the same name."""

import importlib.util
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from types import ModuleType
from typing import Any

from ..template.model import Function

Handle = Callable[[Any, Any], Any]
_loading = Lock()


def load(function: Function) -> Handle:
    """The function's handler, its module under a name of its own. Raises whatever its import raises."""
    path, _, name = function.handler.rpartition(".")
    file = (function.code / path).with_suffix(".py")
    with _loading, _found_in(function.code):
        _share(function.packages)
        handler: Handle = getattr(_module(f"duecourse_function_{function.logical_id}", file), name)
    return handler


def _module(name: str, file: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise ImportError(f"{file} is no Python module")
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _share(packages: Path | None) -> None:
    """Imports find a function's packages from now on, for a package may import its parts late; what was there wins."""
    if packages and str(packages) not in sys.path:
        sys.path.append(str(packages))


@contextmanager
def _found_in(folder: Path) -> Iterator[None]:
    """Imports find what lies beside the handler; another function's helper of the same name is another's."""
    before = set(sys.modules)
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))
        for name in set(sys.modules) - before:
            if Path(getattr(sys.modules[name], "__file__", None) or "/").is_relative_to(folder):
                del sys.modules[name]
