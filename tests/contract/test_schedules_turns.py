"""Schedules of many tenants in every store: they take turns, and a refused one rests longer each time."""

from collections.abc import Iterator

import pytest

from duecourse.adapters.calendar.calendar import ZonedCalendar
from duecourse.domain.quotas import Quotas, as_text
from duecourse.domain.schedule import Became, Every, Missed, Rule
from duecourse.domain.shards import Sharding
from duecourse.engine.firing import Firer
from duecourse.ports.store import Store
from tests.contract.conftest import opened
from tests.support.clock import START, HandClock
from tests.support.ledger import SHARD, new
from tests.support.schedules import MINUTE, became, due, fire_due, ids, kept, put

SECOND, HOUR = 1_000, 60 * MINUTE
LONGEST_REST = 300 * SECOND


@pytest.fixture
def limited(kind_of_store: str, request: pytest.FixtureRequest, clock: HandClock) -> Iterator[Store]:
    """Every store in turn, in which tenant `acme` may add one task a minute."""
    quotas = as_text({"acme": Quotas(None, None, 1)})
    yield from opened(kind_of_store, request, clock, Sharding(), quotas=quotas)


def each_second(store: Store, id: str, **fields: object) -> None:
    put(store, id, START + SECOND, rule=Rule(Every(SECOND), START), **fields)


def test_a_tenant_with_many_due_schedules_leaves_room_for_the_one_of_another(store: Store, clock: HandClock) -> None:
    for n in range(500):
        put(store, f"m-{n}", tenant="mallory", at=START + SECOND)
    put(store, "late", tenant="acme", at=START + MINUTE)
    put(store, "later", tenant="globex", at=START + MINUTE)
    clock.advance(MINUTE)
    [first, second, third, *_] = found = due(store)
    assert [one.schedule.tenant for one in (first, second, third)] == ["mallory", "acme", "globex"]
    assert len(found) == 200


def test_where_all_that_is_due_is_handed_out_the_longest_due_come_first(store: Store, clock: HandClock) -> None:
    for n in range(3):
        put(store, f"m-{n}", tenant="mallory", at=START + n)
    put(store, "a", tenant="acme", at=START + 1)
    clock.advance(MINUTE)
    assert ids(due(store)) == ["m-0", "a", "m-1", "m-2"]


def test_all_of_many_due_schedules_fire_in_their_turn(store: Store, clock: HandClock) -> None:
    for n in range(450):
        put(store, f"m-{n}", tenant="mallory")
    clock.advance(MINUTE)
    rounds = 0
    while fire_due(store, Firer(store, ZonedCalendar()).fire):
        rounds += 1
    assert rounds == 3
    assert {kept(store, f"m-{n}", "mallory").progress.fired for n in range(450)} == {1}


def test_after_each_refusal_in_a_row_the_rest_is_twice_as_long(limited: Store, clock: HandClock) -> None:
    limited.configure("default", {"tenant_max_pending": 1, "tenant_adds_per_minute": 1_000})
    each_second(limited, "s", tenant="acme")
    limited.add([new("takes-the-only-place", tenant="acme", delay_ms=24 * HOUR)])
    firer, rests = Firer(limited, ZonedCalendar()), []
    for _ in range(12):
        clock.at = kept(limited, "s", "acme").progress.next_at
        assert fire_due(limited, firer.fire)
        rests.append(kept(limited, "s", "acme").progress.next_at - clock.at)
    assert rests == [2_000, 4_000, 8_000, 16_000, 32_000, 64_000, 128_000, 256_000, *4 * [LONGEST_REST]]


def test_times_within_a_rest_are_missed_and_one_that_is_accepted_ends_it(limited: Store, clock: HandClock) -> None:
    limited.configure("default", {"tenant_max_pending": 1, "tenant_adds_per_minute": 1_000})
    each_second(limited, "s", tenant="acme")
    firer = Firer(limited, ZonedCalendar())
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
def test_a_rest_ends_by_the_policy_for_what_was_missed(limited: Store, clock: HandClock, missed: Missed) -> None:
    limited.configure("default", {"tenant_max_pending": 1, "tenant_adds_per_minute": 1_000})
    each_second(limited, "s", tenant="acme", missed=missed)
    firer = Firer(limited, ZonedCalendar())
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


def test_a_refusal_of_one_tenant_rests_no_schedule_of_another(limited: Store, clock: HandClock) -> None:
    limited.configure("default", {"tenant_max_pending": 1, "tenant_adds_per_minute": 1_000})
    for n in range(3):
        each_second(limited, f"s-{n}", tenant="acme")
    each_second(limited, "other", tenant="globex")
    clock.advance(SECOND)
    assert fire_due(limited, Firer(limited, ZonedCalendar()).fire)
    assert sorted(kept(limited, f"s-{n}", "acme").refused for n in range(3)) == [0, 1, 1]
    assert kept(limited, "other", "globex").refused == 0


def test_a_change_by_a_caller_ends_the_rest(limited: Store, clock: HandClock) -> None:
    limited.configure("default", {"tenant_max_pending": 1, "tenant_adds_per_minute": 1_000})
    for n in range(2):
        each_second(limited, f"s-{n}", tenant="acme")
    clock.advance(SECOND)
    assert fire_due(limited, Firer(limited, ZonedCalendar()).fire)
    [one] = [one for n in range(2) if (one := kept(limited, f"s-{n}", "acme")).refused]
    limited.put_schedule(one.schedule, one.progress, if_version=one.progress.version)
    assert kept(limited, one.schedule.id, "acme").refused == 0
    assert SHARD in limited.shards()
