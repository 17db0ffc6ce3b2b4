"""How a queue is set: what changes, what stays, what goes before a caller's default, and how limits are divided."""

from collections import Counter
from dataclasses import replace

import pytest

from duecourse.base.value_classes import as_dict
from duecourse.errors import InvalidInput
from duecourse.ledger.operation_types import FORGET_MS
from duecourse.ledger.operations.ledger import Ledger
from duecourse.ledger.queue import DEFAULT_PRIORITY, QueueChanges, QueueSettings, Rate, quantile
from duecourse.ledger.sharding import Sharding
from duecourse.ledger.task import Ending, Shard
from tests.support.clock import HandClock
from tests.support.lateness import bucket_of
from tests.support.ledger import LEASE_MS, SHARD, claim, claim_one, ending, new, settle, stored_task

ALL = QueueSettings(True, 9, Rate(10, 1_000), 8, 0, 60_000, 5_000)
HOUR_MS = 3_600_000


def test_a_queue_that_was_never_set_has_no_limits(ledger: Ledger) -> None:
    assert ledger.settings_of(["default"])[0] == QueueSettings() == ledger.stats(SHARD).settings
    assert QueueSettings().priority == DEFAULT_PRIORITY


def test_what_is_given_changes_and_the_rest_stays(ledger: Ledger) -> None:
    ledger.configure("default", as_dict(ALL))
    assert ledger.settings_of(["default"])[0] == ALL
    ledger.configure("default", {"max_running": 5, "paused": False})
    assert ledger.settings_of(["default"])[0] == replace(ALL, max_running=5, paused=False)
    ledger.configure("default", {})
    assert ledger.settings_of(["default"])[0] == replace(ALL, max_running=5, paused=False)


@pytest.mark.parametrize("name", QueueSettings.__slots__)
def test_none_clears_one_setting(ledger: Ledger, name: str) -> None:
    ledger.configure("default", as_dict(ALL))
    ledger.configure("default", {name: None})
    assert ledger.settings_of(["default"])[0] == replace(ALL, **{name: getattr(QueueSettings(), name)})


def test_a_default_that_is_none_sets_nothing(sharded: Ledger) -> None:
    sharded.configure("default", {"max_running": None}, default=True)
    sharded.add([new("a")])
    assert [task.id for task in sharded.claim(sharded.shard_of("default", "a"), 1, lease_ms=LEASE_MS).tasks] == ["a"]
    sharded.configure("default", {"max_running": 8}, default=True)
    assert sharded.settings_of(["default"])[0].max_running == 8


def test_settings_may_come_before_the_first_task_and_are_of_one_queue(ledger: Ledger) -> None:
    ledger.configure("one", {"max_running": 1})
    assert ledger.shards() == [Shard("one")]
    for queue in ("one", "two"):
        ledger.add([new(f"t{n}", queue=queue) for n in range(3)])
    assert [len(ledger.claim(Shard(q), 5, lease_ms=LEASE_MS).tasks) for q in ("one", "two")] == [1, 3]


def test_the_queues_lease_goes_before_the_callers(ledger: Ledger, clock: HandClock) -> None:
    ledger.configure("default", {"lease_ms": 70})
    assert claim_one(ledger).lease_expires_at == stored_task(ledger).lease_expires_at == clock.at + 70
    ledger.configure("default", {"lease_ms": None})
    assert claim_one(ledger, "b").lease_expires_at == clock.at + LEASE_MS


def test_the_queues_retention_goes_before_the_callers(ledger: Ledger, clock: HandClock) -> None:
    ledger.configure("default", {"retention_ms": 100})
    settle(ledger, claim_one(ledger), Ending.DONE)
    clock.advance(99)
    assert ledger.sweep(SHARD, retention_ms=1).pruned == 0
    clock.advance(1)
    assert ledger.sweep(SHARD, retention_ms=HOUR_MS).pruned == 1


def test_a_claim_tells_the_queues_priority(ledger: Ledger) -> None:
    assert ledger.claim(SHARD, 1, lease_ms=LEASE_MS).priority == DEFAULT_PRIORITY
    for priority in (0, 9):
        ledger.configure("default", {"priority": priority})
        assert ledger.claim(SHARD, 1, lease_ms=LEASE_MS).priority == priority


def test_each_shard_gets_its_part_of_each_limit(sharded: Ledger) -> None:
    sharded.configure("default", {"max_running": 19, "rate": Rate(8, 1_000), "tenant_max_running": 9})
    shards = Sharding({"default": 8}).every("default")
    parts = [sharded.stats(shard).settings for shard in shards]
    assert [part.max_running for part in parts] == [3, 3, 3, 2, 2, 2, 2, 2]
    assert [part.rate for part in parts] == [Rate(1, 1_000)] * 8
    assert [part.tenant_max_running for part in parts] == [2, 1, 1, 1, 1, 1, 1, 1]
    assert sharded.settings_of(["default"])[0].max_running == 19
    sharded.add([new(f"t{n}", tenant=f"x{n % 7}") for n in range(400)])
    first = [len(sharded.claim(shard, 50, lease_ms=LEASE_MS).tasks) for shard in shards]
    assert first == [1] * 8, "the rate's part"
    sharded.configure("default", {"rate": None})
    assert [n + len(sharded.claim(s, 50, lease_ms=LEASE_MS).tasks) for n, s in zip(first, shards, strict=True)] == [
        part.max_running for part in parts
    ]


@pytest.mark.parametrize("field", ["max_running", "rate.count", "tenant_max_running"])
def test_a_limit_that_cannot_be_divided_is_refused_and_changes_nothing(sharded: Ledger, field: str) -> None:
    sharded.configure("default", {"max_running": 50})
    name = field.partition(".")[0]
    with pytest.raises(InvalidInput, match=f"{field}: must be at least 8: the queue has 8 shards"):
        sharded.configure("default", {"priority": 1, name: Rate(7, 1_000) if name == "rate" else 7})
    assert sharded.settings_of(["default"])[0] == QueueSettings(max_running=50)


def work(ledger: Ledger) -> None:
    """Claim what is due, and begin and end it at once."""
    ledger.settle(SHARD, [ending(task, Ending.DONE).with_lateness(task, 0) for task in claim(ledger)])


def test_the_lateness_of_what_was_worked_is_known(ledger: Ledger, clock: HandClock) -> None:
    assert ledger.lateness_of([SHARD])[0] == {}
    ledger.add([new(f"t{n}") for n in range(99)])
    clock.advance(3)
    work(ledger)
    ledger.add([new("late")])
    clock.advance(20_000)
    work(ledger)
    lateness = ledger.lateness_of([SHARD])[0]
    assert sum(lateness.values()) == 100
    assert quantile(lateness, 0.99) == 3
    assert 20_000 <= (quantile(lateness, 1) or 0) <= 22_500


def test_the_lateness_of_all_that_one_settle_ends_is_known(ledger: Ledger, clock: HandClock) -> None:
    ledger.add([new(f"{tenant}{n}", tenant=tenant, delay_ms=n) for tenant in "ab" for n in range(50)])
    clock.advance(1_000)
    work(ledger)
    late = list(range(951, 1_001)) * 2
    assert ledger.lateness_of([SHARD])[0] == Counter(map(bucket_of, late))


def test_lateness_is_that_of_the_last_hour(ledger: Ledger, clock: HandClock) -> None:
    for n in range(30):
        ledger.add([new(f"t{n}")])
        clock.advance(n)
        work(ledger)
        clock.advance(HOUR_MS // 12 - n)
        assert sum(ledger.lateness_of([SHARD])[0].values()) == min(n + 1, 12)
    clock.advance(HOUR_MS // 2)
    assert sum(ledger.lateness_of([SHARD])[0].values()) == 6
    clock.advance(HOUR_MS)
    assert ledger.lateness_of([SHARD])[0] == {}
    add = ledger.add([new("again")])
    assert add
    work(ledger)
    assert sum(ledger.lateness_of([SHARD])[0].values()) == 1


def test_a_shard_is_counted_without_what_waits_behind_a_lease(ledger: Ledger) -> None:
    task = claim_one(ledger)
    ledger.add([new(on_duplicate="replace")])
    ledger.add([new(on_duplicate="replace")])
    assert ledger.stats(SHARD)[:2] == (0, 1)
    ledger.cancel("default", [task.id], force=True)
    assert ledger.stats(SHARD)[:3] == (0, 0, 1)


DEFAULT: QueueChanges = {"max_running": 4, "tenant_max_running": 3}


def limits(ledger: Ledger) -> tuple[int | None, int | None]:
    settings = ledger.settings_of(["default"])[0]
    return settings.max_running, settings.tenant_max_running


def test_a_tenants_part_is_a_default_where_the_whole_is_one(ledger: Ledger) -> None:
    ledger.configure("default", {"max_running": 4}, default=True)
    ledger.configure("default", DEFAULT, default=True)
    assert limits(ledger) == (4, 3), "also where the whole alone was a default before"
    ledger.configure("default", {"max_running": 100})
    ledger.configure("default", DEFAULT, default=True)
    assert limits(ledger) == (100, None), "an operator's limit is for every tenant"
    ledger.configure("default", {"tenant_max_running": 50})
    ledger.configure("default", {"max_running": 80})
    ledger.configure("default", DEFAULT, default=True)
    assert limits(ledger) == (80, 50)
    ledger.configure("default", {"max_running": None, "tenant_max_running": None})
    ledger.configure("default", DEFAULT, default=True)
    assert limits(ledger) == (4, 3)
    ledger.configure("default", {"max_running": 9, "tenant_max_running": 2})
    assert limits(ledger) == (9, 2)


@pytest.mark.parametrize(
    ("own", "is_kept"),
    [(None, False), ({"tenant_max_running": 2}, True), ({"max_running": 2}, True), ({"priority": 3}, True)],
)
def test_a_queue_with_defaults_alone_is_forgotten_and_one_with_a_setting_of_its_own_is_not(
    ledger: Ledger, clock: HandClock, own: QueueChanges | None, is_kept: bool
) -> None:
    if own:
        ledger.configure("default", own)
    ledger.configure("default", DEFAULT, default=True)
    for _ in range(3):
        ledger.sweep_all(ledger.shards() or [SHARD], retention_ms=0, dead_retention_ms=0)
        clock.advance(FORGET_MS)
    assert bool(ledger.shards()) == is_kept
