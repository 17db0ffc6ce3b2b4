"""Runs that a stop or a death of their process cut short: which of them spend an attempt, and which run apart."""

import random
from collections.abc import Callable

import pytest

from duecourse.ledger.embedded.ledger import EmbeddedLedger
from duecourse.ledger.task import Ending, Settlement, Status, Task
from duecourse.running.run import DIED, SPARED, STOPPED, interrupted, is_suspect, killed, postpone, release
from tests.support.clock import HandClock
from tests.support.ledger import SHARD, claim, ending, new, stored_task


def claimed(ledger: EmbeddedLedger) -> Task:
    [task] = claim(ledger)
    return task


@pytest.fixture
def task(ledger: EmbeddedLedger) -> Task:
    ledger.add([new("a")])
    return claimed(ledger)


def settled(ledger: EmbeddedLedger, end: Settlement) -> Task:
    """The task under its next lease, after this end of the one before."""
    ledger.settle(SHARD, [end])
    return claimed(ledger)


@pytest.mark.parametrize("why", [STOPPED, DIED])
def test_a_run_that_is_cut_short_spends_an_attempt_only_after_ten_in_a_row(
    ledger: EmbeddedLedger, task: Task, why: str
) -> None:
    for _ in range(SPARED):
        task = settled(ledger, interrupted(task, why))
    assert task.attempt == 1
    task = settled(ledger, interrupted(task, why))
    assert (task.attempt, stored_task(ledger, "a").error) == (2, why)
    assert settled(ledger, interrupted(task, why)).attempt == 2, "the row begins anew"


def test_a_task_is_a_suspect_from_its_processs_death_until_a_run_has_ended(
    ledger: EmbeddedLedger, task: Task, clock: HandClock
) -> None:
    rng = random.Random(1)
    assert not is_suspect(task)
    task = settled(ledger, interrupted(task, DIED))
    assert is_suspect(task)
    ledger.settle(SHARD, [killed(task, "signal 9", rng)])
    clock.advance(10_000)
    task = claimed(ledger)
    assert (is_suspect(task), task.attempt) == (True, 2)
    ledger.settle(SHARD, [ending(task, Ending.AGAIN)])
    clock.advance(10_000)
    assert not is_suspect(claimed(ledger))


@pytest.mark.parametrize(
    "give_back",
    [release, lambda task: postpone(task, random.Random(1), "it waits"), lambda task: interrupted(task, STOPPED)],
)
def test_a_suspect_that_is_given_back_unrun_stays_one(
    ledger: EmbeddedLedger, task: Task, clock: HandClock, give_back: Callable[[Task], Settlement]
) -> None:
    task = settled(ledger, interrupted(task, DIED))
    ledger.settle(SHARD, [give_back(task)])
    clock.advance(60_000)
    assert is_suspect(claimed(ledger))


def test_a_task_that_kills_its_process_alone_dies_after_its_attempts(ledger: EmbeddedLedger, clock: HandClock) -> None:
    ledger.add([new("a")])
    for _ in range(new().retry.max_attempts):
        clock.advance(4_000_000)
        ledger.settle(SHARD, [killed(claimed(ledger), "signal 9", random.Random(1))])
    assert (stored_task(ledger, "a").status, stored_task(ledger, "a").error) == (Status.DEAD, f"{DIED}: signal 9")
