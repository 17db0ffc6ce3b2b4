"""The record of deployments in every store: each writes its own, and what none writes any more passes away."""

from duecourse.ledger.operation_types import Deployed
from duecourse.ledger.operations.ledger import Ledger
from duecourse.ledger.operations.namespace_records import DEPLOYMENT_KEPT_MS, DEPLOYMENT_RENEWED_MS
from tests.support.clock import START, HandClock

OLD, NEW = {"poll", "report"}, {"poll", "bill", "report"}


def test_a_ledger_without_deployments_knows_no_kinds(ledger: Ledger) -> None:
    assert ledger.deployments().read() == Deployed()


def test_the_kinds_of_a_deployment_are_known_with_those_that_it_hands_over(ledger: Ledger) -> None:
    assert ledger.deployments().write(NEW, {"bill"})
    assert ledger.deployments().read() == Deployed(NEW, {"bill"}, "", START)


def test_what_was_written_lately_is_not_written_again(ledger: Ledger, clock: HandClock) -> None:
    ledger.deployments().write(OLD, ())
    clock.advance(DEPLOYMENT_RENEWED_MS - 1)
    assert not ledger.deployments().write(OLD, ())
    assert ledger.deployments().write(NEW, ()), "a kind is new"
    clock.advance(1)
    assert ledger.deployments().write(OLD, ()), "the others are old by now"
    assert not ledger.deployments().write(NEW, ())


def test_deployments_beside_each_other_undo_nothing_of_each_other(ledger: Ledger, clock: HandClock) -> None:
    ledger.deployments().write(OLD, {"report"})
    ledger.deployments().write({"poll", "bill"}, {"bill"})
    for _ in range(3 * DEPLOYMENT_KEPT_MS // DEPLOYMENT_RENEWED_MS):
        clock.advance(DEPLOYMENT_RENEWED_MS)
        ledger.deployments().write(OLD, {"report"})
        ledger.deployments().write({"poll", "bill"}, {"bill"})
        known = ledger.deployments().read()
        assert (known.kinds, known.handed) == (NEW, {"bill", "report"})


def test_a_kind_that_no_deployment_names_any_more_passes_away(ledger: Ledger, clock: HandClock) -> None:
    ledger.deployments().write(NEW, {"bill"})
    clock.advance(DEPLOYMENT_KEPT_MS - 1)
    ledger.deployments().write(OLD, ())
    assert ledger.deployments().read().kinds == NEW
    clock.advance(1)
    assert ledger.deployments().write(OLD, ()), "one was dropped"
    assert ledger.deployments().read()[:2] == (OLD, frozenset())


def test_the_kinds_stay_while_no_deployment_is_up(ledger: Ledger, clock: HandClock) -> None:
    ledger.deployments().write(NEW, {"bill"})
    clock.advance(100 * DEPLOYMENT_KEPT_MS)
    assert ledger.deployments().read() == Deployed(NEW, {"bill"}, "", START)


def test_what_was_written_by_a_clock_ahead_is_written_anew(ledger: Ledger, clock: HandClock) -> None:
    clock.advance(DEPLOYMENT_KEPT_MS)
    ledger.deployments().write(OLD, ())
    clock.advance(-DEPLOYMENT_KEPT_MS)
    assert ledger.deployments().write(OLD, ())
    assert ledger.deployments().read().written_at == START


def test_the_table_that_was_written_last_is_known(ledger: Ledger, clock: HandClock) -> None:
    record = ledger.deployments()
    record.write(OLD, (), "Results-1A@eu-west-1")
    assert record.read().results == "Results-1A@eu-west-1"
    clock.advance(1)
    record.write(OLD, (), "Another@eu-west-1")
    assert record.read() == Deployed(OLD, frozenset(), "Another@eu-west-1", START + 1)
