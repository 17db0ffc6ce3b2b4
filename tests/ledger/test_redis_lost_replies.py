"""A reply that is lost on the way: what the store asks for again by itself, and what it never does; on every server."""

import secrets
import time
from collections.abc import Iterator

import pytest

from duecourse.errors import StoreUnavailable
from duecourse.ledger.connect import connect
from duecourse.ledger.operation_types import AddReply, Delivery, Move, Reply, Settled
from duecourse.ledger.operations.leases import LostClaim
from duecourse.ledger.operations.ledger import Ledger
from duecourse.ledger.task import Apart, Change, Ending, OnDuplicate, RetryPolicy, Status, Task
from tests.support.clock import HandClock
from tests.support.ledger import (
    LEASE_MS,
    SHARD,
    add,
    bring,
    claim,
    claim_one,
    ending,
    lease_of,
    new,
    settle,
    stored_task,
)
from tests.support.proxies import LossyProxy, load_scripts
from tests.support.redis_server import EVERY, RedisServer

REDIS_SERVERS = EVERY


@pytest.fixture
def ledger(proxy: LossyProxy, clock: HandClock) -> Iterator[Ledger]:
    with connect(proxy.url) as client:
        load_scripts(client)
        yield Ledger(client, travel=clock)


def test_an_add_is_sent_again_and_adds_once(ledger: Ledger, proxy: LossyProxy) -> None:
    add(ledger, "first")
    proxy.lose_next_reply()
    added = ledger.add([new("a"), new("b", on_duplicate=OnDuplicate.REJECT), new("a")])
    assert [a.reply for a in added] == [Reply.CREATED, Reply.CREATED, Reply.KEPT]
    assert proxy.lost == 1
    assert ledger.stats(SHARD).scheduled == 3


def test_an_add_that_must_be_apart_is_sent_again_and_is_not_kept_from_itself(ledger: Ledger, proxy: LossyProxy) -> None:
    add(ledger, "first")
    asked = [new(id, group="g", apart=Apart("a", "b")) for id in ("a", "b")]
    proxy.lose_next_reply()
    assert [a.reply for a in ledger.add(asked)] == [Reply.CREATED, Reply.KEPT]
    assert proxy.lost == 1


@pytest.mark.parametrize(
    ("state", "mode", "reply"),
    [
        ("scheduled", OnDuplicate.REPLACE, Reply.REPLACED),
        ("scheduled", OnDuplicate.DEBOUNCE, Reply.DEBOUNCED),
        ("leased", OnDuplicate.REPLACE, Reply.REPLACED),
        ("dead", OnDuplicate.REPLACE, Reply.REPLACED),
        ("done", OnDuplicate.KEEP, Reply.CREATED),
    ],
)
def test_an_add_over_a_task_is_sent_again_and_changes_it_once(
    ledger: Ledger, proxy: LossyProxy, clock: HandClock, state: str, mode: OnDuplicate, reply: Reply
) -> None:
    bring(ledger, state)
    drawn = add(ledger, "last", delay_ms=1).generation
    proxy.lose_next_reply()
    (added,) = ledger.add([new(payload="2", delay_ms=70, on_duplicate=mode)], echo=True)
    assert proxy.lost == 1
    assert added.task
    assert (added.reply, added.task.payload_json) == (reply, "2")
    assert added.task.generation == drawn + 1
    assert ledger.stats(SHARD).scheduled == (1 if state == "leased" else 2)
    assert clock.at < added.task.due_at


def test_an_add_is_answered_as_before_though_the_task_ran_meanwhile(ledger: Ledger, proxy: LossyProxy) -> None:
    add(ledger, "first")
    proxy.lose_next_reply()
    ledger.add([new("a")])
    assert ledger.add([new("a")]) == [AddReply("a", Reply.KEPT)]


def test_an_id_that_stands_twice_in_an_add_runs_once_though_it_is_sent_again_while_it_runs(
    ledger: Ledger, proxy: LossyProxy, redis_server: RedisServer, clock: HandClock
) -> None:
    add(ledger, "first", delay_ms=1)
    ran: list[Task] = []

    def run_meanwhile() -> None:
        with connect(redis_server.url) as client:
            ran.extend(claim(Ledger(client, travel=clock)))

    proxy.lose_next_reply(then=run_meanwhile)
    ledger.add([new("a", payload=payload, on_duplicate=OnDuplicate.REPLACE) for payload in ("1", "2")])
    (task,) = ran
    assert (proxy.lost, task.payload_json) == (1, "2")
    assert settle(ledger, task, Ending.DONE) is Settled.DONE
    assert stored_task(ledger).status is Status.DONE, "nothing waited to replace it"


@pytest.mark.parametrize("how", [how for how in Ending if how is not Ending.UNDELIVERED])
def test_a_settle_is_sent_again_and_answered_as_the_first(ledger: Ledger, proxy: LossyProxy, how: Ending) -> None:
    task = claim_one(ledger)
    proxy.lose_next_reply()
    answer = ledger.settle(SHARD, [ending(task, how, delay_ms=50, detail="x", result="1")])
    expected = {
        Ending.DONE: Settled.DONE,
        Ending.AGAIN: Settled.AGAIN,
        Ending.RETRY: Settled.RETRIED,
        Ending.DROP: Settled.DEAD,
        Ending.RELEASE: Settled.RELEASED,
    }
    assert answer == [expected[how]]
    assert proxy.lost == 1
    assert len(stored_task(ledger).history) == (0 if how is Ending.RELEASE else 1)


def test_a_settle_that_killed_is_answered_so_again(ledger: Ledger, proxy: LossyProxy) -> None:
    task = claim_one(ledger, retry=RetryPolicy(max_attempts=1))
    proxy.lose_next_reply()
    assert ledger.settle(SHARD, [ending(task, Ending.RETRY)]) == [Settled.DEAD]


def test_extend_save_move_and_reads_are_sent_again(ledger: Ledger, proxy: LossyProxy, clock: HandClock) -> None:
    task = claim_one(ledger)
    add(ledger, "b", delay_ms=5)
    proxy.lose_next_reply()
    assert ledger.extend(SHARD, [lease_of(task)], 99) == [clock.at + 99]
    proxy.lose_next_reply()
    assert ledger.save(SHARD, lease_of(task), "1")
    proxy.lose_next_reply()
    assert ledger.move("default", [Move("b", delay_ms=9)]) == [Reply.OK]
    assert proxy.lost == 3
    for read in (lambda: ledger.get("default", "a"), lambda: ledger.stats(SHARD), ledger.shards, ledger.ping):
        proxy.lose_next_reply(of=b"")
        read()
    assert proxy.lost == 7


@pytest.mark.parametrize("state", ["scheduled", "leased", "done"])
def test_a_move_that_is_sent_again_after_the_task_ran_moves_it_once(
    ledger: Ledger, proxy: LossyProxy, redis_server: RedisServer, clock: HandClock, state: str
) -> None:
    bring(ledger, state)
    move = Move("a", force=True, revive=True, by="http")
    ran: list[Task] = []

    def run_meanwhile() -> None:
        with connect(redis_server.url) as client:
            other = Ledger(client, travel=clock)
            ran.extend(claim(other))

    proxy.lose_next_reply(then=run_meanwhile)
    assert ledger.move("default", [move]) == [Reply.OK]
    assert proxy.lost == 1
    (task,) = ran
    assert stored_task(ledger).idempotency_key == task.idempotency_key
    assert settle(ledger, task, Ending.DONE) is Settled.DONE
    assert claim(ledger) == []
    assert [entry.by for entry in stored_task(ledger).log if isinstance(entry, Change)] == ["http"]


def test_each_of_two_moves_of_one_task_is_known_where_they_are_sent_again(
    ledger: Ledger, proxy: LossyProxy, clock: HandClock
) -> None:
    task = claim_one(ledger)
    moves = [Move("a", delay_ms=5, force=True), Move("a", delay_ms=9), Move("a", delay_ms=9)]
    proxy.lose_next_reply()
    assert ledger.move("default", moves) == [Reply.OK] * 3
    moved = stored_task(ledger)
    assert (moved.due_at, moved.generation, len(moved.log)) == (clock.at + 9, task.fence + 1, 3)
    assert ledger.move("default", moves[:1]) == [Reply.OK], "another call is another move"
    assert stored_task(ledger).due_at == clock.at + 5


def lose_replies(proxy: LossyProxy, times: int) -> None:
    """Lose the replies to so many scripts in a row."""
    proxy.lose_next_reply(then=(lambda: lose_replies(proxy, times - 1)) if times > 1 else lambda: None)


@pytest.mark.parametrize("payload", ["1", f'"{"x" * 2_000}"'], ids=["small", "apart"])
def test_what_a_claim_leased_is_found_when_its_reply_was_lost(
    ledger: Ledger, proxy: LossyProxy, clock: HandClock, payload: str
) -> None:
    ledger.configure("default", {"max_running": 1})
    ledger.add([new("a", payload=payload), new("b")])
    proxy.lose_next_reply()
    [task] = claim(ledger)
    assert proxy.lost == 1
    assert (task.id, task.run, task.attempt, task.payload_json) == ("a", 1, 1, payload)
    assert task.lease_expires_at == clock.at + LEASE_MS
    assert settle(ledger, task, Ending.DONE) is Settled.DONE
    assert [t.id for t in claim(ledger)] == ["b"], "each lease is found once"
    assert claim(ledger) == []


def test_tasks_of_a_claim_whose_reply_was_lost_are_in_its_order(ledger: Ledger, proxy: LossyProxy) -> None:
    ledger.add([new(id, delay_ms=-late) for id, late in (("a", 1), ("b", 3), ("c", 2), ("d", 4))])
    proxy.lose_next_reply()
    assert [task.id for task in claim(ledger)] == ["d", "b", "c", "a"]
    assert proxy.lost == 1


def test_a_claim_that_leased_nothing_is_unavailable_and_the_next_one_claims(ledger: Ledger, proxy: LossyProxy) -> None:
    proxy.lose_next_reply()
    with pytest.raises(StoreUnavailable):
        claim(ledger)
    add(ledger)
    assert [task.id for task in claim(ledger)] == ["a"]


def test_the_next_claim_finds_what_one_before_it_leased_and_leaves_those_of_others(
    ledger: Ledger, proxy: LossyProxy, clock: HandClock, redis_server: RedisServer
) -> None:
    ledger.add([new("a"), new("b"), new("c")])
    lose_replies(proxy, 4)  # of the claim, and of each look for its leases
    with pytest.raises(StoreUnavailable):
        ledger.claim(SHARD, 1, lease_ms=LEASE_MS)
    assert proxy.lost == 4
    with connect(redis_server.url) as client:
        other = Ledger(client, travel=clock)
        [anothers] = other.claim(SHARD, 1, lease_ms=LEASE_MS).tasks
        assert anothers.id == "b"
    clock.advance(500)
    [found] = claim(ledger)
    assert (found.id, found.attempt) == ("a", 1)
    assert stored_task(ledger, "b").lease_expires_at == anothers.lease_expires_at
    assert ledger.extend(SHARD, [lease_of(found)], 1, at_least=True) == [clock.at + LEASE_MS]
    assert [task.id for task in claim(ledger)] == ["c"]


def test_a_lost_claim_that_is_still_on_its_way_is_looked_for_again(
    ledger: Ledger, clock: HandClock, redis_server: RedisServer
) -> None:
    add(ledger)
    lost = b"12345678"
    ledger.lost_claims.add(SHARD, [LostClaim(lost, time.monotonic(), (LEASE_MS,))])
    assert [task.id for task in claim(ledger, 1)] == ["a"], "it has not come yet"
    add(ledger, "b")
    with connect(redis_server.url) as client, pytest.MonkeyPatch.context() as patch:
        patch.setattr(secrets, "token_bytes", lambda _size: lost)
        assert [t.id for t in Ledger(client, travel=clock).claim(SHARD, 1, lease_ms=LEASE_MS).tasks] == ["b"]
    assert [task.id for task in claim(ledger)] == ["b"]
    assert claim(ledger) == []


def test_what_the_first_script_of_a_claim_leased_is_the_callers_when_the_second_is_lost(
    ledger: Ledger, proxy: LossyProxy
) -> None:
    ledger.add([new("a"), new("b"), new("x", tenant="t2")])
    proxy.lose_next_reply(of=b"due:t2")
    got = ledger.claim(SHARD, 10, lease_ms=LEASE_MS)
    assert proxy.lost == 1
    assert [task.id for task in got.tasks] == ["a", "b"]
    assert got.backlog
    assert [(task.tenant, task.id, task.attempt) for task in claim(ledger)] == [("t2", "x", 1)]


def test_what_a_claim_handed_over_is_found_too(ledger: Ledger, proxy: LossyProxy) -> None:
    add(ledger, kind="report")
    proxy.lose_next_reply()
    deliveries = {"report": Delivery("lambda:report", 10, 120_000)}
    [task] = ledger.claim(SHARD, 10, lease_ms=LEASE_MS, deliveries=deliveries).tasks
    [begun] = ledger.begin(SHARD, [lease_of(task)], LEASE_MS, [b"12345678"])
    assert (task.target, begun.run) == ("lambda:report", 1)


def test_a_take_is_sent_again_and_is_the_same_lease(ledger: Ledger, proxy: LossyProxy, clock: HandClock) -> None:
    ledger.take("default", "warm", lease_ms=LEASE_MS)
    add(ledger, delay_ms=2 * LEASE_MS)
    proxy.lose_next_reply()
    taken = ledger.take("default", "a", lease_ms=LEASE_MS)
    assert proxy.lost == 1
    assert taken is not None
    assert (taken.run, taken.attempt, taken.lease_expires_at) == (1, 1, clock.at + LEASE_MS)
    assert ledger.take("default", "a", lease_ms=LEASE_MS) is None, "another take is another lease"
    assert settle(ledger, taken, Ending.DONE) is Settled.DONE


def test_settings_are_sent_again(ledger: Ledger, proxy: LossyProxy) -> None:
    ledger.configure("default", {"priority": 1})
    proxy.lose_next_reply()
    ledger.configure("default", {"max_running": 3})
    assert proxy.lost == 1
    assert (ledger.settings_of(["default"])[0].max_running, ledger.settings_of(["default"])[0].priority) == (3, 1)


@pytest.mark.parametrize(("verb", "state"), [("cancel", "scheduled"), ("replay", "dead")])
def test_cancel_and_replay_are_never_sent_again(ledger: Ledger, proxy: LossyProxy, verb: str, state: str) -> None:
    bring(ledger, state)
    proxy.lose_next_reply()
    with pytest.raises(StoreUnavailable):
        getattr(ledger, verb)("default", ["a"])
    assert stored_task(ledger).status == (Status.CANCELLED if verb == "cancel" else Status.SCHEDULED)


def test_a_server_that_is_away_is_told_as_such(redis_server: RedisServer, clock: HandClock) -> None:
    with connect(f"unix://{redis_server.folder}/nobody.sock") as client:
        ledger = Ledger(client, travel=clock)
        for verb in (ledger.ping, lambda: ledger.add([new()]), lambda: ledger.claim(SHARD, 1, lease_ms=1)):
            with pytest.raises(StoreUnavailable):
                verb()
