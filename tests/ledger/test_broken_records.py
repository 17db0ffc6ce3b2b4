"""A ledger with something wrong in it: records that cannot be read, entries without one, masses of bytes."""

import logging
from typing import Any

import pytest
import redis

from duecourse import Client
from duecourse.base.times import DAY_MS
from duecourse.errors import StoreMisused, TaskDamaged
from duecourse.ledger.keys import keys_of
from duecourse.ledger.layout import VERSION
from duecourse.ledger.operation_types import Delivery, Move, Reply, Settled
from duecourse.ledger.operations.ledger import Ledger
from duecourse.ledger.record import BEGUN, ENDED
from duecourse.ledger.task import AddResult, Ending, Status, Task
from duecourse.settings import Settings
from tests.support import redis_ledger
from tests.support.ledger import LEASE_MS, SHARD, add, claim, claim_one, ending, lease_of, new, settle, stored_task
from tests.support.redis_server import RedisServer
from tests.support.wait import until
from tests.support.wired import wired_with

KEYS = keys_of("duecourse", SHARD)


@pytest.fixture
def ledger(redis_client: redis.Redis) -> Ledger:
    return Ledger(redis_client)


def spoil(client: redis.Redis, how: str, sid: str = "-/bad") -> None:
    """Make a record one that cannot be read."""
    data = bytes(client.hget(KEYS.tasks, sid) or b"")
    broken = {
        "short": data[:20],
        "a byte short": data[:85],
        "cut off": data[:-1],
        "cut within": data[:-2] + data[-1:],
        "empty": b"",
        "earlier version": bytes([VERSION - 1]) + data[1:],
        "later version": bytes([VERSION + 1]) + data[1:],
        "many ends": data + 30_000 * (bytes(10) + b"D"),
        "many leases": data + 15_000 * (bytes(25) + b"L"),
    }[how]
    client.hset(KEYS.tasks, sid, broken)


UNREADABLE = ["short", "a byte short", "empty", "earlier version", "later version"]
BROKEN = pytest.mark.parametrize("how", [*UNREADABLE, "cut off", "cut within", "many ends", "many leases"])


@pytest.mark.parametrize("how", UNREADABLE)
def test_a_record_that_cannot_be_read_is_put_off_and_told_and_all_others_are_claimed(
    ledger: Ledger, redis_client: redis.Redis, caplog: pytest.LogCaptureFixture, how: str
) -> None:
    ledger.add([new(f"a{n}", tenant="first") for n in range(3)])
    ledger.add([new("bad"), new("good")])
    spoil(redis_client, how)
    fresh = Ledger(redis_client)
    with caplog.at_level(logging.ERROR):
        claimed = claim(fresh) + claim(fresh)
    assert sorted(task.id for task in claimed) == ["a0", "a1", "a2", "good"]
    assert "-/bad in queue default waits because its record cannot be read" in caplog.text
    assert 59_000 < int(redis_client.zscore(KEYS.due("-"), "-/bad") or 0) - ledger.now() <= 60_000
    assert redis_client.hget(KEYS.tasks, "-/bad") is not None, "who can read it finds it as it was"


def test_a_record_that_is_cut_off_is_told_and_given_to_nobody(
    ledger: Ledger, redis_client: redis.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    ledger.add([new("bad"), new("good")])
    spoil(redis_client, "cut off")
    with caplog.at_level(logging.ERROR):
        assert [task.id for task in claim(ledger)] == ["good"]
    assert "-/bad in queue default waits because its record cannot be read" in caplog.text


@BROKEN
def test_no_verb_touches_a_record_that_cannot_be_read(ledger: Ledger, redis_client: redis.Redis, how: str) -> None:
    task, other = claim_one(ledger, "bad"), claim_one(ledger, "good")
    spoil(redis_client, how)
    kept = redis_client.hget(KEYS.tasks, "-/bad")
    assert ledger.settle(SHARD, [ending(task, Ending.DONE), ending(other, Ending.DONE)]) == [
        Settled.STALE,
        Settled.DONE,
    ]
    assert ledger.move("default", [Move("bad", delay_ms=5, force=True)]) == [Reply.ABSENT]
    assert ledger.cancel("default", ["bad"]) == ledger.replay("default", ["bad"]) == [Reply.ABSENT]
    with pytest.raises(StoreMisused, match="the record of -/bad cannot be read"):
        add(ledger, "bad")
    assert redis_client.hget(KEYS.tasks, "-/bad") == kept


@pytest.mark.parametrize(
    ("done", "behind", "letter", "other"),
    [
        *(
            (done, BEGUN.size + done * ENDED.size, b"s", status)
            for done in (False, True)
            for status in (b"l", b"d", b"?")
        ),
        (True, ENDED.size, b"L", b"s"),
        (True, ENDED.size, b"L", b"?"),
    ],
)
def test_a_lease_is_behind_what_is_scheduled_and_a_good_end_behind_a_lease(
    ledger: Ledger, redis_client: redis.Redis, done: bool, behind: int, letter: bytes, other: bytes
) -> None:
    task = claim_one(ledger, "bad")
    if done:
        settle(ledger, task, Ending.DONE)
    data = bytes(redis_client.hget(KEYS.tasks, "-/bad") or b"")
    at = len(data) - behind - 1
    assert data[at : at + 1] == letter
    redis_client.hset(KEYS.tasks, "-/bad", data[:at] + other + data[at + 1 :])
    assert settle(ledger, task, Ending.RETRY) is Settled.STALE
    assert ledger.extend(SHARD, [lease_of(task)], LEASE_MS) == [0]
    assert ledger.move("default", [Move("bad", force=True, revive=True)]) == [Reply.ABSENT]
    with pytest.raises(TaskDamaged, match="the record of -/bad cannot be read"):
        ledger.get("default", "bad")


def test_a_status_that_nobody_knows_is_one_that_cannot_be_read(ledger: Ledger, redis_client: redis.Redis) -> None:
    add(ledger, "bad")
    data = bytes(redis_client.hget(KEYS.tasks, "-/bad") or b"")
    redis_client.hset(KEYS.tasks, "-/bad", data[:-1] + b"?")
    assert ledger.move("default", [Move("bad")]) == ledger.cancel("default", ["bad"]) == [Reply.ABSENT]
    with pytest.raises(StoreMisused, match="the record of -/bad cannot be read"):
        add(ledger, "bad")


@BROKEN
def test_an_add_that_meets_a_record_that_cannot_be_read_adds_no_other_either(
    ledger: Ledger, redis_client: redis.Redis, how: str
) -> None:
    settle(ledger, claim_one(ledger, "done", group="g"), Ending.DONE)
    ledger.add([new(id, delay_ms=LEASE_MS) for id in ("bad", "later")])
    spoil(redis_client, how)
    before = all_but_meta(redis_client)
    twice = [new("new"), new("new", on_duplicate="replace")]
    others = [new("done", group="h"), new("later", on_duplicate="replace"), *twice]
    with pytest.raises(StoreMisused, match="the record of -/bad cannot be read"):
        ledger.add([*others, new("bad")])
    assert all_but_meta(redis_client) == before


def all_but_meta(client: redis.Redis) -> dict[bytes, Any]:
    return {key: client.dump(key) for key in client.scan_iter() if key != KEYS.meta.encode()}


def test_what_python_alone_cannot_read_is_told_and_neither_taken_nor_echoed(
    ledger: Ledger, redis_client: redis.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    ledger.add([new("bad", payload='"text"')])
    data = bytes(redis_client.hget(KEYS.tasks, "-/bad") or b"")
    redis_client.hset(KEYS.tasks, "-/bad", data.replace(b"text", b"\xff" * 4))
    with caplog.at_level(logging.ERROR):
        [kept] = ledger.add([new("bad")], echo=True)
        assert kept.reply is Reply.KEPT
        with pytest.raises(TaskDamaged, match="the record of -/bad cannot be read"):
            str(kept.task)
        assert ledger.take("default", "bad", lease_ms=LEASE_MS) is None
    assert caplog.text.count("-/bad in queue default waits because its record cannot be read") == 1


def test_a_client_reads_the_task_of_an_add_once_somebody_looks_at_it(ledger: Ledger, redis_client: redis.Redis) -> None:
    with wired_with(settings=Settings(targets={"report": "lambda:Report"}), ledger=ledger):
        client = Client.from_env()
        added = client.add(kind="report", payload={"a": "text"}, id="bad")
        data = bytes(redis_client.hget(KEYS.tasks, "-/bad") or b"")
        redis_client.hset(KEYS.tasks, "-/bad", data.replace(b"text", b"\xff" * 4))
        alone = client.add(kind="report", payload={}, id="bad")
        [one] = client.add_many([{"kind": "report", "payload": {}, "id": "bad"}])
    assert added.task is added.task
    assert added.task.payload == {"a": "text"}
    assert isinstance(one, AddResult)
    assert (alone.created, one.created) == (False, False)
    for kept in (alone, one):
        with pytest.raises(TaskDamaged, match="the record of -/bad cannot be read"):
            str(kept.task)


@BROKEN
def test_who_asks_for_a_record_that_cannot_be_read_is_told_and_of_a_group_gets_the_others(
    ledger: Ledger, redis_client: redis.Redis, caplog: pytest.LogCaptureFixture, how: str
) -> None:
    ledger.add([new("bad", group="g"), new("good", group="g")])
    spoil(redis_client, how)
    with pytest.raises(TaskDamaged, match="the record of -/bad cannot be read"):
        ledger.get("default", "bad")
    with caplog.at_level(logging.ERROR):
        assert [task.id for task in ledger.group("default", "g")] == ["good"]
    assert "-/bad in queue default waits because its record cannot be read" in caplog.text


@BROKEN
def test_a_lapsed_lease_whose_record_cannot_be_read_holds_nobody_up(
    ledger: Ledger, redis_client: redis.Redis, how: str
) -> None:
    ledger.add([new("bad"), new("good")])
    leases = claim(ledger, lease_ms=1)
    until(lambda: ledger.now() > leases[1].lease_expires_at)
    spoil(redis_client, how)
    assert [task.id for task in claim(ledger)] == ["good"]
    assert ledger.stats(SHARD).bell_at > ledger.now() + LEASE_MS / 2
    assert (ledger.stats(SHARD).leased, ledger.stats(SHARD).dead) == (1, 1)


def test_a_successor_that_cannot_be_read_leaves_the_task_as_it_is(ledger: Ledger, redis_client: redis.Redis) -> None:
    task = claim_one(ledger)
    ledger.add([new(on_duplicate="replace")])
    redis_client.hset(KEYS.tasks, "-/a+", b"?")
    assert settle(ledger, task, Ending.DONE) is Settled.DONE
    assert stored_task(ledger).status is Status.DONE
    assert redis_client.hlen(KEYS.tasks) == 1


def test_a_successor_that_cannot_be_read_is_replaced(ledger: Ledger, redis_client: redis.Redis) -> None:
    task = claim_one(ledger)
    ledger.add([new(on_duplicate="replace")])
    redis_client.hset(KEYS.tasks, "-/a+", b"?")
    [added] = ledger.add([new(on_duplicate="replace", payload="2")])
    assert (added.reply, settle(ledger, task, Ending.DONE)) == (Reply.REPLACED, Settled.DONE)
    assert (stored_task(ledger).status, stored_task(ledger).payload) == (Status.SCHEDULED, 2)
    redis_ledger.check(redis_client)


@BROKEN
def test_a_finished_record_that_cannot_be_read_is_forgotten_in_time(
    ledger: Ledger, redis_client: redis.Redis, how: str
) -> None:
    settle(ledger, claim_one(ledger, "bad"), Ending.DONE)
    settle(ledger, claim_one(ledger, "good"), Ending.DONE)
    spoil(redis_client, how)
    assert ledger.sweep(SHARD, retention_ms=-1).pruned == 2
    assert redis_client.hlen(KEYS.tasks) == 0


def test_a_log_that_is_broken_loses_nothing_that_was_claimed_before_it(
    ledger: Ledger, redis_client: redis.Redis
) -> None:
    settle(ledger, claim_one(ledger, "bad", deadline_ms=1_000), Ending.RELEASE)
    add(ledger, "good", due_at=ledger.now() - 1_000)
    until(lambda: ledger.now() > stored_task(ledger, "bad").deadline_at)
    spoil(redis_client, "cut off")
    assert [task.id for task in claim(ledger)] == ["good"]
    assert (ledger.stats(SHARD).dead, ledger.stats(SHARD).leased) == (0, 1)
    assert int(redis_client.zscore(KEYS.due("-"), "-/bad") or 0) > ledger.now()


def test_a_log_that_is_broken_holds_no_other_settlement_up(ledger: Ledger, redis_client: redis.Redis) -> None:
    settle(ledger, claim_one(ledger, "bad"), Ending.RETRY, detail="why")
    ledger.add([new("good")])
    bad, good = claim(ledger)
    spoil(redis_client, "cut off")
    ends = [ending(bad, Ending.RETRY), ending(good, Ending.RETRY)]
    assert ledger.settle(SHARD, ends) == [Settled.STALE, Settled.RETRIED]


@pytest.mark.parametrize("index", ["due:-", "leased"])
def test_entries_without_a_record_vanish(ledger: Ledger, redis_client: redis.Redis, index: str) -> None:
    add(ledger)
    redis_client.zadd(KEYS.prefix + index, {"-/nothing": 5})
    redis_client.hset(KEYS.meta, "spared", 5)  # a lease that lapsed unattended had its seconds more
    assert [task.id for task in claim(ledger)] == ["a"]
    assert redis_client.zscore(KEYS.prefix + index, "-/nothing") is None


def test_a_mass_of_entries_without_a_record_keeps_no_script_busy_for_long(
    ledger: Ledger, redis_client: redis.Redis
) -> None:
    add(ledger)
    redis_client.zadd(KEYS.due("-"), {f"-/{n}": 5 for n in range(5_000)})
    assert claim(ledger, 1) == []
    assert redis_client.zcard(KEYS.due("-")) == 4_701
    assert [task.id for _ in range(17) for task in claim(ledger, 1)] == ["a"]


def test_no_script_reads_a_mass_of_great_tasks_at_once(
    redis_server: RedisServer, ledger: Ledger, redis_client: redis.Redis
) -> None:
    for n in range(60):
        ledger.add([new(f"t{n:02}", payload='"' + 250_000 * "x" + '"')])
    with redis_server.client() as watcher, watcher.monitor() as monitor:
        tasks = ledger.claim(SHARD, 60, lease_ms=LEASE_MS).tasks
        redis_client.echo("the end")
        reads = []
        while not (command := monitor.next_command()["command"]).startswith("ECHO"):
            reads += [command] if command.startswith("HMGET") else []
    assert len(tasks) == 8
    assert [read.count("-/t") for read in reads if KEYS.tasks in read] == [8]


def test_a_claim_reads_each_record_once(redis_server: RedisServer, ledger: Ledger, redis_client: redis.Redis) -> None:
    ledger.add([new(f"t{n}", tenant=tenant) for tenant in "ab" for n in range(35)])
    ledger.claim(SHARD, 1, lease_ms=LEASE_MS)
    with redis_server.client() as watcher, watcher.monitor() as monitor:
        tasks = claim(ledger)
        redis_client.echo("the end")
        reads = []
        while not (command := monitor.next_command()["command"]).startswith("ECHO"):
            reads += [command.count("/t")] if command.startswith(f"HMGET {KEYS.tasks}") else []
    assert (len(tasks), reads) == (69, [8, 32, 29])


def test_upkeep_stops_after_some_bytes_and_says_that_there_is_more(ledger: Ledger) -> None:
    for n in range(60):
        ledger.add([new(f"t{n:02}", state='"' + 62_000 * "x" + '"')])
    tasks = claim_all(ledger, 3_000)
    until(lambda: ledger.now() > tasks[-1].lease_expires_at)
    first, *others = [ledger.sweep(SHARD, retention_ms=0) for _ in range(4)]
    assert (len(tasks), first.reclaimed, first.more) == (60, 17, True)
    assert (sum(step.reclaimed for step in others), others[-1].more) == (43, False)
    tasks = claim_all(ledger, LEASE_MS)
    ledger.settle(SHARD, [ending(task, Ending.DONE) for task in tasks])
    pruned = [(step.pruned, step.more) for step in (ledger.sweep(SHARD, retention_ms=-1) for _ in range(2))]
    assert pruned == [(36, True), (24, False)]


def test_upkeep_reads_no_payload_that_stands_apart(ledger: Ledger) -> None:
    for n in range(60):
        ledger.add([new(f"t{n:02}", payload='"' + 250_000 * "x" + '"')])
    tasks = claim_all(ledger, 1_000)
    until(lambda: ledger.now() > tasks[-1].lease_expires_at)
    swept = ledger.sweep(SHARD, retention_ms=0)
    assert (swept.reclaimed, swept.more) == (60, False)
    ledger.settle(SHARD, [ending(task, Ending.DONE) for task in claim_all(ledger, LEASE_MS)])
    swept = ledger.sweep(SHARD, retention_ms=-1)
    assert (swept.pruned, swept.more) == (60, False)


def claim_all(ledger: Ledger, lease_ms: int) -> list[Task]:
    """Claim until nothing is left, a bounded number at a time."""
    tasks: list[Task] = []
    while len(tasks) < 60:
        tasks += ledger.claim(SHARD, 60, lease_ms=lease_ms).tasks
    return tasks


@pytest.mark.parametrize("how", ["short", "cut within", "empty"])
def test_what_cannot_be_read_holds_no_place_once_its_lease_lapsed_and_can_be_deleted(
    ledger: Ledger, redis_client: redis.Redis, how: str
) -> None:
    ledger.configure("default", {"max_running": 1})
    ledger.add([new("bad")])
    ledger.claim(SHARD, 1, lease_ms=1)
    spoil(redis_client, how)
    ledger.add([new("good")])
    until(lambda: ledger.sweep(SHARD, retention_ms=DAY_MS).died == 1)
    assert [task.id for task in claim(ledger)] == ["good"]
    assert ledger.stats(SHARD).dead == 1
    assert ledger.cancel("default", ["bad"]) == [Reply.OK]
    assert (ledger.stats(SHARD).dead, ledger.get("default", "bad")) == (0, None)


@pytest.mark.parametrize("limit", ["max_running", "tenant_max_running"])
def test_what_cannot_be_read_is_deleted_by_force_while_it_is_leased(
    ledger: Ledger, redis_client: redis.Redis, limit: str
) -> None:
    ledger.configure("default", {limit: 1})  # type: ignore[misc]
    ledger.add([new("bad"), new("good")])
    ledger.claim(SHARD, 1, lease_ms=LEASE_MS)
    spoil(redis_client, "cut within")
    assert ledger.cancel("default", ["bad"]) == [Reply.ABSENT]
    assert ledger.cancel("default", ["bad"], force=True) == [Reply.OK]
    assert [task.id for task in claim(ledger)] == ["good"]


def hand_over(ledger: Ledger, *ids: str, lease_ms: int = LEASE_MS) -> list[str]:
    """Adds tasks that are handed over, to a target that may have two it did not begin; answers who was."""
    ledger.add([new(id, kind="report") for id in ids])
    deliveries = {"report": Delivery("lambda:report", 2, lease_ms), "other": Delivery("lambda:other", 2, lease_ms)}
    return [task.id for task in ledger.claim(SHARD, 9, lease_ms=LEASE_MS, deliveries=deliveries).tasks]


@pytest.mark.parametrize("how", ["short", "cut off", "cut within", "empty", "gone"])
def test_a_delivery_that_cannot_be_read_holds_no_place_at_its_target_once_it_lapsed(
    ledger: Ledger, redis_client: redis.Redis, how: str
) -> None:
    assert hand_over(ledger, "bad", lease_ms=1) == ["bad"]
    if how == "gone":
        redis_client.hdel(KEYS.tasks, "-/bad")
    else:
        spoil(redis_client, how)
    assert hand_over(ledger, "good") == ["good"]
    until(lambda: not (ledger.sweep(SHARD, retention_ms=DAY_MS).more or ledger.stats(SHARD).leased > 1))
    assert hand_over(ledger, "another", "waits") == ["another"]
    ledger.cancel("default", ["bad"])
    redis_ledger.check(redis_client)


def test_a_delivery_that_cannot_be_read_and_is_cancelled_by_force_gives_its_place_back(
    ledger: Ledger, redis_client: redis.Redis
) -> None:
    assert hand_over(ledger, "bad", "good", "waits") == ["bad", "good"]
    spoil(redis_client, "cut within")
    assert ledger.cancel("default", ["bad"], force=True) == [Reply.OK]
    assert ledger.stats(SHARD).bell_at < ledger.now() + LEASE_MS / 2, "it rings for what waits"
    assert hand_over(ledger) == ["waits"]
    redis_ledger.check(redis_client)


def test_a_task_that_was_begun_and_cannot_be_read_gives_no_place_back_twice(
    ledger: Ledger, redis_client: redis.Redis
) -> None:
    assert hand_over(ledger, "bad", "good") == ["bad", "good"]
    ledger.begin(SHARD, [lease_of(stored_task(ledger, "bad"))], LEASE_MS, [bytes(8)])
    spoil(redis_client, "cut within")
    assert ledger.cancel("default", ["bad"], force=True) == [Reply.OK]
    redis_ledger.check(redis_client)
