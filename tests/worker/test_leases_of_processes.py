"""Leases of tasks that run in a process of their own: kept while they run, ended when it is to end."""

import threading
import time

import pytest

from duecourse.errors import StoreUnavailable
from duecourse.ledger.embedded.ledger import EmbeddedLedger
from duecourse.ledger.task import STEPS, Run, Status
from duecourse.running.leases import LeaseExtender
from tests.support.clock import HandClock
from tests.support.ledger import claim_one, new, stored_task
from tests.support.wait import until

pytestmark = pytest.mark.slow


def test_the_lease_of_a_running_task_is_extended_and_that_of_another_is_not(
    ledger: EmbeddedLedger, clock: HandClock
) -> None:
    runs, finished = claim_one(ledger, "runs"), claim_one(ledger, "finished")
    alive = LeaseExtender(ledger, step_ms=30_000)
    with alive.while_running(runs):
        with alive.while_running(finished):
            clock.advance(20_000)
        alive.extend()
    assert stored_task(ledger, "runs").lease_expires_at == clock.at + 30_000
    assert stored_task(ledger, "finished").lease_expires_at == clock.at + 10_000


def test_a_lease_that_is_shorter_by_its_queue_is_extended_from_the_beginning(
    ledger: EmbeddedLedger, clock: HandClock
) -> None:
    ledger.add([new("a")])
    [task] = ledger.claim(ledger.shard_of("default", "a"), 1, lease_ms=2_000).tasks
    with LeaseExtender(ledger, step_ms=30_000).while_running(task):
        assert stored_task(ledger, "a").lease_expires_at == clock.at + 30_000


def test_what_is_given_up_is_due_again_at_once_with_the_reason(ledger: EmbeddedLedger, clock: HandClock) -> None:
    task = claim_one(ledger, "a")
    alive = LeaseExtender(ledger)
    with alive.while_running(task):
        assert alive.give_up("stopped") == 1
    again = stored_task(ledger, "a")
    assert (again.status, again.due_at, again.attempt) == (Status.SCHEDULED, clock.at, 1)
    last = again.log[-1]
    assert isinstance(last, Run)
    assert (last.outcome, last.detail) == ("release", "stopped")


def test_a_store_that_is_away_is_logged_and_ends_nothing(clock: HandClock, caplog: pytest.LogCaptureFixture) -> None:
    class Away(EmbeddedLedger):
        def extend(self, *_: object, **__: object) -> list[int]:
            raise StoreUnavailable

        def settle(self, *_: object) -> list[object]:  # type: ignore[override]
            raise StoreUnavailable

    ledger = Away(clock)
    alive = LeaseExtender(ledger)
    with alive.while_running(claim_one(ledger, "a")):
        alive.extend()
        assert alive.give_up("stopped") == 0
    assert [record.levelname for record in caplog.records] == ["WARNING"] * 2


def test_leases_that_could_not_be_extended_are_extended_once_the_store_is_back(
    clock: HandClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    began, step_s = time.monotonic(), 3
    monkeypatch.setattr("duecourse.running.leases.AGAIN_S", 0.1)

    class Away(EmbeddedLedger):
        asked = 0

        def extend(self, *given: object, **options: object) -> list[int]:
            self.asked += 1
            if self.asked < 4:
                raise StoreUnavailable
            return super().extend(*given, **options)  # type: ignore[arg-type]

    ledger = Away(clock)
    task = claim_one(ledger, "a")
    alive = LeaseExtender(ledger, step_ms=step_s * STEPS * 1_000)
    with alive.while_running(task):
        thread = threading.Thread(target=alive.run)
        thread.start()
        until(lambda: ledger.asked == 4)
        alive.stop()
        thread.join()
    assert time.monotonic() - began < 2 * step_s, "it waited for the next step"
