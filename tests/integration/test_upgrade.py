"""Versions of records: a ledger of before goes on as it was, until it is upgraded."""

from collections.abc import Iterator
from typing import Any

import pytest
import redis

from duecourse.adapters.redis.keys import keys_of
from duecourse.adapters.redis.layout import NEWEST, OLDEST
from duecourse.adapters.redis.store import RedisStore
from duecourse.adapters.redis.upgrade import Upgrade, Upgraded
from duecourse.domain.outcomes import Ending, Settlement
from duecourse.domain.shards import Sharding
from duecourse.domain.task import NewTask, Shard, Status, Task
from duecourse.errors import StoreMisused
from duecourse.ports.leases import Delivery, Lease, Settled
from duecourse.ports.tasks import Move
from tests.support import redis_ledger
from tests.support.former import VERSIONS, Former, former_ledger, told
from tests.support.redis_server import REDIS, SERVERS

SHARD = Shard()
KEYS = keys_of("duecourse", SHARD)
LEASE_MS = 30_000
HOUR_MS = 3_600_000
LARGE = '"' + "0123456789abcdef" * 1_250 + '"'
GIVEN = {"handed": Delivery("lambda:handed", 10, LEASE_MS)}


@pytest.fixture(params=SERVERS, ids=lambda binary: f"redis-{binary}")
def former(request: pytest.FixtureRequest) -> Iterator[Former]:
    """The ledger of 0.1.0 on a server of its own, whose keys agree with one another afterwards."""
    with former_ledger(VERSIONS[0], request.param) as ledger:
        yield ledger
        redis_ledger.check(ledger.client, SHARD)


def records(client: redis.Redis) -> dict[bytes, bytes]:
    return {name: data for name, data in client.hgetall(KEYS.tasks).items() if b"=" not in name}


def bodies(client: redis.Redis) -> list[bytes]:
    return [data for name, data in client.hgetall(KEYS.tasks).items() if b"=" in name]


def versions(client: redis.Redis) -> set[int]:
    return {data[0] for data in records(client).values()}


def upgrade(client: redis.Redis, tell: Any = lambda _line: None) -> Upgraded:
    return Upgrade(client, "duecourse", tell).run(0)


def draw_as_an_earlier_caller(client: redis.Redis) -> None:
    """What an add or a claim of an earlier version does to the shard's meta."""
    client.hincrby(KEYS.meta, "fence", 1)


def sweep(former: Former) -> bool:
    return former.store.sweep(SHARD, retention_ms=10**12).more


def test_a_fresh_ledger_is_of_the_newest_version_and_so_are_its_later_shards(redis_client: redis.Redis) -> None:
    store = RedisStore(redis_client, sharding=Sharding({"many": 2}))
    store.add([NewTask("a", "work", LARGE), *(NewTask(f"b{n}", "work", LARGE, queue="many") for n in range(9))])
    for shard in (SHARD, Shard("many", 0), Shard("many", 1)):
        assert redis_client.hget(keys_of("duecourse", shard).meta, "layout") == b"%d" % NEWEST
        redis_ledger.check(redis_client, shard)
    assert versions(redis_client) == {NEWEST}


def test_a_ledger_of_before_goes_on_in_its_own_version(former: Former) -> None:
    store = former.store
    store.add([NewTask("new", "work", LARGE, delay_ms=0), NewTask("other", "work", LARGE, queue="other")])
    claimed: list[Task] = []
    while more := store.claim(SHARD, 9, lease_ms=LEASE_MS).tasks:
        claimed += more
    assert next(task for task in claimed if task.id == "new").payload_json == LARGE
    endings = [*Ending] * len(claimed)
    ends = [Settlement(t.id, t.tenant, t.token, how) for t, how in zip(claimed, endings, strict=False)]
    assert Settled.DONE in store.settle(SHARD, ends)
    store.move("default", [Move("scheduled-big", delay_ms=5)])
    store.cancel("default", ["replaced-big"])
    assert versions(former.client) == {OLDEST}
    assert bodies(former.client) == []
    meta = former.client.hgetall(keys_of("duecourse", Shard("other")).meta)
    assert (meta[b"layout"], meta[b"drawn"]) == (b"%d" % OLDEST, meta[b"fence"])
    assert {data[-1:] for data in records(former.client).values()} <= {b"s", b"l", b"d", b"x", b"c", b"L", b"D"}


def test_a_task_is_handed_over_under_a_lease_that_earlier_workers_know_and_is_begun_by_it(former: Former) -> None:
    former.store.add([NewTask("mine", "handed", delay_ms=0)])
    tasks = former.store.claim(SHARD, 500, lease_ms=LEASE_MS, deliveries=GIVEN).tasks
    task = next(task for task in tasks if task.id == "mine")
    assert (task.target, records(former.client)[b"-/mine"][-1:]) == ("", b"L")
    lease = Lease(task.id, task.token)
    for nonce in (b"8 bytes.", b"8 others"):
        [begun] = former.store.begin(SHARD, [lease], 2 * LEASE_MS, [nonce])
        assert begun[:3] == (task.token, task.run, former.clock.at + 2 * LEASE_MS)
    [stale] = former.store.begin(SHARD, [Lease(task.id, "0" * 28)], LEASE_MS, [b"8 bytes."])
    assert stale.token == ""
    assert former.store.settle(SHARD, [Settlement(task.id, "-", task.token, Ending.DONE)]) == [Settled.DONE]


def test_an_old_record_that_is_handed_over_once_the_version_was_raised_is_of_the_newest(former: Former) -> None:
    """Those who know the oldest alone would find it broken, and leave alone what is of a later one."""
    former.store.add([NewTask("mine", "handed", delay_ms=0)])
    former.client.hset(KEYS.meta, mapping={"layout": NEWEST, "rewrite": 0})
    tasks = former.store.claim(SHARD, 500, lease_ms=LEASE_MS, deliveries=GIVEN).tasks
    assert next(task.target for task in tasks if task.id == "mine") == "lambda:handed"
    record = records(former.client)[b"-/mine"]
    assert (record[0], record[-1:]) == (NEWEST, b"V")


@pytest.mark.parametrize("version", VERSIONS)
def test_an_upgrade_rewrites_every_record_and_changes_no_task(version: str) -> None:
    with former_ledger(version, REDIS[0]) as former:
        every = [former.get(id) for id in former.shown["tasks"]]
        lines: list[str] = []
        count = len(records(former.client))
        assert upgrade(former.client, lines.append) == Upgraded(1, 1, count)
        assert lines == [
            "watching 1 of 1 shards for callers of earlier versions",
            f"default/0: rewrote {count} records",
        ]
        assert versions(former.client) == {NEWEST}
        large = [data for data in records(former.client).values() if len(data) > 10_000]
        assert large == []
        assert {id: told(former.get(id)) for id in former.shown["tasks"]} == former.shown["tasks"]
        assert [former.get(task.id) for task in every] == every
        assert list(former.store.stats(SHARD)[:4]) == former.shown["stats"]
        redis_ledger.check(former.client, SHARD)
        assert upgrade(former.client) == Upgraded(1, 0, 0)
        former.store.add([NewTask("later", "work", LARGE, queue="later")])
        assert former.client.hget(keys_of("duecourse", Shard("later")).meta, "layout") == b"%d" % NEWEST


def test_what_was_upgraded_is_worked_on(former: Former) -> None:
    upgrade(former.client)
    assert former.store.replay("default", ["dropped-big"]) == ["ok"]
    claimed: dict[str, Task] = {}
    while more := former.store.claim(SHARD, 9, lease_ms=LEASE_MS).tasks:
        claimed |= {task.id: task for task in more}
    assert len(claimed["due-big"].payload_json) == former.shown["tasks"]["due-big"]["payload"]
    held = [*claimed.values(), *(task for task in former.every(Status.LEASED) if task.id not in claimed)]
    ends = [Settlement(task.id, task.tenant, task.token, Ending.DONE) for task in held]
    assert set(former.store.settle(SHARD, ends)) == {Settled.DONE}
    former.clock.advance(1)
    while former.store.sweep(SHARD, retention_ms=0, dead_retention_ms=0).more:
        pass
    assert {former.get("succeeded-big").status, former.get("log-big").status} == {Status.SCHEDULED}


def test_an_upgrade_is_refused_while_an_earlier_caller_is_seen(former: Former) -> None:
    def while_it_watches(_line: str) -> None:
        draw_as_an_earlier_caller(former.client)

    with pytest.raises(StoreMisused, match="A caller of an earlier version adds or claims tasks in default/0"):
        upgrade(former.client, while_it_watches)
    former.store.claim(SHARD, 9, lease_ms=LEASE_MS)
    assert versions(former.client) == {OLDEST}
    assert upgrade(former.client).raised == 1


def test_callers_of_this_version_do_not_hold_an_upgrade_up(former: Former) -> None:
    def work(_line: str) -> None:
        former.store.add([NewTask("a", "work"), NewTask("a", "work", on_duplicate="replace")])
        former.store.claim(SHARD, 9, lease_ms=LEASE_MS)
        former.store.add([NewTask("b", "work", delay_ms=99_000)])
        former.store.take("default", "b", lease_ms=LEASE_MS)
        former.store.move("default", [Move("b", force=True)])

    assert upgrade(former.client, work).raised == 1


def test_a_sweep_raises_the_version_after_an_hour_without_an_earlier_caller(former: Former) -> None:
    sweep(former)
    former.clock.advance(HOUR_MS - 1)
    draw_as_an_earlier_caller(former.client)
    sweep(former)
    former.clock.advance(HOUR_MS - 1)
    former.store.add([NewTask("mine", "work", LARGE)])
    sweep(former)
    assert versions(former.client) == {OLDEST}
    former.clock.advance(1)
    while sweep(former):
        pass
    assert versions(former.client) == {NEWEST}
    assert former.store.get("default", "mine").payload_json == LARGE  # type: ignore[union-attr]


def test_sweeps_rewrite_a_large_ledger_in_bounded_steps(former: Former) -> None:
    former.store.add([NewTask(f"many-{n}", "work", delay_ms=99_000) for n in range(1_000)])
    former.client.hset(KEYS.meta, mapping={"layout": NEWEST, "rewrite": 0})
    assert sweep(former)
    assert versions(former.client) == {OLDEST, NEWEST}
    while sweep(former):
        pass
    assert versions(former.client) == {NEWEST}
    assert former.client.hget(KEYS.meta, "rewrite") is None
