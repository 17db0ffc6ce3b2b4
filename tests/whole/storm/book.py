"""What was asked and answered, and what ran: kept by the storm itself, not by the product."""

import json
import threading
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any


class Answer(StrEnum):
    """What came of a request: the change was made, it was rejected and nothing changed, or nobody knows."""

    YES = "yes"
    NO = "no"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class ClientRequest:
    """One request of a client; times are epoch ms. `v` is the version that it makes, `due_at` the due time."""

    verb: str
    queue: str
    id: str
    sent_at: int
    answered_at: int
    answer: Answer
    v: int = 0
    due_at: int = 0
    said: str = ""

    @property
    def name(self) -> str:
        """Whom it was about."""
        return f"{self.queue}/{self.id}"


@dataclass(frozen=True, slots=True)
class Ran:
    """One run of a handler; `ended_at` and `outcome` are None if its process did not come so far."""

    name: str
    kind: str
    v: int | None
    run: int
    attempt: int
    fence: int
    due_at: int
    pid: int
    began_at: int
    ended_at: int | None
    outcome: str | None


@dataclass(frozen=True, slots=True)
class Received:
    """One effect outside: a request to the receiver, or a message in a broker's queue."""

    name: str
    at: int
    v: int | None
    fence: int


class Book:
    """The storm's own ledger; clients write into it from threads of their own."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._lock = threading.Lock()
        self.asked: list[ClientRequest] = []
        self.received: list[Received] = []

    def note(self, asked: ClientRequest) -> None:
        """Keep what a client asked."""
        with self._lock:
            self.asked.append(asked)

    def receive(self, received: Received) -> None:
        """Keep what a receiver saw."""
        with self._lock:
            self.received.append(received)

    def by_name(self) -> dict[str, list[ClientRequest]]:
        """All requests about each task or schedule, in order."""
        found = defaultdict(list)
        for asked in self.asked:
            found[asked.name].append(asked)
        return found

    def runs(self) -> dict[str, list[Ran]]:
        """All runs of each task, in the order of their begins."""
        found = defaultdict(list)
        for ran in sorted(self._runs(), key=lambda ran: ran.began_at):
            found[ran.name].append(ran)
        return found

    def _runs(self) -> Iterator[Ran]:
        """A run's lines have its process and its fence in common."""
        if not self._log.exists():
            return
        lines: list[dict[str, Any]] = [json.loads(line) for line in self._log.read_text().splitlines()]
        ends = {_run_of(line): line for line in lines if line["what"] == "end"}
        for line in lines:
            if line["what"] == "begin":
                end = ends.get(_run_of(line), {})
                yield Ran(
                    f"{line['queue']}/{line['id']}", line["kind"], line["v"], line["run"], line["attempt"],
                    line["fence"], line["due"], line["pid"], line["at"], end.get("at"), end.get("outcome"),
                )  # fmt: skip


def _run_of(line: dict[str, Any]) -> tuple[object, ...]:
    return line["queue"], line["id"], line["fence"], line["pid"]
