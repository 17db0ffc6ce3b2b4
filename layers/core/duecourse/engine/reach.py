"""Places that a task names: each is checked, as far as nothing is looked up, before the ledger has the task."""

import json
from collections.abc import Callable, Iterator, Mapping
from typing import TypeAlias

from duecourse.domain.notification import Notify, is_url
from duecourse.domain.task import Json, NewTask
from duecourse.errors import FieldError, InvalidInput

Reach: TypeAlias = Callable[[str, Mapping[str, str]], str]
"""Reason why no call with these headers may go to this URL, or ""."""
Dial: TypeAlias = Callable[[str], str]
"""Reason why no SMS may go to this number, or ""."""
CALLING = frozenset({"poll", "webhook"})
"""Kinds whose payload names a URL."""


def check_places(task: NewTask, reach: Reach) -> None:
    """Return if calls may go where the task's payload and its notification say. Raises InvalidInput."""
    if problems := list(_problems(task, reach)):
        raise InvalidInput(problems)


def check_place(field: str, url: str, headers: Mapping[str, str], reach: Reach) -> None:
    """Return if a call may go to this URL. Raises InvalidInput, naming the field."""
    if problem := reach(url, headers):
        raise InvalidInput([FieldError(field, problem)])


def check_number(field: str, number: str, dial: Dial) -> None:
    """Return if an SMS may go to this number. Raises InvalidInput, naming the field."""
    if problem := dial(number):
        raise InvalidInput([FieldError(field, problem)])


def sent_with(payload: Mapping[str, Json]) -> dict[str, str]:
    """Headers of a payload's call, as far as they are known before it: a credential by name counts as one."""
    headers: dict[str, str] = payload.get("headers") or {}
    return {**headers, "authorization": ""} if payload.get("auth") else headers


def _problems(task: NewTask, reach: Reach) -> Iterator[FieldError]:
    if task.kind in CALLING:
        payload = json.loads(task.payload)  # with a URL, unless a test made the task
        if "url" in payload and (problem := reach(payload["url"], sent_with(payload))):
            yield FieldError("payload.url", problem)
    if task.notify and is_url(task.notify):
        notify = Notify.of(task.notify)
        if problem := reach(notify.address, sent_with({"auth": notify.auth})):
            yield FieldError("notify_done.url", problem)
