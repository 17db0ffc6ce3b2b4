"""A server that rejects a script half way: a right that the login lacks, a foreign value. The ledger is put right."""

from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest
import redis

from duecourse.errors import StoreMisused
from duecourse.ledger.connect import connect
from duecourse.ledger.keys import keys_of
from duecourse.ledger.maintenance import Mend
from duecourse.ledger.operation_types import Move
from duecourse.ledger.operations import base
from duecourse.ledger.operations.ledger import Ledger
from duecourse.ledger.task import Ending, OnDuplicate
from tests.support import redis_ledger
from tests.support.ledger import LATER_MS, LEASE_MS, SHARD, claim, new, settle, stored_task
from tests.support.redis_server import EVERY, RedisServer, labelled
from tests.support.wait import until

KEYS = keys_of("duecourse", SHARD)
QUEUE = SHARD.queue


@pytest.fixture(params=EVERY, ids=labelled)
def server(request: pytest.FixtureRequest, server_of: Callable[[str], RedisServer]) -> RedisServer:
    return server_of(request.param).emptied()


@pytest.fixture
def operator(server: RedisServer) -> Iterator[redis.Redis]:
    with server.client() as client:
        client.execute_command("ACL", "SETUSER", "half", "reset", "on", ">pw", "~*", "&*", "+@all")
        yield client
        client.execute_command("ACL", "DELUSER", "half")


@pytest.fixture
def ledger(server: RedisServer, operator: redis.Redis, monkeypatch: pytest.MonkeyPatch) -> Iterator[Ledger]:
    assert operator.acl_getuser("half")
    monkeypatch.setattr(base, "ASK_S", 0.0)
    with connect(server.url.replace("://", "://half:pw@")) as client:
        yield Ledger(client)


def deny(operator: redis.Redis, right: str) -> None:
    operator.execute_command("ACL", "SETUSER", "half", f"-{right}")


def grant(operator: redis.Redis, right: str) -> None:
    operator.execute_command("ACL", "SETUSER", "half", f"+{right}")


def add(ledger: Ledger) -> None:
    ledger.add([new("b", delay_ms=LATER_MS, on_duplicate=OnDuplicate.REPLACE)])


def cancel(ledger: Ledger) -> None:
    ledger.cancel(QUEUE, ["a"])


def move(ledger: Ledger) -> None:
    ledger.move(QUEUE, [Move("a", delay_ms=3 * LATER_MS)])


def replace(ledger: Ledger) -> None:
    ledger.add([new("a", delay_ms=3 * LATER_MS, on_duplicate=OnDuplicate.REPLACE)])


CASES: list[tuple[Callable[[Ledger], None], str]] = [
    (add, "zadd"),
    (cancel, "hset"),
    (cancel, "zadd"),
    (cancel, "del"),
    (move, "set"),
    (move, "hset"),
    (move, "zadd"),
    (replace, "hset"),
    (replace, "zadd"),
    (replace, "publish"),
]


def rejected(ledger: Ledger, operator: redis.Redis, act: Callable[[Ledger], None], right: str) -> None:
    """A change of a task `a` that is rejected for want of a right, which is then back."""
    ledger.add([new("a", delay_ms=LATER_MS)])
    deny(operator, right)
    with pytest.raises(StoreMisused):
        act(ledger)
    grant(operator, right)


@pytest.mark.parametrize(("act", "right"), CASES)
def test_mend_puts_right_what_a_right_was_missing_for(
    ledger: Ledger, operator: redis.Redis, act: Callable[[Ledger], None], right: str
) -> None:
    rejected(ledger, operator, act, right)
    Mend(operator, "duecourse", LEASE_MS, lambda _line: None).run()
    redis_ledger.check(operator)
    assert Mend(operator, "duecourse", LEASE_MS, lambda _line: None).run().put_back == 0
    cancelled_or_run(ledger, operator)


@pytest.mark.parametrize(("act", "right"), CASES)
def test_the_sweeps_put_it_right_once_the_same_process_has_made_another_call(
    ledger: Ledger, operator: redis.Redis, act: Callable[[Ledger], None], right: str
) -> None:
    rejected(ledger, operator, act, right)
    ledger.add([new("next", delay_ms=LATER_MS)])
    sweep(ledger)
    redis_ledger.check(operator)
    cancelled_or_run(ledger, operator)


def sweep(ledger: Ledger) -> None:
    while ledger.sweep(SHARD, retention_ms=LATER_MS).more:
        pass


def cancelled_or_run(ledger: Ledger, operator: redis.Redis) -> None:
    """What is scheduled can be moved, and runs."""
    found = [task.id for task in (ledger.get(QUEUE, id) for id in "ab") if task and task.status == "scheduled"]
    ledger.move(QUEUE, [Move(id, delay_ms=0) for id in found])
    assert sorted(task.id for task in claim(ledger)) == found
    redis_ledger.check(operator)


@pytest.mark.parametrize("key", ["done", "heads", "groups", "bell"])
def test_a_foreign_value_that_is_gone_leaves_nothing_wrong(ledger: Ledger, operator: redis.Redis, key: str) -> None:
    ledger.add([new("a", delay_ms=LATER_MS, group="g"), new("b", delay_ms=LATER_MS)])
    operator.delete(getattr(KEYS, key))
    operator.hset(getattr(KEYS, key), "another", "type")
    for act in (add, cancel, move, replace):
        with suppress(StoreMisused):
            act(ledger)
    sweeps = suppress(StoreMisused)
    with sweeps:
        sweep(ledger)
    assert operator.hget(KEYS.meta, "misplaced") is None, "a pass would end at that key, and each sweep with it"
    operator.delete(getattr(KEYS, key))
    add(ledger)
    sweep(ledger)
    redis_ledger.check(operator)
    assert stored_task(ledger).status in {"scheduled", "cancelled"}


def test_a_read_that_is_rejected_asks_for_nothing(ledger: Ledger, operator: redis.Redis) -> None:
    ledger.add([new("a", delay_ms=LATER_MS)])
    deny(operator, "zrange")
    with suppress(StoreMisused):
        ledger.stats(SHARD)
    grant(operator, "zrange")
    ledger.add([new("b", delay_ms=LATER_MS)])
    assert operator.hget(KEYS.meta, "misplaced") is None


@pytest.mark.parametrize("right", ["hset", "zadd", "hdel", "hincrby", "zrem"])
@pytest.mark.parametrize("how", ["settled", "taken", "lapsed"])
def test_a_replacement_that_waits_is_not_lost(ledger: Ledger, operator: redis.Redis, right: str, how: str) -> None:
    """It takes the place of the one before it, which is deleted once it is there."""
    ledger.add([new("a", group="before")])
    [task] = claim(ledger, lease_ms=100 if how == "lapsed" else LEASE_MS)
    ledger.add([new("a", on_duplicate=OnDuplicate.REPLACE, payload='"new"', group="after", delay_ms=LATER_MS)])
    if how == "lapsed":
        until(lambda: ledger.now() > task.claimed_at + 100)
    act = {
        "settled": lambda: settle(ledger, task, Ending.DONE),
        "taken": lambda: ledger.move(QUEUE, [Move("a", delay_ms=LATER_MS, force=True)]),
        "lapsed": lambda: sweep(ledger),
    }[how]
    deny(operator, right)
    with suppress(StoreMisused):
        act()
    grant(operator, right)
    with suppress(StoreMisused):
        act()
    sweep(ledger)
    Mend(operator, "duecourse", LEASE_MS, lambda _line: None).run()
    if stored_task(ledger).status == "leased":
        settle(ledger, task, Ending.DONE)
    found = stored_task(ledger)
    assert (found.status, found.payload_json, found.group) == ("scheduled", '"new"', "after")


@pytest.mark.parametrize("right", ["hset", "zadd", "zrem"])
def test_a_claim_and_an_end_are_put_right(ledger: Ledger, operator: redis.Redis, right: str) -> None:
    ledger.add([new("done"), new("retried")])
    tasks = {task.id: task for task in claim(ledger)}
    ledger.add([new("claimed", payload='"' + 3_000 * "x" + '"')])
    deny(operator, right)
    for act in (
        lambda: settle(ledger, tasks["done"], Ending.DONE),
        lambda: settle(ledger, tasks["retried"], Ending.RETRY),
        lambda: claim(ledger),
    ):
        with pytest.raises(StoreMisused):
            act()
    grant(operator, right)
    assert settle(ledger, tasks["done"], Ending.DONE).value == "done", "as its worker tries again"
    sweep(ledger)
    redis_ledger.check(operator)


@pytest.mark.parametrize("key", ["done", "dead", "groups"])
def test_a_replacement_that_a_foreign_value_stops_leaves_the_task_its_payload(
    ledger: Ledger, operator: redis.Redis, key: str
) -> None:
    large = '"' + 3_000 * "x" + '"'
    ledger.add([new("a", delay_ms=LATER_MS, payload=large, group="g")])
    operator.delete(getattr(KEYS, key))
    operator.hset(getattr(KEYS, key), "another", "type")
    with pytest.raises(StoreMisused):
        replace(ledger)
    operator.delete(getattr(KEYS, key))
    assert stored_task(ledger).payload_json == large
