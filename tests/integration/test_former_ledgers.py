"""Ledgers that earlier versions wrote to Redis, as RDB files: read, worked on, rewritten."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from duecourse.domain.notification import is_notification
from duecourse.domain.outcomes import Ending, Settlement
from duecourse.domain.pages import Wanted
from duecourse.domain.task import NewTask, OnDuplicate, Shard, Status, Task
from duecourse.ports.leases import Lease, Settled
from duecourse.ports.tasks import Move, Reply
from tests.support import redis_ledger
from tests.support.former import VERSIONS, Former, former_ledger, told
from tests.support.ledger_model import ADD
from tests.support.redis_server import SERVERS

SHARD = Shard()
LEASE_MS = 30_000


@pytest.fixture(params=VERSIONS)
def version(request: pytest.FixtureRequest) -> str:
    """The trees that wrote the ledgers."""
    return str(request.param)


@pytest.fixture(params=SERVERS, ids=lambda binary: f"redis-{binary}")
def former(request: pytest.FixtureRequest, version: str) -> Iterator[Former]:
    """The ledger on a server of its own, whose keys agree with one another afterwards."""
    with former_ledger(version, request.param) as ledger:
        yield ledger
        redis_ledger.check(ledger.client, SHARD)


def settle(former: Former, task: Task, how: Ending, **fields: Any) -> Settled:
    return former.store.settle(SHARD, [Settlement(task.id, task.tenant, task.token, how, **fields)])[0]


def lease_of(task: Task) -> Lease:
    return Lease(task.id, task.token, task.tenant)


def test_every_task_is_shown_as_its_own_version_showed_it(former: Former) -> None:
    tasks = former.shown["tasks"]
    assert {id: told(former.get(id)) for id in tasks} == tasks
    paged = [
        task
        for tenant in "-b"
        for status in Status
        for task in former.store.page("default", Wanted(status=status), None, 100, tenant).tasks
    ]
    assert {task.id: told(task) for task in paged} == tasks
    assert list(former.store.stats(SHARD)[:4]) == former.shown["stats"]
    assert [task.id for task in former.store.group("default", "g")] == former.shown["group"]


def test_due_and_lapsed_tasks_of_it_are_claimed_and_settled(former: Former) -> None:
    claimed: list[Task] = []
    while more := former.store.claim(SHARD, 5, lease_ms=LEASE_MS).tasks:
        claimed += more
    assert {"due", "due-big", "lapsing", "lapsing-big"} <= {task.id for task in claimed}
    tasks = former.shown["tasks"]
    assert {task.id: len(task.payload_json) for task in claimed} == {
        task.id: tasks[task.id]["payload"] for task in claimed
    }
    assert {settle(former, task, Ending.DONE) for task in claimed} == {Settled.DONE}


@pytest.mark.parametrize(
    ("how", "settled"),
    [
        (Ending.DONE, Settled.DONE),
        (Ending.AGAIN, Settled.AGAIN),
        (Ending.RETRY, Settled.RETRIED),
        (Ending.DROP, Settled.DEAD),
        (Ending.RELEASE, Settled.RELEASED),
    ],
)
def test_a_lease_that_it_gave_is_extended_saved_and_settled(former: Former, how: Ending, settled: Settled) -> None:
    held = [task for task in former.every(Status.LEASED) if task.lease_expires_at > former.clock.at]
    assert len(held) >= 6
    assert former.store.extend(SHARD, list(map(lease_of, held)), LEASE_MS) == [former.clock.at + LEASE_MS] * len(held)
    assert all(former.store.save(SHARD, lease_of(task), '{"kept":1}') for task in held)
    assert {former.get(task.id).payload_json for task in held} == {task.payload_json for task in held}
    assert [settle(former, task, how, delay_ms=5) for task in held] == [settled] * len(held)
    assert [settle(former, task, how, delay_ms=5) for task in held] == [settled] * len(held), "answered as before"
    after = former.get("succeeded")
    assert (after.status, after.group) == (Status.SCHEDULED, "h"), "the replacement that waited has its place"


def test_a_delivery_that_it_handed_over_is_begun(former: Former) -> None:
    handed = [task for task in former.every(Status.LEASED) if task.target]
    begun = former.store.begin(SHARD, list(map(lease_of, handed)), LEASE_MS, [b"8 random"] * len(handed))
    assert all(one.token for one in begun)
    ran = [replace(task, token=one.token) for task, one in zip(handed, begun, strict=True)]
    assert [settle(former, task, Ending.DONE) for task in ran] == [Settled.DONE] * len(handed)


@pytest.mark.parametrize("force", [False, True])
def test_what_is_scheduled_in_it_is_moved_and_cancelled(former: Former, force: bool) -> None:
    states = (Status.SCHEDULED, Status.LEASED) if force else (Status.SCHEDULED,)
    tasks = former.every(*states)
    by_tenant = {tenant: [task for task in tasks if task.tenant == tenant] for tenant in "-b"}
    for tenant, some in by_tenant.items():
        moves = [Move(task.id, delay_ms=7_000, force=force, by="me") for task in some]
        assert former.store.move("default", moves, tenant) == [Reply.OK] * len(some)
    due_at = former.clock.at + 7_000
    assert {former.get(task.id).due_at for task in tasks} == {due_at}
    assert [len(former.get(task.id).payload_json) for task in tasks] == [len(task.payload_json) for task in tasks]
    redis_ledger.check(former.client, SHARD)
    for tenant, some in by_tenant.items():
        ids = [task.id for task in some]
        assert former.store.cancel("default", ids, tenant=tenant, force=force) == [Reply.OK] * len(some)
    assert {former.get(task.id).status for task in tasks} == {Status.CANCELLED}


def test_the_dead_of_it_are_replayed_and_what_is_done_is_revived(former: Former) -> None:
    dead, done = former.every(Status.DEAD), former.every(Status.DONE)
    assert former.store.replay("default", [task.id for task in dead]) == [Reply.OK] * len(dead)
    revived = [Move(task.id, revive=True) for task in done]
    assert former.store.move("default", revived) == [Reply.OK] * len(done)
    claimed: dict[str, Task] = {}
    while more := former.store.claim(SHARD, 500, lease_ms=LEASE_MS).tasks:
        claimed |= {task.id: task for task in more}
    for task in [*dead, *done]:
        assert claimed[task.id].payload_json == task.payload_json


def test_what_ended_in_it_is_forgotten(former: Former) -> None:
    former.clock.advance(LEASE_MS)
    while former.store.sweep(SHARD, retention_ms=0, dead_retention_ms=None).more:
        pass
    ended = [id for id, one in former.shown["tasks"].items() if one["status"] in ("done", "cancelled")]
    assert [former.store.get("default", id) for id in ended] == [None] * len(ended)


@pytest.mark.parametrize("mode", OnDuplicate)
def test_an_add_over_a_task_of_it_is_answered_by_its_state(former: Former, mode: OnDuplicate) -> None:
    tasks = [task for task in former.every(*Status) if not is_notification(task.id)]
    for before in tasks:
        added = NewTask(before.id, "new", '{"new":1}', delay_ms=9_000, tenant=before.tenant, on_duplicate=mode)
        [answer] = former.store.add([added])
        ended = before.status in (Status.DONE, Status.CANCELLED)
        reply = Reply.CREATED if ended else ADD[mode][before.status]
        assert answer.reply == reply, before.id
        waits = reply is Reply.REPLACED and before.status is Status.LEASED
        fresh = reply in (Reply.CREATED, Reply.DEBOUNCED, Reply.REPLACED) and not waits
        assert former.get(before.id).payload_json == ('{"new":1}' if fresh else before.payload_json)
