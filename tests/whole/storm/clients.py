"""The clients of a storm: each does its steps in order, by HTTP or by Python, and again after an unknown answer."""

import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import urllib3

from duecourse import Client, errors
from tests.whole.storm.book import Answer, Book, ClientRequest
from tests.whole.storm.plan import HTTP_LANES, Step

TRIES = 4
PAUSE_S = 1.0
REFUSED = frozenset(range(400, 500)) - {408, 429}
PEOPLE = ("Ada", "Max")
MAX_ATTEMPTS = {"w.killer": 2}


class Said(NamedTuple):
    """What came of one request, and the words of the answer."""

    answer: Answer
    words: str = ""


class Work(NamedTuple):
    """What webhooks and polls call, and where the clients ask."""

    receiver: str
    api: str | None


class Lane(threading.Thread):
    """One client. `begun_at` is when the storm began, by the monotonic clock."""

    def __init__(self, number: int, steps: Iterable[Step], book: Book, client: Client, work: Work) -> None:
        super().__init__(daemon=True, name=f"client-{number}")
        self._steps = [step for step in steps if step.lane == number]
        self._book, self._client, self._work = book, client, work
        self._http = urllib3.PoolManager(retries=False, timeout=urllib3.Timeout(30)) if number in HTTP_LANES else None
        self.begun_at = 0.0
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            for step in self._steps:
                time.sleep(max(0.0, self.begun_at + step.at - time.monotonic()))
                self._take(step)
        except BaseException as error:  # noqa: BLE001 - told by whoever waits for the end
            self.error = error

    def _take(self, step: Step) -> None:
        """Ask until it is known what came of it, a few times at most."""
        now = now_ms()
        due_at = _due_at(step, now)
        ask = self._by_http(step, due_at) if self._http and self._work.api else self._by_python(step, due_at)
        for n in range(TRIES):
            sent_at = now_ms()
            said = ask()
            for one in step.fields.get("tasks", [step]):
                verb = "add" if step.verb == "batch" else step.verb
                due = _due_at(one, now)
                self._book.note(
                    ClientRequest(
                        verb, one.queue, one.id, sent_at, now_ms(), said.answer, one.fields.get("v", 0), due, said.words
                    )
                )
            if said.answer is not Answer.UNKNOWN:
                return
            time.sleep(PAUSE_S * (n + 1))

    def _by_python(self, step: Step, due_at: int) -> Callable[[], Said]:
        do: Callable[[], object] = getattr(self, f"_{step.verb}")(step, due_at)

        def ask() -> Said:
            try:
                said = do()
            except (errors.StoreUnavailable, errors.StoreMisused) as error:
                return Said(Answer.UNKNOWN, repr(error))
            except (errors.Conflict, errors.TaskNotFound) as error:
                return Said(Answer.NO, type(error).__name__)
            return Said(Answer.YES, said if isinstance(said, str) else "")

        return ask

    def _add(self, step: Step, due_at: int, how: str = "keep") -> Callable[[], object]:
        body = self._task(step, due_at, how)
        return lambda: self._client.add(**body)

    def _replace(self, step: Step, due_at: int) -> Callable[[], object]:
        return self._add(step, due_at, "replace")

    def _batch(self, step: Step, due_at: int) -> Callable[[], object]:
        tasks: Any = [self._task(one, _due_at(one, due_at), "keep") for one in step.fields["tasks"]]
        return lambda: self._client.add_many(tasks)

    def _move(self, step: Step, due_at: int) -> Callable[[], object]:
        return lambda: self._client.move(step.id, step.queue, due_at=_instant(due_at))

    def _cancel(self, step: Step, _due_at: int) -> Callable[[], object]:
        return lambda: self._client.cancel(step.id, step.queue)

    def _pause(self, step: Step, _due_at: int) -> Callable[[], object]:
        return lambda: self._client.set_queue(step.queue, paused=True, create=True)

    def _resume(self, step: Step, _due_at: int) -> Callable[[], object]:
        return lambda: self._client.set_queue(step.queue, paused=False, create=True)

    def _schedule(self, step: Step, _due_at: int) -> Callable[[], object]:
        return lambda: self._client.schedules.add(queue=step.queue, **_schedule(step))

    def _change_schedule(self, step: Step, _due_at: int) -> Callable[[], object]:
        return lambda: self._client.schedules.change(step.id, step.queue, payload=_payload(step))

    def _run_schedule(self, step: Step, _due_at: int) -> Callable[[], object]:
        return lambda: self._client.schedules.run(step.id, step.queue)

    def _pause_schedule(self, step: Step, _due_at: int) -> Callable[[], object]:
        return lambda: self._client.schedules.change(step.id, step.queue, paused=True)

    def _resume_schedule(self, step: Step, _due_at: int) -> Callable[[], object]:
        return lambda: self._client.schedules.change(step.id, step.queue, paused=False)

    def _delete_schedule(self, step: Step, _due_at: int) -> Callable[[], object]:
        return lambda: self._client.schedules.delete(step.id, step.queue)

    def _task(self, step: Step, due_at: int, how: str) -> dict[str, Any]:
        """The fields of an add."""
        kind, v = step.fields["kind"], step.fields["v"]
        task: dict[str, Any] = {
            "id": step.id,
            "queue": step.queue,
            "kind": kind,
            "due_at": _instant(due_at).isoformat(),
        }
        to = f"{self._work.receiver}/{step.queue}/{step.id}/{v}"
        if kind == "webhook":
            task["payload"] = {"url": to, "body": {"v": v}}
        elif kind == "poll":
            task["payload"] = {"url": f"{to}/poll", "interval": 1, "until": "ready"}
        else:
            task["payload"] = {"v": v}
        if kind in MAX_ATTEMPTS:
            task["retry"] = {"max_attempts": MAX_ATTEMPTS[kind], "backoff": "PT0.1S"}
        if how != "keep":
            task["on_duplicate"] = how
        return task

    def _query(self, step: Step) -> dict[str, Any]:
        return {"url": f"{self._work.receiver}/{step.queue}/{step.id}/1/poll", "interval": 1, "until": "ready"}

    def _request(self, step: Step, due_at: int) -> tuple[str, str, Any]:
        """Method, path and body of what a step asks."""
        place = f"/tasks/{step.id}?queue={step.queue}"
        series = f"/schedules/{step.id}?queue={step.queue}"
        tasks: list[Step] = step.fields.get("tasks", [])
        found: tuple[str, str, Any] = {
            "add": lambda: ("POST", "/tasks", self._task(step, due_at, "keep")),
            "replace": lambda: ("POST", "/tasks", self._task(step, due_at, "replace")),
            "move": lambda: ("PATCH", place, {"due_at": _instant(due_at).isoformat()}),
            "cancel": lambda: ("DELETE", place, None),
            "batch": lambda: (
                "POST",
                "/tasks/batch",
                {"tasks": [self._task(one, _due_at(one, due_at), "keep") for one in tasks]},
            ),
            "schedule": lambda: ("POST", "/schedules", {"queue": step.queue, **_schedule(step)}),
            "change_schedule": lambda: ("PATCH", series, {"payload": _payload(step)}),
            "pause_schedule": lambda: ("PATCH", series, {"paused": True}),
            "resume_schedule": lambda: ("PATCH", series, {"paused": False}),
            "delete_schedule": lambda: ("DELETE", series, None),
            "run_schedule": lambda: ("POST", f"/schedules/{step.id}/run?queue={step.queue}", None),
            "query": lambda: ("POST", "/queries", self._query(step)),
            "remind": lambda: ("POST", "/reminders", _reminder(step)),
            "cancel_reminder": lambda: ("DELETE", f"/reminders/{step.id}", None),
        }[step.verb]()
        return found

    def _by_http(self, step: Step, due_at: int) -> Callable[[], Said]:
        """The same request each time, with the same Idempotency-Key."""
        method, path, body = self._request(step, due_at)
        key = f'"{step.queue}-{step.id}-{step.verb}-{step.at:.3f}"'

        def ask() -> Said:
            assert self._http
            try:
                answer = self._http.request(
                    method, f"{self._work.api}{path}", json=body, headers={"Idempotency-Key": key}
                )
            except urllib3.exceptions.HTTPError as error:
                return Said(Answer.UNKNOWN, repr(error))
            if answer.status < 300:
                named = {"run_schedule": "id", "query": "task"}.get(step.verb)
                return Said(Answer.YES, answer.json()[named] if named else str(answer.status))
            words = f"{answer.status} {answer.data[:200]!r}"
            known = answer.status in REFUSED and b"key-in-use" not in answer.data
            return Said(Answer.NO if known else Answer.UNKNOWN, words)

        return ask


def close(lanes: Iterable[Lane]) -> None:
    """End the connections of clients that have done all."""
    for lane in lanes:
        with suppress(Exception):
            if lane._http:
                lane._http.clear()


def _due_at(step: Step, now: int) -> int:
    """The due time that a step asks for, counted from now (epoch ms)."""
    return now + int(step.fields.get("delay", 0) * 1_000)


def _payload(step: Step) -> dict[str, Any]:
    return {"v": step.fields["v"]}


def _schedule(step: Step) -> Any:
    """The fields of a schedule but its queue."""
    return {
        "id": step.id, "kind": step.fields["kind"], "payload": _payload(step), "limit": step.fields["limit"],
        "repeat": {"every": step.fields["every"]}, "missed": "all",
    }  # fmt: skip


def _reminder(step: Step) -> dict[str, Any]:
    starts = datetime.now(UTC) + timedelta(seconds=step.fields["starts"])
    people = [{"name": name, "email": f"{step.id}.{name.lower()}@example.com"} for name in PEOPLE]
    return {
        "id": step.id, "subject": step.id, "starts_at": starts.isoformat(), "remind_before": ["PT30S"],
        "recipients": people,
    }  # fmt: skip


def _instant(at: int) -> datetime:
    return datetime.fromtimestamp(at / 1_000, UTC)


def now_ms() -> int:
    """This machine's time (epoch ms)."""
    return time.time_ns() // 1_000_000
