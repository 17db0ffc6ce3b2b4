"""What holds due tasks back is told, and for how long where that is known."""

import pytest

from duecourse.ledger.operations.ledger import Ledger
from duecourse.ledger.queue import QueueChanges, Rate, Throttle, ThrottleReason
from tests.support.clock import HandClock
from tests.support.ledger import SHARD, claim, new

LIMITS: dict[ThrottleReason, QueueChanges] = {
    ThrottleReason.PAUSE: {"paused": True},
    ThrottleReason.MAX_RUNNING: {"max_running": 2},
    ThrottleReason.TENANT_MAX_RUNNING: {"tenant_max_running": 2},
    ThrottleReason.RATE: {"rate": Rate(2, 1_000)},
}


@pytest.mark.parametrize("hold", LIMITS)
def test_what_holds_a_tenants_tasks_back(ledger: Ledger, clock: HandClock, hold: ThrottleReason) -> None:
    ledger.add([new(f"t{n}", tenant="t") for n in range(3)])
    ledger.configure("default", {**LIMITS[hold], "paused": False})
    assert len(claim(ledger, 1)) == 1
    assert ledger.throttle(SHARD, "t") == Throttle(now=clock.at)
    clock.advance(300)
    ledger.configure("default", LIMITS[hold])
    claim(ledger)
    until = clock.at + 700 if hold is ThrottleReason.RATE else 0
    assert ledger.throttle(SHARD, "t") == Throttle(hold, until, clock.at)
    other = ledger.throttle(SHARD, "other").reason
    assert other is (None if hold is ThrottleReason.TENANT_MAX_RUNNING else hold)
    ledger.configure("default", dict.fromkeys(LIMITS[hold]))
    assert ledger.throttle(SHARD, "t") == Throttle(now=clock.at)


def test_a_window_that_has_opened_holds_nothing_back_before_a_claim_has_seen_it(
    ledger: Ledger, clock: HandClock
) -> None:
    ledger.configure("default", {"rate": Rate(1, 1_000)})
    ledger.add([new("a"), new("b")])
    claim(ledger)
    clock.advance(999)
    assert ledger.throttle(SHARD).until == clock.at + 1
    clock.advance(1)
    assert ledger.throttle(SHARD) == Throttle(now=clock.at)
