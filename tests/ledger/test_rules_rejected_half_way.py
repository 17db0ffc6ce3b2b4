"""Changes that a server rejected half way, in every store: a task is put where its record says, and nowhere else."""

from collections.abc import Callable, Iterator

import pytest

from duecourse.ledger.connect import Client, connect
from duecourse.ledger.embedded.ledger import EmbeddedLedger
from duecourse.ledger.keys import keys_of
from duecourse.ledger.maintenance import Mend, Mended
from duecourse.ledger.operation_types import Delivery, Move
from duecourse.ledger.operations.base import LOOK_AT_EACH, ScriptRunner
from duecourse.ledger.operations.ledger import Ledger
from duecourse.ledger.sharding import Sharding
from duecourse.ledger.task import Ending, OnDuplicate, Status, Task
from tests.support import redis_ledger
from tests.support.clock import HandClock
from tests.support.ledger import LATER_MS, LEASE_MS, SHARD, add, claim, claim_one, new, settle, stored_task
from tests.support.schedules import kept, put
from tests.support.stores import servers

KEYS = keys_of("duecourse", SHARD)
DUE, SID = KEYS.due("-"), "-/a"


@pytest.fixture
def client(ledger: Ledger, kind_of_store: str, request: pytest.FixtureRequest) -> Iterator[Client]:
    """A client of the store's keys."""
    if isinstance(ledger, EmbeddedLedger):
        yield ledger.client
        return
    with connect(servers(kind_of_store, request).url) as operator:
        yield operator


def mend(client: Client, clock: HandClock) -> Mended:
    return Mend(client, "duecourse", LEASE_MS, lambda _line: None, clock).run()


def ask(ledger: Ledger, client: Client, clock: HandClock) -> None:
    """Ask for a pass, and sweep until it is over, as ticks do."""
    ScriptRunner(client, "duecourse", Sharding(), clock).run("mend", SHARD, (), (LEASE_MS, LOOK_AT_EACH))
    while ledger.sweep(SHARD, retention_ms=LATER_MS).more:
        pass


HALVES: dict[str, Callable[[Ledger, Client], None]] = {}


def half(act: Callable[[Ledger, Client], None]) -> Callable[[Ledger, Client], None]:
    """Enter a half-made change in the table, by what is missing; it is of the task `a`."""
    HALVES[act.__name__] = act
    return act


@half
def added_without_zadd(ledger: Ledger, client: Client) -> None:
    add(ledger, delay_ms=LATER_MS)
    client.zrem(DUE, SID)
    client.zrem(KEYS.heads, "-")


@half
def added_without_a_head(ledger: Ledger, client: Client) -> None:
    add(ledger, delay_ms=LATER_MS)
    client.zrem(KEYS.heads, "-")


@half
def cancelled_without_hset(ledger: Ledger, client: Client) -> None:
    add(ledger, delay_ms=LATER_MS)
    client.zrem(DUE, SID)
    client.zadd(KEYS.done, {SID: ledger.now()})


@half
def moved_without_hset(ledger: Ledger, client: Client) -> None:
    task = add(ledger, delay_ms=LATER_MS)
    client.zadd(DUE, {SID: task.due_at + LATER_MS})


@half
def moved_sooner_without_hset(ledger: Ledger, client: Client) -> None:
    add(ledger, delay_ms=LATER_MS)
    client.zadd(DUE, {SID: ledger.now()})


@half
def revived_without_hset(ledger: Ledger, client: Client) -> None:
    settle(ledger, claim_one(ledger), Ending.DONE)
    client.zrem(KEYS.done, SID)
    client.zadd(DUE, {SID: ledger.now() + LATER_MS})


@half
def replaced_without_zadd(ledger: Ledger, client: Client) -> None:
    before = add(ledger, delay_ms=LATER_MS)
    add(ledger, delay_ms=2 * LATER_MS, on_duplicate=OnDuplicate.REPLACE)
    client.zadd(DUE, {SID: before.due_at})


@half
def replaced_sooner_without_zadd(ledger: Ledger, client: Client) -> None:
    before = add(ledger, delay_ms=2 * LATER_MS)
    add(ledger, delay_ms=LATER_MS, on_duplicate=OnDuplicate.REPLACE)
    client.zadd(DUE, {SID: before.due_at})
    client.zadd(KEYS.heads, {"-": before.due_at})


@half
def replaced_without_hset(ledger: Ledger, client: Client) -> None:
    add(ledger, delay_ms=LATER_MS, group="g")
    client.zrem(KEYS.groups, "-/g\0-/a")


@half
def claimed_without_hset(ledger: Ledger, client: Client) -> None:
    add(ledger, delay_ms=LATER_MS)
    client.zrem(DUE, SID)
    client.zadd(KEYS.leased, {SID: ledger.now() + LEASE_MS})


@half
def settled_without_hset(ledger: Ledger, client: Client) -> None:
    claim_one(ledger)
    client.zrem(KEYS.leased, SID)


@half
def settled_without_zadd(ledger: Ledger, client: Client) -> None:
    settle(ledger, claim_one(ledger), Ending.DROP)
    client.zrem(KEYS.dead, SID)


@half
def died_twice(ledger: Ledger, client: Client) -> None:
    settle(ledger, claim_one(ledger), Ending.DROP)
    client.zadd(KEYS.done, {SID: ledger.now()})


@pytest.mark.parametrize("name", HALVES)
def test_mend_puts_right_what_was_made_by_half(ledger: Ledger, client: Client, clock: HandClock, name: str) -> None:
    HALVES[name](ledger, client)
    was = stored_task(ledger)
    with pytest.raises(AssertionError):
        redis_ledger.check(client)
    assert mend(client, clock).tasks == 1
    redis_ledger.check(client)
    assert told(stored_task(ledger)) == told(was)
    assert mend(client, clock).put_back == 0
    works_on(ledger, clock, was)


@pytest.mark.parametrize("name", HALVES)
def test_a_pass_of_the_sweeps_puts_it_right(ledger: Ledger, client: Client, clock: HandClock, name: str) -> None:
    HALVES[name](ledger, client)
    was = stored_task(ledger)
    ask(ledger, client, clock)
    redis_ledger.check(client)
    assert told(stored_task(ledger)) == told(was)
    assert client.hmget(KEYS.meta, "rewrite", "misplaced") == [None, None]
    works_on(ledger, clock, was)


def told(task: Task) -> tuple[object, ...]:
    """The part of a task that its record alone tells."""
    return task.status, task.due_at, task.attempt, task.run, task.generation, task.token, task.group, task.log


def works_on(ledger: Ledger, clock: HandClock, was: Task) -> None:
    """What is scheduled runs at the time of its record, and not before; what runs can be settled."""
    if was.status == Status.LEASED:
        assert settle(ledger, was, Ending.DONE).value == "done"
    elif was.status == Status.SCHEDULED:
        clock.advance(was.due_at - clock.at - 1)
        assert claim(ledger) == []
        clock.advance(1)
        assert [task.id for task in claim(ledger)] == ["a"]
    else:
        assert claim(ledger) == []


def test_what_is_in_order_stays_as_it_is(ledger: Ledger, client: Client, clock: HandClock) -> None:
    """What waits for a place at its target is due later than its record says, a notification that is due earlier."""
    deliveries = {"report": Delivery("lambda:report", 1, LEASE_MS)}
    ledger.add([new(id, kind="report") for id in "ab"])
    for _ in range(2):
        ledger.claim(SHARD, 10, lease_ms=LEASE_MS, deliveries=deliveries)
    ledger.add([new("told", notify="https://example.com/hook")])
    [told] = ledger.claim(SHARD, 10, lease_ms=LEASE_MS, kinds=["work"]).tasks
    settle(ledger, told, Ending.DONE)
    put(ledger)
    due = client.zrange(DUE, 0, -1, withscores=True)
    assert mend(client, clock).put_back == 0
    assert client.zrange(DUE, 0, -1, withscores=True) == due
    ask(ledger, client, clock)
    assert client.zrange(DUE, 0, -1, withscores=True) == due


def test_a_pass_finds_tasks_of_many_tenants_and_many_tasks(ledger: Ledger, client: Client, clock: HandClock) -> None:
    for tenant in ("-", "acme", "globex"):
        ledger.add([new(f"t{n:03}", tenant=tenant, delay_ms=LATER_MS) for n in range(300)])
        client.delete(KEYS.due(tenant))
        client.zrem(KEYS.heads, tenant)
    ask(ledger, client, clock)
    redis_ledger.check(client)


def test_a_schedule_that_stands_too_late_fires_in_time(ledger: Ledger, client: Client, clock: HandClock) -> None:
    put(ledger)
    at = kept(ledger).progress.next_at
    [sid] = client.zrange(KEYS.due("*"), 0, -1)
    client.zadd(KEYS.due("*"), {sid: at + LATER_MS})
    ask(ledger, client, clock)
    assert client.zscore(KEYS.due("*"), sid) == at
    redis_ledger.check(client)


def test_a_move_after_a_half_made_one_needs_no_mending(ledger: Ledger, client: Client) -> None:
    task = add(ledger, delay_ms=LATER_MS)
    moved_without_hset(ledger, client)
    ledger.move(SHARD.queue, [Move(task.id, task.due_at)])
    redis_ledger.check(client)
