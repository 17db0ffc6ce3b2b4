"""Polls as they are asked for: each is checked against the bounds of its interval and its deadline."""

import json
from collections.abc import Callable, Iterator

from duecourse.domain.polls import KIND, MAX_DEADLINE_MS
from duecourse.domain.task import Json, NewTask
from duecourse.domain.times import format_duration, parse_duration
from duecourse.errors import FieldError, InvalidInput


def check_poll(task: NewTask, least_ms: int, now: Callable[[], int]) -> None:
    """Return if a task, where it is a poll, asks no more often than each `least_ms`, and for a year at most.

    Raises InvalidInput.
    """
    if task.kind == KIND and (problems := list(_problems(task, least_ms, now))):
        raise InvalidInput(problems)


def check_interval(field: str, payload: Json, least_ms: int) -> None:
    """Return if a poll's payload asks no more often than each `least_ms`. Raises InvalidInput, naming the field."""
    if problem := _too_often(payload, least_ms):
        raise InvalidInput([FieldError(field, problem)])


def _problems(task: NewTask, least_ms: int, now: Callable[[], int]) -> Iterator[FieldError]:
    if problem := _too_often(json.loads(task.payload), least_ms):
        yield FieldError("payload.interval", problem)
    if _lasts_ms(task, now) > MAX_DEADLINE_MS:
        yield FieldError("deadline", f"must be at most {format_duration(MAX_DEADLINE_MS)} after the due time of a poll")


def _too_often(payload: Json, least_ms: int) -> str:
    if "interval" not in payload or parse_duration(payload["interval"]) >= least_ms:  # a test's task may have none
        return ""
    return f"must be at least {format_duration(least_ms)}, which DUECOURSE_POLL_INTERVAL sets"


def _lasts_ms(task: NewTask, now: Callable[[], int]) -> int:
    if task.deadline_at is None:
        return task.deadline_ms or 0
    return task.deadline_at - (now() + task.delay_ms if task.due_at is None else task.due_at)
