"""What tests of the kinds share: a leased task, a way out to the web that answers as told, a sender."""

import json
from collections.abc import Mapping
from dataclasses import replace

from duecourse.base.json_text import Json, dump_json
from duecourse.errors import DuecourseError, SendFailed, SendRejected
from duecourse.guard.http_types import HttpAnswer, HttpRequest
from duecourse.ledger.task import RetryPolicy, Status, Task
from duecourse.reminders.send import Message
from tests.support.clock import START


def leased(kind: str, payload: Json, state: Json = None, **changes: object) -> Task:
    """A task as a worker gets it, claimed 25 ms after it was due."""
    task = Task(
        id="t-1",
        queue="default",
        tenant="-",
        kind=kind,
        group="",
        status=Status.LEASED,
        payload_json=dump_json(payload),
        state_json="" if state is None else dump_json(state),
        result_json="",
        due_at=START,
        created_at=START - 1_000,
        deadline_at=0,
        generation=7,
        run=1,
        attempt=1,
        retry=RetryPolicy(),
        token="0000000000080011223344556677",
        claimed_at=START + 25,
        log=(),
        lease_expires_at=START + 60_025,
    )
    return replace(task, **changes)


def answer(status: int = 200, body: Json = None, headers: Mapping[str, str] | None = None) -> HttpAnswer:
    """An answer whose body is JSON, unless it is bytes already; None for none."""
    raw = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
    return HttpAnswer(status, headers or {}, raw)


class Web:
    """An HttpCaller that gives the next of its answers, or raises it, and keeps what it was asked."""

    def __init__(self, *answers: HttpAnswer | DuecourseError) -> None:
        self._answers = list(answers)
        self.asked: list[HttpRequest] = []

    def call(self, request: HttpRequest) -> HttpAnswer:
        self.asked.append(request)
        given = self._answers.pop(0)
        if isinstance(given, DuecourseError):
            raise given
        return given


class Ready:
    """An HttpCaller that answers always: `done` at addresses that end in `ready`, else `open`."""

    def call(self, request: HttpRequest) -> HttpAnswer:
        return answer(200, {"state": "done" if request.url.endswith("ready") else "open"})


class Ok:
    """An HttpCaller that always gets the same answer."""

    def call(self, _request: HttpRequest) -> HttpAnswer:
        return answer(200, {"status": "ok"})


class Outbox:
    """A Sender that keeps what it is given, or raises the error."""

    def __init__(self, error: SendFailed | SendRejected | None = None) -> None:
        self.sent: list[Message] = []
        self._error = error

    def send(self, message: Message) -> str:
        if self._error:
            raise self._error
        self.sent.append(message)
        return f"m-{len(self.sent)}"
