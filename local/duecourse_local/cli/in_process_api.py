"""The HTTP API of a store that this process opens: its routes serve each request in place."""

import getpass
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from logging import NullHandler, getLogger

from duecourse import open_ledger
from duecourse.app import App, Parts
from duecourse.base.json_text import dump_json
from duecourse.base.masking import masked
from duecourse.base.times import MAX_INSTANT, format_duration, format_instant
from duecourse.errors import DuecourseError, InvalidSettings
from duecourse.in_place import InPlaceApi
from duecourse.ledger.schedule import FileState
from duecourse.ledger.task import DEFAULT_TENANT, RetryPolicy, Status, Task
from duecourse.settings import Settings

from ..errors import HarnessError
from ..harness.addresses import ledger_name
from .api import ApiClient, Unavailable
from .target import LedgerTarget, ledger_settings


class InProcessApi(InPlaceApi, ApiClient):
    """The HTTP API on a store of this process; the caller is an operator with the name of this machine's user.

    A program that can open the store can do everything anyway.
    """

    def __init__(self, app: App, name: str, tenant: str | None) -> None:
        super().__init__(app, name, f"command:{getpass.getuser()}@{socket.gethostname()}", tenant)
        self._app = app

    def schedule_file_state(self) -> FileState:
        """See ApiClient."""
        return self._app.schedule_files.noted()

    def hidden_fields(self, queue: str, id: str) -> Mapping[str, str]:
        """See ApiClient."""
        task = self._app.ledger.get(queue, id, self.tenant or DEFAULT_TENANT)
        return _hidden_fields_of(task) if task else {}


@contextmanager
def open_in_process(target: LedgerTarget) -> Iterator[InProcessApi]:
    """The API of a store. Raises Unavailable, and HarnessError where the settings are wrong."""
    given = ledger_settings(target.store, target.folder, namespace=target.namespace)
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
