"""A drain on a store of several servers: one that does not answer keeps its own shards waiting, and no others."""

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from duecourse.errors import StoreUnavailable
from duecourse.ledger.embedded.ledger import EmbeddedLedger
from duecourse.ledger.operation_types import Claim, Settled
from duecourse.ledger.task import Ending, Settlement, Shard, Status, Task
from duecourse.running import drain
from duecourse.running.drain import TimeoutLeases
from tests.support.clock import HandClock
from tests.support.engine import ample, engine
from tests.support.ledger import new
from tests.support.wait import until

SILENT, QUICK = Shard("silent"), Shard("quick")


class Servers(EmbeddedLedger):
    """A ledger whose queues are on a server each; calls of a silent one go on until its gate is opened."""

    def __init__(self, clock: HandClock) -> None:
        super().__init__(clock)
        self.gates: dict[str, threading.Event] = {}
        self.calls: list[str] = []

    def server_of(self, shard: Shard) -> str:
        return shard.queue

    def claim(self, shard: Shard, limit: int, **terms: Any) -> Claim:  # type: ignore[override]
        self._wait("claim", shard)
        return super().claim(shard, limit, **terms)

    def settle(self, shard: Shard, settlements: Any) -> list[Settled]:
        self._wait("settle", shard)
        return super().settle(shard, settlements)

    def _wait(self, call: str, shard: Shard) -> None:
        self.calls.append(f"{call} {shard.queue}")
        if gate := self.gates.get(shard.queue):
            assert gate.wait(60)


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drain, "PATIENCE_S", 0.3)


@pytest.fixture
def servers(clock: HandClock) -> Iterator[Servers]:
    ledger = Servers(clock)
    ledger.add([new("s", queue="silent"), new("q", queue="quick")])
    yield ledger
    for gate in ledger.gates.values():
        gate.set()


def got(ledger: EmbeddedLedger, queue: str, id: str) -> Task:
    task = ledger.get(queue, id)
    assert task
    return task


def claim(ledger: TimeoutLeases, shard: Shard) -> list[Task]:
    return ledger.claim(shard, 10, lease_ms=30_000).tasks


def test_tasks_of_others_run_while_one_server_has_not_answered(servers: Servers) -> None:
    servers.gates["silent"] = threading.Event()
    ran: list[str] = []
    with engine(servers, lambda task: ran.append(task.id)) as run:
        _, away = run.drainer.drain_reachable([SILENT, QUICK], ample)
    assert ran == ["q"]
    assert isinstance(away, StoreUnavailable)
    assert got(servers, "quick", "q").status == Status.DONE


@pytest.mark.slow
def test_a_late_claim_is_the_answer_to_the_next_one(servers: Servers) -> None:
    gate = servers.gates["silent"] = threading.Event()
    ledger = TimeoutLeases(servers)
    for _ in range(3):
        with pytest.raises(StoreUnavailable):
            claim(ledger, SILENT)
        assert servers.calls.count("claim silent") == 1
    gate.set()
    assert [task.id for task in until(lambda: claims(ledger))] == ["s"]
    assert servers.calls.count("claim silent") == 1
    assert claim(ledger, SILENT) == []
    ledger.close()


def claims(ledger: TimeoutLeases) -> list[Task]:
    try:
        return claim(ledger, SILENT)
    except StoreUnavailable:
        return []


def test_other_shards_of_a_server_that_has_not_answered_are_not_asked(servers: Servers) -> None:
    servers.gates["silent"] = threading.Event()
    ledger = TimeoutLeases(servers)
    for shard in (SILENT, Shard("silent", 1)):
        with pytest.raises(StoreUnavailable):
            claim(ledger, shard)
    assert servers.calls == ["claim silent"]
    ledger.close()


def test_leases_of_a_claim_that_is_answered_after_the_drain_are_given_back(servers: Servers) -> None:
    gate = servers.gates["silent"] = threading.Event()
    ledger = TimeoutLeases(servers)
    with pytest.raises(StoreUnavailable):
        claim(ledger, SILENT)
    ledger.close()
    gate.set()
    until(lambda: "settle silent" in servers.calls)
    until(lambda: got(servers, "silent", "s").status == Status.SCHEDULED)
    assert got(servers, "silent", "s").attempt == 1


def test_a_settle_that_was_not_answered_in_time_is_made_again(servers: Servers) -> None:
    ledger = TimeoutLeases(servers)
    [task] = claim(ledger, SILENT)
    gate = servers.gates["silent"] = threading.Event()
    end = [Settlement.of(task, Ending.DONE)]
    with pytest.raises(StoreUnavailable):
        ledger.settle(SILENT, end)
    assert [one.id for one in claim(ledger, QUICK)] == ["q"]
    gate.set()

    def settles() -> list[Settled]:
        try:
            return ledger.settle(SILENT, end)
        except StoreUnavailable:
            return []

    until(settles)
    assert got(servers, "silent", "s").status == Status.DONE
    ledger.close()
