"""Runs through the core, observed on an App with a ledger in memory: requests and a ring, as the functions get them."""

import json
import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, redirect_stdout
from io import StringIO
from types import FrameType
from typing import Any, NamedTuple, TypeAlias

from duecourse.ledger.embedded.ledger import EmbeddedLedger
from duecourse.settings import Settings
from tests.house.counts import Run, run_of
from tests.support.clock import HandClock
from tests.support.functions import invoke, saved
from tests.support.kinds import Outbox, Ready
from tests.support.source import LAYER
from tests.support.wired import wired_with

CORE = f"{LAYER}/duecourse/"
KIT = f"{CORE}testing/"
NO_CALLS = {"<module>", "<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>"}
"""Frames that are no function's: Python 3.12 has none for most of them."""
HOUR_MS = 3_600_000
TASK = {"kind": "webhook", "payload": {"url": "https://hooks.example.com/orders", "body": {"order": 7}}}
# With jitter the occurrence is not due at once: what is observed ends with the firing, before its task runs.
SCHEDULE = TASK | {"repeat": {"every": "PT1H"}, "jitter": "PT50M", "limit": 1}
REMINDER = {
    "subject": "Stand-up",
    "starts_at": "2099-03-02T09:00:00+01:00",
    "remind_before": ["PT5M", "PT1H"],
    "recipients": [{"name": "Ada", "email": "ada@example.com"}],
    "message": "Room 4",
}
RING = {"key": "duecourse:{default/0}:bell", "channel": "__keyevent@0__:expired", "heard_at": 1, "door": "timer"}
RINGS = {"source": "duecourse.bridge", "version": "1", "rings": [RING]}
Look: TypeAlias = AbstractContextManager[None]
"""Observation, or none, of what is done within it."""


class Runs(NamedTuple):
    """The observed runs: an add of a task, a schedule's add and firing, a reminder's add and move."""

    task: Run
    schedule: Run
    reminder: Run


@contextmanager
def observed(files: list[str], core: str = CORE, apart: str = KIT) -> Iterator[None]:
    """Append the file of each call, in this thread, of a function of the core; its test kit is apart."""

    def note(frame: FrameType, event: str, _: Any) -> None:
        file, name = frame.f_code.co_filename, frame.f_code.co_name
        if event == "call" and file.startswith(core) and not file.startswith(apart) and name not in NO_CALLS:
            files.append(file)

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        yield
    finally:
        sys.setprofile(before)


def runs() -> Runs:
    """Observe the second run of each, in an App of its own: the first one loads and builds what stays."""
    return Runs(_warm(_task), _warm(_schedule), _warm(_reminder))


def _warm(act: Callable[[HandClock, str, Look], None]) -> Run:
    clock, sender, files = HandClock(), Outbox(), list[str]()
    parts = {"ledger": EmbeddedLedger(clock), "senders": {"email": sender, "phone": sender}, "http": Ready()}
    logging.disable()
    try:
        with wired_with(Settings(store="memory://"), **parts), redirect_stdout(StringIO()):
            act(clock, "first", nullcontext())
            act(clock, "second", observed(files))
    finally:
        logging.disable(logging.NOTSET)
    return run_of(files)


def _task(_: HandClock, id: str, look: Look) -> None:
    with look:
        _request("POST", "/tasks", {"id": id, "delay": "P1D", **TASK})


def _schedule(clock: HandClock, id: str, look: Look) -> None:
    with look:
        _request("POST", "/schedules", {"id": id, **SCHEDULE})
        clock.advance(HOUR_MS)
        rung = invoke("on_expired", RINGS)
    assert rung["bell_at"] > clock.now(), "no occurrence was added"
    assert rung["claimed"] == 0, "more than a firing was observed"
    clock.advance(HOUR_MS)
    invoke("on_expired", RINGS)


def _reminder(_: HandClock, id: str, look: Look) -> None:
    with look:
        _request("POST", "/reminders", {"id": id, **REMINDER})
        _request("PATCH", f"/reminders/{id}", {"starts_at": "2099-03-02T10:00:00+01:00"})


def _request(method: str, path: str, body: dict[str, Any]) -> None:
    event = saved("enqueue_http/add_webhook")
    route = {"routeKey": f"{method} {path}"}
    event["requestContext"] |= route | {"http": event["requestContext"]["http"] | {"method": method, "path": path}}
    event |= route | {"rawPath": path, "body": json.dumps(body)}
    answer = invoke("enqueue_http", event)
    assert answer["statusCode"] < 300, answer
