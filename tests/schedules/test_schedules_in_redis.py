"""Schedules in Redis: replies lost, records broken, shards changed, moved between ledgers, examined, and their size."""

from collections import Counter
from collections.abc import Iterator
from itertools import islice
from typing import Any

import pytest
import redis

from duecourse.base.batches import batched
from duecourse.errors import QuotaExceeded, StoreUnavailable, TaskDamaged
from duecourse.ledger.connect import connect
from duecourse.ledger.keys import keys_of
from duecourse.ledger.maintenance import Mend, Mended, Reshard
from duecourse.ledger.operation_types import Fired, Put
from duecourse.ledger.operations.ledger import Ledger
from duecourse.ledger.record import stored_schedule
from duecourse.ledger.schedule import (
    NEVER,
    TENANT,
    Became,
    Cron,
    Occurrence,
    Overlap,
    Progress,
    Rule,
    Schedule,
    StoredSchedule,
    occurrence_id,
)
from duecourse.ledger.script_codec import MAX_PIECE_BYTES
from duecourse.ledger.sharding import Sharding
from duecourse.ledger.task import Ending, Shard
from duecourse.schedules.calendar import Calendar
from duecourse.schedules.firing import Firer
from duecourse_local.backup.export import Export
from duecourse_local.backup.restore import Restore, Restored
from duecourse_local.doctor.examination import Examination
from duecourse_local.doctor.finding import Level
from tests.support import redis_ledger
from tests.support.clock import START, HandClock
from tests.support.crashes import crashing_reshards
from tests.support.ledger import LEASE_MS, SHARD, claim, ending, settle
from tests.support.matrix import MATRIX
from tests.support.proxies import LossyProxy
from tests.support.redis_monitor import records_read
from tests.support.redis_server import REDIS, RedisServer, need
from tests.support.schedules import MINUTE, became, begun, due, fire, ids, kept, occurrence, put, series, step, waits

pytestmark = pytest.mark.slow

KEYS = keys_of("duecourse", SHARD)
LARGE = '"' + 3_000 * "x" + '"'


@pytest.fixture
def ledger(redis_client: redis.Redis, clock: HandClock) -> Ledger:
    return Ledger(redis_client, travel=clock)


def test_what_is_sent_again_after_a_lost_reply_is_done_once(redis_server: RedisServer, clock: HandClock) -> None:
    with LossyProxy(redis_server.socket) as proxy, connect(proxy.url) as client:
        ledger = Ledger(client, travel=clock)
        put(ledger, "loaded")
        ledger.fire(SHARD, [])
        ledger.drop_schedule("default", "loaded")
        fire_nothing = [step(StoredSchedule(series("none"), begun(), 1, 1))]
        assert ledger.fire(SHARD, fire_nothing) == [Fired.STALE]
        proxy.lose_next_reply()
        assert put(ledger) is Put.CREATED
        proxy.lose_next_reply()
        assert ledger.put_schedule(series(kind="x"), begun(version=2), seen=kept(ledger)).put is Put.CHANGED
        proxy.lose_next_reply()
        assert fire(ledger, "s", START + MINUTE, START + 2 * MINUTE) is Fired.FIRED
        assert (ledger.stats(SHARD).scheduled, kept(ledger).progress.fired) == (2, 2)
        proxy.lose_next_reply()
        with pytest.raises(StoreUnavailable):
            ledger.drop_schedule("default", "s")
        assert ledger.schedule("default", "s") is None
        assert proxy.lost == 4


def test_a_schedule_whose_record_is_broken_delays_no_other_and_can_be_dropped(
    ledger: Ledger, redis_client: redis.Redis, clock: HandClock
) -> None:
    names = ["cut off", "nonsense", "no definition", "no state", "whole"]
    for place, id in enumerate(names):
        put(ledger, id.replace(" ", "-"), START + MINUTE + place)
    for sid, data in redis_client.hgetall(KEYS.tasks).items():
        broken = {
            b"cut-off": data[:-40],
            b"nonsense": b"\x05nonsense",
            b"no-definition": data.replace(b'"e":60000', b'"q":60000'),
            b"no-state": data.replace(b"|||", b"||."),
        }
        redis_client.hset(KEYS.tasks, sid, broken.get(sid.rpartition(b"/")[2], data))
    with pytest.raises(TaskDamaged):
        ledger.schedule("default", "cut-off")
    assert ids(ledger.schedules("default", "", 10).schedules) == ["whole"]
    clock.advance(2 * MINUTE)
    assert ids(due(ledger)) == ["whole"]
    assert fire(ledger, "whole") is Fired.FIRED
    off = {redis_client.zscore(KEYS.due(TENANT), stored_schedule("-", id.replace(" ", "-"))) for id in names[:-1]}
    assert off == {clock.at + MINUTE}
    assert redis_client.zscore(KEYS.heads, TENANT) == kept(ledger, "whole").progress.next_at
    with pytest.raises(TaskDamaged, match="delete"):
        put(ledger, "cut-off")
    for id in names[:-1]:
        assert ledger.drop_schedule("default", id.replace(" ", "-"))
    assert ledger.stats(SHARD).scheduled == 1


def test_what_waits_is_due_at_the_next_step_where_the_record_before_it_is_lost(
    ledger: Ledger, redis_client: redis.Redis
) -> None:
    put(ledger, overlap=Overlap.QUEUE)
    fire(ledger)
    fire(ledger)
    redis_client.hdel(KEYS.tasks, f"-/{occurrence(1)}")
    redis_client.zrem(KEYS.due("-"), f"-/{occurrence(1)}")
    redis_client.zrem(KEYS.groups, f"-/s\0-/{occurrence(1)}")
    assert waits(ledger, occurrence(2))
    fire(ledger)
    assert not waits(ledger, occurrence(2))
    assert waits(ledger, occurrence(3))
    redis_ledger.check(redis_client)


def test_a_page_reads_its_own_ids_alone_where_schedules_are_counted(redis_client: redis.Redis) -> None:
    ledger = Ledger(redis_client)
    ledger.configure("default", {"tenant_max_schedules": 10_000})
    for n in range(1_200):
        put(ledger, f"s-{n:04}", tenant="acme")
    while ledger.sweep(SHARD, retention_ms=MINUTE).more:
        pass
    redis_client.config_resetstat()
    page = ledger.schedules("default", "s-0499", 10, "acme")
    assert (ids(page.schedules), page.next) == ([f"s-{n:04}" for n in range(500, 510)], "s-0509")
    stats = redis_client.info("commandstats")
    made = {name.removeprefix("cmdstat_"): int(stat["calls"]) for name, stat in stats.items()}
    assert made["zrangebylex"] == 1
    assert not {"evalsha", "evalsha_ro", "zrange"} & made.keys()


def filled(ledger: Ledger, count: int = 30) -> list[StoredSchedule]:
    """Schedules of two tenants, some of which have fired, some that are over, with occurrences in several states."""
    for n in range(count):
        put(ledger, f"s-{n}", overlap=Overlap.QUEUE, payload=LARGE if n % 3 else "1")
        put(ledger, f"s-{n}", tenant="acme", at=NEVER if n % 2 else START + MINUTE)
        for _ in range(n % 4):
            fire(ledger, f"s-{n}")
    shards = {ledger.shard_of("default", "", f"s-{n}") for n in range(count)}
    for shard in shards:
        for task in ledger.claim(shard, 5, lease_ms=LEASE_MS).tasks:
            ledger.settle(shard, [ending(task, Ending.DONE)])
    return every(ledger)


def every(ledger: Ledger) -> list[StoredSchedule]:
    return [one for tenant in ("-", "acme") for one in ledger.schedules("default", "", 1_000, tenant).schedules]


def sharded(client: redis.Redis, count: int) -> Ledger:
    return Ledger(client, sharding=Sharding({"default": count}))


def assert_moved(client: redis.Redis, before: list[StoredSchedule], count: int) -> None:
    """Every schedule is as it was, in the shard of its occurrences alone, and fires."""
    ledger = sharded(client, count)
    assert every(ledger) == before
    found = Counter[tuple[str, str]]()
    for shard in Sharding({"default": count}).every("default"):
        redis_ledger.check(client, shard)
        found.update((one.schedule.tenant, one.schedule.id) for one in due(ledger, shard))
    assert found == Counter((one.schedule.tenant, one.schedule.id) for one in before if one.progress.next_at < NEVER)
    assert fire(ledger, "s-3") is Fired.FIRED


@pytest.mark.parametrize(("was", "to"), [(1, 8), (8, 3)])
def test_a_schedule_moves_to_the_shard_of_its_occurrences(redis_client: redis.Redis, was: int, to: int) -> None:
    before = filled(sharded(redis_client, was))
    Reshard(redis_client, "duecourse", "default", to, lambda _: None).run(0)
    assert_moved(redis_client, before, to)


@MATRIX
def test_a_reshard_cut_off_at_any_step_and_run_again_loses_and_doubles_no_schedule(redis_client: redis.Redis) -> None:
    steps = 0
    for cut_off in crashing_reshards(redis_client, 5):
        redis_client.flushall()
        before = filled(sharded(redis_client, 3), 8)
        cut_off()
        assert_moved(redis_client, before, 5)
        steps += 1
    assert steps > 20


@pytest.fixture
def elsewhere() -> Iterator[redis.Redis]:
    """A client of another server, which is empty."""
    with RedisServer(need(REDIS[-1])) as server, redis.Redis.from_url(server.url) as client:
        yield client


def test_schedules_are_exported_and_restored(redis_client: redis.Redis, elsewhere: redis.Redis) -> None:
    before = filled(Ledger(redis_client))
    lines = list(Export(redis_client, "duecourse", (), pytest.fail).lines())
    [shown] = [line for line in lines if '"id":"*/acme/s-2"' in line]
    assert '"shown":{"schedule":"s-2","tenant":"acme","kind":"work"' in shown
    restored = Restore(elsewhere, "duecourse", 0, lambda _: None).run(lines)
    ledger = Ledger(elsewhere)
    assert every(ledger) == before
    assert restored.existing == 0
    redis_ledger.check(elsewhere)
    assert Restore(elsewhere, "duecourse", 0, lambda _: None).run(lines) == Restored(0, restored.added)
    assert fire(ledger, "s-3") is Fired.FIRED


def test_a_mend_puts_back_what_is_lost_of_schedules(redis_client: redis.Redis) -> None:
    ledger = Ledger(redis_client)
    put(ledger)
    put(ledger, "over", NEVER)
    redis_client.delete(KEYS.due(TENANT), KEYS.heads)
    assert Mend(redis_client, "duecourse", LEASE_MS, lambda _: None).run() == Mended(2, 3, 0)
    assert Mend(redis_client, "duecourse", LEASE_MS, lambda _: None).run() == Mended(2, 0, 0)
    redis_ledger.check(redis_client)
    assert redis_client.zscore(KEYS.heads, TENANT) == START + MINUTE


def wrong(client: redis.Redis) -> list[tuple[str, str, str]]:
    """What the doctor says of tasks, schedules and the bell."""
    found = [one for _, part in Examination(client, "duecourse", events=True).run() for one in part]
    return [
        (one.check, one.text, one.fix)
        for one in found
        if one.place == str(SHARD) and one.level in {Level.WARNING, Level.FAULT}
    ]


def test_the_doctor_finds_schedules_sound_and_what_is_wrong_with_them(redis_client: redis.Redis) -> None:
    ledger = Ledger(redis_client)
    ledger.put_schedule(series("over", payload=LARGE), Progress())
    assert wrong(redis_client) == []
    later = ledger.now() + 30 * MINUTE
    put(ledger, "s", later, overlap=Overlap.QUEUE)
    assert wrong(redis_client) == []
    redis_client.zrem(KEYS.due(TENANT), stored_schedule("-", "over"))
    redis_client.delete(KEYS.heads)
    [(check, text, _)] = wrong(redis_client)
    assert (check, text) == ("tasks without an entry", "2: */-/over, *")
    Mend(redis_client, "duecourse", LEASE_MS, lambda _: None).run()
    redis_client.hset(KEYS.tasks, stored_schedule("-", "over"), b"\x05nonsense")
    [(check, text, fix)] = [one for one in wrong(redis_client) if "unreadable" in one[0]]
    assert check == "unreadable schedule"
    assert text.startswith("over of tenant -")
    assert fix.startswith("DELETE /schedules/over?queue=default as tenant -")


def test_many_large_steps_are_bounded_in_bytes(ledger: Ledger, redis_server: RedisServer, clock: HandClock) -> None:
    size = 60_000
    payload = '"' + size * "x" + '"'
    for n in range(100):
        put(ledger, f"s-{n}", payload=payload, overlap=Overlap.SKIP)
    clock.advance(MINUTE)
    with records_read(redis_server) as reads:
        while found := due(ledger):
            assert ledger.fire(SHARD, [step(one, due_at=NEVER) for one in found]) == len(found) * [Fired.FIRED]
    ahead = 20  # small records, without their payloads, that a claim reads by one command
    assert (max(reads) - ahead) / 2 * size <= MAX_PIECE_BYTES + size  # of each its record, and its payload apart
    assert ledger.stats(SHARD).scheduled == 100


def used(client: redis.Redis) -> int:
    return sum(client.memory_usage(key, samples=0) or 0 for key in client.scan_iter("duecourse:{default/0}:*"))


@pytest.mark.parametrize("version", REDIS)
def test_a_schedule_takes_little_room(version: str) -> None:
    """At a payload of 120 bytes, with its indexes and its last ten occurrences; not more than 600 bytes."""
    rule = Rule(Cron("0 9 * * MON-FRI"), START, "Europe/Vienna")
    payload = '"' + 118 * "x" + '"'
    recent = tuple(Occurrence(at, Became.DONE) for at in islice(Calendar().times(rule, START), 10))
    with RedisServer(need(version)) as server, redis.Redis.from_url(server.url) as client:
        ledger = Ledger(client)
        put(ledger, "first")
        before = used(client)
        for n in range(5_000):
            schedule = Schedule(f"report-{n:05}", "report", rule, payload, by="http")
            ledger.put_schedule(schedule, begun(zones="2026f", fired=10, recent=recent))
        assert (used(client) - before) / 5_000 <= 600


def test_a_claim_and_a_settle_of_an_occurrence_tell_its_schedule_while_memory_is_short(
    ledger: Ledger, redis_client: redis.Redis, clock: HandClock
) -> None:
    put(ledger, overlap=Overlap.QUEUE)
    clock.advance(MINUTE)
    fire(ledger)
    fire(ledger)
    try:
        [task] = claim(ledger)
        redis_client.config_set("maxmemory", 1)
        settle(ledger, task, Ending.DONE)
        assert became(ledger) == [Became.DONE, Became.LIVE]
        assert not waits(ledger, occurrence(2))
        assert ledger.drop_schedule("default", "s")
    finally:
        redis_client.config_set("maxmemory", 0)


def test_a_shard_that_was_forgotten_may_have_a_schedule_again(redis_client: redis.Redis) -> None:
    ledger = Ledger(redis_client, sharding=Sharding({"default": 2}))
    put(ledger, "s")
    shard = ledger.shard_of("default", "", "s")
    assert ledger.shards() == [shard]
    assert isinstance(shard, Shard)
    ledger.drop_schedule("default", "s")
    redis_client.hset(keys_of("duecourse", shard).meta, "leaving", 1)
    redis_client.srem("duecourse:shards", f"{shard}/2")
    assert put(Ledger(redis_client, sharding=Sharding({"default": 2})), "s") is Put.CREATED
    assert ledger.shards() == [shard]


def put_copies(client: redis.Redis, ledger: Ledger, count: int, **fields: Any) -> None:
    """Put a schedule of `mallory`, and as many copies of it under other ids, all due with it."""
    put(ledger, "m", tenant="mallory", **fields)
    record = client.hget(KEYS.tasks, stored_schedule("mallory", "m"))
    names = [stored_schedule("mallory", f"m-{n:06}") for n in range(count)]
    for some in batched(names, 2_000):
        client.hset(KEYS.tasks, mapping=dict.fromkeys(some, record))
        client.zadd(KEYS.due(TENANT), dict.fromkeys(some, START + MINUTE))


def commands(client: redis.Redis) -> dict[str, int]:
    """Commands that ran so far, those of scripts too, by their names."""
    return {name.removeprefix("cmdstat_"): int(one["calls"]) for name, one in client.info("commandstats").items()}


def test_among_ten_thousand_due_schedules_of_one_tenant_anothers_fires_in_the_first_round(
    ledger: Ledger, redis_client: redis.Redis, clock: HandClock
) -> None:
    put_copies(redis_client, ledger, 9_998)
    put(ledger, "victim", START + MINUTE + 1, tenant="acme")
    clock.advance(2 * MINUTE)
    due(ledger)  # the first claim learns that there are schedules
    before = commands(redis_client)
    claim = ledger.claim(SHARD, 1, lease_ms=1)
    Firer(ledger, Calendar()).fire(SHARD, claim.schedules, claim.now)
    spent = {name: count - before.get(name, 0) for name, count in commands(redis_client).items()}
    assert ledger.get("default", occurrence_id("victim", START + MINUTE + 1), "acme")
    assert spent["evalsha"] == 2, "a claim, and its schedules in one piece"
    assert sum(spent.values()) <= 50, "no more commands than schedules fire"


def test_of_more_due_schedules_than_one_claim_looks_at_each_tenant_fires_soon(
    ledger: Ledger, redis_client: redis.Redis, clock: HandClock
) -> None:
    put_copies(redis_client, ledger, 30_000)
    put(ledger, "victim", START + MINUTE + 1, tenant="acme")
    clock.advance(2 * MINUTE)
    looks = 1
    while not any(one.schedule.tenant == "acme" for one in due(ledger)):
        looks += 1
        clock.advance(1)
    assert looks <= 6, "each look sees another part of them"


def test_schedules_of_an_earlier_release_count_once_the_quota_is_set_and_a_sweep_has_looked(
    ledger: Ledger, redis_client: redis.Redis
) -> None:
    put_copies(redis_client, ledger, 1_200)  # those have no entry in the index of their tenant
    ledger.configure("default", {"tenant_max_schedules": 1_201})
    assert put(ledger, "early", tenant="mallory") is Put.CREATED
    while ledger.sweep(SHARD, retention_ms=1).more:
        pass
    with pytest.raises(QuotaExceeded, match="tenant_max_schedules"):
        put(ledger, "late", tenant="mallory")


def test_a_schedule_that_is_gone_leaves_no_key_behind(ledger: Ledger, redis_client: redis.Redis) -> None:
    put(ledger, "first", tenant="acme")
    ledger.drop_schedule("default", "first", "acme")
    before = {key: redis_client.type(key) for key in redis_client.scan_iter()}
    for id in ("s", "t"):
        put(ledger, id, tenant="acme")
    ledger.drop_schedule("default", "s", "acme")
    redis_client.hset(KEYS.tasks, stored_schedule("acme", "t"), b"\x05nonsense")
    ledger.drop_schedule("default", "t", "acme")
    assert {key: redis_client.type(key) for key in redis_client.scan_iter()} == before


def test_schedules_of_one_time_are_read_in_pages_however_many(
    ledger: Ledger, redis_client: redis.Redis, clock: HandClock
) -> None:
    put(ledger, "before", START + 1)
    put_copies(redis_client, ledger, 2_600)
    put(ledger, "after", START + 2 * MINUTE)
    before = commands(redis_client)
    found = [one.schedule.id for one in ledger.coming_schedules()]
    assert len(found) == len(set(found)) == 2_603
    assert commands(redis_client)["hmget"] - before["hmget"] >= 6, "500 records at a time"
    assert clock.at == START
