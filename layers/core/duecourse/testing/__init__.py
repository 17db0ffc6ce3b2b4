"""Test kit for code that uses duecourse: one handler with one task, or the whole product on a clock that is moved."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from duecourse.testing.handlers import Ran, make_task, run
    from duecourse.testing.product import Call, Duecourse, Email, QueueMessage, Sent, Sms, TooManyRuns

__all__ = [
    "Call",
    "Duecourse",
    "Email",
    "QueueMessage",
    "Ran",
    "Sent",
    "Sms",
    "TooManyRuns",
    "make_task",
    "run",
]

_HOMES = {
    "handlers": ("Ran", "make_task", "run"),
    "product": ("Call", "Duecourse", "Email", "QueueMessage", "Sent", "Sms", "TooManyRuns"),
}
_LATER = {name: f"duecourse.testing.{home}" for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    """Import a name at its first use: pytest imports this package in every project that has duecourse installed."""
    if name not in _LATER:
        raise AttributeError(f"module 'duecourse.testing' has no attribute {name!r}")
    return getattr(import_module(_LATER[name]), name)
