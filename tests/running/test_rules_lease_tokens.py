"""One lease's token says nothing of another's: the others of its claim cannot be made up, whichever way one counts."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest

from duecourse.ledger.embedded.ledger import EmbeddedLedger
from duecourse.ledger.operation_types import MAX_CLAIM, Begun, Delivery, Lease, Settled
from duecourse.ledger.operations.ledger import Ledger
from duecourse.ledger.task import DEFAULT_QUEUE, FENCE_DIGITS, Ending, Settlement, Status, Task
from tests.support.clock import HandClock
from tests.support.ledger import LEASE_MS, SHARD, claim, lease_of, new, settle, stored_task
from tests.support.tokens import guesses

COUNT = 7
HANDED = {"report": Delivery("lambda:report", 100, LEASE_MS)}
STEP_MS = 1_000


def pieces(tokens: Sequence[str]) -> Iterator[Sequence[str]]:
    return (tokens[at : at + MAX_CLAIM] for at in range(0, len(tokens), MAX_CLAIM))


def assert_worthless(ledger: Ledger, task: Task, tokens: Sequence[str]) -> None:
    """No verb takes any of the tokens for the task's lease, and nothing of the task has changed."""
    before = ledger.get(DEFAULT_QUEUE, task.id)
    for some in pieces(tokens):
        leases = [Lease(task.id, token, task.tenant) for token in some]
        for how in Ending:
            ends = [Settlement(task.id, task.tenant, token, how) for token in some]
            assert set(ledger.settle(SHARD, ends)) == {Settled.STALE}
        assert set(ledger.extend(SHARD, leases, LEASE_MS)) == {0}
        assert not any(one.token for one in ledger.begin(SHARD, leases, LEASE_MS, [bytes(8)] * len(leases)))
        assert not any(ledger.save(SHARD, lease, '"mine"') for lease in leases[:20])
    assert ledger.get(DEFAULT_QUEUE, task.id) == before


@pytest.mark.slow
def test_no_lease_of_a_claim_can_be_ended_by_who_has_another_of_it(ledger: Ledger, clock: HandClock) -> None:
    ledger.add([new(f"t{n}") for n in range(COUNT)])
    tasks = claim(ledger)
    assert len(tasks) == COUNT
    mine = tasks[3]
    for other in (tasks[0], tasks[2], tasks[4], tasks[6]):
        tokens = guesses([mine], other, clock.at)
        assert len(tokens) > 1_000
        assert other.token not in tokens
        assert_worthless(ledger, other, tokens)
    assert settle(ledger, mine, Ending.DONE) is Settled.DONE
    assert stored_task(ledger, mine.id).status == Status.DONE


@pytest.mark.slow
def test_nor_by_who_had_leases_before_and_has_some_after(ledger: Ledger, clock: HandClock) -> None:
    ledger.add([new(f"t{n}") for n in range(3)])
    known = []
    for _ in range(3):
        some = claim(ledger, 1)
        known += some
        assert settle(ledger, some[0], Ending.RELEASE) is Settled.RELEASED
        clock.advance(STEP_MS)
    *others, mine = claim(ledger)
    assert_worthless(ledger, others[0], guesses([*known, mine], others[0], clock.at))


@pytest.mark.slow
def test_nor_a_delivery_nor_the_lease_that_its_worker_began(ledger: Ledger, clock: HandClock) -> None:
    ledger.add([new(f"t{n}", kind="report") for n in range(COUNT)])
    tasks = ledger.claim(SHARD, COUNT, lease_ms=LEASE_MS, deliveries=HANDED).tasks
    mine, other, begun = tasks[0], tasks[1], tasks[2]
    assert_worthless(ledger, other, guesses([mine], other, clock.at))
    [answer] = ledger.begin(SHARD, [lease_of(begun)], LEASE_MS, [b"8 random"])
    [own] = ledger.begin(SHARD, [lease_of(mine)], LEASE_MS, [b"8 others"])
    assert isinstance(answer, Begun)
    running = replace(begun, token=answer.token, target="", delivery=begun.token)
    known = [mine, replace(mine, token=own.token), begun]
    tokens = [token for token in guesses(known, running, clock.at) if token != begun.token]
    assert_worthless(ledger, running, tokens)


def test_nor_by_a_token_that_is_none(ledger: Ledger) -> None:
    ledger.add([new("a"), new("b")])
    other, mine = claim(ledger)
    bare, fence = mine.token[FENCE_DIGITS:], other.token[:FENCE_DIGITS]
    none = ["", "0" * 28, fence, fence + "0" * 16, "f" * 28, other.token.upper(), other.token[:-2], other.token + "00"]
    shifted = [
        f" {other.token[1:]}",
        other.token[:-1] + "\n",
        f"0x{other.token[2:]}",
        other.token[1:] + "0",
        fence + bare,
    ]
    assert_worthless(ledger, other, [one for one in [*none, *shifted] if one != other.token])


@pytest.mark.parametrize("verb", ["claim", "take", "delivery"])
def test_two_ledgers_with_the_same_past_at_the_same_time_give_different_tokens(verb: str) -> None:
    """So no seed that follows from what they know can be behind them, nor the clock."""
    ledgers = [EmbeddedLedger(HandClock()) for _ in range(2)]
    for ledger in ledgers:
        ledger.add([new("a", kind="report")])
    if verb == "take":
        found = [ledger.take(DEFAULT_QUEUE, "a", lease_ms=LEASE_MS) for ledger in ledgers]
    else:
        terms = HANDED if verb == "delivery" else {}
        found = [ledger.claim(SHARD, 1, lease_ms=LEASE_MS, deliveries=terms).tasks[0] for ledger in ledgers]
    first, second = (task for task in found if task)
    assert first.fence == second.fence
    assert first.token != second.token


def test_the_random_part_of_tokens_has_no_byte_that_stays(ledger: Ledger) -> None:
    ledger.add([new(f"t{n:03}") for n in range(MAX_CLAIM)])
    tasks = claim(ledger, MAX_CLAIM)
    nonces = [bytes.fromhex(task.token[FENCE_DIGITS:]) for task in tasks]
    assert len(set(nonces)) == len(nonces) == MAX_CLAIM
    for place in range(8):
        values = {nonce[place] for nonce in nonces}
        assert len(values) > MAX_CLAIM / 8, f"byte {place} takes few values"
