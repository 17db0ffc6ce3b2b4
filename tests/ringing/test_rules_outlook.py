"""The outlook of a shard: when it next has something to do; and the rounds of upkeep, kept for the next tick."""

import pytest

from duecourse.ledger.operation_types import Delivery, Move, Outlook
from duecourse.ledger.operations.ledger import Ledger
from duecourse.ledger.task import Ending, Shard
from tests.support.clock import HandClock
from tests.support.ledger import LATER_MS, LEASE_MS, SHARD, bring, claim, new, settle

HOUR_MS = 3_600_000


def outlook(ledger: Ledger, shard: Shard = SHARD) -> Outlook:
    [answer] = ledger.outlook_of([shard])
    assert isinstance(answer, Outlook)
    return answer


@pytest.mark.parametrize("state", ["absent", "cancelled", "done"])
def test_a_shard_without_anything_to_do_has_no_instant(ledger: Ledger, clock: HandClock, state: str) -> None:
    bring(ledger, state)
    assert outlook(ledger) == Outlook(0, 0, clock.at)


def test_what_is_scheduled_is_told_by_the_earliest(ledger: Ledger, clock: HandClock) -> None:
    ledger.add([new("a", delay_ms=HOUR_MS), new("b", tenant="other", delay_ms=LATER_MS)])
    assert outlook(ledger).next_at == clock.at + LATER_MS
    ledger.move("default", [Move("a", delay_ms=1)])
    assert outlook(ledger).next_at == clock.at + 1


def test_a_lease_is_told_by_its_end(ledger: Ledger, clock: HandClock) -> None:
    bring(ledger, "leased")
    ledger.add([new("b", delay_ms=HOUR_MS)])
    assert outlook(ledger).next_at == clock.at + LEASE_MS
    ledger.move("default", [Move("b", delay_ms=LEASE_MS - 1)])
    assert outlook(ledger).next_at == clock.at + LEASE_MS - 1


@pytest.mark.parametrize("changes", [{}, {"paused": True}, {"max_running": 1}, {"tenant_max_running": 1}])
def test_a_due_task_is_something_to_do_whatever_it_waits_for(
    ledger: Ledger, clock: HandClock, changes: dict[str, int]
) -> None:
    ledger.add([new(id) for id in "abc"])
    assert 0 < outlook(ledger).next_at <= clock.at
    claim(ledger, 1, lease_ms=HOUR_MS)
    ledger.configure("default", changes)  # type: ignore[arg-type]
    claim(ledger, 1, lease_ms=HOUR_MS)
    assert 0 < outlook(ledger).next_at <= clock.at


def test_a_task_that_waits_for_room_at_its_target_is_something_to_do(ledger: Ledger, clock: HandClock) -> None:
    deliveries = {"report": Delivery("lambda:report", 1, HOUR_MS)}
    ledger.add([new(id, kind="report") for id in "ab"])
    ledger.claim(SHARD, 10, lease_ms=HOUR_MS, deliveries=deliveries)
    assert 0 < outlook(ledger).next_at <= clock.at


def test_a_delivery_is_told_by_its_end(ledger: Ledger, clock: HandClock) -> None:
    ledger.add([new(kind="report")])
    ledger.claim(SHARD, 10, lease_ms=1, deliveries={"report": Delivery("lambda:report", 1, HOUR_MS)})
    assert outlook(ledger).next_at == clock.at + HOUR_MS


def test_the_dead_are_counted(ledger: Ledger) -> None:
    ledger.add([new("a"), new("b")])
    for task in claim(ledger):
        settle(ledger, task, Ending.DROP)
    assert outlook(ledger)[:2] == (0, 2)


def test_many_shards_are_asked_together_and_each_answers_for_itself(ledger: Ledger, clock: HandClock) -> None:
    ledger.add([new("a", queue=f"q{n}", delay_ms=n) for n in range(1, 40)])
    shards = [Shard(f"q{n}") for n in range(1, 41)]
    answers = ledger.outlook_of(shards)
    assert [one.next_at for one in answers if isinstance(one, Outlook)] == [
        *(clock.at + n for n in range(1, 40)),
        0,
    ]


def test_a_round_is_kept_and_its_parts_are_noted_one_by_one(ledger: Ledger) -> None:
    rounds = ledger.rounds()
    assert rounds.swept_at() == {}
    rounds.note([1, 3], 500)
    rounds.note([3], 700)
    assert ledger.rounds().swept_at() == {1: 500, 3: 700}
