"""The task on log lines: tasks of one invocation run beside each other, and share its request id."""

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from types import MappingProxyType
from typing import Any

from duecourse.domain.task import Task

FIELD = "duecourse_task"
"""The attribute of a log record, and the field of a JSON line. `task_id` could clash with a handler's own `extra`."""

NO_TASK: Mapping[str, str | int] = MappingProxyType({})
_running: ContextVar[Mapping[str, str | int]] = ContextVar("duecourse_running")


@contextmanager
def about(task: Task) -> Iterator[None]:
    """Have what this thread logs meanwhile carry the task, whichever logger and formatter it goes through.

    The fields are `duecourse_task`, `duecourse_queue`, `duecourse_kind` and `duecourse_attempt`. A thread that a
    handler starts does so where it runs in a copy of the context (`contextvars.copy_context().run`).
    """
    _install()
    token = _running.set(_fields(task))
    try:
        yield
    finally:
        _running.reset(token)


def _fields(task: Task) -> dict[str, str | int]:
    return {
        FIELD: task.id,
        "duecourse_queue": task.queue,
        "duecourse_kind": task.kind,
        "duecourse_attempt": task.attempt,
    }


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
        vars(record).update(_running.get(NO_TASK))
        return record
