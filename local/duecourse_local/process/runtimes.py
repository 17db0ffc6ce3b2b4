"""Commands that run a function: AWS's own client for Python, a bootstrap of our own for Node."""

import shutil
import sys
from pathlib import Path

from ..stack.problems import HarnessError
from ..template.model import Function

NODE = Path(__file__).with_name("node") / "bootstrap.mjs"


class NoRuntime(HarnessError):
    """This machine has nothing that runs the function."""


def is_python(function: Function) -> bool:
    """True if the function's handler is Python."""
    return function.runtime.startswith("python")


def command(function: Function) -> tuple[str, ...]:
    """The command of one process of the function. Raises NoRuntime, saying what is missing."""
    if is_python(function):
        return (sys.executable, "-m", "awslambdaric", function.handler)
    if not function.runtime.startswith("nodejs"):
        raise NoRuntime(f"{function.runtime} cannot be run here: Python and Node functions can")
    node = shutil.which("node")
    if node is None:
        raise NoRuntime(f"{function.runtime} needs a node on PATH: install Node.js 20 or newer")
    return (node, str(NODE), function.handler)
