"""Delayed, repeated and polled tasks for AWS Lambda, on the Redis a team already runs."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from duecourse.domain.outcomes import Again, Done, Drop, Retry
from duecourse.domain.task import Task

if TYPE_CHECKING:
    from duecourse.client import Client
    from duecourse.handler import extend, save, task_handler

__version__ = "0.1.0"
__all__ = ["Again", "Client", "Done", "Drop", "Retry", "Task", "extend", "save", "task_handler"]

_LATER = {"Client": "duecourse.client"} | dict.fromkeys(("extend", "save", "task_handler"), "duecourse.handler")


def __getattr__(name: str) -> Any:
    """Import the heavy names at their first use: what a function does not need must not slow its start."""
    if name not in _LATER:
        raise AttributeError(f"module 'duecourse' has no attribute {name!r}")
    return getattr(import_module(_LATER[name]), name)
