"""Stage of the stories: the running stack, seen as its users see it."""

import json
import os
import signal
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import urllib3

from ..harness.aws.emulator import SENT
from .fake_services import FakeServices

if TYPE_CHECKING:
    from ..harness.stack import Stack

T = TypeVar("T")
PATIENCE_S = 25.0


class StoryFailed(Exception):
    """Something was not as the story tells it."""


class Mail(NamedTuple):
    """An e-mail that the emulated service took."""

    to: str
    subject: str
    text: str


class Sms(NamedTuple):
    """An SMS that the emulated service took."""

    to: str
    text: str


class Lateness(NamedTuple):
    """Time from the due time of a task's last run to its claim."""

    task: str
    kind: str
    runs: int
    by: str
    late_ms: int


class Stage:
    """The stack's HTTP API, its mailbox and its results table."""

    def __init__(self, stack: "Stack", services: FakeServices) -> None:
        self.stack = stack
        self.services = services
        self.lateness: list[Lateness] = []
        self._http = urllib3.PoolManager(retries=False, timeout=10)

    def call(self, method: str, path: str, body: Any = None, *, expect: int) -> Any:
        """One request to the HTTP API, and its answer. Raises StoryFailed for another status."""
        answer = self._http.request(method, self.stack.api + path, json=body)
        check(answer.status == expect, f"{method} {path} answers {expect}", f"{answer.status} {answer.data.decode()}")
        return answer.json() if answer.data else None

    def finished(self, id: str, *, queue: str = "default") -> Any:
        """The task once it is done; its lateness and the trigger of its last run are noted."""
        path = f"/tasks/{id}?queue={queue}"

        def look() -> Any:
            task = self.call("GET", path, expect=200)["task"]
            return task if task["state"] in ("done", "dead") else None

        task = until(look, f"task {id} ends")
        check(task["state"] == "done", f"task {id} is done", json.dumps(task))
        late = _ms(task["history"][-1]["claimed_at"], task["due_at"])
        self.lateness.append(Lateness(id, task["kind"], task["run"], self._trigger(id, queue), late))
        return task

    def _trigger(self, id: str, queue: str) -> str:
        timeline = self.call("GET", f"/tasks/{id}/why?queue={queue}", expect=200)["timeline"]
        return str([entry["trigger"] for entry in timeline if "trigger" in entry][-1])

    def result(self, id: str) -> Any:
        """Value that the results table keeps for a task of the default queue, or None."""
        names = self.stack.session().client("dynamodb").list_tables()["TableNames"]
        table = self.stack.session().resource("dynamodb").Table(names[0])
        item = table.get_item(Key={"id": f"default/-/{id}"}).get("Item")
        return json.loads(item["result"]) if item else None

    def end_ringer(self) -> str:
        """Kill the bridge or the lingering tick; answers a description of the kill."""
        if self.stack.in_threads:
            self.stack.kill_bridge()
            return "bridge is stopped: it was threads of this process"
        pids = self.stack.pids()
        if pids["bridge"]:
            self.stack.kill_bridge()
            return "bridge is killed (SIGKILL)"
        for pid in pids["functions"]["PollTickFunction"]:
            os.kill(pid, signal.SIGKILL)
        return "lingering tick is killed (SIGKILL)"

    def mails(self) -> list[Mail]:
        """Every e-mail sent so far."""
        answer = self._http.request("GET", self.stack.aws + SENT).json()
        return [Mail(mail["to"], mail["subject"], mail["body"]) for mail in answer["mails"]]

    def texts(self) -> list[Sms] | None:
        """Every SMS sent so far; None where the emulator does not tell."""
        answer = self._http.request("GET", self.stack.aws + SENT)
        return [Sms(sms["to"], sms["text"]) for sms in answer.json()["sms"]] if answer.status == 200 else None


def until(probe: Callable[[], T | None], what: str) -> T:
    """The first answer of `probe` that is not None. Raises StoryFailed where none comes in PATIENCE_S."""
    deadline = time.monotonic() + PATIENCE_S
    while (answer := probe()) is None:
        check(time.monotonic() < deadline, what, f"not within {PATIENCE_S:g} s")
        time.sleep(0.05)
    return answer


def check(true: bool, expected: str, seen: str) -> None:
    """Raise StoryFailed where the story does not hold."""
    if not true:
        raise StoryFailed(f"expected: {expected}\nseen:     {seen}")


def _ms(later: str, earlier: str) -> int:
    return (datetime.fromisoformat(later) - datetime.fromisoformat(earlier)) // timedelta(milliseconds=1)
