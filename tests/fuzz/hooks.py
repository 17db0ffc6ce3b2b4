"""What is changed in schemathesis's requests before they are sent, and how what no pattern tells is made up."""

import json
import os
from itertools import count, cycle
from pathlib import Path
from typing import Any

import schemathesis
from hypothesis import strategies as st
from schemathesis import Case, HookContext

from tests.fuzz.scene import SCENE, TENANT

KEY = "Idempotency-Key"
NUMBERS = count()
QUOTAS = {"tenant_max_pending", "tenant_max_bytes", "tenant_adds_per_minute", "tenant_max_schedules"}
LARGE = 500_000
STANDING = {name: cycle(each) for name, each in json.loads(Path(os.environ[SCENE]).read_text()).items()}
ON = {
    "POST /tasks/{id}/settle": "leased",
    "POST /tasks/{id}/extend": "leased",
    "POST /tasks/{id}/save": "leased",
    "POST /tasks/{id}/replay": "dead",
    "PATCH /tasks/{id}": "scheduled",
    "DELETE /tasks/{id}": "scheduled",
    "GET /tasks/{id}": "scheduled",
    "GET /tasks/{id}/why": "scheduled",
    "PATCH /reminders/{id}": "reminders",
    "GET /queries/{id}": "queries",
    "GET /schedules/{id}": "schedules",
    "PATCH /schedules/{id}": "schedules",
    "DELETE /schedules/{id}": "leaving",
    "POST /schedules/{id}/run": "schedules",
    "POST /schedules/{id}/backfill": "schedules",
}
"""Of what each of these routes needs one that stands: few ids that the tool makes up are of any."""

schemathesis.openapi.format("iana-time-zone", st.sampled_from(["UTC", "Europe/Vienna", "Asia/Kathmandu"]))
schemathesis.openapi.format("jmespath", st.sampled_from(["ready", "rows[0]", "`false`", "length(rows) == `2`"]))
# A reminder's start must be ahead.
schemathesis.openapi.format("date-time", st.integers(2100, 9998).map("{}-03-29T01:30:00Z".format))


@schemathesis.hook  # type: ignore[untyped-decorator]
def before_call(_context: HookContext, case: Case, _kwargs: dict[str, Any]) -> None:
    """Let half of those that are meant well be of something that stands; the others, and all that are not, stay."""
    if case.meta is not None and case.meta.generation.mode.is_negative:
        return
    number = next(NUMBERS)
    _make_key_new(case, number)
    _leave_room(case)
    if number % 2 and case.operation.label in ON:
        _aim(case, next(STANDING[ON[case.operation.label]]))


def _make_key_new(case: Case, number: int) -> None:
    """Make its key a good one: in quotes, and new, or all but the first request were refused for it.

    The coverage phase cannot make text of a pattern that has quotes, and sends the same key with each request.
    """
    headers = case.headers or {}
    if KEY in headers:
        headers[KEY] = f'"{number}"'


def _leave_room(case: Case) -> None:
    """Make a quota a large one: a small one would reject whatever else is added."""
    if isinstance(case.body, dict):
        for name in QUOTAS & case.body.keys():
            if isinstance(case.body[name], int):
                case.body[name] += LARGE


def _aim(case: Case, standing: Any) -> None:
    id, token = standing
    case.path_parameters["id"] = id
    case.headers = {**(case.headers or {}), "X-Tenant": TENANT}
    (case.query or {}).pop("queue", None)
    if token and isinstance(case.body, dict):
        case.body["token"] = token
