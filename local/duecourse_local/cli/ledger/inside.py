"""A ledger whose store this process opens: the routes of the HTTP API serve its requests in place."""

import getpass
import json
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from io import StringIO
from logging import NullHandler, getLogger
from urllib.parse import urlencode

from duecourse import ledgers
from duecourse.domain.access import Role
from duecourse.domain.masking import masked
from duecourse.domain.schedule_file import Noted
from duecourse.domain.task import DEFAULT_TENANT, RetryPolicy, Status, Task, dump_json
from duecourse.domain.times import MAX_INSTANT, format_duration, format_instant
from duecourse.errors import DuecourseError, InvalidSettings
from duecourse.outside import Parts
from duecourse.settings import Settings
from duecourse.wiring import App

from ...aws.events import HttpRequest, http_event
from ...stack.addresses import named
from ...stack.problems import HarnessError
from .. import client
from .place import Asked, Away, Document, Query, Rejected

OPERATORS = f'principals:{{"*": {{"roles": ["{Role.OPERATOR}"]}}}}'
"""Rule for the requests of this process: a program that can open the store can do everything anyway."""
TIME_MS = 30_000


class _Context:
    def get_remaining_time_in_millis(self) -> int:
        return TIME_MS


class Inside:
    """The HTTP API on a store of this process; the caller is an operator by the name of the user here."""

    def __init__(self, app: App, name: str, tenant: str | None) -> None:
        self.name = name
        self._app = app
        self._tenant = tenant
        self._source = f"command:{getpass.getuser()}@{socket.gethostname()}"
        self._identity = {"jwt": {"claims": {"sub": self._source}}}

    def ask(self, method: str, path: str, query: Query | None = None, body: Document | None = None) -> Document:
        """See Ledger."""
        from duecourse.routes.every import serve  # pydantic and the router take a third of a second

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
            raise Away(f"{found.get('detail')} ({self.name})")
        if answer["statusCode"] >= 400:
            raise Rejected(answer["statusCode"], found)
        return found

    def noted(self) -> Noted:
        """See Ledger."""
        return self._app.schedule_files.noted()

    def kept(self, queue: str, id: str) -> Mapping[str, str]:
        """See Ledger."""
        task = self._app.store.get(queue, id, self._tenant or DEFAULT_TENANT)
        return _kept(task) if task else {}


@contextmanager
def inside(asked: Asked) -> Iterator[Inside]:
    """The ledger of a store. Raises Away, and HarnessError where the settings are wrong."""
    given = client.ledger(asked.store, asked.folder, namespace=asked.namespace, tenant_from=OPERATORS)
    name = f"store {named(given)} (namespace {given.namespace})"
    # What fails is told by the command, in a line: the log has nobody to read it.
    getLogger("duecourse").addHandler(NullHandler())
    app = _app(given, name)
    try:
        yield Inside(app, name, asked.tenant)
    finally:
        app.close()


def _app(given: Settings, name: str) -> App:
    try:
        store = ledgers.open_store(given)
        store.now()  # a store that is away is found out here, with the cause
    except InvalidSettings as error:
        raise HarnessError(str(error)) from error
    except DuecourseError as error:
        raise Away(f"{error} ({name})") from error
    return App(given, Parts(store=store))


def _kept(task: Task) -> dict[str, str]:
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
