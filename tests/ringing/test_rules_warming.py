"""Rows on warmth: the kinds that come due soon, and the functions that nothing invoked for a while."""

import pytest

from duecourse.ledger.operations.ledger import Ledger
from tests.support.clock import HandClock
from tests.support.ledger import SHARD, claim, new

MINUTE_MS = 60_000


def test_the_kinds_that_come_due_within_the_time_are_known(ledger: Ledger) -> None:
    ledger.add([new("a", kind="report", delay_ms=9_000), new("b", kind="bill", delay_ms=10_000)])
    ledger.add([new("c", kind="late", delay_ms=10_001), new("d", kind="report", delay_ms=100)])
    assert sorted(ledger.warmth().coming(SHARD, 10_000)) == ["bill", "report"]
    assert ledger.warmth().coming(SHARD, 99) == []


def test_a_shard_that_was_never_added_to_has_nothing_coming(ledger: Ledger) -> None:
    assert ledger.warmth().coming(SHARD, MINUTE_MS) == []


def test_every_tenants_head_is_seen(ledger: Ledger) -> None:
    ledger.add([new("a", tenant=f"t{n}", kind=f"kind-{n}", delay_ms=1_000 + n) for n in range(5)])
    assert sorted(ledger.warmth().coming(SHARD, 10_000)) == [f"kind-{n}" for n in range(5)]


def test_a_backlog_of_one_tenant_is_looked_at_within_a_bound(ledger: Ledger) -> None:
    ledger.add([new(f"a{n:03}", kind=f"kind-{n}", delay_ms=1_000 + n) for n in range(200)])
    found = ledger.warmth().coming(SHARD, 10_000)
    assert "kind-0" in found
    assert len(found) < 100


def test_large_payloads_end_the_look(ledger: Ledger) -> None:
    payload = '"' + "x" * 250_000 + '"'
    ledger.add([new(f"a{n}", kind=f"kind-{n}", payload=payload, delay_ms=1_000 + n) for n in range(6)])
    assert "kind-0" in ledger.warmth().coming(SHARD, 10_000)


def test_a_look_changes_nothing(ledger: Ledger, clock: HandClock) -> None:
    ledger.add([new("a", delay_ms=1_000)])
    before = ledger.stats(SHARD)
    ledger.warmth().coming(SHARD, 10_000)
    assert ledger.stats(SHARD) == before
    clock.advance(1_000)
    assert [task.id for task in claim(ledger)] == ["a"]


def test_a_function_is_idle_once_a_spell(ledger: Ledger, clock: HandClock) -> None:
    warmth = ledger.warmth()
    assert warmth.idle(["one", "two"], MINUTE_MS) == ["one", "two"]
    assert warmth.idle(["one"], MINUTE_MS) == []
    clock.advance(MINUTE_MS - 1)
    assert warmth.idle(["two"], MINUTE_MS) == []
    clock.advance(1)
    assert warmth.idle(["one", "two"], MINUTE_MS) == ["one"], "the other was asked for a millisecond ago"


@pytest.mark.parametrize("name", ["a:b", "arn:aws:lambda:eu-central-1:123456789012:function:Report:live"])
def test_a_function_is_known_by_its_whole_name(ledger: Ledger, name: str) -> None:
    assert ledger.warmth().idle([name], MINUTE_MS) == [name]
    assert ledger.warmth().idle([name[:-1]], MINUTE_MS) == [name[:-1]]
