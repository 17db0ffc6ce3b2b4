"""Many tasks at once: counted, deleted, cancelled by state, kind, group and age, in bounded steps, of one tenant."""

from dataclasses import replace

import pytest

from duecourse.ledger.many_tasks import MAX_BULK, Act, Bulk, BulkProgress
from duecourse.ledger.operation_types import Reply, Settled
from duecourse.ledger.operations import tasks as steps
from duecourse.ledger.operations.ledger import Ledger
from duecourse.ledger.task import Action, Ending, Shard, Status
from tests.support.clock import HandClock
from tests.support.ledger import LATER_MS, SHARD, bell, bring, claim, claim_one, new, settle, stored_task

QUEUE = SHARD.queue
LARGE = f'{{"text":"{"x" * 200_000}"}}'
ENDED = (Status.DONE, Status.CANCELLED, Status.DEAD)


def purge(status: Status, **fields: object) -> Bulk:
    """Request for a purge."""
    return Bulk(Act.DELETE, (status,))._replace(**fields)


def cancel(*statuses: Status, **fields: object) -> Bulk:
    """Request for a cancellation."""
    return Bulk(Act.CANCEL, statuses or (Status.SCHEDULED,))._replace(**fields)


def every(ledger: Ledger, asked: Bulk, tenant: str = "-") -> list[int]:
    """Number of tasks of each call, to the last one."""
    found, after = [], None
    while True:
        done = ledger.bulk(QUEUE, asked, after, tenant)
        found.append(done.tasks)
        after = done.next
        if after is None:
            return found


def left(ledger: Ledger, *ids: str, tenant: str = "-") -> set[str]:
    """Those of some tasks that are there."""
    return {id for id in ids if ledger.get(QUEUE, id, tenant)}


@pytest.mark.parametrize("state", [Status.SCHEDULED, *ENDED])
def test_a_purge_deletes_one_state_alone_and_a_count_changes_nothing(ledger: Ledger, state: Status) -> None:
    for each in Status:
        bring(ledger, each, each)
    counted = ledger.bulk(QUEUE, purge(state, act=Act.COUNT))
    assert (counted.tasks, counted.next) == (1, None)
    assert left(ledger, *Status) == set(Status)
    assert ledger.bulk(QUEUE, purge(state)) == counted
    assert left(ledger, *Status) == set(Status) - {state}
    assert ledger.bulk(QUEUE, purge(state)).tasks == 0


def test_a_purge_is_of_one_kind_and_group(ledger: Ledger) -> None:
    ledger.add(
        [new(f"{kind}-{group}", kind=kind, group=group, delay_ms=5) for kind in "kl" for group in ("g", "h", "")]
    )
    assert ledger.bulk(QUEUE, purge(Status.SCHEDULED, kind="k", group="g")).tasks == 1
    assert left(ledger, "k-g", "k-h", "k-", "l-g") == {"k-h", "k-", "l-g"}
    assert ledger.bulk(QUEUE, purge(Status.SCHEDULED, group="g")).tasks == 1
    assert ledger.bulk(QUEUE, purge(Status.SCHEDULED, kind="k")).tasks == 2
    assert left(ledger, "l-h", "l-") == {"l-h", "l-"}
    assert [task.id for task in ledger.group(QUEUE, "h")] == ["l-h"]


@pytest.mark.parametrize("state", ENDED)
def test_the_age_of_what_ended_counts_from_its_end(ledger: Ledger, clock: HandClock, state: Status) -> None:
    ledger.add([new("old", delay_ms=0)])
    ledger.cancel(QUEUE, ["old"])
    for id in ("a", "b"):
        clock.advance(1_000)
        bring(ledger, state, id)
    clock.advance(500)
    assert ledger.bulk(QUEUE, purge(state, min_age_ms=501, act=Act.COUNT)).tasks == 1 + (state is Status.CANCELLED)
    assert ledger.bulk(QUEUE, purge(state, min_age_ms=1_500, act=Act.COUNT)).tasks == 1 + (state is Status.CANCELLED)
    ledger.bulk(QUEUE, purge(state, min_age_ms=1_500))
    assert left(ledger, "a", "b") == {"b"}


def test_the_age_of_what_is_scheduled_counts_from_its_add(ledger: Ledger, clock: HandClock) -> None:
    ledger.add([new("first", delay_ms=9_000)])
    clock.advance(100)
    ledger.add([new("second", delay_ms=0)])
    assert ledger.bulk(QUEUE, purge(Status.SCHEDULED, min_age_ms=100)).tasks == 1
    assert left(ledger, "first", "second") == {"second"}


def test_limits_bound_a_call_and_the_next_goes_on(sharded: Ledger) -> None:
    sharded.add([new(f"t{n}", delay_ms=n, kind="even" if n % 2 == 0 else "odd") for n in range(60)])
    asked = purge(Status.SCHEDULED, kind="even", limit=7)
    assert sum(every(sharded, asked._replace(act=Act.COUNT))) == 30
    calls = every(sharded, asked)
    assert (sum(calls), max(calls)) == (30, 7)
    assert left(sharded, *(f"t{n}" for n in range(60))) == {f"t{n}" for n in range(1, 60, 2)}


def test_a_step_looks_at_500_tasks_and_a_call_makes_so_many(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    for start in range(0, 1_200, 400):
        ledger.add([new(f"t{n:04}", kind="other", delay_ms=n) for n in range(start, start + 400)])
    ledger.add([new("last", delay_ms=5_000)])
    monkeypatch.setattr(steps, "MAX_STEPS", 2)
    asked = purge(Status.SCHEDULED, kind="work")
    first = ledger.bulk(QUEUE, asked)
    assert (first.tasks, first.next and first.next.id) == (0, "t0999")
    assert ledger.bulk(QUEUE, asked, first.next) == (1, None)


def test_a_step_changes_200_tasks_and_counts_500(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger.add([new(f"t{n}", delay_ms=n) for n in range(400)])
    monkeypatch.setattr(steps, "MAX_STEPS", 1)
    assert ledger.bulk(QUEUE, purge(Status.SCHEDULED, act=Act.COUNT)).tasks == 400
    assert ledger.bulk(QUEUE, cancel()).tasks == 200
    assert ledger.bulk(QUEUE, purge(Status.SCHEDULED)).tasks == 200
    assert ledger.stats(SHARD).scheduled == 0


def test_a_step_ends_where_the_bytes_of_its_records_do(ledger: Ledger) -> None:
    for n in range(3):
        ledger.add([new(f"t{n}", payload=LARGE, state='"' + "s" * 4_000 + '"', delay_ms=n)])
    assert sum(every(ledger, purge(Status.SCHEDULED))) == 3
    assert ledger.stats(SHARD).scheduled == 0


def test_a_tenants_tasks_are_nobody_elses(ledger: Ledger) -> None:
    for tenant in ("acme", "umbra"):
        ledger.add([new(f"t{n}", tenant=tenant, group="g", delay_ms=n) for n in range(3)])
    assert ledger.bulk(QUEUE, cancel(group="g"), tenant="acme").tasks == 3
    assert ledger.bulk(QUEUE, purge(Status.CANCELLED), tenant="umbra") == (0, None)
    assert ledger.bulk(QUEUE, purge(Status.CANCELLED), tenant="acme") == (3, None)
    assert left(ledger, "t0", "t1", "t2", tenant="umbra") == {"t0", "t1", "t2"}


def test_a_cancellation_is_that_of_one_task(ledger: Ledger) -> None:
    ledger.add([new("alone", delay_ms=LATER_MS), new("many", delay_ms=LATER_MS)])
    ledger.cancel(QUEUE, ["alone"], by="ops")
    assert ledger.bulk(QUEUE, cancel(), by="ops").tasks == 1
    assert replace(stored_task(ledger, "many"), id="alone", generation=0) == replace(
        stored_task(ledger, "alone"), generation=0
    )
    assert [entry.action for entry in stored_task(ledger, "many").log] == [Action.CANCELLED]
    assert bell(ledger) == 0


def test_what_runs_is_cancelled_where_that_is_asked_for_and_its_worker_is_too_late(ledger: Ledger) -> None:
    running = claim_one(ledger, "running")
    ledger.add([new("waiting", delay_ms=LATER_MS)])
    assert ledger.bulk(QUEUE, cancel()).tasks == 1
    assert stored_task(ledger, "running").status is Status.LEASED
    assert ledger.bulk(QUEUE, cancel(Status.LEASED, Status.SCHEDULED)).tasks == 1
    assert settle(ledger, running, Ending.DONE) is Settled.STALE
    assert stored_task(ledger, "running").status is Status.CANCELLED
    assert ledger.stats(SHARD).leased == 0


def test_a_pending_notification_is_left_alone_and_a_dead_one_is_purged(ledger_that_reports_deaths: Ledger) -> None:
    settle(ledger_that_reports_deaths, claim_one(ledger_that_reports_deaths, "a", notify="report"), Ending.DONE)
    assert ledger_that_reports_deaths.bulk(QUEUE, purge(Status.SCHEDULED)).tasks == 0
    assert ledger_that_reports_deaths.bulk(QUEUE, cancel()).tasks == 0
    (notification,) = claim(ledger_that_reports_deaths)
    settle(ledger_that_reports_deaths, notification, Ending.DROP, detail="no use")
    assert ledger_that_reports_deaths.bulk(QUEUE, purge(Status.DEAD)).tasks == 1
    assert left(ledger_that_reports_deaths, notification.id) == set()


def test_a_quota_counts_no_more_what_is_purged(ledger: Ledger) -> None:
    ledger.configure(QUEUE, {"tenant_max_pending": 2, "tenant_max_bytes": 500_000})
    asked = [new(id, tenant="acme", payload=LARGE, delay_ms=5) for id in ("a", "b", "c")]
    assert [one.reply for one in ledger.add(asked)] == [Reply.CREATED, Reply.CREATED, Reply.OVER_PENDING]
    assert ledger.bulk(QUEUE, purge(Status.SCHEDULED), tenant="acme").tasks == 2
    assert [one.reply for one in ledger.add(asked)] == [Reply.CREATED, Reply.CREATED, Reply.OVER_PENDING]


def test_a_place_of_a_shard_that_is_gone_is_the_end(ledger: Ledger) -> None:
    ledger.add([new("a", delay_ms=5)])
    assert ledger.bulk(QUEUE, purge(Status.SCHEDULED), BulkProgress(7, Status.SCHEDULED)) == (0, None)
    assert ledger.bulk(QUEUE, purge(Status.SCHEDULED), BulkProgress(0, Status.DEAD)) == (0, None)


@pytest.mark.parametrize("limit", [0, MAX_BULK + 1])
def test_a_limit_has_bounds(ledger: Ledger, limit: int) -> None:
    with pytest.raises(ValueError, match="one call is for 1 to"):
        ledger.bulk(QUEUE, purge(Status.DEAD, limit=limit))


def test_shards_without_tasks_are_no_end(sharded: Ledger) -> None:
    sharded.add([new("a", delay_ms=5)])
    assert sharded.shard_of(QUEUE, "a") != Shard(QUEUE, 0)
    assert sharded.bulk(QUEUE, purge(Status.SCHEDULED)) == (1, None)
