"""First event of a function's process, before it counts as ready: it loads everything and does nothing."""

import json
from collections.abc import Callable, Iterable, Mapping

from duecourse import settings
from duecourse.bridge.rings import warm_event
from duecourse.engine.warmer import LAMBDA
from duecourse.errors import InvalidSettings
from duecourse.wire.events.invocation import tasks_event

from ..aws.events import HttpRequest, http_event
from ..template.model import Function

ON_EXPIRED = "on_expired"
"""The folder of the function that the bridge invokes."""
HEALTH = "GET /health"
ASKED = HttpRequest("GET", "/health", "", (), b"", "127.0.0.1", "HTTP/1.1")


def first_events(
    described: Iterable[Function], settings_of: Callable[[Function], Mapping[str, str]]
) -> dict[str, bytes]:
    """JSON text by function: rings to come for who serves rings, no tasks for who works tasks, health for the API."""
    events = {}
    for function in described:
        if any(route.key == HEALTH for route in function.routes):
            events[function.name] = http_event(ASKED, HEALTH, {})
        if function.code.name == ON_EXPIRED:
            events[function.name] = warm_event([])
            events |= dict.fromkeys(_targets(settings_of(function)), tasks_event([]))
    return {name: json.dumps(event).encode() for name, event in events.items()}


def _targets(environment: Mapping[str, str]) -> list[str]:
    try:
        targets = settings.parse(environment).targets.values()
    except InvalidSettings:
        return []  # which the functions will say themselves
    return [target.removeprefix(LAMBDA) for target in targets if target.startswith(LAMBDA)]
