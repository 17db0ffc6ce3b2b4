"""The task's id on log lines: tasks of one invocation run beside each other, and share its request id."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

FIELD = "duecourse_task"
"""The attribute of a log record, and the field of a JSON line. `task_id` could clash with a handler's own `extra`."""

_running: ContextVar[str] = ContextVar("duecourse_running")


@contextmanager
def about(id: str) -> Iterator[None]:
    """Have what this thread logs meanwhile carry the task's id, whichever logger and formatter it goes through.

    A thread that a handler starts does so where it runs in a copy of the context (`contextvars.copy_context().run`).
    """
    _install()
    token = _running.set(id)
    try:
        yield
    finally:
        _running.reset(token)


def _install() -> None:
    """Mark records as they are made: a filter would be one logger's, and Powertools has handlers of its own."""
    make = logging.getLogRecordFactory()
    if isinstance(make, _Marking):
        return
    logging.setLogRecordFactory(_Marking(make))


class _Marking:
    """The factory that was there, and the mark."""

    def __init__(self, make: Any) -> None:
        self._make = make

    def __call__(self, *arguments: Any, **named: Any) -> logging.LogRecord:
        record: logging.LogRecord = self._make(*arguments, **named)
        id = _running.get(None)
        if id is not None:
            setattr(record, FIELD, id)
        return record
