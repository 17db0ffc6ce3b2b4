"""The record of deployments in every store: each writes its own, and what none writes any more passes away."""

from duecourse.ledger.operations import Deployed
from duecourse.ledger.store.ledger import Ledger
from duecourse.ledger.store.records import DEPLOYMENT_KEPT_MS, DEPLOYMENT_RENEWED_MS
from tests.support.clock import START, HandClock

OLD, NEW = {"poll", "report"}, {"poll", "bill", "report"}


def test_a_ledger_without_deployments_knows_no_kinds(store: Ledger) -> None:
    assert store.deployments().read() == Deployed()


def test_the_kinds_of_a_deployment_are_known_with_those_that_it_hands_over(store: Ledger) -> None:
    assert store.deployments().write(NEW, {"bill"})
    assert store.deployments().read() == Deployed(NEW, {"bill"}, "", START)


def test_what_was_written_lately_is_not_written_again(store: Ledger, clock: HandClock) -> None:
    store.deployments().write(OLD, ())
    clock.advance(DEPLOYMENT_RENEWED_MS - 1)
    assert not store.deployments().write(OLD, ())
    assert store.deployments().write(NEW, ()), "a kind is new"
    clock.advance(1)
    assert store.deployments().write(OLD, ()), "the others are old by now"
    assert not store.deployments().write(NEW, ())


def test_deployments_beside_each_other_undo_nothing_of_each_other(store: Ledger, clock: HandClock) -> None:
    store.deployments().write(OLD, {"report"})
    store.deployments().write({"poll", "bill"}, {"bill"})
    for _ in range(3 * DEPLOYMENT_KEPT_MS // DEPLOYMENT_RENEWED_MS):
        clock.advance(DEPLOYMENT_RENEWED_MS)
        store.deployments().write(OLD, {"report"})
        store.deployments().write({"poll", "bill"}, {"bill"})
        known = store.deployments().read()
        assert (known.kinds, known.handed) == (NEW, {"bill", "report"})


def test_a_kind_that_no_deployment_names_any_more_passes_away(store: Ledger, clock: HandClock) -> None:
    store.deployments().write(NEW, {"bill"})
    clock.advance(DEPLOYMENT_KEPT_MS - 1)
    store.deployments().write(OLD, ())
    assert store.deployments().read().kinds == NEW
    clock.advance(1)
    assert store.deployments().write(OLD, ()), "one was dropped"
    assert store.deployments().read()[:2] == (OLD, frozenset())


def test_the_kinds_stay_while_no_deployment_is_up(store: Ledger, clock: HandClock) -> None:
    store.deployments().write(NEW, {"bill"})
    clock.advance(100 * DEPLOYMENT_KEPT_MS)
    assert store.deployments().read() == Deployed(NEW, {"bill"}, "", START)


def test_what_was_written_by_a_clock_ahead_is_written_anew(store: Ledger, clock: HandClock) -> None:
    clock.advance(DEPLOYMENT_KEPT_MS)
    store.deployments().write(OLD, ())
    clock.advance(-DEPLOYMENT_KEPT_MS)
    assert store.deployments().write(OLD, ())
    assert store.deployments().read().written_at == START


def test_the_table_that_was_written_last_is_known(store: Ledger, clock: HandClock) -> None:
    record = store.deployments()
    record.write(OLD, (), "Results-1A@eu-west-1")
    assert record.read().results == "Results-1A@eu-west-1"
    clock.advance(1)
    record.write(OLD, (), "Another@eu-west-1")
    assert record.read() == Deployed(OLD, frozenset(), "Another@eu-west-1", START + 1)
