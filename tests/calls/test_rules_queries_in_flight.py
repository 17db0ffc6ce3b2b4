"""Queries in flight in every store: so many of a tenant, each until it is dismissed or its time is over."""

from duecourse.ledger.operations.ledger import Ledger
from tests.support.clock import HandClock

FOR_MS = 10_000
HOUR_MS = 3_600_000


def admit(ledger: Ledger, id: str, tenant: str = "acme", most: int = 2) -> str:
    return ledger.in_flight().admit(tenant, id, most, FOR_MS)


def test_so_many_of_a_tenant_are_in_flight_and_those_of_another_do_not_count(ledger: Ledger) -> None:
    first, second = admit(ledger, "q-1@a"), admit(ledger, "q-2@b:8080")
    assert "" not in {first, second}
    assert admit(ledger, "q-3@c") == ""
    assert admit(ledger, "q-3@c", "globex")
    ledger.in_flight().dismiss("acme", first)
    assert admit(ledger, "q-3@c")
    assert admit(ledger, "q-1@a") == ""
    ledger.in_flight().dismiss("acme", first)
    assert admit(ledger, "q-1@a") == "", "it is dismissed already"


def test_one_that_is_never_dismissed_ends_by_itself(ledger: Ledger, clock: HandClock) -> None:
    old = admit(ledger, "q-1@a", most=1)
    clock.advance(FOR_MS - 1)
    assert admit(ledger, "q-2@a", most=1) == ""
    clock.advance(1)
    assert admit(ledger, "q-1@a", most=1)
    ledger.in_flight().dismiss("acme", old)
    assert admit(ledger, "q-2@a", most=1) == "", "the entry that ended is not that of the same query now"


def test_one_whose_time_is_over_holds_no_place_of_another(ledger: Ledger, clock: HandClock) -> None:
    admit(ledger, "q-1@a", most=1)
    clock.advance(FOR_MS)
    assert admit(ledger, "q-2@a", most=1)


def test_one_that_is_admitted_twice_counts_once(ledger: Ledger, clock: HandClock) -> None:
    admit(ledger, "q-1@a")
    clock.advance(1)
    again = admit(ledger, "q-1@a")
    assert admit(ledger, "q-2@a")
    assert admit(ledger, "q-3@a") == ""
    ledger.in_flight().dismiss("acme", again)
    assert admit(ledger, "q-3@a")


def test_a_clock_that_was_put_back_holds_no_place_for_long(ledger: Ledger, clock: HandClock) -> None:
    admit(ledger, "q-1@a", most=1)
    clock.advance(-HOUR_MS)
    assert admit(ledger, "q-2@a", most=1)
