"""A queue of eight shards: each task in one of them, found wherever it is, on every store."""

from zlib import crc32

import pytest

from duecourse.ledger.operation_types import Move, Reply, Settled, UniqueCondition
from duecourse.ledger.operations.ledger import Ledger
from duecourse.ledger.sharding import Sharding
from duecourse.ledger.task import Ending, NewTask, Shard, Status
from tests.support.clock import HandClock
from tests.support.ledger import LATER_MS, LEASE_MS, ending, lease_of, new
from tests.support.stores import SHARDS

IDS = [f"t-{n}" for n in range(40)]
EVERY = [Shard("default", number) for number in range(SHARDS)]


def elsewhere(id: str = "a") -> str:
    """A group whose shard is another than the id's."""
    home = Sharding({"default": SHARDS}).of("default", id)
    groups = (f"g-{n}" for n in range(99))
    return next(group for group in groups if Sharding({"default": SHARDS}).of("default", id, group) != home)


def claim_all(ledger: Ledger) -> dict[Shard, list[str]]:
    return {shard: sorted(t.id for t in ledger.claim(shard, 100, lease_ms=LEASE_MS).tasks) for shard in EVERY}


def test_tasks_are_spread_by_the_crc_32_of_their_ids(sharded: Ledger) -> None:
    sharded.add([new(id) for id in IDS])
    assert sharded.shards() == EVERY
    assert claim_all(sharded) == {
        shard: sorted(id for id in IDS if crc32(id.encode()) % SHARDS == shard.number) for shard in EVERY
    }


def test_answers_come_in_the_order_of_what_was_asked(sharded: Ledger) -> None:
    sharded.add([new("t-3", payload="3")])
    added = sharded.add([new(id) for id in IDS], echo=True)
    assert [a.id for a in added] == IDS
    assert [a.reply for a in added if a.reply is not Reply.CREATED] == [Reply.KEPT]
    moved = sharded.move("default", [Move("none"), *(Move(id, delay_ms=5) for id in IDS)])
    assert moved == [Reply.ABSENT, *(Reply.OK for _ in IDS)]
    assert sharded.cancel("default", ["t-1", "none", "t-2"]) == [Reply.OK, Reply.ABSENT, Reply.OK]
    cancelled = [id for id in IDS if (task := sharded.get("default", id)) and task.status is Status.CANCELLED]
    assert cancelled == ["t-1", "t-2"]


def test_a_group_is_one_shard_and_is_moved_and_cancelled_there(sharded: Ledger) -> None:
    sharded.add([new(id, group="g", delay_ms=LATER_MS) for id in IDS[:9]])
    home = sharded.shard_of("default", "", "g")
    assert sharded.shards() == [home]
    assert [task.id for task in sharded.group("default", "g")] == IDS[:9]
    moves = [Move(id, delay_ms=1) for id in IDS[:9]]
    assert set(sharded.move("default", moves, group="g")) == {Reply.OK}
    assert set(sharded.cancel("default", IDS[:9], group="g")) == {Reply.OK}
    assert sharded.cancel("default", ["stranger"], group="g") == [Reply.ABSENT]
    assert sharded.stats(home).done == 9


def test_a_grouped_task_is_found_by_its_id_alone(sharded: Ledger, clock: HandClock) -> None:
    sharded.add([new(group=elsewhere(), deadline_ms=LATER_MS), new("b")])
    task = sharded.get("default", "a")
    assert task
    assert (task.id, task.group) == ("a", elsewhere())
    assert sharded.move("default", [Move("b", delay_ms=1), Move("a", delay_ms=1)]) == [Reply.OK, Reply.OK]
    clock.advance(2 * LATER_MS)
    shard = sharded.shard_of("default", "a", task.group)
    assert sharded.claim(shard, 1, lease_ms=LEASE_MS).died == 1
    assert sharded.replay("default", ["a"]) == [Reply.OK]
    assert sharded.cancel("default", ["a", "b"]) == [Reply.OK, Reply.OK]
    assert sharded.get("default", "c") is None


def test_a_lease_is_settled_in_the_shard_that_its_task_tells(sharded: Ledger) -> None:
    sharded.add([new("a", group=elsewhere()), new("b")])
    for shard in EVERY:
        for task in sharded.claim(shard, 9, lease_ms=LEASE_MS).tasks:
            told = sharded.shard_of(task.queue, task.id, task.group)
            assert told == shard
            assert sharded.extend(told, [lease_of(task)], LEASE_MS) != [0]
            assert sharded.save(told, lease_of(task), "1")
            assert sharded.settle(told, [ending(task, Ending.DONE)]) == [Settled.DONE]
    assert sum(sharded.stats(shard).done for shard in EVERY) == 2


def test_a_group_that_must_be_alone_is_looked_at_in_its_shard(sharded: Ledger) -> None:
    condition = UniqueCondition("g", 0)
    assert [a.reply for a in sharded.add([new(group="g")], unique=condition)] == [Reply.CREATED]
    assert sharded.add([new("b", group="g")], unique=condition) == []


def test_a_pause_is_of_all_shards(sharded: Ledger) -> None:
    sharded.add([new(id) for id in IDS])
    sharded.configure("default", {"paused": True})
    assert not any(claim_all(sharded).values())
    sharded.configure("default", {"paused": False})
    assert sorted(id for ids in claim_all(sharded).values() for id in ids) == sorted(IDS)


def test_other_queues_have_one_shard(sharded: Ledger) -> None:
    sharded.add([NewTask(id, "work", queue="other") for id in IDS])
    assert sharded.shards() == [Shard("other")]


def test_fences_and_bells_are_the_shards_own(sharded: Ledger, clock: HandClock) -> None:
    sharded.add([new("a", delay_ms=50), new("b", delay_ms=70)])
    a, b = (sharded.shard_of("default", id) for id in ("a", "b"))
    assert a != b
    assert [sharded.stats(shard).bell_at - clock.at for shard in (a, b)] == [50, 70]
    first, second = (task.generation for id in ("a", "b") if (task := sharded.get("default", id)))
    assert first == second, "each shard draws its first, at the same instant"


@pytest.mark.parametrize("count", [1, 2, 8, 256])
def test_every_shard_of_a_count_gets_tasks(count: int) -> None:
    sharding = Sharding({"q": count})
    assert {sharding.of("q", f"task-{n}") for n in range(20 * count)} == set(sharding.every("q"))
