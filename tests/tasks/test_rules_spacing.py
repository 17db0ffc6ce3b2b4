"""Adding what must be apart from the others of its group: one task stands for all within its span of ids."""

from typing import Any

import pytest

from duecourse.ledger.operation_types import AddReply, Reply
from duecourse.ledger.operations.ledger import Ledger
from duecourse.ledger.task import Apart, Ending, NewTask, OnDuplicate
from tests.support.clock import HandClock
from tests.support.ledger import SHARD, bring, claim, new, settle, stored_task

CREATED, KEPT = Reply.CREATED, Reply.KEPT


def at(number: int, span: int = 10, **fields: Any) -> NewTask:
    """A task of the group `g` that is alone within `span` of its number."""
    apart = Apart(f"g:{number - span:03d}", f"g:{number + span:03d}")
    return new(f"g:{number:03d}", **{"group": "g", "apart": apart} | fields)


def replies(added: list[AddReply]) -> list[Reply]:
    return [one.reply for one in added]


@pytest.mark.parametrize("number", [490, 495, 500, 505, 510])
def test_a_task_within_anothers_span_is_that_task(ledger: Ledger, number: int) -> None:
    ledger.add([at(500, payload="1")])
    own = stored_task(ledger, "g:500") if number == 500 else None
    [added] = ledger.add([at(number, payload="2")], echo=True)
    assert (added.id, added.reply, added.task) == (f"g:{number:03d}", KEPT, own)
    assert [(t.id, t.payload_json) for t in ledger.group("default", "g")] == [("g:500", "1")]
    assert ledger.stats(SHARD).scheduled == 1


@pytest.mark.parametrize("number", [489, 511])
def test_a_task_beyond_the_span_is_a_task_of_its_own(ledger: Ledger, number: int) -> None:
    ledger.add([at(500)])
    assert replies(ledger.add([at(number)])) == [CREATED]
    assert ledger.stats(SHARD).scheduled == 2


def test_the_span_of_the_one_that_comes_decides(ledger: Ledger) -> None:
    ledger.add([at(500, span=0)])
    assert replies(ledger.add([at(600, span=100), at(601, span=100)])) == [KEPT, CREATED]


@pytest.mark.parametrize("state", ["scheduled", "leased", "done", "cancelled", "dead"])
def test_a_task_stands_for_the_others_whatever_became_of_it(ledger: Ledger, state: str) -> None:
    bring(ledger, state, "g:500", group="g")
    assert replies(ledger.add([at(505), at(500)])) == [KEPT, KEPT]
    assert [t.id for t in ledger.group("default", "g")] == ["g:500"]
    assert stored_task(ledger, "g:500").status == state


def test_what_is_forgotten_stands_for_nothing(ledger: Ledger, clock: HandClock) -> None:
    ledger.add([at(500)])
    settle(ledger, claim(ledger)[0], Ending.DONE)
    clock.advance(1_001)
    assert ledger.sweep(SHARD, retention_ms=1_000).pruned == 1
    assert replies(ledger.add([at(505)])) == [CREATED]


def test_another_group_and_another_tenant_are_far_apart(ledger: Ledger) -> None:
    ledger.add([at(500)])
    assert replies(ledger.add([at(501, group="g2"), at(502, group="g", tenant="t")])) == [CREATED, CREATED]
    assert replies(ledger.add([at(503, group="g2"), at(504, tenant="t")])) == [KEPT, KEPT]


def test_those_of_one_batch_are_held_apart_from_each_other(ledger: Ledger) -> None:
    batch = [at(500), new("other"), at(505), at(520), at(500), at(530), at(531)]
    assert replies(ledger.add(batch)) == [CREATED, CREATED, KEPT, CREATED, KEPT, KEPT, CREATED]
    assert [t.id for t in ledger.group("default", "g")] == ["g:500", "g:520", "g:531"]
    assert len(claim(ledger)) == 4


def test_it_decides_in_place_of_what_a_duplicate_would_do(ledger: Ledger) -> None:
    ledger.add([at(500, payload="1")])
    assert replies(ledger.add([at(500, payload="2", on_duplicate=OnDuplicate.REPLACE)])) == [KEPT]
    assert stored_task(ledger, "g:500").payload_json == "1"


def test_in_a_queue_of_several_shards_the_groups_shard_is_looked_at(sharded: Ledger) -> None:
    def each(number: int) -> list[NewTask]:
        return [new(f"g{n}:{number}", group=f"g{n}", apart=Apart(f"g{n}:4", f"g{n}:6")) for n in range(20)]

    assert set(replies(sharded.add(each(500)))) == {CREATED}
    assert set(replies(sharded.add(each(501)))) == {KEPT}
    assert sum(sharded.stats(shard).scheduled for shard in sharded.shards()) == 20
