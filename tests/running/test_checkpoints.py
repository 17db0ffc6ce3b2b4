"""What long work of a user's own calls while it runs: a checkpoint, more time, each under the lease."""

from collections.abc import Iterator

import pytest

import duecourse
from duecourse import Task
from duecourse.errors import LeaseLost
from duecourse.ledger.embedded.ledger import EmbeddedLedger
from duecourse.ledger.task import Ending
from tests.support.clock import HandClock
from tests.support.ledger import LEASE_MS, claim, new, settle, stored_task
from tests.support.wired import wired_with


@pytest.fixture(autouse=True)
def wired(ledger: EmbeddedLedger) -> Iterator[None]:
    with wired_with(ledger=ledger):
        yield


@pytest.fixture
def task(ledger: EmbeddedLedger) -> Task:
    ledger.add([new("a")])
    return claim(ledger)[0]


def test_a_checkpoint_is_what_the_next_run_finds(ledger: EmbeddedLedger, task: Task, clock: HandClock) -> None:
    duecourse.save(task, {"page": 7})
    clock.at += LEASE_MS
    assert claim(ledger)[0].state == {"page": 7}


def test_more_time_keeps_the_task_from_others(ledger: EmbeddedLedger, task: Task, clock: HandClock) -> None:
    duecourse.extend(task, "PT2H")
    clock.at += 3_600_000
    assert claim(ledger) == []


def test_who_lost_the_lease_is_told(ledger: EmbeddedLedger, task: Task) -> None:
    settle(ledger, task, Ending.DONE)
    with pytest.raises(LeaseLost):
        duecourse.save(task, {"page": 7})
    with pytest.raises(LeaseLost):
        duecourse.extend(task, "PT2H")


def test_a_checkpoint_over_4_kib_is_refused(ledger: EmbeddedLedger, task: Task) -> None:
    with pytest.raises(ValueError, match="over 4 KiB"):
        duecourse.save(task, "x" * 5_000)
    assert stored_task(ledger, "a").state is None
