"""Schedules in every store: written, listed, fired once, by their policies, and told of the end of each occurrence."""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from duecourse.client.client import Client
from duecourse.errors import BeyondQuota, InvalidInput, QuotaExceeded, ScheduleExists
from duecourse.ledger.many_tasks import Act, Bulk, TaskFilter
from duecourse.ledger.operation_types import Delivery, Fired, Move, Put, Reply, UniqueCondition
from duecourse.ledger.operations.ledger import Ledger
from duecourse.ledger.queue import Quotas, Rate, quotas_text
from duecourse.ledger.schedule import (
    NEVER,
    TENANT,
    Became,
    Cron,
    Every,
    Fold,
    Gap,
    Missed,
    Occurrence,
    Overlap,
    Progress,
    RRule,
    Rule,
    Schedule,
    StoredSchedule,
    backfill_id,
    occurrence_id,
)
from duecourse.ledger.sharding import Sharding
from duecourse.ledger.task import Ending, OnDuplicate, RetryPolicy, Shard, Status, Task
from duecourse.schedules.calendar import Calendar
from duecourse.schedules.verbs import Schedules
from tests.support.clock import START, HandClock
from tests.support.ledger import LEASE_MS, SHARD, STEADY, add, bell, claim, lease_of, new, settle, stored_task
from tests.support.schedules import (
    MINUTE,
    became,
    begun,
    due,
    fire,
    ids,
    kept,
    occurrence,
    put,
    series,
    step,
    waits,
)
from tests.support.stores import opened

PAGE = '"' + 3_000 * "x" + '"'
WHOLE = Schedule(
    "whole",
    "work",
    Rule(
        RRule("FREQ=MONTHLY;BYDAY=1MO", (START, START + 1)), START + 1, "Europe/Vienna", START + 9, Gap.SKIP, Fold.BOTH
    ),
    payload='{"a":[1,"ü"]}',
    tenant="acme",
    limit=7,
    jitter_ms=250,
    lead_ms=60_000,
    missed=Missed.ALL,
    catch_up_ms=5,
    overlap=Overlap.QUEUE,
    retry=RetryPolicy(3, 5, 1.5, 10, jitter=False),
    deadline_ms=60_000,
    notify="https://example.org/hook",
    paused=True,
    by="http",
    file=12,
)
PROGRESS = Progress(
    version=3,
    nominal=START + 1,
    next_at=START + 7,
    fired=4,
    skipped=5,
    missed=6,
    zones="2026f",
    recent=tuple(Occurrence(START + n * 500, became, n) for n, became in enumerate(Became)),
)


@pytest.fixture
def limited(kind_of_store: str, request: pytest.FixtureRequest, clock: HandClock) -> Iterator[Ledger]:
    """Every store in turn, in which tenant `acme` may have two pending tasks and 5,000 bytes."""
    quotas = quotas_text({"acme": Quotas(2, 5_000, None)})
    yield from opened(kind_of_store, request, clock, Sharding(), quotas=quotas)


def claim_next(ledger: Ledger, clock: HandClock) -> Task:
    """The one occurrence that is due within a minute."""
    clock.advance(MINUTE)
    [task] = claim(ledger)
    return task


# Written and read


@pytest.mark.parametrize(
    "schedule",
    [
        WHOLE,
        series(),
        series(rule=Rule(Cron("0 9 * * MON-FRI"), START, "Asia/Kathmandu")),
        series(payload=PAGE),
        series(payload='{"a":[]}', of="another"),
    ],
    ids=["all of it", "every", "cron", "a large payload", "a backfill"],
)
@pytest.mark.parametrize("progress", [PROGRESS, Progress(), begun()], ids=["all of it", "over", "begun"])
def test_a_schedule_is_kept_as_it_was_put(ledger: Ledger, schedule: Schedule, progress: Progress) -> None:
    assert ledger.put_schedule(schedule, progress).put is Put.CREATED
    found = ledger.schedule("default", schedule.id, schedule.tenant)
    assert found is not None
    assert (found.schedule, found.progress, found.created_at) == (schedule, progress, START)
    assert found.generation > 0


def test_a_schedule_that_is_there_is_kept(ledger: Ledger) -> None:
    assert [put(ledger), put(ledger, kind="other", payload="9")] == [Put.CREATED, Put.KEPT]
    assert kept(ledger).schedule == series()


def test_a_change_takes_the_place_of_what_was_read(ledger: Ledger) -> None:
    changed, after = series(kind="other", payload=PAGE), begun(version=2)
    assert ledger.put_schedule(changed, after, seen=StoredSchedule(series(), begun(), 1, START)).put is Put.ABSENT
    put(ledger)
    before = kept(ledger)
    assert ledger.put_schedule(changed, after, seen=before._replace(generation=1)).put is Put.CONFLICT
    assert kept(ledger) == before
    assert ledger.put_schedule(changed, after, seen=before).put is Put.CHANGED
    found = kept(ledger)
    assert (found.schedule, found.progress, found.created_at) == (changed, after, before.created_at)
    assert found.generation > before.generation
    assert ledger.put_schedule(series(), begun(version=2), seen=before).put is Put.CONFLICT
    assert ledger.put_schedule(series(), begun(version=3), seen=found).put is Put.CHANGED


def test_a_change_of_one_that_has_fired_since_it_was_read_conflicts(ledger: Ledger) -> None:
    put(ledger)
    before = kept(ledger)
    fire(ledger)
    assert ledger.put_schedule(series(kind="other"), begun(version=2), seen=before).put is Put.CONFLICT
    now = replace(kept(ledger).progress, version=2)
    assert ledger.put_schedule(series(kind="other"), now, seen=kept(ledger)).put is Put.CHANGED
    assert kept(ledger).progress == now


def test_a_change_keeps_what_became_of_occurrences_since(ledger: Ledger, clock: HandClock) -> None:
    put(ledger)
    fire(ledger)
    before = kept(ledger)
    settle(ledger, claim_next(ledger, clock), Ending.DONE)
    assert ledger.put_schedule(series(), replace(before.progress, version=2), seen=before).put is Put.CHANGED
    assert became(ledger) == [Became.DONE]


def test_a_schedule_that_is_dropped_is_gone_and_its_occurrences_stay(ledger: Ledger, clock: HandClock) -> None:
    put(ledger)
    fire(ledger)
    assert ledger.drop_schedule("default", "s")
    assert not ledger.drop_schedule("default", "s")
    assert ledger.schedule("default", "s") is None
    assert stored_task(ledger, occurrence(1)).status is Status.SCHEDULED
    settle(ledger, claim_next(ledger, clock), Ending.DONE)
    assert put(ledger) is Put.CREATED


def test_schedules_are_listed_by_id_in_pages_and_each_tenant_sees_its_own(sharded: Ledger) -> None:
    for n in range(25):
        put(sharded, f"s-{n:02}", START + MINUTE * (25 - n))
        put(sharded, f"s-{n:02}", tenant="acme", paused=True)
    found, after = [], ""
    while True:
        page = sharded.schedules("default", after, 10)
        found += page.schedules
        if not (after := page.next):
            break
    assert ids(found) == [f"s-{n:02}" for n in range(25)]
    assert {one.schedule.tenant for one in found} == {"-"}
    theirs = sharded.schedules("default", "s-20", 10, "acme")
    assert (ids(theirs.schedules), theirs.next) == (["s-21", "s-22", "s-23", "s-24"], "")
    assert all(one.schedule.paused for one in theirs.schedules)
    assert sharded.schedules("default", "", 10, "acm").schedules == []
    assert sharded.schedules("elsewhere", "", 10).schedules == []


def listed(ledger: Ledger, tenant: str, limit: int) -> list[str]:
    """Ids of a tenant's schedules, page by page."""
    found, after = list[str](), ""
    while True:
        page = ledger.schedules("default", after, limit, tenant)
        found += ids(page.schedules)
        if not (after := page.next):
            return found


def swept(ledger: Ledger) -> None:
    for shard in ledger.shards():
        while ledger.sweep(shard, retention_ms=MINUTE).more:
            pass


@pytest.mark.parametrize("limit", [1, 3, 100])
def test_a_list_is_the_same_before_and_while_schedules_are_counted(sharded: Ledger, limit: int) -> None:
    def check() -> None:
        for tenant in ("-", "acme"):
            assert listed(sharded, tenant, limit) == sorted(there[tenant])

    there = {"-": {f"s-{n:02}" for n in range(8)}, "acme": {f"s-{n:02}" for n in range(0, 8, 2)}, "acme-2": {"s-01"}}
    for tenant, every in there.items():
        for id in every:
            put(sharded, id, tenant=tenant)
            put(sharded, backfill_id(id, START), tenant=tenant, of=id)
    sharded.configure("default", {"tenant_max_schedules": 1_000})
    check()
    put(sharded, "s-99", tenant="acme")
    there["acme"].add("s-99")
    check()
    swept(sharded)
    check()
    for tenant in ("-", "acme"):
        assert sharded.drop_schedule("default", "s-02", tenant)
        put(sharded, "s-020", tenant=tenant)
        there[tenant] = there[tenant] - {"s-02"} | {"s-020"}
    check()
    sharded.configure("default", {"tenant_max_schedules": None})
    put(sharded, "s-03", tenant="acme")
    there["acme"].add("s-03")
    check()
    sharded.configure("default", {"tenant_max_schedules": 1_000})
    check()
    swept(sharded)
    check()


def test_many_schedules_of_others_are_passed_over(ledger: Ledger) -> None:
    for n in range(600):
        put(ledger, f"other-{n}", tenant="other")
    put(ledger, "mine")
    assert ids(ledger.schedules("default", "", 5).schedules) == ["mine"]


def test_backfills_are_not_listed(ledger: Ledger) -> None:
    put(ledger)
    put(ledger, backfill_id("s", START), of="s")
    assert ids(ledger.schedules("default", "", 5).schedules) == ["s"]


# Due and fired


def test_due_schedules_come_longest_due_first(sharded: Ledger, clock: HandClock) -> None:
    shard = sharded.shard_of("default", "", "s-0")
    mine = [f"s-{n}" for n in range(80) if sharded.shard_of("default", "", f"s-{n}") == shard]
    for place, id in enumerate(mine):
        put(sharded, id, START + MINUTE + (len(mine) - place))
    assert due(sharded, shard) == []
    clock.at = START + MINUTE + 2
    assert ids(due(sharded, shard)) == [mine[-1], mine[-2]]
    clock.at = START + 2 * MINUTE
    assert ids(due(sharded, shard)) == mine[::-1]


def test_a_claim_tells_that_schedules_are_due_and_leases_none(ledger: Ledger, clock: HandClock) -> None:
    put(ledger)
    add(ledger, "task", delay_ms=MINUTE)
    assert ledger.claim(SHARD, 5, lease_ms=LEASE_MS).schedules == []
    clock.advance(MINUTE)
    found = ledger.claim(SHARD, 1, lease_ms=LEASE_MS)
    assert (ids(found.tasks), ids(found.schedules), found.backlog) == (["task"], ["s"], 0)
    fire(ledger)
    found = ledger.claim(SHARD, 5, lease_ms=LEASE_MS)
    assert (ids(found.tasks), found.schedules) == ([occurrence(1)], [])


def test_a_schedule_fires_once_however_many_look(ledger: Ledger, clock: HandClock) -> None:
    put(ledger, payload='{"n":1}', deadline_ms=5_000, notify="tell", by="http")
    clock.advance(MINUTE)
    first, second = due(ledger), due(ledger)
    assert first == second
    assert ledger.fire(SHARD, [step(first[0])]) == [Fired.FIRED]
    assert ledger.fire(SHARD, [step(second[0])]) == [Fired.STALE]
    task = stored_task(ledger, occurrence(1))
    assert (task.kind, task.payload_json, task.group, task.notify, task.by) == ("work", '{"n":1}', "s", "tell", "http")
    assert (task.due_at, task.deadline_at, task.retry) == (clock.at, clock.at + 5_000, STEADY)
    now = kept(ledger).progress
    assert now == step(first[0]).progress
    assert (now.next_at, due(ledger)) == (START + 2 * MINUTE, [])


def test_a_schedule_that_a_caller_changed_or_dropped_does_not_fire_as_it_was(ledger: Ledger) -> None:
    put(ledger)
    before = kept(ledger)
    ledger.put_schedule(series(), begun(version=2), seen=kept(ledger))
    assert ledger.fire(SHARD, [step(before)]) == [Fired.STALE]
    changed = kept(ledger)
    ledger.drop_schedule("default", "s")
    assert ledger.fire(SHARD, [step(changed)]) == [Fired.STALE]
    put(ledger)
    assert ledger.fire(SHARD, [step(changed)]) == [Fired.STALE]
    assert ledger.get("default", occurrence(1)) is None


def test_many_schedules_fire_in_one_step_each_for_itself(ledger: Ledger, clock: HandClock) -> None:
    for n in range(60):
        put(ledger, f"s-{n}", tenant="acme" if n % 2 else "-", payload=PAGE if n % 3 else "1")
    clock.advance(MINUTE)
    found = due(ledger)
    ledger.drop_schedule("default", "s-7", "acme")
    ledger.drop_schedule("default", "s-8")
    firings = [step(one) for one in found]
    fired = dict(zip(ids(found), ledger.fire(SHARD, firings), strict=True))
    assert {id for id, what in fired.items() if what is Fired.STALE} == {"s-7", "s-8"}
    assert ledger.stats(SHARD).scheduled == 58
    assert set(ledger.fire(SHARD, firings)) == {Fired.STALE}
    assert ledger.stats(SHARD).scheduled == 58


def test_several_times_of_one_schedule_fire_in_one_step(ledger: Ledger) -> None:
    put(ledger)
    assert fire(ledger, "s", *(START + n * MINUTE for n in range(1, 13))) is Fired.FIRED
    assert ids(ledger.group("default", "s")) == [occurrence(n) for n in range(1, 13)]
    now = kept(ledger).progress
    assert (now.fired, now.skipped, len(now.recent)) == (12, 0, 10)


def test_an_occurrence_that_is_there_is_kept(ledger: Ledger, clock: HandClock) -> None:
    """As one that ran by hand or by a backfill, whatever has become of it."""
    put(ledger)
    clock.advance(3 * MINUTE)
    fire(ledger, "s", START + MINUTE, START + 2 * MINUTE)
    [done, other] = claim(ledger)
    settle(ledger, done, Ending.DONE)
    settle(ledger, other, Ending.DROP)
    one = kept(ledger)
    again = replace(one.progress, nominal=START + MINUTE)
    assert ledger.fire(SHARD, [step(one._replace(progress=again), START + MINUTE, START + 2 * MINUTE)]) == [Fired.FIRED]
    assert [task.status for task in ledger.group("default", "s")] == [Status.DONE, Status.DEAD]
    assert kept(ledger).progress.skipped == 0


def test_one_that_waits_goes_on_waiting_where_its_time_fires_again(ledger: Ledger, clock: HandClock) -> None:
    overlapping(ledger, clock, Overlap.QUEUE, "leased")
    fire(ledger, "s", START + 2 * MINUTE)
    assert waits(ledger, occurrence(2))
    ledger.cancel("default", [occurrence(1)], force=True)
    assert not waits(ledger, occurrence(2))


def test_one_of_a_series_that_was_added_anew_is_seen_once_its_time_fires(ledger: Ledger, clock: HandClock) -> None:
    overlapping(ledger, clock, Overlap.SKIP, "ended")
    ledger.drop_schedule("default", "s")
    put(ledger, at=START + 2 * MINUTE, overlap=Overlap.SKIP)
    fire(ledger)
    fire(ledger)
    assert became(ledger) == [Became.LIVE, Became.SKIPPED]


def test_a_schedule_that_never_fires_hangs_no_bell(ledger: Ledger, clock: HandClock) -> None:
    ledger.put_schedule(series("over"), Progress())
    assert bell(ledger) == 0
    assert (ledger.stats(SHARD).schedules, ledger.stats(SHARD).fires_at) == (1, 0)
    put(ledger, "s", START + MINUTE)
    assert bell(ledger) == START + MINUTE
    one = kept(ledger)
    over = replace(step(one).progress, nominal=None, next_at=NEVER)
    clock.advance(MINUTE)
    ledger.fire(SHARD, [step(one)._replace(progress=over)])
    assert bell(ledger) == clock.at + 1
    settle(ledger, claim(ledger)[0], Ending.DONE)
    assert bell(ledger) == 0
    assert ledger.outlook_of([SHARD])[0].next_at == 0  # type: ignore[union-attr]


def test_the_bell_hangs_at_the_earliest_of_tasks_and_schedules(ledger: Ledger, clock: HandClock) -> None:
    add(ledger, "later", delay_ms=3 * MINUTE)
    put(ledger)
    assert bell(ledger) == START + MINUTE
    assert ledger.outlook_of([SHARD])[0].next_at == START + MINUTE  # type: ignore[union-attr]
    add(ledger, "much later", delay_ms=4 * MINUTE)
    assert bell(ledger) == START + MINUTE
    clock.advance(MINUTE)
    fire(ledger)
    assert bell(ledger) == clock.at + 1
    claim(ledger)
    assert bell(ledger) == clock.at + LEASE_MS
    ledger.drop_schedule("default", "s")
    ledger.cancel("default", [occurrence(1)], force=True)
    assert bell(ledger) == START + 3 * MINUTE


@pytest.mark.parametrize("limit", ["full", "rate"])
def test_no_limit_of_the_queue_delays_a_schedule(ledger: Ledger, clock: HandClock, limit: str) -> None:
    ledger.configure("default", {"max_running": 1} if limit == "full" else {"rate": Rate(1, 90 * MINUTE)})
    add(ledger, "long")
    assert ids(claim(ledger, lease_ms=60 * MINUTE)) == ["long"]
    add(ledger, "waits")
    put(ledger)
    assert bell(ledger) == START + MINUTE
    clock.advance(MINUTE)
    found = ledger.claim(SHARD, 5, lease_ms=LEASE_MS)
    assert (found.tasks, ids(found.schedules)) == ([], ["s"])
    fire(ledger)
    assert bell(ledger) == START + 2 * MINUTE


def test_a_paused_queue_fires_nothing_until_it_is_resumed(ledger: Ledger, clock: HandClock) -> None:
    put(ledger)
    ledger.configure("default", {"paused": True})
    assert bell(ledger) == 0
    clock.advance(MINUTE)
    assert due(ledger) == []
    ledger.configure("default", {"paused": False})
    assert bell(ledger) > 0
    assert ids(due(ledger)) == ["s"]


def test_a_schedule_is_no_task_and_its_tenant_is_none(ledger: Ledger, clock: HandClock) -> None:
    put(ledger)
    put(ledger, "t", tenant="acme", payload=PAGE)
    clock.advance(2 * MINUTE)
    stats = ledger.stats(SHARD)
    assert (stats.scheduled, stats.leased, stats.oldest_due_at) == (0, 0, 0)
    assert (stats.schedules, stats.fires_at) == (2, START + MINUTE)
    assert ledger.page("default", TaskFilter(), None, 10).tasks == []
    assert ledger.page("default", TaskFilter(), None, 10, "acme").tasks == []
    assert ledger.group("default", "s") == ledger.group("default", "t", "acme") == []
    [own] = ledger.stats_of_tenant([SHARD], "acme")
    assert (own.scheduled, own.schedules) == (0, None)  # type: ignore[union-attr]
    every = Bulk(Act.DELETE, (Status.SCHEDULED,))
    assert ledger.bulk("default", every).tasks == ledger.bulk("default", every, tenant="acme").tasks == 0
    assert ids(due(ledger)) == ["s", "t"]


def test_schedules_share_a_shard_with_tasks_of_several_tenants(ledger: Ledger, clock: HandClock) -> None:
    for tenant in ("-", "acme", "other"):
        put(ledger, tenant=tenant)
        ledger.add([new(f"task-{n}", tenant=tenant, delay_ms=MINUTE) for n in range(3)])
    clock.advance(MINUTE)
    found = ledger.claim(SHARD, 4, lease_ms=LEASE_MS)
    assert (len(found.tasks), ids(found.schedules), found.backlog) == (4, 3 * ["s"], 5)
    assert ledger.fire(SHARD, [step(one) for one in found.schedules]) == 3 * [Fired.FIRED]
    found = ledger.claim(SHARD, 100, lease_ms=LEASE_MS)
    assert (len(found.tasks), found.schedules, found.backlog) == (8, [], 0)
    assert sorted(task.tenant for task in found.tasks if task.group == "s") == ["-", "acme", "other"]


def test_a_schedule_due_soon_warms_what_works_its_kind(ledger: Ledger) -> None:
    put(ledger, kind="report")
    assert ledger.warmth().coming(SHARD, MINUTE - 1) == []
    assert ledger.warmth().coming(SHARD, MINUTE) == ["report"]


def test_a_shard_with_a_schedule_is_not_forgotten(ledger: Ledger, clock: HandClock) -> None:
    put(ledger)
    for _ in range(3):
        clock.advance(100 * 24 * 60 * MINUTE)
        ledger.sweep(SHARD, retention_ms=1)
    assert ledger.shards() == [SHARD]
    assert ids(due(ledger)) == ["s"]


# Overlap


def overlapping(ledger: Ledger, clock: HandClock, overlap: Overlap, first: str) -> None:
    """Fire a schedule whose occurrence before is in a state."""
    put(ledger, overlap=overlap)
    clock.advance(MINUTE)
    fire(ledger)
    if first != "scheduled":
        [task] = claim(ledger, lease_ms=60 * MINUTE)
        if first == "ended":
            settle(ledger, task, Ending.DONE)
    clock.advance(MINUTE)
    assert fire(ledger) is Fired.FIRED


@pytest.mark.parametrize("first", ["scheduled", "leased", "ended"])
def test_allow_adds_it_beside_the_one_before(ledger: Ledger, clock: HandClock, first: str) -> None:
    overlapping(ledger, clock, Overlap.ALLOW, first)
    assert stored_task(ledger, occurrence(2)).due_at == clock.at
    assert became(ledger) == [Became.DONE if first == "ended" else Became.LIVE, Became.LIVE]


@pytest.mark.parametrize("first", ["scheduled", "leased", "ended"])
def test_skip_leaves_it_out_while_the_one_before_has_not_ended(ledger: Ledger, clock: HandClock, first: str) -> None:
    overlapping(ledger, clock, Overlap.SKIP, first)
    is_over = first == "ended"
    assert bool(ledger.get("default", occurrence(2))) == is_over
    assert became(ledger) == ([Became.DONE, Became.LIVE] if is_over else [Became.LIVE, Became.SKIPPED])
    assert kept(ledger).progress.skipped == (0 if is_over else 1)
    if first == "leased":
        for n in range(3, 20):
            clock.advance(MINUTE)
            fire(ledger)
            assert ledger.get("default", occurrence(n)) is None
        clock.advance(MINUTE)
        ledger.cancel("default", [occurrence(1)], force=True)
        fire(ledger)
        assert stored_task(ledger, occurrence(20)).status is Status.SCHEDULED
        assert kept(ledger).progress.skipped == 18


@pytest.mark.parametrize("first", ["scheduled", "leased", "ended"])
def test_queue_has_it_wait_for_the_end_of_the_one_before(ledger: Ledger, clock: HandClock, first: str) -> None:
    overlapping(ledger, clock, Overlap.QUEUE, first)
    assert waits(ledger, occurrence(2)) == (first != "ended")
    if first == "leased":
        assert bell(ledger) == START + 3 * MINUTE
        assert claim(ledger) == []
        ledger.cancel("default", [occurrence(1)], force=True)
        assert bell(ledger) == clock.at + 1
        [second] = claim(ledger)
        assert (second.id, second.due_at) == (occurrence(2), clock.at)
        settle(ledger, second, Ending.DONE)
        assert became(ledger) == [Became.CANCELLED, Became.DONE]


def test_one_waits_at_most_and_the_newest_takes_its_place(ledger: Ledger, clock: HandClock) -> None:
    overlapping(ledger, clock, Overlap.QUEUE, "leased")
    clock.advance(MINUTE)
    fire(ledger)
    assert stored_task(ledger, occurrence(2)).status is Status.CANCELLED
    assert waits(ledger, occurrence(3))
    assert became(ledger) == [Became.LIVE, Became.SKIPPED, Became.LIVE]
    assert kept(ledger).progress.skipped == 1


def test_what_waits_is_due_once_all_before_it_have_ended(ledger: Ledger, clock: HandClock) -> None:
    put(ledger)
    fire(ledger, "s", START + MINUTE, START + 2 * MINUTE)
    now = replace(kept(ledger).progress, version=2)
    ledger.put_schedule(series(overlap=Overlap.QUEUE, deadline_ms=9_000), now, seen=kept(ledger))
    clock.advance(3 * MINUTE)
    fire(ledger)
    first, second = claim(ledger)
    settle(ledger, first, Ending.DONE)
    assert waits(ledger, occurrence(3))
    settle(ledger, second, Ending.DROP)
    third = stored_task(ledger, occurrence(3))
    assert (third.due_at, third.deadline_at) == (clock.at, clock.at + 9_000)


def test_what_waits_may_be_cancelled_and_goes_with_its_schedule(ledger: Ledger, clock: HandClock) -> None:
    overlapping(ledger, clock, Overlap.QUEUE, "leased")
    assert ledger.cancel("default", [occurrence(2)]) == [Reply.OK]
    assert became(ledger) == [Became.LIVE, Became.CANCELLED]
    clock.advance(MINUTE)
    fire(ledger)
    assert waits(ledger, occurrence(3))
    ledger.drop_schedule("default", "s")
    assert stored_task(ledger, occurrence(3)).status is Status.CANCELLED
    assert stored_task(ledger, occurrence(1)).status is Status.LEASED


def test_what_waits_goes_on_waiting_through_a_change(ledger: Ledger, clock: HandClock) -> None:
    overlapping(ledger, clock, Overlap.QUEUE, "leased")
    now = replace(kept(ledger).progress, version=2)
    ledger.put_schedule(series(overlap=Overlap.QUEUE, kind="other"), now, seen=kept(ledger))
    assert waits(ledger, occurrence(2))
    ledger.cancel("default", [occurrence(1)], force=True)
    assert not waits(ledger, occurrence(2))


def test_what_waits_may_be_moved_and_runs_beside_then(ledger: Ledger, clock: HandClock) -> None:
    overlapping(ledger, clock, Overlap.QUEUE, "leased")
    ledger.move("default", [Move(occurrence(2))])
    assert ids(claim(ledger)) == [occurrence(2)]
    clock.advance(MINUTE)
    fire(ledger)
    assert waits(ledger, occurrence(3))
    ledger.cancel("default", [occurrence(1)], force=True)
    assert waits(ledger, occurrence(3))
    ledger.cancel("default", [occurrence(2)], force=True)
    assert not waits(ledger, occurrence(3))


@pytest.mark.parametrize("first", ["scheduled", "leased", "ended"])
def test_replace_cancels_the_one_before(ledger: Ledger, clock: HandClock, first: str) -> None:
    overlapping(ledger, clock, Overlap.REPLACE, first)
    assert stored_task(ledger, occurrence(1)).status is (Status.DONE if first == "ended" else Status.CANCELLED)
    assert became(ledger) == [Became.DONE if first == "ended" else Became.CANCELLED, Became.LIVE]
    assert ids(claim(ledger)) == [occurrence(2)]
    assert kept(ledger).progress.skipped == 0


def test_replace_cancels_what_waits_by_the_policy_before_too(ledger: Ledger, clock: HandClock) -> None:
    overlapping(ledger, clock, Overlap.QUEUE, "leased")
    now = replace(kept(ledger).progress, version=2)
    ledger.put_schedule(series(overlap=Overlap.REPLACE), now, seen=kept(ledger))
    fire(ledger)
    assert became(ledger) == [Became.CANCELLED, Became.CANCELLED, Became.LIVE]


@pytest.mark.parametrize(
    ("overlap", "found"),
    [
        (Overlap.ALLOW, [Became.LIVE, Became.LIVE, Became.LIVE]),
        (Overlap.SKIP, [Became.LIVE, Became.SKIPPED, Became.SKIPPED]),
        (Overlap.QUEUE, [Became.LIVE, Became.SKIPPED, Became.LIVE]),
        (Overlap.REPLACE, [Became.CANCELLED, Became.CANCELLED, Became.LIVE]),
    ],
)
def test_several_in_one_step_overlap_as_in_several(ledger: Ledger, overlap: Overlap, found: list[Became]) -> None:
    put(ledger, overlap=overlap)
    fire(ledger, "s", *(START + n * MINUTE for n in (1, 2, 3)))
    assert became(ledger) == found


def test_a_backfill_adds_occurrences_of_its_series(ledger: Ledger, clock: HandClock) -> None:
    put(ledger, overlap=Overlap.SKIP, at=START + 5 * MINUTE)
    fill = backfill_id("s", START)
    put(ledger, fill, START + MINUTE, of="s", overlap=Overlap.SKIP)
    assert fire(ledger, fill) is Fired.FIRED
    clock.advance(5 * MINUTE)
    fire(ledger)
    assert (became(ledger), became(ledger, fill)) == ([Became.SKIPPED], [Became.LIVE])
    settle(ledger, claim(ledger)[0], Ending.DONE)
    assert fire(ledger, fill, START + 2 * MINUTE) is Fired.FIRED
    assert stored_task(ledger, occurrence(2)).group == "s"


def backfill(ledger: Ledger, overlap: Overlap, at: int = START + MINUTE) -> str:
    """A schedule that is not due yet, and a backfill of it whose next time is `at`; answers the backfill's id."""
    put(ledger, at=START + 60 * MINUTE, overlap=overlap)
    put(ledger, backfill_id("s", START), at, of="s", overlap=overlap)
    return backfill_id("s", START)


@pytest.mark.parametrize("overlap", [Overlap.ALLOW, Overlap.SKIP])
def test_a_backfill_is_gone_with_the_step_that_adds_its_last(ledger: Ledger, overlap: Overlap) -> None:
    fill = backfill(ledger, overlap)
    one = kept(ledger, fill)
    over = replace(one.progress, nominal=None, next_at=NEVER)
    last = step(one, START + MINUTE, START + 2 * MINUTE)._replace(progress=over)
    assert ledger.fire(SHARD, [last]) == [Fired.FIRED]
    assert ledger.schedule("default", fill) is None
    assert bool(ledger.get("default", occurrence(2))) == (overlap is Overlap.ALLOW)
    ledger.fire(SHARD, [last])
    assert ledger.stats(SHARD).scheduled == len(ledger.group("default", "s"))
    assert put(ledger, fill, of="s") is Put.CREATED


@pytest.mark.parametrize("anew", [False, True], ids=["deleted", "added anew"])
@pytest.mark.parametrize("moved_ms", [1, -60 * MINUTE], ids=["", "on a clock that went back"])
def test_a_backfill_ends_with_its_series(ledger: Ledger, clock: HandClock, anew: bool, moved_ms: int) -> None:
    fill = backfill(ledger, Overlap.ALLOW)
    assert fire(ledger, fill) is Fired.FIRED
    now = replace(kept(ledger).progress, version=2)
    ledger.put_schedule(series(kind="other"), now, seen=kept(ledger))
    assert fire(ledger, fill) is Fired.FIRED, "a change is no end"
    clock.at += moved_ms
    ledger.drop_schedule("default", "s")
    if anew:
        put(ledger)
    assert fire(ledger, fill) is Fired.STALE
    assert ledger.schedule("default", fill) is None
    assert ids(ledger.group("default", "s")) == [occurrence(1), occurrence(2)]


def test_a_backfill_goes_on_though_the_clock_went_back_before_it_began(ledger: Ledger, clock: HandClock) -> None:
    put(ledger, at=START + 60 * MINUTE)
    clock.at -= 60 * MINUTE
    fill = backfill(ledger, Overlap.ALLOW)
    assert fire(ledger, fill) is Fired.FIRED
    assert ids(ledger.group("default", "s")) == [occurrence(1)]


def test_a_time_that_a_backfill_and_its_series_add_at_once_is_the_firsts(ledger: Ledger) -> None:
    fill = backfill(ledger, Overlap.ALLOW)
    twice = [step(kept(ledger), START + MINUTE), step(kept(ledger, fill), due_at=START + 5 * MINUTE)]
    assert ledger.fire(SHARD, twice) == [Fired.FIRED] * 2
    assert stored_task(ledger, occurrence(1)).due_at == START + MINUTE


def test_what_a_backfill_leaves_out_is_counted_in_its_series(ledger: Ledger) -> None:
    fill = backfill(ledger, Overlap.SKIP)
    read = kept(ledger)
    assert fire(ledger, fill, *(START + n * MINUTE for n in (1, 2, 3))) is Fired.FIRED
    assert (kept(ledger).progress.skipped, kept(ledger).progress.recent) == (2, ())
    assert ledger.fire(SHARD, [step(read)]) == [Fired.STALE], "it has read another count"
    assert fire(ledger) is Fired.FIRED
    assert kept(ledger).progress.skipped == 3


def test_a_backfill_that_queues_runs_its_occurrences_one_after_another(ledger: Ledger, clock: HandClock) -> None:
    fill = backfill(ledger, Overlap.QUEUE)
    clock.advance(10 * MINUTE)
    for n in range(1, 4):
        assert fire(ledger, fill) is Fired.FIRED
        [task] = claim(ledger, lease_ms=120 * MINUTE)
        assert task.id == occurrence(n)
        before = kept(ledger, fill)
        for later, next_look in [(0, 1_000), (5_000, 1_000), (55_000, 6_000), (59 * MINUTE, MINUTE)]:
            clock.advance(later)
            assert fire(ledger, fill) is Fired.STALE
            put_off = kept(ledger, fill)
            assert put_off == before._replace(progress=replace(before.progress, next_at=clock.at + next_look))
            assert fill not in ids(due(ledger))
        settle(ledger, task, Ending.DONE)
    fire(ledger)
    fire(ledger)
    for _ in range(2):
        assert fire(ledger, fill) is Fired.STALE, "one of the series' own is live, and one waited for that"
        settle(ledger, claim(ledger)[0], Ending.DONE)
    assert fire(ledger, fill) is Fired.FIRED
    assert {task.status for task in ledger.group("default", "s")} == {Status.DONE, Status.SCHEDULED}
    assert kept(ledger).progress.skipped == 0


# Ends


def settled(how: Ending, **fields: object) -> Callable[[Ledger, HandClock], None]:
    def end(ledger: Ledger, _clock: HandClock) -> None:
        settle(ledger, claim(ledger)[0], how, **fields)

    return end


def out_of_attempts(ledger: Ledger, clock: HandClock) -> None:
    for _ in range(STEADY.max_attempts):
        settle(ledger, claim(ledger)[0], Ending.RETRY)
        clock.advance(10 * MINUTE)


def cancelled(ledger: Ledger, _clock: HandClock) -> None:
    ledger.cancel("default", [occurrence(1)])


def taken_away(ledger: Ledger, _clock: HandClock) -> None:
    claim(ledger)
    ledger.cancel("default", [occurrence(1)], force=True)


def cancelled_with_others(ledger: Ledger, _clock: HandClock) -> None:
    ledger.bulk("default", Bulk(Act.CANCEL, (Status.SCHEDULED,), group="s", limit=1))


def purged(ledger: Ledger, _clock: HandClock) -> None:
    ledger.bulk("default", Bulk(Act.DELETE, (Status.SCHEDULED,), limit=1))


def lapsed_and_swept(ledger: Ledger, clock: HandClock) -> None:
    for _ in range(STEADY.max_attempts):
        claim(ledger)
        clock.advance(LEASE_MS)
        ledger.sweep(SHARD, retention_ms=60 * MINUTE)
        clock.advance(10 * MINUTE)


def lapsed_and_claimed(ledger: Ledger, clock: HandClock) -> None:
    while stored_task(ledger, occurrence(1)).status is not Status.DEAD:
        claim(ledger, limit=1)
        clock.advance(10 * MINUTE)


def lapsed_and_taken(ledger: Ledger, clock: HandClock) -> None:
    for _ in range(STEADY.max_attempts):
        claim(ledger)
        clock.advance(LEASE_MS)
        ledger.take("default", "nothing", lease_ms=LEASE_MS)
        clock.advance(10 * MINUTE)


def expired(ledger: Ledger, clock: HandClock) -> None:
    clock.advance(60 * MINUTE)
    ledger.claim(SHARD, 1, lease_ms=LEASE_MS)


def begun_too_late(ledger: Ledger, clock: HandClock) -> None:
    [task] = ledger.claim(SHARD, 1, lease_ms=60 * MINUTE, deliveries={"work": Delivery("t", 9, 90 * MINUTE)}).tasks
    clock.advance(60 * MINUTE)
    ledger.begin(SHARD, [lease_of(task)], LEASE_MS, [bytes(8)])


def undelivered(ledger: Ledger, clock: HandClock) -> None:
    for _ in range(20):
        given = {"work": Delivery("t", 9, LEASE_MS)}
        assert ledger.claim(SHARD, 1, lease_ms=LEASE_MS, deliveries=given).tasks
        clock.advance(LEASE_MS)
        ledger.sweep(SHARD, retention_ms=24 * 60 * MINUTE)
        clock.advance(10 * MINUTE)


def replaced_while_it_ran(ledger: Ledger, _clock: HandClock) -> None:
    [task] = claim(ledger)
    ledger.add([new(occurrence(1), on_duplicate=OnDuplicate.REPLACE, group="s")])
    settle(ledger, task, Ending.DONE)
    settle(ledger, claim(ledger, limit=1)[0], Ending.DROP)


def debounced(ledger: Ledger, _clock: HandClock) -> None:
    ledger.add([new(occurrence(1), on_duplicate=OnDuplicate.DEBOUNCE, group="s")])
    settle(ledger, claim(ledger)[0], Ending.DONE)


ENDS: dict[str, tuple[Callable[[Ledger, HandClock], None], Became]] = {
    "done": (settled(Ending.DONE), Became.DONE),
    "done with a result": (settled(Ending.DONE, result='{"rows":3}'), Became.DONE),
    "dropped": (settled(Ending.DROP, detail="no use"), Became.DEAD),
    "out of attempts": (out_of_attempts, Became.DEAD),
    "cancelled": (cancelled, Became.CANCELLED),
    "cancelled by force": (taken_away, Became.CANCELLED),
    "cancelled with others": (cancelled_with_others, Became.CANCELLED),
    "purged": (purged, Became.CANCELLED),
    "its last lease lapsed, in a sweep": (lapsed_and_swept, Became.DEAD),
    "its last lease lapsed, in a claim": (lapsed_and_claimed, Became.DEAD),
    "its last lease lapsed, in a take": (lapsed_and_taken, Became.DEAD),
    "past its deadline": (expired, Became.DEAD),
    "begun past its deadline": (begun_too_late, Became.DEAD),
    "never delivered": (undelivered, Became.DEAD),
    "replaced while it ran": (replaced_while_it_ran, Became.DEAD),
    "debounced": (debounced, Became.DONE),
}


@pytest.mark.parametrize("how", ENDS)
def test_each_way_to_end_is_noted_and_frees_what_waits(ledger: Ledger, clock: HandClock, how: str) -> None:
    end, expected = ENDS[how]
    deadline = 30 * MINUTE if "deadline" in how else None
    put(ledger, overlap=Overlap.QUEUE, deadline_ms=deadline)
    clock.advance(MINUTE)
    fire(ledger)
    fire(ledger)
    assert waits(ledger, occurrence(2))
    ledger.await_ends(SHARD, [], 24 * 60 * MINUTE)
    end(ledger, clock)
    assert became(ledger) == [expected, Became.LIVE]
    second = stored_task(ledger, occurrence(2))
    assert second.due_at <= clock.at
    if second.status is Status.SCHEDULED:
        [second] = claim(ledger)
    settle(ledger, second, Ending.DONE)
    assert became(ledger) == [expected, Became.DONE]


@pytest.mark.parametrize("how", ["retried", "again", "released", "moved", "saved"])
def test_what_is_no_end_frees_nothing(ledger: Ledger, clock: HandClock, how: str) -> None:
    overlapping(ledger, clock, Overlap.QUEUE, "scheduled")
    [task] = claim(ledger)
    if how == "moved":
        ledger.move("default", [Move(task.id, force=True, delay_ms=MINUTE)])
    elif how == "saved":
        ledger.save(SHARD, lease_of(task), "1")
    else:
        settle(ledger, task, {"retried": Ending.RETRY, "again": Ending.AGAIN, "released": Ending.RELEASE}[how])
    assert waits(ledger, occurrence(2))
    assert became(ledger) == [Became.LIVE, Became.LIVE]


def test_a_death_a_replay_and_a_deletion_leave_the_series_as_it_is(ledger: Ledger, clock: HandClock) -> None:
    put(ledger)
    clock.advance(MINUTE)
    fire(ledger)
    settle(ledger, claim(ledger)[0], Ending.DROP)
    before = kept(ledger)
    ledger.replay("default", [occurrence(1)])
    assert became(ledger) == [Became.LIVE]
    settle(ledger, claim(ledger)[0], Ending.DROP)
    assert kept(ledger) == before
    ledger.cancel("default", [occurrence(1)])
    assert ledger.get("default", occurrence(1)) is None
    assert kept(ledger) == before
    assert became(ledger) == [Became.DEAD]
    clock.advance(MINUTE)
    assert fire(ledger) is Fired.FIRED


REVIVED: dict[str, Callable[[Ledger], object]] = {
    "replayed": lambda ledger: ledger.replay("default", [occurrence(1)]),
    "moved": lambda ledger: ledger.move("default", [Move(occurrence(1), revive=True)]),
    "replaced": lambda ledger: ledger.add([new(occurrence(1), on_duplicate=OnDuplicate.REPLACE, group="s")]),
}


@pytest.mark.parametrize("how", REVIVED)
def test_an_occurrence_that_lives_again_is_seen_and_may_end_otherwise(
    ledger: Ledger, clock: HandClock, how: str
) -> None:
    before, after = (Ending.DONE, Ending.DROP) if how == "moved" else (Ending.DROP, Ending.DONE)
    put(ledger, overlap=Overlap.SKIP)
    clock.advance(MINUTE)
    fire(ledger)
    settle(ledger, claim(ledger)[0], before)
    add(ledger, "beside")
    settle(ledger, claim(ledger)[0], before)
    REVIVED[how](ledger)
    REVIVED[how](ledger)
    assert became(ledger) == [Became.LIVE]
    fire(ledger)
    assert became(ledger) == [Became.LIVE, Became.SKIPPED]
    settle(ledger, claim(ledger)[0], after)
    assert became(ledger) == [Became.DEAD if how == "moved" else Became.DONE, Became.SKIPPED]
    fire(ledger)
    assert became(ledger)[-1] is Became.LIVE


def test_an_end_or_a_replay_while_it_fires_is_not_lost(ledger: Ledger, clock: HandClock) -> None:
    put(ledger, overlap=Overlap.QUEUE)
    clock.advance(MINUTE)
    fire(ledger)
    for end, now in [
        (lambda: settle(ledger, claim(ledger)[0], Ending.DROP), Became.DEAD),
        (lambda: ledger.replay("default", [occurrence(1)]), Became.LIVE),
    ]:
        read = kept(ledger)
        end()
        clock.advance(MINUTE)
        assert ledger.fire(SHARD, [step(read)]) == [Fired.FIRED]
        assert became(ledger)[0] is now


def test_occurrences_of_any_distance_are_noted_with_what_they_stand_for(ledger: Ledger, clock: HandClock) -> None:
    places = [(250, 0), (1, 3), (999, 0), (60_999, 12), (120_999, 0), (180_999, 1), (180_998, 0)]
    recent = [Occurrence(START + at, Became.LIVE, besides) for at, besides in places]
    put(ledger, "s", recent[0].nominal)
    clock.advance(4 * MINUTE)
    for count, one in enumerate(recent, 1):
        firing = step(kept(ledger), one.nominal, due_at=clock.at)
        after = replace(firing.progress, recent=tuple(recent[:count]))
        assert ledger.fire(SHARD, [firing._replace(progress=after)]) == [Fired.FIRED]
    assert kept(ledger).progress.recent == tuple(recent)
    read = kept(ledger)
    for task in claim(ledger):
        if task.id != occurrence_id("s", recent[3].nominal):
            settle(ledger, task, Ending.DONE)
    ended = [one if place == 3 else replace(one, became=Became.DONE) for place, one in enumerate(recent)]
    assert kept(ledger).progress.recent == tuple(ended)
    later = START + 5 * MINUTE
    assert ledger.fire(SHARD, [step(read, later)]) == [Fired.FIRED], "its ends are taken over"
    assert kept(ledger).progress.recent == (*ended, Occurrence(later, Became.LIVE))
    assert occurrence_id("s", recent[0].nominal).endswith(".250Z")


@pytest.mark.parametrize("at", [0, 951_782_400_000, 4_107_542_399_000, 1_709_164_800_000, 1_740_787_199_000])
def test_occurrences_of_any_day_are_noted(ledger: Ledger, at: int) -> None:
    put(ledger, "s", at)
    fire(ledger)
    ledger.cancel("default", [occurrence_id("s", at)])
    assert kept(ledger).progress.recent == (Occurrence(at, Became.CANCELLED),)


def test_an_id_like_an_occurrences_is_no_occurrence(ledger: Ledger) -> None:
    put(ledger, overlap=Overlap.QUEUE)
    add(ledger, occurrence(1), group="s")
    add(ledger, "x@y", group="s")
    fire(ledger)
    [first, other] = claim(ledger)
    before = kept(ledger)
    for task in (first, other):
        settle(ledger, task, Ending.DONE)
    assert kept(ledger) == before


# Quotas


def test_a_schedule_is_counted_among_the_bytes_of_its_tenant(limited: Ledger) -> None:
    assert put(limited, "a", tenant="acme", payload=PAGE) is Put.CREATED
    with pytest.raises(QuotaExceeded) as full:
        put(limited, "b", tenant="acme", payload=PAGE)
    assert full.value.quota == "tenant_max_bytes"
    with pytest.raises(BeyondQuota):
        put(limited, "b", tenant="acme", payload=f'"{6_000 * "x"}"')
    assert put(limited, "b", tenant="other", payload=PAGE) is Put.CREATED
    changed = series("a", tenant="acme", payload="1")
    assert limited.put_schedule(changed, begun(version=2), seen=kept(limited, "a", "acme")).put is Put.CHANGED
    assert put(limited, "b", tenant="acme", payload=PAGE) is Put.CREATED
    limited.drop_schedule("default", "b", "acme")
    assert put(limited, "c", tenant="acme", payload=PAGE) is Put.CREATED


def test_a_tenant_whose_pending_tasks_are_used_up_adds_no_schedule(limited: Ledger) -> None:
    limited.add([new(f"t-{n}", tenant="acme", delay_ms=MINUTE) for n in range(2)])
    with pytest.raises(QuotaExceeded) as full:
        put(limited, tenant="acme")
    assert full.value.quota == "tenant_max_pending"
    assert limited.schedule("default", "s", "acme") is None


@pytest.mark.parametrize("overlap", Overlap)
def test_an_occurrence_over_a_quota_counts_as_skipped(limited: Ledger, overlap: Overlap) -> None:
    put(limited, tenant="acme", overlap=overlap)
    limited.add([new(f"t-{n}", tenant="acme", delay_ms=60 * MINUTE) for n in range(2)])
    assert fire(limited, "s", tenant="acme") is Fired.FIRED
    assert became(limited, "s", "acme") == [Became.SKIPPED]
    limited.cancel("default", ["t-0"], tenant="acme")
    assert fire(limited, "s", tenant="acme") is Fired.FIRED
    now = kept(limited, "s", "acme").progress
    assert [one.became for one in now.recent] == [Became.SKIPPED, Became.LIVE]
    assert now.skipped == 1


def test_a_run_over_a_quota_is_rejected_with_its_name_and_changes_nothing(limited: Ledger, clock: HandClock) -> None:
    put(limited, tenant="acme", overlap=Overlap.SKIP)
    verbs = Schedules(limited, Calendar(), lambda task: task)
    ids = [verbs.run("default", "s", "acme") for _ in range(2)]
    before = kept(limited, "s", "acme")
    with pytest.raises(QuotaExceeded) as full:
        verbs.run("default", "s", "acme")
    assert full.value.quota == "tenant_max_pending"
    assert kept(limited, "s", "acme") == before
    limited.cancel("default", ids, tenant="acme")
    limited.configure("default", {"tenant_max_pending": 100, "tenant_adds_per_minute": 1})
    clock.advance(MINUTE)
    verbs.run("default", "s", "acme")
    with pytest.raises(QuotaExceeded) as full:
        verbs.run("default", "s", "acme")
    assert (full.value.quota, full.value.wait_ms) == ("tenant_adds_per_minute", MINUTE)


@pytest.mark.parametrize(
    ("overlap", "others", "found"),
    [
        (Overlap.REPLACE, 1, [Became.CANCELLED, Became.CANCELLED, Became.LIVE]),
        (Overlap.QUEUE, 0, [Became.LIVE, Became.SKIPPED, Became.LIVE]),
        (Overlap.ALLOW, 1, [Became.LIVE, Became.SKIPPED, Became.SKIPPED]),
    ],
)
def test_only_what_takes_anothers_place_needs_no_room_beside_it(
    limited: Ledger, overlap: Overlap, others: int, found: list[Became]
) -> None:
    put(limited, tenant="acme", overlap=overlap)
    limited.add([new(f"t-{n}", tenant="acme", delay_ms=60 * MINUTE) for n in range(others)])
    for _ in found:
        fire(limited, tenant="acme")
    assert became(limited, "s", "acme") == found
    assert bool(limited.get("default", occurrence(3), "acme")) == (found[-1] is Became.LIVE)


# Broken records, and what must not reach a schedule


def test_no_verb_on_tasks_reaches_a_schedule(ledger: Ledger) -> None:
    put(ledger)
    put(ledger, tenant="acme")
    for id in ("s", "*/-/s", "-/s", "s@x"):
        assert ledger.get("default", id) is None
        assert ledger.cancel("default", [id], force=True) == [Reply.ABSENT]
        assert ledger.move("default", [Move(id, force=True)]) == [Reply.ABSENT]
        assert ledger.replay("default", [id]) == [Reply.ABSENT]
        assert ledger.take("default", id, lease_ms=LEASE_MS, group="s") is None
    ledger.add([new("alone", group="s")], unique=UniqueCondition("s", 0))
    assert stored_task(ledger, "alone").group == "s"
    assert kept(ledger).schedule == series()


@pytest.mark.parametrize("tenant", ["*", "*/-", "-/s", "", "a*"])
def test_no_client_has_the_tenant_of_schedules(tenant: str) -> None:
    with pytest.raises(InvalidInput):
        Client("memory://", tenant=tenant)


@pytest.mark.parametrize("id", ["*/-/s", "-/s", "*", "s~1", "../s"])
def test_no_client_names_a_schedule_by_a_tasks_id(id: str) -> None:
    with Client("memory://") as client:
        for verb in (client.get, client.cancel, client.replay):
            with pytest.raises(InvalidInput):
                verb(id)
        with pytest.raises(InvalidInput):
            client.add(kind="work", payload={}, id=id)
        with pytest.raises(InvalidInput):
            client.add(kind="work", payload={}, group=id)


def test_retention_and_replies_of_others_do_not_touch_schedules(ledger: Ledger, clock: HandClock) -> None:
    put(ledger)
    clock.advance(MINUTE)
    fire(ledger)
    settle(ledger, claim(ledger)[0], Ending.DONE)
    clock.advance(MINUTE - 1)
    swept = ledger.sweep(SHARD, retention_ms=1)
    assert (swept.pruned, swept.bell_at) == (1, START + 2 * MINUTE)
    assert became(ledger) == [Became.DONE]
    assert fire(ledger, "s", START + MINUTE) is Fired.FIRED
    assert stored_task(ledger, occurrence(1)).status is Status.SCHEDULED


def test_a_schedule_is_in_the_shard_of_its_occurrences(sharded: Ledger) -> None:
    for n in range(20):
        put(sharded, f"s-{n}")
        fire(sharded, f"s-{n}")
        shard = sharded.shard_of("default", "", f"s-{n}")
        assert ids(sharded.group("default", f"s-{n}")) == [occurrence(1, f"s-{n}")]
        assert sharded.stats(shard).scheduled > 0
    assert isinstance(sharded.shard_of("default", "", "s-1"), Shard)


def test_a_rule_of_whole_milliseconds_and_a_policy_are_kept(ledger: Ledger) -> None:
    asked = series(rule=Rule(Every(1_001), START + 3), retry=replace(STEADY, factor=1.25))
    ledger.put_schedule(asked, begun())
    assert kept(ledger).schedule == asked


# What a caller names, what the ledger keeps and what a release without `auto` reads of it.
NAMED = [
    ("0 * * * *", Gap.AUTO, Fold.AUTO, Gap.SKIP, Fold.BOTH),
    ("30 2 * * *", Gap.AUTO, Fold.AUTO, Gap.SHIFT, Fold.FIRST),
    ("0 * * * *", Gap.SHIFT, Fold.FIRST, Gap.SHIFT, Fold.FIRST),
    ("0 * * * *", Gap.AUTO, Fold.SECOND, Gap.SKIP, Fold.SECOND),
    ("30 2 * * *", Gap.SKIP, Fold.AUTO, Gap.SKIP, Fold.FIRST),
]


@pytest.mark.parametrize(("cron", "gap", "fold", "gap_used", "fold_used"), NAMED)
def test_auto_is_kept_beside_what_an_earlier_release_reads(
    ledger: Ledger, cron: str, gap: Gap, fold: Fold, gap_used: Gap, fold_used: Fold
) -> None:
    put(ledger, rule=Rule(Cron(cron), START, "Europe/Vienna", gap=gap, fold=fold))
    rule = kept(ledger).schedule.rule
    assert (rule.gap, rule.fold, rule.gap_used, rule.fold_used) == (gap, fold, gap_used, fold_used)
    definition = ledger.get(SHARD.queue, "-/s", TENANT).payload_json  # type: ignore[union-attr]
    written = json.loads(definition)[0]
    assert (written.get("g", "shift"), written.get("f", "first")) == (gap_used, fold_used)


@pytest.mark.parametrize("cron", ["0 * * * *", "30 2 * * *"])
def test_a_schedule_without_auto_is_the_same_one_if_it_is_added_again(ledger: Ledger, cron: str) -> None:
    verbs = Schedules(ledger, Calendar(), lambda task: task)
    former = Rule(Cron(cron), START, "Europe/Vienna", gap=Gap.SHIFT, fold=Fold.FIRST)
    verbs.add(series(rule=former))
    again = series(rule=replace(former, gap=Gap.AUTO, fold=Fold.AUTO))
    status, created = verbs.add(again)
    assert (created, status.schedule.rule) == (False, former)
    with pytest.raises(ScheduleExists):
        verbs.add(series(rule=replace(former, fold=Fold.BOTH)))
    status = verbs.change(SHARD.queue, "s", {"rule": {"gap": Gap.AUTO, "fold": Fold.AUTO}})
    assert (status.schedule.rule.gap, status.schedule.rule.fold) == (Gap.AUTO, Fold.AUTO)
    assert not verbs.add(again)[1]
