"""Schedules of many tenants in every store: they take turns, have a quota, and rest longer after each refusal."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from duecourse.errors import QuotaExceeded
from duecourse.ledger.operation_types import Fired, Put
from duecourse.ledger.operations.ledger import Ledger
from duecourse.ledger.queue import Quotas, quotas_text
from duecourse.ledger.schedule import NEVER, Became, Every, Firing, Missed, Overlap, Purge, Purged, Rule, backfill_id
from duecourse.ledger.sharding import Sharding
from duecourse.ledger.task import Status
from duecourse.schedules.calendar import Calendar
from duecourse.schedules.firing import Firer
from tests.support.clock import START, HandClock
from tests.support.ledger import SHARD, new, stored_task
from tests.support.schedules import MINUTE, became, due, fire, fire_due, ids, kept, occurrence, put
from tests.support.stores import opened

SECOND, HOUR = 1_000, 60 * MINUTE
LONGEST_REST = 300 * SECOND


@pytest.fixture
def limited(kind_of_store: str, request: pytest.FixtureRequest, clock: HandClock) -> Iterator[Ledger]:
    """Every store in turn, in which tenant `acme` may add one task a minute."""
    quotas = quotas_text({"acme": Quotas(None, None, 1)})
    yield from opened(kind_of_store, request, clock, Sharding(), quotas=quotas)


def each_second(ledger: Ledger, id: str, **fields: object) -> None:
    put(ledger, id, START + SECOND, rule=Rule(Every(SECOND), START), **fields)


def test_a_tenant_with_many_due_schedules_leaves_room_for_the_one_of_another(ledger: Ledger, clock: HandClock) -> None:
    for n in range(500):
        put(ledger, f"m-{n}", tenant="mallory", at=START + SECOND)
    put(ledger, "late", tenant="acme", at=START + MINUTE)
    put(ledger, "later", tenant="globex", at=START + MINUTE)
    clock.advance(MINUTE)
    [first, second, third, *_] = found = due(ledger)
    assert [one.schedule.tenant for one in (first, second, third)] == ["mallory", "acme", "globex"]
    assert len(found) == 50, "a short step, and the next turn comes soon"


def test_where_all_that_is_due_is_handed_out_the_longest_due_come_first(ledger: Ledger, clock: HandClock) -> None:
    for n in range(3):
        put(ledger, f"m-{n}", tenant="mallory", at=START + n)
    put(ledger, "a", tenant="acme", at=START + 1)
    clock.advance(MINUTE)
    assert ids(due(ledger)) == ["m-0", "a", "m-1", "m-2"]


def test_all_of_many_due_schedules_fire_in_their_turn(ledger: Ledger, clock: HandClock) -> None:
    for n in range(350):
        put(ledger, f"m-{n}", tenant="mallory")
    clock.advance(MINUTE)
    rounds = 0
    while fire_due(ledger, Firer(ledger, Calendar()).fire):
        rounds += 1
    assert rounds == 4, "three of 50, and 200 where that is all"
    assert {kept(ledger, f"m-{n}", "mallory").progress.fired for n in range(350)} == {1}


def test_after_each_refusal_in_a_row_the_rest_is_twice_as_long(limited: Ledger, clock: HandClock) -> None:
    limited.configure("default", {"tenant_max_pending": 1, "tenant_adds_per_minute": 1_000})
    each_second(limited, "s", tenant="acme")
    limited.add([new("takes-the-only-place", tenant="acme", delay_ms=24 * HOUR)])
    firer, rests = Firer(limited, Calendar()), []
    for _ in range(12):
        clock.at = kept(limited, "s", "acme").progress.next_at
        assert fire_due(limited, firer.fire)
        rests.append(kept(limited, "s", "acme").progress.next_at - clock.at)
    assert rests == [2_000, 4_000, 8_000, 16_000, 32_000, 64_000, 128_000, 256_000, *4 * [LONGEST_REST]]


def test_times_within_a_rest_are_missed_and_one_that_is_accepted_ends_it(limited: Ledger, clock: HandClock) -> None:
    limited.configure("default", {"tenant_max_pending": 1, "tenant_adds_per_minute": 1_000})
    each_second(limited, "s", tenant="acme")
    firer = Firer(limited, Calendar())
    for _ in range(4):
        clock.at = kept(limited, "s", "acme").progress.next_at
        assert fire_due(limited, firer.fire)
    resting = kept(limited, "s", "acme")
    assert (resting.refused, resting.progress.skipped, resting.progress.missed) == (3, 3, 4)
    limited.configure("default", {"tenant_max_pending": 100})
    clock.at = resting.progress.next_at
    assert fire_due(limited, firer.fire)
    after = kept(limited, "s", "acme")
    assert (after.refused, after.progress.missed, became(limited, "s", "acme")[-1]) == (0, 11, Became.LIVE)
    assert after.progress.recent[-1].besides == 7, "it stands for what passed within the last rest"
    assert after.progress.next_at == clock.at + SECOND


@pytest.mark.parametrize("missed", [Missed.NONE, Missed.ALL])
def test_a_rest_ends_by_the_policy_for_what_was_missed(limited: Ledger, clock: HandClock, missed: Missed) -> None:
    limited.configure("default", {"tenant_max_pending": 1, "tenant_adds_per_minute": 1_000})
    each_second(limited, "s", tenant="acme", missed=missed)
    firer = Firer(limited, Calendar())
    for _ in range(3):
        clock.at = kept(limited, "s", "acme").progress.next_at
        assert fire_due(limited, firer.fire)
    limited.configure("default", {"tenant_max_pending": 100})
    before = kept(limited, "s", "acme").progress
    clock.at = before.next_at + 1
    assert fire_due(limited, firer.fire)
    after = kept(limited, "s", "acme").progress
    assert after.fired - before.fired == {Missed.NONE: 0, Missed.ALL: 4}[missed]
    assert after.missed - before.missed == {Missed.NONE: 4, Missed.ALL: 0}[missed]


def test_a_refusal_of_one_tenant_rests_no_schedule_of_another(limited: Ledger, clock: HandClock) -> None:
    limited.configure("default", {"tenant_max_pending": 1, "tenant_adds_per_minute": 1_000})
    for n in range(3):
        each_second(limited, f"s-{n}", tenant="acme")
    each_second(limited, "other", tenant="globex")
    clock.advance(SECOND)
    assert fire_due(limited, Firer(limited, Calendar()).fire)
    assert sorted(kept(limited, f"s-{n}", "acme").refused for n in range(3)) == [0, 1, 1]
    assert kept(limited, "other", "globex").refused == 0


def test_a_change_by_a_caller_ends_the_rest(limited: Ledger, clock: HandClock) -> None:
    limited.configure("default", {"tenant_max_pending": 1, "tenant_adds_per_minute": 1_000})
    for n in range(2):
        each_second(limited, f"s-{n}", tenant="acme")
    clock.advance(SECOND)
    assert fire_due(limited, Firer(limited, Calendar()).fire)
    [one] = [one for n in range(2) if (one := kept(limited, f"s-{n}", "acme")).refused]
    limited.put_schedule(one.schedule, one.progress, seen=one)
    assert kept(limited, one.schedule.id, "acme").refused == 0
    assert SHARD in limited.shards()


# As many as a tenant may have


def full(ledger: Ledger, id: str, tenant: str = "acme") -> bool:
    """Answers whether a schedule over the tenant's quota is rejected."""
    try:
        put(ledger, id, tenant=tenant)
    except QuotaExceeded as error:
        return error.quota == "tenant_max_schedules"
    return False


def test_a_tenant_has_as_many_schedules_as_its_quota_and_deleting_one_makes_room(ledger: Ledger) -> None:
    ledger.configure("default", {"tenant_max_schedules": 2})
    assert [full(ledger, f"s-{n}") for n in range(4)] == [False, False, True, True]
    assert not full(ledger, "s", "globex"), "each tenant counts by itself"
    assert not any(full(ledger, f"s-{n}", "-") for n in range(4)), "who has no tenant has no quota"
    ledger.add([new("a", tenant="acme")])  # tasks are not counted
    one = kept(ledger, "s-0", "acme")
    assert ledger.put_schedule(one.schedule, one.progress, seen=one).put is Put.CHANGED, "a change needs no room"
    assert put(ledger, "s-1", tenant="acme") is Put.KEPT
    ledger.drop_schedule("default", "s-1", "acme")
    assert [full(ledger, f"s-{n}") for n in (2, 3)] == [False, True]


def test_a_deployments_quota_of_schedules_holds_by_tenant_and_the_queues_comes_first(
    kind_of_store: str, request: pytest.FixtureRequest, clock: HandClock
) -> None:
    quotas = quotas_text({"-": Quotas(tenant_max_schedules=1), "acme": Quotas(tenant_max_schedules=2)})
    with contextmanager(opened)(kind_of_store, request, clock, Sharding(), quotas=quotas) as ledger:
        assert [full(ledger, f"s-{n}") for n in range(3)] == [False, False, True]
        assert [full(ledger, f"s-{n}", "globex") for n in range(2)] == [False, True]
        ledger.configure("default", {"tenant_max_schedules": 3})
        assert [full(ledger, f"s-{n}") for n in (2, 3)] == [False, True]


def test_each_span_that_is_filled_counts_until_it_has_been(ledger: Ledger) -> None:
    ledger.configure("default", {"tenant_max_schedules": 2})
    put(ledger, tenant="acme")
    filling = backfill_id("s", START)
    put(ledger, filling, tenant="acme", of="s")
    assert full(ledger, backfill_id("s", START + 1))
    one = kept(ledger, filling, "acme")
    last = replace(one.progress, nominal=None, next_at=NEVER)
    assert ledger.fire(SHARD, [Firing(one, (), last)]) == [Fired.FIRED]
    assert not full(ledger, backfill_id("s", START + 1))


def test_schedules_of_before_the_quota_count_once_a_sweep_has_gone_through_them(ledger: Ledger) -> None:
    for n in range(3):
        put(ledger, f"s-{n}", tenant="acme")
    ledger.configure("default", {"tenant_max_schedules": 3})
    ledger.sweep(SHARD, retention_ms=1)
    assert full(ledger, "s-3")


# Deleted, many at once


def many(ledger: Ledger) -> None:
    for n in range(30):
        put(ledger, f"s-{n:02}", tenant="acme", kind="odd" if n % 2 else "even")
    put(ledger, "s-00", tenant="globex", kind="odd")


def test_schedules_are_purged_by_kind_and_by_the_beginning_of_their_ids(sharded: Ledger) -> None:
    many(sharded)
    assert sharded.purge_schedules("default", Purge(kind="odd", prefix="s-1", dry_run=True), "acme") == Purged(5, "")
    assert sharded.purge_schedules("default", Purge(kind="odd", prefix="s-1"), "acme") == Purged(5, "")
    assert sharded.purge_schedules("default", Purge(prefix="s-1"), "acme") == Purged(5, "")
    left = [f"s-{n:02}" for n in range(30) if not 10 <= n < 20]
    assert ids(sharded.schedules("default", "", 100, "acme").schedules) == left
    assert sharded.purge_schedules("default", Purge(), "acme") == Purged(20, "")
    assert ids(sharded.schedules("default", "", 100, "globex").schedules) == ["s-00"]


@pytest.mark.parametrize("dry_run", [True, False])
def test_a_purge_of_as_many_as_it_may_goes_on_behind_the_last(sharded: Ledger, dry_run: bool) -> None:
    many(sharded)
    found, after = [], ""
    while not found or after:
        count, after = sharded.purge_schedules(
            "default", Purge(kind="odd", after=after, limit=4, dry_run=dry_run), "acme"
        )
        found.append(count)
    assert found == [4, 4, 4, 3]
    assert len(sharded.schedules("default", "", 100, "acme").schedules) == (30 if dry_run else 15)


def test_a_purge_cancels_what_waits_and_leaves_the_other_occurrences(ledger: Ledger, clock: HandClock) -> None:
    put(ledger, overlap=Overlap.QUEUE)
    clock.advance(MINUTE)
    fire(ledger)
    fire(ledger)
    assert ledger.purge_schedules("default", Purge(kind="work")) == Purged(1, "")
    assert stored_task(ledger, occurrence(1)).status is Status.SCHEDULED
    assert stored_task(ledger, occurrence(2)).status is Status.CANCELLED
