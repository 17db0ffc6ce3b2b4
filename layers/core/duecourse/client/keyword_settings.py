"""Settings of a client that is made by a store's URL: keyword arguments, read as the environment's variables are."""

import json
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, TypedDict

from duecourse.base.hints import near_name
from duecourse.errors import FieldError, InvalidSettings
from duecourse.ledger.task import Span
from duecourse.settings import PREFIX, Settings, parse


class ClientSettings(TypedDict, total=False):
    """Settings that the verbs of a client depend on; see docs/reference/settings.md under DUECOURSE_ and the name."""

    namespace: str
    shards: Mapping[str, int]
    targets: Mapping[str, str]
    results_table: str
    seal_key: str
    wait: int
    dead_target: str
    log_tasks: bool
    egress_allow: str | Sequence[str]
    http_timeout: Span
    host_calls: int
    credential_prefix: str
    poll_interval: Span
    query_parallel: int
    tenant_max_queries: int
    tenant_max_queues: int
    reminder_messages: int
    sms_countries: str | Sequence[str]


def read_settings(store: str, given: Mapping[str, Any]) -> Settings:
    """The settings of a client; None counts as not given. Raises InvalidSettings, naming every wrong one."""
    known = ClientSettings.__annotations__
    unknown = sorted(given.keys() - known)
    wrong = [
        FieldError(name, f"is no setting of a client: use {', '.join(known)}{near_name(name, known)}")
        for name in unknown
    ]
    if not isinstance(store, str) or not store:
        wrong.append(FieldError("store", "must be the URL of a store, such as redis://localhost:6379/0"))
        store = "memory://"
    texts = {name: _text(value) for name, value in given.items() if name in known and value is not None}
    try:
        settings = parse({PREFIX + name.upper(): text for name, text in {**texts, "store": store}.items()})
    except InvalidSettings as error:
        wrong += map(_renamed, error.problems)
    if wrong:
        raise InvalidSettings(wrong)
    return settings


def _text(value: Any) -> str:
    """A value as an environment variable has it."""
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, timedelta):
        return f"{value.total_seconds():f}"  # never 1e-05
    if isinstance(value, Mapping):
        return json.dumps(dict(value))
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def _renamed(problem: FieldError) -> FieldError:
    name, dot, rest = problem.field.partition(".")
    return FieldError(name.removeprefix(PREFIX).lower() + dot + rest, problem.problem)
