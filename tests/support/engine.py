"""Engines for tests: a drainer on a store, threads that end with their test, and the world as a few lines of memory."""

import json
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import NamedTuple

from duecourse.base.json_text import Json
from duecourse.errors import InvocationRejected, ResultsUnavailable
from duecourse.ledger import schedule
from duecourse.ledger.operation_types import Result, Results
from duecourse.ledger.operations.ledger import Ledger
from duecourse.ledger.task import Shard, Task
from duecourse.running.drain import Drainer, Fire, Limits
from duecourse.running.hand_over import Targets
from duecourse.running.run import Kind, Runner
from duecourse.running.task_event import BrokerMessage, Invoker, Publisher
from duecourse.running.threads import Threads

MARGIN_MS = 10_000


class Lambda:
    """An Invoker that keeps what it is sent, or refuses it."""

    def __init__(self, refusal: Exception | None = None) -> None:
        self.refusal = refusal
        self.sent: list[tuple[str, Json]] = []
        self.prepared = False

    def prepare(self) -> None:
        self.prepared = True

    def invoke(self, function: str, event: Json) -> Json:
        raise InvocationRejected(f"{function} {event}")

    def send(self, function: str, event: Json) -> None:
        self.sent.append((function, event))
        if self.refusal:
            raise self.refusal

    def ids(self) -> list[list[str]]:
        """The ids of each invocation's tasks."""
        return [[task["id"] for task in event["tasks"]] for _, event in self.sent]


class Broker:
    """A Publisher that keeps what it confirms; `problems` are why it does not confirm some, by id."""

    def __init__(self, problems: Mapping[str, str] = MappingProxyType({}), refusal: Exception | None = None) -> None:
        self.problems = problems
        self.refusal = refusal
        self.queues: dict[str, dict[str, Json]] = {}

    def publish(self, queue: str, messages: Sequence[BrokerMessage]) -> list[str]:
        if self.refusal:
            raise self.refusal
        confirmed = {m.id: json.loads(m.body) for m in messages if m.id not in self.problems}
        self.queues.setdefault(queue, {}).update(confirmed)
        return [self.problems.get(message.id, "") for message in messages]


class Table:
    """A Results in memory that takes what has no higher fence there, or is away."""

    place = "table@eu-west-1"

    def __init__(self) -> None:
        self.away = False
        self.results: dict[str, Result] = {}

    def put(self, task: Task, result_json: str, now: int) -> bool:
        if self.away:
            raise ResultsUnavailable
        there = self.results.get(task.id)
        if there and there.fence > task.fence:
            return False
        self.results[task.id] = Result(result_json, task.fence, now)
        return True

    def get(self, queue: str, id: str, tenant: str) -> Result | None:
        assert (queue, tenant) == ("default", "-")
        return self.results.get(id)


class ResultsInMemory:
    """A Results in memory: the last result of each task, by queue, id and tenant."""

    place = "table@eu-west-1"

    def __init__(self) -> None:
        self.results: dict[tuple[str, str, str], Result] = {}

    def put(self, task: Task, result_json: str, now: int) -> bool:
        self.results[task.queue, task.id, task.tenant] = Result(json.loads(result_json), task.fence, now)
        return True

    def get(self, queue: str, id: str, tenant: str) -> Result | None:
        return self.results.get((queue, id, tenant))


def targets_of(
    targets: Mapping[str, str],
    invoker: Invoker | None = None,
    brokers: Mapping[str, Publisher] = MappingProxyType({}),
    *,
    outstanding: int = 100,
    delivery_lease_ms: int = 300_000,
) -> Targets:
    """Targets that are handed each task as it is."""
    limits = {"outstanding": outstanding, "delivery_lease_ms": delivery_lease_ms}
    return Targets(targets, (invoker or Lambda()).send, brokers, lambda task: task, **limits)


def fire_nothing(shard: Shard, _due: Sequence[schedule.StoredSchedule], _now: int) -> None:
    """Fail: where a drain fires nothing, no schedule is to be due."""
    raise AssertionError(f"a schedule is due in {shard}")


class Engine(NamedTuple):
    """A drainer and what it stands on."""

    drainer: Drainer
    runner: Runner
    threads: Threads


@contextmanager
def engine(
    ledger: Ledger,
    kinds: Mapping[str, Kind] | Kind,
    *,
    size: int = 4,
    results: Results | None = None,
    targets: Mapping[str, str] | None = None,
    invoker: Lambda | None = None,
    broker: Broker | None = None,
    lease_ms: int = 30_000,
    fire: Fire = fire_nothing,
) -> Iterator[Engine]:
    """An engine whose tasks do what `kinds` says, by name or all the same; its threads end with the test."""
    kind_of: Callable[[str], Kind | None] = kinds.get if isinstance(kinds, Mapping) else lambda _name: kinds
    runner = Runner(kind_of, results, ledger.now, random.Random(7))
    threads = Threads(size)
    limits = Limits(lease_ms, MARGIN_MS)
    try:
        brokers = {"sqs": broker} if broker else {}
        handing = targets_of(targets or {}, invoker, brokers)
        yield Engine(Drainer(ledger, runner, handing, threads, limits, fire), runner, threads)
    finally:
        threads.close()


def ample() -> int:
    """A time left that is never short."""
    return 60_000
