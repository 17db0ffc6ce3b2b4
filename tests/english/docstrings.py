"""The docstrings of the code: those of modules, classes and functions, and those below a constant or a field."""

import ast
import inspect
from collections.abc import Iterator


def docstrings(source: str) -> Iterator[tuple[int, str]]:
    """Each docstring with its line, without tables and examples, which are indented."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            lines = inspect.cleandoc(node.value.value).splitlines()
            yield node.lineno, "\n".join(line for line in lines if not line.startswith(("|", "    ")))
