"""What each verb answers in each state: the design's table, every row by every column, on every store."""

import pytest

from duecourse.ledger.operation_types import Move, Reply
from duecourse.ledger.operations.ledger import Ledger
from duecourse.ledger.task import OnDuplicate
from tests.support.clock import HandClock
from tests.support.ledger import LATER_MS, SHARD, STATES, bring, new

R = Reply
TABLE = {
    "keep": [R.CREATED, R.KEPT, R.KEPT, R.CREATED, R.DEAD, R.CREATED],
    "replace": [R.CREATED, R.REPLACED, R.REPLACED, R.CREATED, R.REPLACED, R.CREATED],
    "reject": [R.CREATED, R.SCHEDULED, R.LEASED, R.CREATED, R.DEAD, R.CREATED],
    "debounce": [R.CREATED, R.DEBOUNCED, R.REPLACED, R.CREATED, R.DEAD, R.CREATED],
    "move": [R.ABSENT, R.OK, R.LEASED, R.DONE, R.DEAD, R.CANCELLED],
    "move by force": [R.ABSENT, R.OK, R.OK, R.DONE, R.DEAD, R.CANCELLED],
    "move reviving": [R.ABSENT, R.OK, R.LEASED, R.OK, R.DEAD, R.CANCELLED],
    "cancel": [R.ABSENT, R.OK, R.LEASED, R.DONE, R.OK, R.CANCELLED],
    "cancel by force": [R.ABSENT, R.OK, R.OK, R.DONE, R.OK, R.CANCELLED],
    "replay": [R.ABSENT, R.SCHEDULED, R.LEASED, R.DONE, R.OK, R.CANCELLED],
}
"""Verb -> answers, in the order of STATES: absent, scheduled, leased, done, dead, cancelled."""
CASES = [(verb, state, reply) for verb, row in TABLE.items() for state, reply in zip(STATES, row, strict=True)]
CHANGES = {R.CREATED, R.REPLACED, R.DEBOUNCED, R.OK}


def do(ledger: Ledger, verb: str) -> Reply:
    queue = SHARD.queue
    match verb.split():
        case ["move", *how]:
            move = Move("a", delay_ms=LATER_MS, force="force" in how, revive="reviving" in how)
            return ledger.move(queue, [move])[0]
        case ["cancel", *how]:
            return ledger.cancel(queue, ["a"], force="force" in how)[0]
        case ["replay"]:
            return ledger.replay(queue, ["a"])[0]
        case _:
            return ledger.add([new(on_duplicate=OnDuplicate(verb), payload='{"n":2}', delay_ms=LATER_MS)])[0].reply


def test_the_states_stand_in_the_order_of_the_table() -> None:
    assert STATES == ["absent", "scheduled", "leased", "done", "dead", "cancelled"]


@pytest.mark.parametrize(("verb", "state", "reply"), CASES)
def test_each_verb_answers_in_each_state_as_the_design_says(
    ledger: Ledger, verb: str, state: str, reply: Reply
) -> None:
    bring(ledger, state)
    assert do(ledger, verb) == reply


@pytest.mark.parametrize(("verb", "state", "reply"), [case for case in CASES if case[2] not in CHANGES])
def test_a_refusal_changes_nothing(ledger: Ledger, verb: str, state: str, reply: Reply) -> None:
    bring(ledger, state)
    before = ledger.get(SHARD.queue, "a"), ledger.stats(SHARD)
    assert do(ledger, verb) == reply
    assert (ledger.get(SHARD.queue, "a"), ledger.stats(SHARD)) == before


@pytest.mark.parametrize(("verb", "state"), [case[:2] for case in CASES if case[2] in CHANGES])
def test_a_task_stands_in_one_place_afterwards(ledger: Ledger, clock: HandClock, verb: str, state: str) -> None:
    bring(ledger, state)
    do(ledger, verb)
    task, stats = ledger.get(SHARD.queue, "a"), ledger.stats(SHARD)
    deleted = verb.startswith("cancel") and state == "dead"
    expected = "none" if deleted else _expected(verb, state)
    assert (task.status if task else "none") == expected
    places = [stats.scheduled, stats.leased, stats.done, stats.dead]
    assert places == [[0, 0, 0, 0], [1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]][_place(expected)]
    assert stats.now == clock.now()


def _expected(verb: str, state: str) -> str:
    if verb.startswith("cancel"):
        return "cancelled"
    if verb in {"replace", "debounce"} and state == "leased":
        return "leased"
    return "scheduled"


def _place(status: str) -> int:
    return {"none": 0, "scheduled": 1, "leased": 2, "done": 3, "cancelled": 3, "dead": 4}[status]
