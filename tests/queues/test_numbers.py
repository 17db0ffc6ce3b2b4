"""What it costs to look at a queue, and at many: counts that are kept, not tasks that are walked; which are shown."""

import time

import pytest
import redis

from duecourse.errors import StoreMisused
from duecourse.ledger.operation_types import MAX_ADD
from duecourse.ledger.operations.ledger import Ledger
from duecourse.ledger.sharding import Sharding
from duecourse.ledger.task import Ending, Settlement
from duecourse.queues.verbs import Queues
from tests.support.ledger import LEASE_MS, SHARD, new

TENANTS = 5_000


def calls(client: redis.Redis) -> dict[str, int]:
    return {name.removeprefix("cmdstat_"): int(stat["calls"]) for name, stat in client.info("commandstats").items()}


def test_a_queue_of_5000_tenants_is_shown_at_once(redis_client: redis.Redis) -> None:
    ledger = Ledger(redis_client)
    ledger.configure("default", {"tenant_max_running": 1})
    for start in range(0, 2 * TENANTS, MAX_ADD):
        ledger.add([new(f"t{n}", tenant=f"tenant-{n % TENANTS}") for n in range(start, start + MAX_ADD)])
    oldest = ledger.stats(SHARD).oldest_due_at
    for _ in range(8):
        claimed = ledger.claim(SHARD, 500, lease_ms=LEASE_MS).tasks
    ledger.settle(SHARD, [Settlement.of(claimed[0], Ending.DONE).with_lateness(claimed[0], 0)])
    redis_client.config_resetstat()
    began = time.monotonic()
    seen = Queues(ledger).get("default")
    took = time.monotonic() - began
    assert (seen.scheduled + seen.running, seen.running) == (2 * TENANTS - 1, 8 * 500 - 1)
    assert oldest > 0
    assert seen.oldest_overdue_ms > 0
    assert seen.late_p50_ms is not None
    made = calls(redis_client)
    assert sum(made.values()) < TENANTS + 50, "no more than one look a tenant"
    assert took < 2, "some 50 ms where nothing else runs"


def test_tasks_are_not_walked(redis_client: redis.Redis) -> None:
    ledger = Ledger(redis_client, sharding=Sharding({"default": 4}))
    for start in range(0, 20_000, MAX_ADD):
        ledger.add([new(f"t{n}", delay_ms=n) for n in range(start, start + MAX_ADD)])
    redis_client.config_resetstat()
    assert Queues(ledger).get("default").scheduled == 20_000
    made = calls(redis_client)
    assert sum(made.values()) < 100
    assert not {"hgetall", "hscan", "hkeys"} & {name for name, count in made.items() if count > 4}


def test_a_process_that_meets_many_queues_reads_once_what_shards_there_are(redis_client: redis.Redis) -> None:
    Ledger(redis_client).add([new("a", queue=f"queue-{n}") for n in range(100)])
    redis_client.config_resetstat()
    ledger = Ledger(redis_client)
    assert all(ledger.get(f"queue-{n}", "a") for n in range(100))
    assert calls(redis_client)["smembers"] <= 2, "once, and once more on a machine that took a second for it"


def test_a_queue_that_came_with_another_number_of_shards_since_that_reading_is_refused(
    redis_client: redis.Redis,
) -> None:
    ledger = Ledger(redis_client)
    ledger.add([new("a")])
    Ledger(redis_client, sharding=Sharding({"mails": 4})).add([new(f"t{n}", queue="mails") for n in range(40)])
    with pytest.raises(StoreMisused, match="mails has 4 registered shards"):
        ledger.add([new("one-more", queue="mails")])


def test_a_shard_is_told_in_one_command(redis_client: redis.Redis) -> None:
    ledger = Ledger(redis_client)
    ledger.add([new("a", delay_ms=LEASE_MS)])
    ledger.stats(SHARD)
    redis_client.config_resetstat()
    assert ledger.stats(SHARD).scheduled == 1
    made = calls(redis_client)
    assert [made[name] for name in made if name.startswith("evalsha")] == [1]
    assert made["time"] == 1, "the time is told by the script"


def test_the_first_claim_in_a_shard_does_no_more_than_the_next(redis_client: redis.Redis) -> None:
    ledger = Ledger(redis_client)
    ledger.add([new(f"t{n}") for n in range(2)])
    spent = []
    for _ in range(2):
        redis_client.config_resetstat()
        assert ledger.claim(SHARD, 1, lease_ms=LEASE_MS).tasks
        spent.append(redis_client.info("commandstats").get("cmdstat_hdel", {"calls": 0})["calls"])
    assert spent[0] == spent[1], "there is no hour of lateness to be forgotten yet"


def test_a_queue_of_another_number_of_shards_hides_no_other(
    redis_client: redis.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    Ledger(redis_client, sharding=Sharding({"mails": 4})).configure("mails", {"max_running": 8})
    ledger = Ledger(redis_client)
    ledger.add([new("a")])
    assert [queue.name for queue in Queues(ledger).every()] == ["default"]
    assert "DUECOURSE_SHARDS says 1: run `duecourse reshard mails 1`, or set it to 4" in caplog.text
    with pytest.raises(StoreMisused):
        Queues(ledger).get("mails")
