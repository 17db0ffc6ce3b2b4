"""The HTTP API of a store that this process opens: its routes serve each request in place."""

import getpass
import json
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from io import StringIO
from logging import NullHandler, getLogger
from urllib.parse import urlencode

from duecourse import open_ledger
from duecourse.api.authorization import Role
from duecourse.app import App, Parts
from duecourse.base.json_text import dump_json
from duecourse.base.masking import masked
from duecourse.base.times import MAX_INSTANT, format_duration, format_instant
from duecourse.errors import DuecourseError, InvalidSettings
from duecourse.ledger.schedule import FileState
from duecourse.ledger.task import DEFAULT_TENANT, RetryPolicy, Status, Task
from duecourse.settings import Settings

from ..errors import HarnessError
from ..harness.addresses import ledger_name
from ..harness.aws.events import HttpRequest, http_event
from .api import Document, Query, RequestRejected, Unavailable
from .target import LedgerTarget, ledger_settings

OPERATORS = f'principals:{{"*": {{"roles": ["{Role.OPERATOR}"]}}}}'
"""Rule for the requests of this process: a program that can open the store can do everything anyway."""
TIME_MS = 30_000


class _Context:
    def get_remaining_time_in_millis(self) -> int:
        return TIME_MS


class InProcessApi:
    """The HTTP API on a store of this process; the caller is an operator with the name of this machine's user."""

    def __init__(self, app: App, name: str, tenant: str | None) -> None:
        self.name = name
        self._app = app
        self._tenant = tenant
        self._source = f"command:{getpass.getuser()}@{socket.gethostname()}"
        self._identity = {"jwt": {"claims": {"sub": self._source}}}

    def request(self, method: str, path: str, query: Query | None = None, body: Document | None = None) -> Document:
        """See ApiClient."""
        from duecourse.routes import serve  # pydantic and the router take a third of a second

        words = {"tenant": self._tenant, **(query or {})}
        text = b"" if body is None else json.dumps(body).encode()
        request = HttpRequest(
            method,
            path,
            urlencode({name: value for name, value in words.items() if value is not None}),
            [("content-type", "application/json")],
            text,
            "127.0.0.1",
            "HTTP/1.1",
        )
        event = http_event(request, "$default", {}, self._identity)
        with redirect_stdout(StringIO()):  # of a function, a metric is a line of its log
            answer = serve(self._app, event, _Context(), self._source)
        found: Document = json.loads(answer.get("body") or "{}")
        if answer["statusCode"] >= 500:
            raise Unavailable(f"{found.get('detail')} ({self.name})")
        if answer["statusCode"] >= 400:
            raise RequestRejected(answer["statusCode"], found)
        return found

    def schedule_file_state(self) -> FileState:
        """See ApiClient."""
        return self._app.schedule_files.noted()

    def hidden_fields(self, queue: str, id: str) -> Mapping[str, str]:
        """See ApiClient."""
        task = self._app.ledger.get(queue, id, self._tenant or DEFAULT_TENANT)
        return _hidden_fields_of(task) if task else {}


@contextmanager
def open_in_process(target: LedgerTarget) -> Iterator[InProcessApi]:
    """The API of a store. Raises Unavailable, and HarnessError where the settings are wrong."""
    given = ledger_settings(target.store, target.folder, namespace=target.namespace, tenant_from=OPERATORS)
    name = f"store {ledger_name(given)} (namespace {given.namespace})"
    # What fails is told by the command, in a line: the log has nobody to read it.
    getLogger("duecourse").addHandler(NullHandler())
    app = _app(given, name)
    try:
        yield InProcessApi(app, name, target.tenant)
    finally:
        app.close()
        app.ledger.close()  # it was opened here


def _app(given: Settings, name: str) -> App:
    try:
        ledger = open_ledger.open_ledger(given)
        ledger.now()  # a store that is away is found out here, with the cause
    except InvalidSettings as error:
        raise HarnessError(str(error)) from error
    except DuecourseError as error:
        raise Unavailable(f"{error} ({name})") from error
    return App(given, Parts(ledger=ledger))


def _hidden_fields_of(task: Task) -> dict[str, str]:
    found = {
        "tenant": task.tenant,
        "group": task.group,
        "deadline_at": format_instant(task.deadline_at) if 0 < task.deadline_at <= MAX_INSTANT else "",
        "retry": _retry(task.retry),
        "saved_state": dump_json(masked(task.state)) if task.state_json else "",
        "lease": _lease(task),
        "added_by": task.by,
        "generation": str(task.generation),
    }
    if task.status is Status.DONE and not task.result_json:
        found["result"] = "none in the ledger; if a results table has it, GET /tasks/{id} shows it"
    return found


def _retry(retry: RetryPolicy) -> str:
    waits = f"waits from {format_duration(retry.backoff_ms)}, times {retry.factor:g} each, up to"
    return f"{waits} {format_duration(retry.max_backoff_ms)}{', randomised' if retry.jitter else ''}"


def _lease(task: Task) -> str:
    if task.status is not Status.LEASED:
        return ""
    return f"since {format_instant(task.claimed_at)}, until {format_instant(task.lease_expires_at)}"
