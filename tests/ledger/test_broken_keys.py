"""Keys beside the tasks that another program has deleted or overwritten: what is left goes on."""

import logging

import pytest
import redis

from duecourse.ledger.keys import keys_of, rounds_key, shards_key
from duecourse.ledger.maintenance import Mend
from duecourse.ledger.operations.ledger import Ledger
from duecourse.ledger.queue import QueueSettings, Rate
from duecourse.ledger.redis_bells import RedisBells
from duecourse.ledger.task import Ending
from duecourse.ringing.tick import Retention, Sweeper
from tests.support import redis_ledger
from tests.support.engine import MARGIN_MS, ample, engine
from tests.support.ledger import LATER_MS, LEASE_MS, SHARD, add, claim, claim_one, new, settle, stored_task
from tests.support.redis_server import RedisServer
from tests.support.wait import until

KEYS = keys_of("duecourse", SHARD)


@pytest.fixture
def ledger(redis_client: redis.Redis) -> Ledger:
    return Ledger(redis_client)


@pytest.mark.parametrize("member", [b"junk", b"default/0/many", b"default/0", b"\xff/0/1", b"a/b/c/d", b""])
def test_a_member_that_names_no_shard_is_logged_and_stops_neither_adds_nor_ticks_nor_bridges(
    redis_server: RedisServer, redis_client: redis.Redis, caplog: pytest.LogCaptureFixture, member: bytes
) -> None:
    redis_client.sadd(shards_key("duecourse"), member)
    ledger = Ledger(redis_client)
    add(ledger)
    with caplog.at_level(logging.ERROR), engine(ledger, lambda _task: None) as run:
        sweeper = Sweeper(ledger, run.drainer, Retention(86_400_000), MARGIN_MS)
        ticked = sweeper.tick(sweeper.survey(ample), ample)
    assert (ticked.shards, ticked.done, ticked.left_out) == (1, 1, 0)
    assert "in the set of shards names no shard: remove it with SREM" in caplog.text
    bells = RedisBells(redis_server.url, "duecourse")
    assert bells.primaries()[""].known() == [KEYS.bell]
    bells.close()


def test_a_round_that_is_no_time_is_one_that_was_never_swept(ledger: Ledger, redis_client: redis.Redis) -> None:
    ledger.rounds().note([0, 1], 5)
    redis_client.hset(rounds_key("duecourse"), mapping={"1": "soon", "a part": "7"})
    assert ledger.rounds().swept_at() == {0: 5}


def test_a_bell_that_is_no_time_is_hung_anew(ledger: Ledger, redis_client: redis.Redis) -> None:
    task = add(ledger, delay_ms=LATER_MS)
    redis_client.set(KEYS.bell, "junk")
    assert ledger.stats(SHARD).scheduled == 1
    add(ledger, "b", delay_ms=2 * LATER_MS)
    assert int(redis_client.get(KEYS.bell) or 0) == task.due_at


@pytest.mark.parametrize(
    "spoilt",
    [
        {"max_running": "many"},
        {"tenant_max_running": ""},
        {"rate_count": "1", "rate_per": "an hour"},
        {"rate_count": "few", "rate_per": "1000"},
        {"logged": "?", "rate_count": "5", "rate_per": "1000"},
    ],
)
def test_a_setting_that_cannot_be_read_is_as_if_it_were_not_set_and_can_be_set_again(
    ledger: Ledger, redis_client: redis.Redis, spoilt: dict[str, str]
) -> None:
    add(ledger)
    redis_client.hset(KEYS.meta, mapping=spoilt)
    assert [task.id for task in claim(ledger)] == ["a"]
    add(ledger, "b", delay_ms=LATER_MS)
    ledger.sweep(SHARD, retention_ms=0)
    shown = ledger.stats(SHARD).settings
    assert shown == (QueueSettings(rate=Rate(5, 1000)) if "logged" in spoilt else QueueSettings())
    ledger.configure("default", {"max_running": 7, "tenant_max_running": 3, "rate": Rate(9, 60_000)})
    set_anew = QueueSettings(max_running=7, tenant_max_running=3, rate=Rate(9, 60_000))
    assert ledger.settings_of(["default"]) == [set_anew]


def test_a_rate_whose_log_was_deleted_does_not_throttle_for_good(ledger: Ledger, redis_client: redis.Redis) -> None:
    ledger.configure("default", {"rate": Rate(2, 3_600_000)})
    ledger.add([new(id) for id in "abc"])
    assert len(claim(ledger)) == 2
    assert claim(ledger) == []
    redis_client.delete(KEYS.log)
    assert [task.id for task in claim(ledger)] == ["c"]


def test_fences_grow_though_the_shards_counter_is_gone(ledger: Ledger, redis_client: redis.Redis) -> None:
    before = claim_one(ledger)
    redis_client.delete(KEYS.meta)
    until(lambda: ledger.now() > before.claimed_at)
    settle(ledger, before, Ending.AGAIN, delay_ms=0)
    [after] = claim(ledger)
    assert after.fence > before.fence
    assert add(ledger, "b").generation > after.fence
    assert stored_task(ledger).fence == after.fence


def fill(ledger: Ledger) -> None:
    """Tasks of two tenants in every state, due and not, some of a group."""
    for tenant in ("-", "acme"):
        ledger.add([new(id, tenant=tenant, group="g") for id in ("done", "dead", "leased")])
    for task in claim(ledger):
        if task.id != "leased":
            settle(ledger, task, Ending.DONE if task.id == "done" else Ending.DROP)
    for tenant in ("-", "acme"):
        ledger.add([new("due", tenant=tenant, group="g"), new("later", tenant=tenant, delay_ms=LATER_MS)])


@pytest.mark.parametrize(
    "gone", [["heads"], ["due:acme"], ["due:-", "heads", "ring"], ["leased"], ["done"], ["dead"], ["groups"], ["all"]]
)
def test_tasks_whose_entries_were_deleted_are_put_back_and_run(redis_client: redis.Redis, gone: list[str]) -> None:
    ledger = Ledger(redis_client)
    fill(ledger)
    kept = {"tasks", "meta"}
    every = [key.decode() for key in redis_client.keys(f"{KEYS.prefix}*")]
    names = [key.removeprefix(KEYS.prefix) for key in every] if gone == ["all"] else gone
    redis_client.delete(*(KEYS.prefix + name for name in names if name not in kept))
    said: list[str] = []
    mended = Mend(redis_client, "duecourse", LEASE_MS, said.append).run()
    assert (mended.tasks, mended.unreadable) == (10, 0)
    assert said == [f"default/0: put {mended.put_back} entries right"]
    redis_ledger.check(redis_client)
    assert {task.id for task in claim(ledger)} == {"due"}
    assert sorted(task.id for task in ledger.group("default", "g", "acme")) == ["dead", "done", "due", "leased"]
    stats = ledger.stats(SHARD)
    assert (stats.scheduled, stats.leased, stats.done, stats.dead) == (2, 4, 2, 2)
    assert Mend(redis_client, "duecourse", LEASE_MS, said.append).run().put_back == 0


def test_a_lease_that_is_put_back_can_be_settled_or_lapses(redis_client: redis.Redis) -> None:
    ledger = Ledger(redis_client)
    ledger.add([new("settled"), new("lapses")])
    tasks = {task.id: task for task in claim(ledger)}
    redis_client.delete(KEYS.leased)
    Mend(redis_client, "duecourse", 50, lambda _line: None).run()
    assert settle(ledger, tasks["settled"], Ending.DONE).value == "done"
    assert until(lambda: claim(ledger))[0].attempt == 2


def test_an_empty_ledger_needs_no_mending(redis_client: redis.Redis) -> None:
    assert Mend(redis_client, "duecourse", LEASE_MS, lambda _line: None).run() == (0, 0, 0)


def test_mend_counts_what_runs_and_what_is_pending_anew(ledger: Ledger, redis_client: redis.Redis) -> None:
    payload, large = '"small"', f'"{"x" * 2_000}"'
    ledger.configure("default", {"tenant_max_bytes": 10 * len(large)})
    own = [new(id, tenant="acme", payload=payload) for id in "ab"]
    ledger.add([*own, new("c", tenant="acme", payload=large, delay_ms=LATER_MS)])
    ledger.claim(SHARD, 1, lease_ms=LEASE_MS)
    counts = {"running:acme": 1, "bytes:acme": 2 * len(payload) + len(large)}
    wrong = {"running:acme": 7, "bytes:acme": 123, "running:gone": 3, "bytes:gone": 9}
    assert {name: int(redis_client.hget(KEYS.meta, name) or 0) for name in counts} == counts
    redis_client.hset(KEYS.meta, mapping=wrong)
    Mend(redis_client, "duecourse", LEASE_MS, print).run()
    while ledger.sweep(SHARD, retention_ms=86_400_000).more:
        pass
    assert {name: int(redis_client.hget(KEYS.meta, name) or 0) for name in wrong} == dict.fromkeys(wrong, 0) | counts
    redis_ledger.check(redis_client, SHARD)
    ledger.add([new("d", tenant="acme", payload=payload)])
    assert int(redis_client.hget(KEYS.meta, "bytes:acme") or 0) == counts["bytes:acme"] + len(payload)
