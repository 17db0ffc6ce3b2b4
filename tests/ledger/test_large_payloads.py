"""Payloads of over a KiB: apart from their records, read where a task is handed out or shown, and nowhere else."""

import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis

from duecourse.errors import TaskDamaged
from duecourse.ledger.connect import Client
from duecourse.ledger.keys import keys_of
from duecourse.ledger.many_tasks import TaskFilter
from duecourse.ledger.operation_types import Move, Reply, Settled
from duecourse.ledger.operations.ledger import Ledger
from duecourse.ledger.task import Ending, Status, Task
from tests.support import redis_ledger
from tests.support.ledger import LEASE_MS, SHARD, add, claim, claim_one, ending, lease_of, new, settle, stored_task
from tests.support.redis_server import RedisServer, need, newest

pytestmark = pytest.mark.slow

KEYS = keys_of("duecourse", SHARD)
LARGE, OTHER = '"' + "0123456789abcdef" * 1_024 + '"', '"' + "other" * 1_000 + '"'


@pytest.fixture
def ledger(redis_client: redis.Redis) -> Iterator[Ledger]:
    """A ledger whose keys agree with one another in the end."""
    yield Ledger(redis_client, deaths=True)
    redis_ledger.check(redis_client, SHARD)


def bodies(client: Client) -> dict[str, bytes]:
    return {name.decode(): data for name, data in client.hgetall(KEYS.tasks).items() if b"=" in name}


# One by one, each settle writes the numbers of the minute too (lua/modules/numbers.lua).
@pytest.mark.parametrize(("count", "together", "most"), [(50, 50, 1_024), (50, 1, 1_152), (1, 1, 1_450)])
def test_a_claim_and_an_again_write_about_a_kilobyte_a_task_at_most(count: int, together: int, most: int) -> None:
    """One alone writes the bell at both, and where its tenant stands."""
    with RedisServer(need(newest()), "--appendonly", "yes") as server, server.client() as client:
        ledger = Ledger(client)
        ledger.add([new(f"t{n}", payload=LARGE) for n in range(count)])
        before = client.info("persistence")["aof_current_size"]
        for _ in range(0, count, together):
            tasks = ledger.claim(SHARD, together, lease_ms=LEASE_MS).tasks
            assert len(tasks) == together
            ledger.settle(SHARD, [ending(task, Ending.AGAIN, delay_ms=60_000) for task in tasks])
        written = client.info("persistence")["aof_current_size"] - before
        assert 0 < written / count <= most


USES: dict[str, Callable[[Ledger, Task], object]] = {
    "settle": lambda ledger, task: settle(ledger, task, Ending.AGAIN),
    "done": lambda ledger, task: settle(ledger, task, Ending.DONE, result="1"),
    "retry": lambda ledger, task: settle(ledger, task, Ending.RETRY),
    "extend": lambda ledger, task: ledger.extend(SHARD, [lease_of(task)], LEASE_MS),
    "save": lambda ledger, task: ledger.save(SHARD, lease_of(task), "1"),
    "move": lambda ledger, _: ledger.move("default", [Move("a", force=True)]),
    "cancel": lambda ledger, _: ledger.cancel("default", ["a"], force=True),
    "sweep": lambda ledger, _: ledger.sweep(SHARD, retention_ms=-1),
    "replace": lambda ledger, _: ledger.add([new(payload="1", on_duplicate="replace")]),
    "stats": lambda ledger, _: ledger.stats(SHARD),
}


@pytest.mark.parametrize("use", USES)
def test_no_other_verb_reads_or_writes_a_payload(ledger: Ledger, redis_client: redis.Redis, use: str) -> None:
    task = claim_one(ledger, payload=LARGE)
    [field] = bodies(redis_client)
    with redis_client.monitor() as monitor:
        USES[use](ledger, task)
        redis_client.echo("the end")
        seen = []
        while not (command := monitor.next_command()["command"]).startswith("ECHO"):
            seen.append(command)
    assert len(seen) > 1
    assert not [command for command in seen if field in command]


def test_it_is_handed_out_and_shown_wherever_a_task_is(ledger: Ledger) -> None:
    [added] = ledger.add([new(payload=LARGE, group="g")], echo=True)
    assert added.task
    [kept, other] = ledger.add([new(payload=OTHER), new("b", payload=OTHER, delay_ms=LEASE_MS)], echo=True)
    assert kept.task
    assert other.task
    assert (kept.task.payload_json, other.task.payload_json) == (LARGE, OTHER)
    [task] = claim(ledger)
    taken = ledger.take("default", "b", lease_ms=LEASE_MS)
    assert taken
    assert (added.task.payload_json, task.payload_json, taken.payload_json) == (LARGE, LARGE, OTHER)
    [found] = ledger.group("default", "g")
    assert found.payload_json == LARGE
    paged = ledger.page("default", TaskFilter(status=Status.LEASED), None, 9).tasks
    assert {one.id: one.payload_json for one in paged} == {"a": LARGE, "b": OTHER}


def test_what_replaces_a_task_and_what_deletes_it_deletes_its_payload(
    ledger: Ledger, redis_client: redis.Redis
) -> None:
    add(ledger, payload=LARGE, delay_ms=LEASE_MS)
    for mode, payload in (("replace", OTHER), ("debounce", LARGE), ("replace", "1"), ("replace", LARGE)):
        add(ledger, payload=payload, delay_ms=LEASE_MS, on_duplicate=mode)
        assert [body.decode() for body in bodies(redis_client).values()] == [payload] * (payload != "1")
        assert stored_task(ledger).payload_json == payload
    task = ledger.take("default", "a", lease_ms=LEASE_MS)
    assert task
    for payload in (OTHER, LARGE, OTHER):
        ledger.add([new(payload=payload, delay_ms=LEASE_MS, on_duplicate="replace")])
        assert len(bodies(redis_client)) == 2, "the running one's, and that of what waits to replace it"
    assert settle(ledger, task, Ending.RETRY) is Settled.RETRIED
    assert stored_task(ledger).payload_json == OTHER
    assert len(bodies(redis_client)) == 1
    task = ledger.take("default", "a", lease_ms=LEASE_MS)
    assert task
    settle(ledger, task, Ending.DROP)
    assert ledger.cancel("default", ["a"]) == [Reply.OK]
    assert bodies(redis_client) == {}
    settle(ledger, next(task for task in (add(ledger, "b", payload=LARGE), *claim(ledger)) if task.token), Ending.DONE)


def test_a_claim_stops_at_its_bytes_which_are_those_of_payloads_too(ledger: Ledger) -> None:
    ledger.add([new(f"t{n}", payload=LARGE) for n in range(5)])
    assert len(ledger.claim(SHARD, 5, lease_ms=LEASE_MS, max_bytes=2 * len(LARGE) + 1_000).tasks) == 2


def test_what_is_forgotten_takes_its_payload_along(ledger: Ledger, redis_client: redis.Redis) -> None:
    settle(ledger, claim_one(ledger, payload=LARGE), Ending.DONE)
    assert len(bodies(redis_client)) == 1
    assert ledger.sweep(SHARD, retention_ms=-1).pruned == 1
    assert bodies(redis_client) == {}


@pytest.mark.parametrize("deleted_by", ["cancel", "sweep"])
def test_a_record_that_cannot_be_read_takes_its_payload_along_where_it_is_deleted(
    ledger: Ledger, redis_client: redis.Redis, deleted_by: str
) -> None:
    settle(ledger, claim_one(ledger, payload=LARGE), Ending.DONE)
    [record] = [data for name, data in redis_client.hgetall(KEYS.tasks).items() if b"=" not in name]
    redis_client.hset(KEYS.tasks, "-/a", record[:-1])
    if deleted_by == "cancel":
        assert ledger.cancel("default", ["a"], force=True) == [Reply.OK]
    else:
        assert ledger.sweep(SHARD, retention_ms=-1).pruned == 1
    assert redis_client.exists(KEYS.tasks) == 0


def test_a_payload_that_is_missing_is_told_and_holds_up_no_other_task(
    ledger: Ledger, redis_client: redis.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    ledger.add([new("bad", payload=LARGE, group="g")])
    redis_client.hdel(KEYS.tasks, *bodies(redis_client))
    ledger.add([new("good", payload=LARGE, group="g")])
    with caplog.at_level(logging.ERROR):
        assert [task.id for task in claim(ledger)] == ["good"]
    assert "-/bad in queue default waits because its record cannot be read" in caplog.text
    assert 59_000 < int(redis_client.zscore(KEYS.due("-"), "-/bad") or 0) - ledger.now() <= 60_000
    assert ledger.take("default", "bad", lease_ms=LEASE_MS) is None
    with pytest.raises(TaskDamaged, match=r"the record of -/bad cannot be read: the payload in -/bad=\d+ is missing"):
        ledger.get("default", "bad")
    assert [task.id for task in ledger.group("default", "g")] == ["good"]
    assert [task.id for task in ledger.page("default", TaskFilter(), None, 9).tasks] == ["good"]
    assert ledger.move("default", [Move("bad", delay_ms=5)]) == ledger.cancel("default", ["bad"]) == [Reply.OK]
    ledger.sweep(SHARD, retention_ms=-1)
    assert redis_client.hget(KEYS.tasks, "-/bad") is None
    assert redis_client.hincrby(KEYS.meta, "bodies", -1) == 1, "what another deleted is counted still"


@pytest.mark.parametrize("use", ["get", "group"])
def test_a_task_that_is_replaced_while_it_is_looked_up_is_looked_up_again(
    ledger: Ledger, redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch, use: str
) -> None:
    add(ledger, payload=LARGE, group="g", delay_ms=LEASE_MS)
    scripts, other, reads = ledger._runner.scripts, Ledger(redis_client), list[Any]()
    read = scripts.read

    def then_replaced(*commands: Any) -> Any:
        answer = read(*commands)
        reads.append(answer)
        if len(reads) == (1 if use == "get" else 2):  # the record was read, and its payload is next
            other.add([new(payload=OTHER, group="g", delay_ms=LEASE_MS, on_duplicate="replace")])
        return answer

    monkeypatch.setattr(scripts, "read", then_replaced)
    [task] = [stored_task(ledger)] if use == "get" else ledger.group("default", "g")
    assert task.payload_json == OTHER
