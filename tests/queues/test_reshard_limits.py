"""A queue's number of shards, changed: how it is set goes along, and its limits hold."""

import pytest
import redis

from duecourse.base.value_classes import as_dict
from duecourse.errors import StoreMisused
from duecourse.ledger.connect import Client
from duecourse.ledger.keys import keys_of
from duecourse.ledger.maintenance import Reshard
from duecourse.ledger.operation_types import Reply
from duecourse.ledger.operations.ledger import Ledger
from duecourse.ledger.queue import QueueSettings, Rate
from duecourse.ledger.sharding import Sharding
from duecourse.ledger.task import Ending, Shard
from tests.support import redis_ledger
from tests.support.ledger import LEASE_MS, ending, new
from tests.support.wait import until

SET = QueueSettings(False, 9, Rate(12, 60_000), 8, 2, 60_000, 5_000, 1_000, 1_000_000, 1_000)


def ledger_of(client: Client, count: int) -> Ledger:
    return Ledger(client, sharding=Sharding({"default": count}))


def every(count: int) -> list[Shard]:
    return Sharding({"default": count}).every("default")


@pytest.mark.parametrize(("was", "to"), [(1, 8), (8, 1), (3, 5)])
def test_a_queues_settings_go_along_and_its_limits_are_divided_anew(
    redis_client: redis.Redis, was: int, to: int
) -> None:
    ledger = ledger_of(redis_client, was)
    ledger.configure("default", as_dict(SET))
    ledger.add([new(f"t-{n}") for n in range(200)])
    Reshard(redis_client, "duecourse", "default", to, lambda _: None).run(0)
    ledger = ledger_of(redis_client, to)
    assert ledger.settings_of(["default"])[0] == SET
    claimed = [len(ledger.claim(shard, 100, lease_ms=LEASE_MS).tasks) for shard in every(to)]
    assert sum(claimed) == 8, "the tenant's limit is the lowest"
    assert claimed == [ledger.stats(shard).settings.tenant_max_running for shard in every(to)]


@pytest.mark.parametrize("limit", ["max_running", "tenant_max_running", "rate.count"])
def test_a_limit_that_more_shards_cannot_share_is_named_before_anything_changes(
    redis_client: redis.Redis, limit: str
) -> None:
    ledger = ledger_of(redis_client, 2)
    ledger.configure("default", {"rate": Rate(3, 1_000)} if limit == "rate.count" else {limit: 3})  # type: ignore[misc]
    ledger.add([new("a")])
    with pytest.raises(StoreMisused, match=rf"{limit}: must be at least 4: .* raise it first: nothing is changed"):
        Reshard(redis_client, "duecourse", "default", 4, lambda _: None).run(0)
    assert not ledger.settings_of(["default"])[0].paused
    assert sum(len(ledger.claim(shard, 5, lease_ms=LEASE_MS).tasks) for shard in every(2)) == 1


@pytest.mark.parametrize(("was", "to"), [(1, 4), (4, 1), (4, 2)])
@pytest.mark.parametrize("payload", ['"small"', f'"{"x" * 2_000}"'], ids=["small", "large"])
def test_what_a_tenant_has_pending_goes_along_and_counts_where_it_is(
    redis_client: redis.Redis, was: int, to: int, payload: str
) -> None:
    ledger = ledger_of(redis_client, was)
    ledger.configure("default", {"tenant_max_bytes": 100 * len(payload), "tenant_max_pending": 100})
    ledger.add([new(f"t-{n}", tenant="acme", payload=payload, delay_ms=60_000) for n in range(60)])
    Reshard(redis_client, "duecourse", "default", to, lambda _: None).run(0)
    metas = [redis_client.hgetall(keys_of("duecourse", shard).meta) for shard in every(max(was, to))]
    assert sum(int(meta.get(b"bytes:acme", 0)) for meta in metas) == 60 * len(payload)
    for shard in every(to):
        redis_ledger.check(redis_client, shard)
    replies = [
        one.reply
        for one in ledger_of(redis_client, to).add([new(f"u-{n}", tenant="acme", payload="7") for n in range(400)])
    ]
    assert replies.count(Reply.CREATED) == 40


@pytest.mark.parametrize(("was", "to"), [(1, 4), (4, 1), (4, 2)])
def test_a_rate_holds_over_a_change_of_shards(redis_client: redis.Redis, was: int, to: int) -> None:
    ledger = ledger_of(redis_client, was)
    ledger.configure("default", {"rate": Rate(8, 3_600_000)})
    ledger.add([new(f"t-{n}") for n in range(200)])
    first = [task for shard in every(was) for task in ledger.claim(shard, 4, lease_ms=LEASE_MS).tasks]
    for shard in every(was):
        mine = [task for task in first if ledger.shard_of("default", task.id) == shard]
        ledger.settle(shard, [ending(task, Ending.DONE) for task in mine])
    Reshard(redis_client, "duecourse", "default", to, lambda _: None).run(0)
    ledger = ledger_of(redis_client, to)
    again = [task for shard in every(to) for task in ledger.claim(shard, 100, lease_ms=LEASE_MS).tasks]
    assert len(first) + len(again) <= 8
    newest = max(task.claimed_at for task in first)
    assert {ledger.stats(shard).bell_at for shard in every(to)} == {newest + 3_600_000}


def test_a_shard_that_comes_back_claims_again_once_the_rates_window_is_over(redis_client: redis.Redis) -> None:
    ledger = ledger_of(redis_client, 2)
    ledger.configure("default", {"rate": Rate(4, 100)})
    ledger.add([new(f"t-{n}") for n in range(40)])
    claims = {shard: ledger.claim(shard, 5, lease_ms=LEASE_MS).tasks for shard in every(2)}
    for shard, tasks in claims.items():
        ledger.settle(shard, [ending(task, Ending.DONE) for task in tasks])
    Reshard(redis_client, "duecourse", "default", 1, lambda _: None).run(0)
    over_at = max(task.claimed_at for tasks in claims.values() for task in tasks) + 100
    until(lambda: ledger.now() > over_at)
    Reshard(redis_client, "duecourse", "default", 2, lambda _: None).run(0)
    ledger = ledger_of(redis_client, 2)
    assert [len(ledger.claim(shard, 5, lease_ms=LEASE_MS).tasks) for shard in every(2)] == [2, 2]
    assert all(redis_ledger.check(redis_client, shard) for shard in every(2))


def test_a_change_that_is_given_up_leaves_the_rate_as_it_was(redis_client: redis.Redis) -> None:
    ledger = ledger_of(redis_client, 2)
    ledger.configure("default", {"rate": Rate(20, 3_600_000)})
    ledger.add([new(f"t-{n}") for n in range(30)])
    assert ledger.claim(Shard(), 1, lease_ms=LEASE_MS).tasks
    with pytest.raises(StoreMisused, match="nothing is changed"):
        Reshard(redis_client, "duecourse", "default", 4, lambda _: None).run(0)
    assert len(ledger.claim(Shard(), 100, lease_ms=LEASE_MS).tasks) == 9
