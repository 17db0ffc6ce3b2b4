"""The HTTP API as a command sees it: requests, answers and rejections, in this process or behind a URL."""

import json
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Protocol
from urllib.parse import quote

from duecourse.api.problems import URN
from duecourse.in_place import TENANT, ApiRequest, ApiUnavailable, HttpApi
from duecourse.ledger.schedule import FileState

from ..errors import HarnessError

Document = dict[str, Any]
"""An answer of the HTTP API."""

Query = Mapping[str, str | None]


class Unavailable(HarnessError, ApiUnavailable):
    """The store or the API does not answer."""


class RequestRejected(HarnessError):
    """The API rejects the request; `status` is that of HTTP."""

    def __init__(self, status: int, problem: Document) -> None:
        self.status = status
        self.problem = problem
        errors = problem.get("errors") or ()
        fields = "; ".join(f"{one.get('field')}: {one.get('problem')}" for one in errors)
        said = fields or _advice(problem) or problem.get("detail") or problem.get("title") or f"status {status}"
        super().__init__(str(said))


def _advice(problem: Document) -> str:
    """Advice on a problem in terms of the command line; "" to use the text of the API."""
    match str(problem.get("type")).removeprefix(URN), problem.get("queue"):
        case "queue-not-found", str(queue):
            made, near = f"duecourse limits {queue} --create makes it", problem.get("near")
            return f"there is no queue {queue}: " + (f"did you mean {near}? ({made})" if near else made)
        case "task-leased", _:
            return "The task is running: try again after it settles, or give --force."
        case "past-deadline", _:
            return "The new due time is not before the deadline of the task: choose an earlier one."
    return ""


JSON_TYPE = {"content-type": "application/json"}


class ApiClient(HttpApi, Protocol):
    """The HTTP API of a ledger, served by another process or by this one."""

    def request(self, method: str, path: str, query: Query | None = None, body: Document | None = None) -> Document:
        """Answer to one request, {} for an empty one. A tenant that is None is no tenant in particular.

        Raises RequestRejected and Unavailable.
        """
        words = {name: value or "" for name, value in (query or {}).items() if value is not None or name == TENANT}
        content = b"" if body is None else json.dumps(body).encode()
        answer = self.send(ApiRequest(method, path, words, content, JSON_TYPE if content else {}))
        found = answer.document
        if answer.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            raise Unavailable(f"{self.name} answers {answer.status}: {found.get('detail')}")
        if answer.is_rejection:
            raise RequestRejected(answer.status, found)
        return found

    def schedule_file_state(self) -> FileState | None:
        """State of the schedule files; None over HTTP, which does not show it."""

    def hidden_fields(self, queue: str, id: str) -> Mapping[str, str]:
        """Fields of a task in the store that the HTTP API does not show; {} over HTTP."""


def quoted(text: str) -> str:
    """A name as a part of a path."""
    return quote(text, safe="~")


def task_path(id: str, verb: str = "") -> str:
    """Path of a task, or of a verb on it."""
    return f"/tasks/{quoted(id)}{verb}"


def queue_path(queue: str, verb: str = "") -> str:
    """Path of a queue, or of a verb on it."""
    return f"/queues/{quoted(queue)}{verb}"


def given_fields(**fields: Any) -> Document:
    """Fields of a request, without those that are None."""
    return {name: value for name, value in fields.items() if value is not None}
