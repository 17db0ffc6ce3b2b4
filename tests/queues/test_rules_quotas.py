"""Quotas of a tenant: what is over them is rejected by name, and what was accepted is never lost by one."""

from collections.abc import Callable, Iterator, Sequence

import pytest

from duecourse.ledger.keys import keys_of
from duecourse.ledger.layout import INSIDE
from duecourse.ledger.many_tasks import Act, Bulk
from duecourse.ledger.operation_types import FORGET_MS, AddReply, Move, Reply, UniqueCondition
from duecourse.ledger.operations.ledger import Ledger
from duecourse.ledger.queue import Quotas, quotas_text
from duecourse.ledger.sharding import Sharding
from duecourse.ledger.task import Ending, NewTask, OnDuplicate, Shard, Status, Task
from tests.support.clock import HandClock
from tests.support.ledger import LATER_MS, LEASE_MS, SHARD, ending, new
from tests.support.stores import SHARDS, opened

PENDING, BYTES, ADDS = "tenant_max_pending", "tenant_max_bytes", "tenant_adds_per_minute"
OVER = {PENDING: Reply.OVER_PENDING, BYTES: Reply.OVER_BYTES, ADDS: Reply.OVER_ADDS}
BEYOND = {PENDING: Reply.BEYOND_PENDING, BYTES: Reply.BEYOND_BYTES, ADDS: Reply.BEYOND_ADDS}
PAYLOAD = f'"{"x" * 98}"'
SIZE = len(PAYLOAD)
LARGE = f'"{"x" * INSIDE}"'


def mine(id: str, **fields: object) -> NewTask:
    """A task of the tenant with a quota."""
    fields = {"tenant": "acme", "payload": PAYLOAD, "delay_ms": LATER_MS} | fields
    return new(id, **fields)


def add(ledger: Ledger, *tasks: NewTask) -> list[Reply]:
    return [one.reply for one in ledger.add(tasks)]


def run(ledger: Ledger) -> Sequence[Task]:
    """Claim what is due."""
    return ledger.claim(SHARD, 100, lease_ms=LEASE_MS).tasks


def end(ledger: Ledger, tasks: Sequence[Task], how: Ending = Ending.DONE, **fields: object) -> None:
    ledger.settle(SHARD, [ending(task, how, **fields) for task in tasks])


def sweep(ledger: Ledger, clock: HandClock) -> None:
    """Sweeps until nothing is left to do."""
    while ledger.sweep(SHARD, retention_ms=86_400_000).more:
        clock.advance(1)


def used(ledger: Ledger) -> int:
    """Bytes of the tenant with a quota."""
    field = ("HGET", keys_of("duecourse", SHARD).meta, "bytes:acme")
    return int(ledger._scripts.command(*field) or 0)  # type: ignore[attr-defined]


def room(ledger: Ledger, limit: str, most: int) -> int:
    """How much of a quota of so much is left, found by adding until it is used up; what was added is cancelled.

    Bytes, which cancelled tasks have too, are asked of the ledger, whose sum is compared with its records at the end.
    """
    if limit == BYTES:
        return (most * SIZE - used(ledger)) // SIZE
    ids = [f"probe{n}" for n in range(most + 1)]
    replies = add(ledger, *[mine(id, payload=PAYLOAD) for id in ids])
    assert set(replies) <= {Reply.CREATED, OVER[limit]}
    created = [id for id, reply in zip(ids, replies, strict=True) if reply is Reply.CREATED]
    assert set(ledger.cancel("default", created, tenant="acme")) <= {Reply.OK}
    return len(created)


@pytest.fixture(params=[PENDING, BYTES])
def limit(ledger: Ledger, request: pytest.FixtureRequest) -> str:
    """A quota with room for three tasks."""
    ledger.configure("default", {request.param: 3 * SIZE if request.param == BYTES else 3})
    return str(request.param)


def test_what_is_over_a_quota_is_rejected_and_the_rest_is_added(ledger: Ledger, limit: str) -> None:
    assert add(ledger, *[mine(id) for id in "abcd"]) == [Reply.CREATED] * 3 + [OVER[limit]]
    assert add(ledger, mine("e")) == [OVER[limit]]
    assert ledger.get("default", "d", "acme") is None
    assert add(ledger, mine("a")) == [Reply.KEPT], "what is there is there"


@pytest.mark.usefixtures("limit")
def test_another_tenant_and_the_one_without_a_name_are_not_concerned(ledger: Ledger) -> None:
    assert add(ledger, *[mine(id) for id in "abc"]) == [Reply.CREATED] * 3
    assert add(ledger, *[mine(id, tenant="other") for id in "abc"]) == [Reply.CREATED] * 3
    assert add(ledger, *[mine(id, tenant="-") for id in "abcdefgh"]) == [Reply.CREATED] * 8


@pytest.mark.parametrize("how", [Ending.DONE, Ending.DROP])
def test_the_end_of_a_task_makes_room_for_another_but_not_for_its_bytes(
    ledger: Ledger, clock: HandClock, limit: str, how: Ending
) -> None:
    add(ledger, *[mine(id, delay_ms=0) for id in "abc"])
    tasks = run(ledger)
    assert len(tasks) == 3
    assert add(ledger, mine("d")) == [OVER[limit]], "what runs is pending"
    end(ledger, tasks[:2], how)
    assert room(ledger, limit, 3) == (0 if limit == BYTES else 2)
    clock.advance(1_001)
    ledger.sweep(SHARD, retention_ms=1_000, dead_retention_ms=0)
    assert room(ledger, limit, 3) == 2, "what is forgotten counts no more"


def ended_by(ledger: Ledger, how: str) -> None:
    """Ends the task `a` in one of the ways there are."""
    if how == "cancelled":
        ledger.cancel("default", ["a"], tenant="acme")
        return
    [task] = run(ledger)
    end(ledger, [task], Ending.DROP if how == "dead" else Ending.DONE, result=PAYLOAD if how == "with a result" else "")


@pytest.mark.parametrize("how", ["done", "with a result", "dead", "cancelled"])
@pytest.mark.parametrize("payload", [PAYLOAD, LARGE], ids=["small", "large"])
def test_whatever_ended_keeps_its_bytes_and_its_result_until_it_is_forgotten(
    ledger: Ledger, clock: HandClock, how: str, payload: str
) -> None:
    size = len(payload) + (SIZE if how == "with a result" else 0)
    ledger.configure("default", {BYTES: size + SIZE})
    add(ledger, mine("a", delay_ms=0, payload=payload, notify="http://a.example/" if how == "done" else ""))
    ended_by(ledger, how)
    assert used(ledger) == size
    assert add(ledger, mine("b"), mine("c", payload="7")) == [Reply.CREATED, Reply.OVER_BYTES]
    clock.advance(1_001)
    ledger.sweep(SHARD, retention_ms=1_000, dead_retention_ms=1_000)
    clock.advance(1_001)
    ledger.sweep(SHARD, retention_ms=1_000, dead_retention_ms=1_000)
    assert used(ledger) == SIZE
    assert add(ledger, mine("c")) == [Reply.CREATED]


def test_results_of_many_tasks_count_together(ledger: Ledger) -> None:
    """Those that end the short way, by one settle."""
    ledger.configure("default", {BYTES: 10 * SIZE})
    add(ledger, *[mine(id, delay_ms=0, payload="7") for id in "abc"])
    end(ledger, run(ledger), result=PAYLOAD)
    assert used(ledger) == 3 * (SIZE + 1)
    for _ in range(2):
        ledger.move("default", [Move("a", delay_ms=LATER_MS, revive=True)], "acme")
        assert used(ledger) == 2 * (SIZE + 1) + 1, "what runs anew has no result"
    add(ledger, mine("b", payload="8"))
    assert used(ledger) == SIZE + 1 + 2, "what takes the place of a finished task has its bytes alone"


def test_a_dead_task_counts_once_however_often_it_is_replayed(ledger: Ledger) -> None:
    ledger.configure("default", {BYTES: SIZE})
    add(ledger, mine("a", delay_ms=0))
    for _ in range(3):
        end(ledger, run(ledger), Ending.DROP)
        assert ledger.replay("default", ["a"], "acme") == [Reply.OK]
        assert used(ledger) == SIZE
    end(ledger, run(ledger), Ending.DROP)
    ledger.cancel("default", ["a"], tenant="acme")
    assert used(ledger) == 0, "to delete what is dead makes room"


def test_a_cancelled_task_makes_room_and_so_does_one_that_is_taken_from_its_worker(ledger: Ledger, limit: str) -> None:
    add(ledger, mine("a"), *[mine(id, delay_ms=0) for id in "bc"])
    run(ledger)
    ledger.cancel("default", ["a", "b", "c"], tenant="acme")
    assert room(ledger, limit, 3) == (0 if limit == BYTES else 1)
    ledger.cancel("default", ["b", "c"], force=True, tenant="acme")
    assert room(ledger, limit, 3) == (0 if limit == BYTES else 3)


def test_a_task_that_is_past_its_deadline_or_dies_with_its_lease_makes_room(
    ledger: Ledger, clock: HandClock, limit: str
) -> None:
    add(ledger, mine("a", delay_ms=0, deadline_ms=5), *[mine(id, delay_ms=0, deadline_ms=500) for id in "bc"])
    clock.advance(6)
    assert [task.id for task in run(ledger)] == ["b", "c"]
    assert room(ledger, limit, 3) == (0 if limit == BYTES else 1)
    clock.advance(LEASE_MS)
    sweep(ledger, clock)
    sweep(ledger, clock)
    assert room(ledger, limit, 3) == (0 if limit == BYTES else 3)


@pytest.mark.parametrize("how", [Ending.AGAIN, Ending.RETRY, Ending.RELEASE])
def test_a_task_that_comes_again_is_never_rejected(ledger: Ledger, limit: str, how: Ending) -> None:
    add(ledger, *[mine(id, delay_ms=0) for id in "abc"])
    tasks = run(ledger)
    ledger.configure("default", {limit: SIZE if limit == BYTES else 1})
    end(ledger, tasks, how, delay_ms=LATER_MS)
    assert ledger.stats(SHARD).scheduled == 3
    assert add(ledger, mine("d")) == [OVER[limit]]
    assert ledger.move("default", [Move(id, delay_ms=1) for id in "abc"], "acme") == [Reply.OK] * 3


def test_a_replacement_counts_as_what_it_replaces(ledger: Ledger, limit: str) -> None:
    add(ledger, *[mine(id) for id in "abc"])
    for mode in (OnDuplicate.REPLACE, OnDuplicate.DEBOUNCE):
        replies = add(ledger, mine("a", on_duplicate=mode), mine("b", on_duplicate=mode, payload="7"))
        assert OVER[limit] not in replies
    assert add(ledger, mine("d")) == [OVER[limit]], "b alone is smaller now"
    ledger.cancel("default", ["a"], tenant="acme")
    assert room(ledger, limit, 3) == (0 if limit == BYTES else 1)


def test_what_replaces_a_running_task_counts_until_it_ends(ledger: Ledger, limit: str) -> None:
    add(ledger, mine("a", delay_ms=0), mine("b"))
    [running] = run(ledger)
    assert add(ledger, mine("a", on_duplicate=OnDuplicate.REPLACE, delay_ms=0)) == [Reply.REPLACED]
    assert room(ledger, limit, 3) == (1 if limit == PENDING else 0)
    end(ledger, [running])
    assert room(ledger, limit, 3) == 1
    end(ledger, run(ledger))
    assert room(ledger, limit, 3) == (1 if limit == BYTES else 2)


def test_a_replay_over_a_quota_is_rejected_and_the_task_stays_dead(ledger: Ledger) -> None:
    ledger.configure("default", {PENDING: 3})
    add(ledger, *[mine(id, delay_ms=0) for id in "abc"])
    end(ledger, run(ledger), Ending.DROP)
    add(ledger, mine("d"))
    assert ledger.replay("default", ["a", "b", "c"], "acme") == [Reply.OK, Reply.OK, Reply.OVER_PENDING]
    assert ledger.stats(SHARD).dead == 1
    ledger.cancel("default", ["d"], tenant="acme")
    assert ledger.replay("default", ["c"], "acme") == [Reply.OK]


def test_a_notification_is_added_whatever_the_quota_says(ledger_that_reports_deaths: Ledger) -> None:
    ledger_that_reports_deaths.configure("default", {PENDING: 1, BYTES: SIZE, ADDS: 1})
    add(ledger_that_reports_deaths, mine("a", delay_ms=0, notify="http://a.example/"))
    end(ledger_that_reports_deaths, run(ledger_that_reports_deaths), Ending.DROP)
    assert ledger_that_reports_deaths.stats(SHARD).scheduled == 2


def test_a_purge_makes_room(ledger: Ledger) -> None:
    ledger.configure("default", {BYTES: 4 * SIZE})
    add(ledger, *[mine(id, delay_ms=0, payload=PAYLOAD) for id in "ab"])
    end(ledger, run(ledger), result=PAYLOAD)
    assert add(ledger, mine("c")) == [Reply.OVER_BYTES]
    assert ledger.bulk("default", Bulk(Act.DELETE, (Status.DONE,)), tenant="acme").tasks == 2
    assert used(ledger) == 0
    assert add(ledger, mine("c")) == [Reply.CREATED]


def test_what_is_added_as_one_is_added_or_not(ledger: Ledger, limit: str) -> None:
    group = [mine(id, group="g") for id in "abcd"]
    add(ledger, mine("other"))
    rejected = ledger.add(group[:3], unique=UniqueCondition("g", 0))
    assert [one.reply for one in rejected] == [OVER[limit]] * 3
    ledger.configure("default", {limit: 4 * SIZE if limit == BYTES else 4})
    assert ledger.group("default", "g", "acme") == []
    assert [one.reply for one in ledger.add(group[:3], unique=UniqueCondition("g", 0))] == [Reply.CREATED] * 3


def test_what_was_sent_again_because_its_reply_was_lost_counts_once(ledger: Ledger, limit: str) -> None:
    for _ in range(3):
        assert add(ledger, mine("a"))[0] in {Reply.CREATED, Reply.KEPT}
    assert room(ledger, limit, 3) == 2


def test_large_payloads_count_where_they_are(ledger: Ledger) -> None:
    ledger.configure("default", {BYTES: 2 * len(LARGE)})
    large = [mine(id, payload=LARGE, delay_ms=0) for id in "abc"]
    assert add(ledger, *large) == [Reply.CREATED, Reply.CREATED, Reply.OVER_BYTES]
    end(ledger, run(ledger), Ending.DROP)
    assert ledger.replay("default", ["a"], "acme") == [Reply.OK]
    assert add(ledger, large[2]) == [Reply.OVER_BYTES]
    ledger.cancel("default", ["b"], tenant="acme")
    assert add(ledger, large[2], mine("d")) == [Reply.CREATED, Reply.OVER_BYTES]


def test_a_quota_of_bytes_counts_what_was_there_before_once_a_sweep_has_been_there(
    ledger: Ledger, clock: HandClock
) -> None:
    add(ledger, mine("a"), *[mine(id, delay_ms=0) for id in "bc"])
    end(ledger, run(ledger)[:1])
    ledger.configure("default", {BYTES: 4 * SIZE})
    sweep(ledger, clock)
    assert room(ledger, BYTES, 4) == 1
    ledger.configure("default", {BYTES: None})
    sweep(ledger, clock)
    add(ledger, mine("d"))
    ledger.configure("default", {BYTES: 5 * SIZE})
    sweep(ledger, clock)
    assert room(ledger, BYTES, 5) == 1


def test_so_many_adds_come_at_once_and_then_one_by_one(ledger: Ledger, clock: HandClock) -> None:
    ledger.configure("default", {ADDS: 6})
    assert add(ledger, *[mine(f"t{n}") for n in range(7)]) == [Reply.CREATED] * 6 + [Reply.OVER_ADDS]
    [rejected] = ledger.add([mine("t6")])
    assert (rejected.reply, rejected.wait_ms) == (Reply.OVER_ADDS, 10_000)
    clock.advance(rejected.wait_ms - 1)
    assert add(ledger, mine("t6")) == [Reply.OVER_ADDS]
    clock.advance(1)
    assert add(ledger, mine("t6"), mine("t7")) == [Reply.CREATED, Reply.OVER_ADDS]
    assert add(ledger, mine("t0", on_duplicate=OnDuplicate.REPLACE)) == [Reply.OVER_ADDS], "a replacement is one too"
    assert add(ledger, mine("t0")) == [Reply.KEPT]
    clock.advance(60_000)
    assert add(ledger, *[mine(f"u{n}") for n in range(7)]) == [Reply.CREATED] * 6 + [Reply.OVER_ADDS]


def test_a_minute_that_is_past_leaves_nothing_behind(ledger: Ledger, clock: HandClock) -> None:
    ledger.configure("default", {ADDS: 6})
    tenants = [f"t{n}" for n in range(700)]
    for tenant in tenants:
        add(ledger, mine("a", tenant=tenant))
    clock.advance(30_000)
    add(ledger, mine("b", tenant="late"))
    clock.advance(35_000)
    for _ in range(6):
        sweep(ledger, clock)
    meta = ledger._scripts.command("HGETALL", "duecourse:{default/0}:meta")  # type: ignore[attr-defined]
    assert [name for name in meta if name.startswith(b"adds:")] == []


def test_a_clock_that_is_put_back_stops_no_adds(ledger: Ledger, clock: HandClock) -> None:
    ledger.configure("default", {ADDS: 2})
    add(ledger, mine("a"), mine("b"))
    clock.advance(-3_600_000)
    assert add(ledger, *[mine(id) for id in "cde"]) == [Reply.CREATED, Reply.CREATED, Reply.OVER_ADDS]


@pytest.mark.parametrize("name", [PENDING, BYTES, ADDS])
def test_each_shard_has_its_part_and_no_more_than_all_are_added(sharded: Ledger, name: str) -> None:
    whole = 2 * SHARDS + 3
    sharded.configure("default", {name: whole * SIZE if name == BYTES else whole})
    answers: list[AddReply] = sharded.add([mine(f"t{n}") for n in range(40 * SHARDS)])
    created = [one for one in answers if one.reply is Reply.CREATED]
    assert len(created) == (whole if name != BYTES else len(created))
    assert 2 * SHARDS <= len(created) <= whole
    assert {one.reply for one in answers} == {Reply.CREATED, OVER[name]}


@pytest.mark.parametrize("quota", [PENDING, BYTES, ADDS])
def test_done_tasks_that_a_move_schedules_again_are_adds(ledger: Ledger, quota: str) -> None:
    ids = [f"g{number}" for number in range(6)]
    for some in (ids[:3], ids[3:]):
        assert add(ledger, *[mine(id, delay_ms=0, group="g") for id in some]) == [Reply.CREATED] * 3
        end(ledger, run(ledger))
    add(ledger, mine("other"))
    ledger.configure("default", {quota: 5 * SIZE + 1 if quota == BYTES else 6})
    add(ledger, mine("other", on_duplicate=OnDuplicate.REPLACE, payload="7"))
    again = [Move(id, delay_ms=LATER_MS, revive=True) for id in ids]
    assert ledger.move("default", again, "acme", group="g") == [OVER[quota]] * 6
    assert ledger.stats(SHARD).done == 6, "all or nothing"
    assert ledger.move("default", again[:5], "acme", group="g") == [Reply.OK] * 5
    assert ledger.move("default", again[:5], "acme", group="g") == [Reply.OK] * 5, "what is scheduled only moves"
    assert add(ledger, mine("h")) == [OVER[quota]]


def test_what_is_more_than_a_whole_quota_is_answered_so(ledger: Ledger, limit: str) -> None:
    """No wait makes room for it, so whoever is told to wait would wait for ever."""
    if limit == BYTES:
        alone = mine("x", payload=f'"{"x" * 3 * SIZE}"')
        assert add(ledger, alone, mine("a")) == [Reply.BEYOND_BYTES, Reply.CREATED]
        assert add(ledger, mine("a", payload=alone.payload, on_duplicate=OnDuplicate.REPLACE)) == [Reply.BEYOND_BYTES]
    four = [mine(f"g{n}", group="g") for n in range(4)]
    assert {one.reply for one in ledger.add(four, unique=UniqueCondition("g", 0))} == {BEYOND[limit]}
    assert ledger.group("default", "g", "acme") == []


def test_more_adds_at_once_than_a_minute_has_are_answered_so(ledger: Ledger, clock: HandClock) -> None:
    group = [mine(f"g{n}", group="g", delay_ms=0) for n in range(4)]
    ledger.configure("default", {ADDS: 3})
    assert {one.reply for one in ledger.add(group, unique=UniqueCondition("g", 0))} == {Reply.BEYOND_ADDS}
    assert add(ledger, *group) == [Reply.CREATED] * 3 + [Reply.OVER_ADDS], "one by one they are not too many"
    clock.advance(60_000)
    add(ledger, group[3])
    end(ledger, run(ledger))
    clock.advance(60_000)
    again = [Move(one.id, delay_ms=LATER_MS, revive=True) for one in group]
    assert ledger.move("default", again, "acme", group="g") == [Reply.BEYOND_ADDS] * 4
    assert ledger.stats(SHARD).done == 4


def test_the_first_group_of_a_shard_is_counted_once(ledger: Ledger) -> None:
    """A shard is registered between two tries of its first add."""
    ledger.configure("default", {ADDS: 3})
    group = [mine(id, group="g") for id in "ab"]
    assert [one.reply for one in ledger.add(group, unique=UniqueCondition("g", 0))] == [Reply.CREATED] * 2
    assert add(ledger, mine("c"), mine("d")) == [Reply.CREATED, Reply.OVER_ADDS]


@pytest.mark.usefixtures("limit")
def test_the_same_group_made_again_gives_up_the_bytes_of_what_was_sent(ledger: Ledger) -> None:
    group = [mine(id, group="g", delay_ms=0, on_duplicate=OnDuplicate.REPLACE) for id in "abc"]
    for _ in range(3):
        newest = max((one.generation for one in ledger.group("default", "g", "acme")), default=0)
        assert [one.reply for one in ledger.add(group, unique=UniqueCondition("g", newest))] == [Reply.CREATED] * 3
        end(ledger, run(ledger))


# The deployment's. ----------------------------------------------------------------------------------------------------


def table(pending: int | None = None, size: int | None = None, adds: int | None = None) -> Quotas:
    return Quotas(pending, None if size is None else size * SIZE, adds)


WIDE = {"-": table(2), "acme": table(3), "free": table()}


@pytest.fixture
def opening(
    kind_of_store: str, request: pytest.FixtureRequest, clock: HandClock
) -> Iterator[Callable[[dict[str, Quotas]], Ledger]]:
    """Opens the same empty store for a deployment with these quotas, again and again."""
    opener = opened(kind_of_store, request, clock, Sharding())
    ledger = next(opener)

    def open_with(quotas: dict[str, Quotas]) -> Ledger:
        options = {"sharding": Sharding(), "travel": clock, "quotas": quotas_text(quotas)}
        return Ledger(ledger._client, **options)  # type: ignore[attr-defined]

    yield open_with
    next(opener, None)


Opening = Callable[[dict[str, Quotas]], Ledger]


def count_room(ledger: Ledger, tenant: str, queue: str = "default") -> int:
    """How many of ten tasks a tenant may add."""
    replies = add(ledger, *[mine(f"t{n}", tenant=tenant, queue=queue) for n in range(10)])
    assert set(replies) <= {Reply.CREATED, Reply.OVER_PENDING}
    return replies.count(Reply.CREATED)


def test_a_deployments_quotas_hold_in_each_queue_from_its_first_add_on(opening: Opening) -> None:
    ledger = opening(WIDE)
    for queue in ("default", "any", "other"):
        assert [count_room(ledger, one, queue) for one in ("who", "acme", "free", "-")] == [2, 3, 10, 10]


def test_a_queues_own_quota_goes_before_the_deployments(opening: Opening) -> None:
    ledger = opening({"-": table(2, size=100), "acme": table(9, size=100)})
    ledger.configure("default", {PENDING: 4})
    assert [count_room(ledger, one) for one in ("who", "acme", "-")] == [4, 4, 10]
    assert ledger.settings_of(["default"])[0].tenant_max_pending == 4
    ledger.configure("default", {PENDING: None})
    assert add(ledger, mine("more", tenant="who")) == [Reply.OVER_PENDING]
    assert add(ledger, mine("more")) == [Reply.CREATED], "its deployment gives it nine"
    assert add(ledger, mine("x", tenant="who", payload=f'"{"x" * 100 * SIZE}"')) == [Reply.BEYOND_BYTES]


def test_a_change_of_a_deployments_quotas_holds_from_the_next_sweep_on(opening: Opening, clock: HandClock) -> None:
    add(opening({}), mine("a"), mine("b"))
    for quotas, third in (({"-": table(size=2)}, Reply.OVER_BYTES), ({"acme": table(size=3)}, Reply.CREATED)):
        ledger = opening(quotas)
        sweep(ledger, clock)
        assert used(ledger) == 2 * SIZE, "what was there is counted"
        assert add(ledger, mine("c")) == [third]


def test_without_a_deployments_quotas_nothing_is_left_of_them(opening: Opening, clock: HandClock) -> None:
    add(opening({"-": table(3, size=3, adds=3)}), mine("a"))
    ledger = opening({})
    sweep(ledger, clock)
    meta = ledger._scripts.command("HGETALL", keys_of("duecourse", SHARD).meta)  # type: ignore[attr-defined]
    assert not {b"default_quotas", b"quotas", b"bytes:acme"} & meta.keys()
    assert count_room(ledger, "acme") == 10


def test_a_queue_with_the_deployments_quotas_alone_is_forgotten(opening: Opening, clock: HandClock) -> None:
    ledger = opening(WIDE)
    add(ledger, mine("a", delay_ms=0, queue="any"))
    for _ in range(6):
        while tasks := ledger.claim(Shard("any"), 10, lease_ms=LEASE_MS).tasks:
            ledger.settle(Shard("any"), [ending(task, Ending.DONE) for task in tasks])
        ledger.sweep(Shard("any"), retention_ms=0)
        clock.advance(FORGET_MS)
    assert Shard("any") not in ledger.shards()
    assert count_room(ledger, "who", "any") == 2, "they hold when it is there again"
