"""However tasks leave a queue, nothing of them stays in any key: an emptied ledger is like one that had none."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from duecourse.ledger import script_calls
from duecourse.ledger.connect import Client, connect
from duecourse.ledger.embedded.ledger import EmbeddedLedger
from duecourse.ledger.keys import keys_of, shards_key
from duecourse.ledger.many_tasks import Act, Bulk
from duecourse.ledger.operation_types import FORGET_MS, Delivery, Move, Waited
from duecourse.ledger.operations.base import ScriptRunner
from duecourse.ledger.operations.completions import TRAVELLING_MS
from duecourse.ledger.operations.ledger import Ledger
from duecourse.ledger.queue import QueueSettings, Rate
from duecourse.ledger.schedule import TENANT as SCHEDULES
from duecourse.ledger.schedule import Overlap
from duecourse.ledger.sharding import Sharding
from duecourse.ledger.task import Ending, NewTask, OnDuplicate, RetryPolicy, Shard, Status, Task
from tests.support.clock import HandClock
from tests.support.empty_ledger import STAY
from tests.support.ledger import LATER_MS, LEASE_MS, SHARD, ending, lease_of, new, settle, stored_task
from tests.support.schedules import MINUTE, fire, kept, put
from tests.support.stores import opened, servers

QUEUE = SHARD.queue
TENANTS = ("-", "acme", "globex", SCHEDULES)
HOUR_MS = 3_600_000
KEPT_MS = 100_000 * HOUR_MS
TARGET = "lambda:report"
LARGE = '"' + 3_000 * "x" + '"'
NONCES = count(1)
FORGOTTEN = {b"fence", b"layout", b"clock", b"bell_at", b"leaving"}
"""Fields of meta that are left of a queue that is forgotten: two are of the clock that travels, the last is a mark."""


class Scene:
    """A ledger, and what a test does to it."""

    def __init__(self, ledger: Ledger, clock: HandClock, client: Client) -> None:
        self.ledger = ledger
        self.clock = clock
        self.client = client

    def add(self, *tasks: NewTask) -> None:
        self.ledger.add(list(tasks))

    def claim(self, limit: int = 100, most: int = 100, **more: Any) -> list[Task]:
        """Claim all kinds; those of kind `report` are handed over."""
        deliveries = {"report": Delivery(TARGET, most, LEASE_MS)}
        return self.ledger.claim(SHARD, limit, lease_ms=LEASE_MS, deliveries=deliveries, **more).tasks

    def begin(self, task: Task) -> Task:
        [begun] = self.ledger.begin(SHARD, [lease_of(task)], LEASE_MS, [next(NONCES).to_bytes(8)])
        return replace(task, token=begun.token, target="", delivery=task.token)

    def work(self, how: Ending = Ending.DONE, **fields: Any) -> int:
        """Claim and settle everything that is due, and answer how many tasks that were."""
        tasks = [self.begin(task) if task.target else task for task in self.claim()]
        for task in tasks:
            settle_as(self.ledger, task, how, **fields)
        return len(tasks)

    def sweep(self, retention_ms: int = HOUR_MS) -> None:
        while self.ledger.sweep(SHARD, retention_ms=retention_ms, dead_retention_ms=retention_ms).more:
            pass

    def cancel(self, *ids: str, tenant: str = "-", force: bool = False) -> None:
        self.ledger.cancel(QUEUE, list(ids), tenant=tenant, force=force)

    def bulk(self, act: Act, *statuses: Status, tenant: str = "-") -> None:
        self.ledger.bulk(QUEUE, Bulk(act, statuses, limit=1_000), tenant=tenant)

    def verbs(self) -> ScriptRunner:
        return ScriptRunner(self.client, "duecourse", Sharding(), self.clock)

    def lapse(self) -> None:
        """Wait until leases have lapsed; those of a shard that nobody looked at are given some seconds more."""
        for _ in range(2):
            self.wait(HOUR_MS)
            self.sweep(KEPT_MS)

    def wait(self, ms: int) -> None:
        self.clock.advance(ms)


def settle_as(ledger: Ledger, task: Task, how: Ending, **fields: Any) -> None:
    ledger.settle(SHARD, [ending(task, how, **fields)])


Way = Callable[[Scene], None]
WAYS: dict[str, tuple[Way, frozenset[str]]] = {}


def way(*verbs: str) -> Callable[[Way], Way]:
    """Enter a way to empty a queue in the table, with the scripts by which tasks leave in it."""

    def enter(act: Way) -> Way:
        WAYS[act.__name__] = (act, frozenset(verbs))
        return act

    return enter


# Tasks that were put aside: nobody has their kind (a to d), or their target has no room (r to u).


def put_aside(scene: Scene, ids: str = "abcd", **fields: Any) -> None:
    scene.add(*(new(id, **{"kind": "ghost", "group": "g"} | fields) for id in ids))
    assert scene.claim(kinds=["work"]) == []


def no_room(scene: Scene, ids: str = "rstu", **fields: Any) -> Task:
    scene.add(*(new(id, **{"kind": "report"} | fields) for id in ids))
    [task] = scene.claim(most=1)
    return task


@way("cancel")
def put_aside_and_cancelled(scene: Scene) -> None:
    put_aside(scene)
    scene.cancel(*"abcd")


@way("bulk")
def put_aside_and_deleted(scene: Scene) -> None:
    put_aside(scene)
    put_aside(scene, tenant="acme")
    scene.bulk(Act.DELETE, Status.SCHEDULED)
    scene.bulk(Act.DELETE, Status.SCHEDULED, tenant="acme")


@way("bulk")
def put_aside_and_cancelled_in_bulk(scene: Scene) -> None:
    put_aside(scene)
    scene.bulk(Act.CANCEL, Status.SCHEDULED)


@way("claim")
def put_aside_past_the_deadline(scene: Scene) -> None:
    put_aside(scene, deadline_ms=1_000)
    scene.wait(LEASE_MS)
    assert scene.claim(kinds=["work"]) == []


@way("move")
def put_aside_and_moved(scene: Scene) -> None:
    put_aside(scene)
    scene.ledger.move(QUEUE, [Move(id, delay_ms=HOUR_MS) for id in "abcd"])
    scene.wait(HOUR_MS)
    assert scene.work() == 4


@way("move", "cancel")
def put_aside_and_moved_to_the_same_time_again_and_again(scene: Scene) -> None:
    at = scene.clock.at
    put_aside(scene)
    for _ in range(3):
        scene.wait(1)
        scene.ledger.move(QUEUE, [Move(id, at) for id in "abcd"])
        assert scene.claim(kinds=["work"]) == []
    scene.sweep()
    assert len(scene.client.zrange(keys_of("duecourse", SHARD).waiting, 0, -1)) == 4
    scene.cancel(*"abcd")


@way("add")
def put_aside_and_replaced(scene: Scene) -> None:
    put_aside(scene)
    scene.add(*(new(id, on_duplicate=OnDuplicate.REPLACE) for id in "abcd"))
    assert scene.work() == 4


@way("add")
def put_aside_and_debounced(scene: Scene) -> None:
    put_aside(scene)
    how = {"on_duplicate": OnDuplicate.DEBOUNCE, "delay_ms": 5_000, "max_wait_ms": HOUR_MS}
    scene.add(*(new(id, kind="ghost", **how) for id in "abcd"))
    scene.wait(5_000)
    assert scene.work() == 4


@way("take")
def put_aside_and_taken(scene: Scene) -> None:
    put_aside(scene, "a", group="")
    task = scene.ledger.take(QUEUE, "a", lease_ms=LEASE_MS)
    assert task
    settle(scene.ledger, task, Ending.DONE)


@way("take", "settle")
def put_aside_taken_and_given_back(scene: Scene) -> None:
    put_aside(scene, "a", group="")
    for _ in range(3):
        task = scene.ledger.take(QUEUE, "a", lease_ms=LEASE_MS)
        assert task
        settle(scene.ledger, task, Ending.RELEASE)
        scene.wait(1)
        assert scene.claim(kinds=["work"]) == []
    scene.cancel("a")


@way("drop")
def put_aside_and_gone_to_another_shard(scene: Scene) -> None:
    put_aside(scene)
    scene.verbs().run("drop", SHARD, ["-"], [f"-/{id}" for id in "abcd"])


@way("claim")
def put_aside_and_worked_by_whoever_has_the_kind(scene: Scene) -> None:
    put_aside(scene)
    scene.wait(LEASE_MS)
    assert scene.work() == 4


@way("claim", "begin")
def put_aside_and_handed_over(scene: Scene) -> None:
    put_aside(scene, kind="mail")
    handed = scene.ledger.claim(
        SHARD, 9, lease_ms=LEASE_MS, deliveries={"mail": Delivery(TARGET, 9, 1)}, kinds=["work"]
    )
    for task in handed.tasks:
        settle(scene.ledger, scene.begin(task), Ending.DONE)
    assert len(handed.tasks) == 4


@way("cancel")
def without_room_and_cancelled(scene: Scene) -> None:
    settle(scene.ledger, no_room(scene), Ending.RELEASE)
    scene.cancel(*"rstu")


@way("bulk")
def without_room_and_deleted_for_two_tenants(scene: Scene) -> None:
    first, second = no_room(scene, tenant="acme"), None
    scene.add(new("v", kind="report", tenant="globex"), new("w", kind="report", tenant="globex"))
    second = scene.claim(most=1)
    assert second == []
    for tenant in ("acme", "globex"):
        scene.bulk(Act.DELETE, Status.SCHEDULED, tenant=tenant)
    settle(scene.ledger, first, Ending.DONE)


@way("claim", "begin")
def without_room_until_there_is_some(scene: Scene) -> None:
    settle(scene.ledger, scene.begin(no_room(scene)), Ending.DONE)
    assert scene.work() == 3


@way("mend")
def put_aside_mended_and_cancelled(scene: Scene) -> None:
    put_aside(scene)
    scene.verbs().run("mend", SHARD, ["-"], (LEASE_MS, 1, *(f"-/{id}" for id in "abcd")))
    scene.cancel(*"abcd")


# Ends of runs


@way("settle")
def done(scene: Scene) -> None:
    scene.add(*(new(id, group="g", payload=LARGE, tenant=tenant) for id in "ab" for tenant in ("-", "acme")))
    assert scene.work(result='"r"') + scene.work(result='"r"') == 4


@way("settle")
def given_up(scene: Scene) -> None:
    scene.add(new("a", group="g"), new("b", payload=LARGE))
    assert scene.work(Ending.DROP) == 2


@way("settle")
def dead_after_all_attempts(scene: Scene) -> None:
    scene.add(new("a"))
    while scene.work(Ending.RETRY):
        scene.wait(HOUR_MS)
    assert stored_task(scene.ledger).status is Status.DEAD


@way("settle", "cancel")
def run_again_and_cancelled(scene: Scene) -> None:
    scene.add(new("a", group="g"))
    assert scene.work(Ending.AGAIN, delay_ms=LATER_MS, state='"s"') == 1
    scene.cancel("a")


@way("settle", "cancel")
def released_and_cancelled(scene: Scene) -> None:
    scene.add(new("a"))
    assert scene.work(Ending.RELEASE) == 1
    scene.cancel("a")


@way("settle", "begin")
def failed_in_a_function_that_has_time_for_few(scene: Scene) -> None:
    scene.add(new("a", kind="report", retry=RetryPolicy(1, 1, 1.0, 1, jitter=False)))
    [task] = scene.claim()
    [begun] = scene.ledger.begin(SHARD, [lease_of(task)], LEASE_MS, [next(NONCES).to_bytes(8)], each=3)
    settle(scene.ledger, replace(task, token=begun.token), Ending.RETRY)
    assert stored_task(scene.ledger).status is Status.DEAD


@way("claim")
def claimed_ahead_until_dead(scene: Scene) -> None:
    scene.add(new("a", group="g", tenant="acme"))
    for _ in range(50):
        scene.claim(at_once=0)
        scene.lapse()
    [ended] = [task for task in [scene.ledger.get(QUEUE, "a", "acme")] if task]
    assert ended.status is Status.DEAD


@way("settle", "claim")
def undelivered_until_dead(scene: Scene) -> None:
    scene.add(new("a", kind="report"))
    [task] = scene.claim()
    settle(scene.ledger, task, Ending.UNDELIVERED)
    while stored_task(scene.ledger).status is not Status.DEAD:
        scene.lapse()
        scene.claim()
    scene.lapse()


@way("claim", "sweep")
def lapsed_until_dead(scene: Scene) -> None:
    scene.add(new("a", group="g", tenant="acme"), new("b", kind="report"))
    for _ in range(50):
        scene.claim()
        scene.lapse()
    assert [task.status for id, tenant in (("a", "acme"), ("b", "-")) if (task := scene.ledger.get(QUEUE, id, tenant))]


@way("claim")
def expired_before_a_claim(scene: Scene) -> None:
    scene.add(new("a", deadline_ms=1, group="g"), new("b", deadline_ms=1, payload=LARGE))
    scene.wait(1)
    assert {task.kind for task in scene.claim()} <= {"task.dead"}
    scene.wait(LEASE_MS)


@way("begin")
def expired_before_its_target_begins(scene: Scene) -> None:
    scene.add(new("a", kind="report", deadline_ms=10, group="g"))
    [task] = scene.claim()
    scene.wait(10)
    scene.begin(task)
    assert stored_task(scene.ledger).status is Status.DEAD


@way("settle", "add")
def replaced_while_it_runs(scene: Scene) -> None:
    scene.add(new("a", group="g"))
    [task] = scene.claim()
    scene.add(new("a", on_duplicate=OnDuplicate.REPLACE, group="h", payload=LARGE))
    settle(scene.ledger, task, Ending.DONE)
    assert scene.work() == 1


@way("cancel")
def cancelled_by_force_with_what_was_to_replace_it(scene: Scene) -> None:
    scene.add(new("a", kind="report", group="g"))
    [task] = scene.claim()
    scene.add(new("a", on_duplicate=OnDuplicate.REPLACE, group="h", payload=LARGE))
    scene.cancel("a", force=True)
    scene.begin(task)


@way("bulk")
def cancelled_by_force_in_bulk(scene: Scene) -> None:
    scene.add(new("a"), new("b", kind="report"))
    assert len(scene.claim()) == 2
    scene.bulk(Act.CANCEL, Status.SCHEDULED, Status.LEASED)


@way("move")
def moved_by_force(scene: Scene) -> None:
    scene.add(new("a", kind="report", group="g"))
    assert len(scene.claim()) == 1
    scene.ledger.move(QUEUE, [Move("a", delay_ms=LATER_MS, force=True)])
    scene.wait(LATER_MS)
    assert scene.work() == 1


@way("move")
def revived(scene: Scene) -> None:
    scene.add(new("a", group="g", payload=LARGE))
    assert scene.work(result='"r"') == 1
    scene.ledger.move(QUEUE, [Move("a", delay_ms=LATER_MS, revive=True)])
    scene.wait(LATER_MS)
    assert scene.work() == 1


@way("replay", "cancel")
def replayed_then_deleted_among_the_dead(scene: Scene) -> None:
    scene.add(new("a", group="g"))
    assert scene.work(Ending.DROP) == 1
    scene.ledger.replay(QUEUE, ["a"])
    assert scene.work(Ending.DROP) == 2  # with what tells of the first end
    scene.cancel("a")


@way("bulk")
def purged(scene: Scene) -> None:
    scene.add(new("a", group="g", payload=LARGE), new("b", delay_ms=LATER_MS))
    assert scene.work() == 1
    scene.cancel("b")
    scene.bulk(Act.DELETE, Status.DONE, Status.CANCELLED)


@way("sweep")
def left_to_the_sweep(scene: Scene) -> None:
    scene.add(new("a", group="g", payload=LARGE, notify="task.ended"), new("b", delay_ms=LATER_MS))
    assert scene.work() == 1
    scene.cancel("b")
    assert scene.work() == 1


@way("cancel", "claim")
def unreadable(scene: Scene) -> None:
    scene.add(new("a", kind="report"), new("b", group="g"), new("c"))
    assert len(scene.claim()) == 3
    keys = keys_of("duecourse", SHARD)
    for id in "abc":
        scene.client.hset(keys.tasks, f"-/{id}", b"broken")
    scene.cancel("c", force=True)
    scene.wait(LEASE_MS)
    assert scene.claim() == []
    scene.cancel("a", "b")
    scene.client.zrem(keys.groups, "-/g\0-/b")  # a record tells of which group it is


# Limits, quotas, waits


@way("settle")
def throttled_by_every_limit(scene: Scene) -> None:
    limits = {"max_running": 4, "tenant_max_running": 1, "rate": Rate(100, 1_000)}
    scene.ledger.configure(QUEUE, limits)
    scene.add(*(new(f"{tenant}{n}", tenant=tenant) for n in range(3) for tenant in TENANTS[:3]))
    while scene.work():
        pass
    scene.ledger.configure(QUEUE, dict.fromkeys(limits))


@way("configure")
def parked_when_the_limit_is_lifted(scene: Scene) -> None:
    scene.ledger.configure(QUEUE, {"tenant_max_running": 1})
    scene.add(*(new(f"a{n}", tenant="acme") for n in range(3)))
    [task] = scene.claim(1)
    assert scene.claim(1) == []
    scene.ledger.configure(QUEUE, {"tenant_max_running": None})
    settle(scene.ledger, task, Ending.DONE)
    assert scene.work() == 2


@way("cancel")
def parked_and_cancelled(scene: Scene) -> None:
    scene.ledger.configure(QUEUE, {"tenant_max_running": 1})
    scene.add(*(new(f"a{n}", tenant="acme") for n in range(3)))
    [task] = scene.claim(1)
    assert scene.claim(1) == []
    scene.cancel("a0", "a1", "a2", tenant="acme", force=True)
    settle(scene.ledger, task, Ending.DONE)
    scene.ledger.configure(QUEUE, {"tenant_max_running": None})


@way("configure")
def paused_and_resumed(scene: Scene) -> None:
    scene.ledger.configure(QUEUE, {"paused": True})
    scene.add(new("a"))
    assert scene.claim() == []
    scene.ledger.configure(QUEUE, {"paused": None})
    assert scene.work() == 1


@way("settle", "sweep", "configure")
def counted_by_every_quota(scene: Scene) -> None:
    quotas = {"tenant_max_pending": 4, "tenant_max_bytes": 100_000, "tenant_adds_per_minute": 100}
    quotas |= {"tenant_max_schedules": 1}
    scene.ledger.configure(QUEUE, quotas)
    put(scene.ledger, tenant="acme")
    assert scene.ledger.drop_schedule(QUEUE, "s", "acme")
    scene.add(*(new(f"a{n}", tenant=tenant, payload=LARGE) for n in range(6) for tenant in TENANTS[1:3]))
    while scene.work(result='"r"'):
        pass
    scene.wait(LATER_MS)
    scene.sweep(0)
    scene.ledger.configure(QUEUE, dict.fromkeys(quotas))


@way("await")
def waited_for(scene: Scene) -> None:
    scene.add(new("a"))
    assert scene.ledger.await_ends(SHARD, [Waited(QUEUE, "-", "a")], 1_000) == [False]
    assert scene.work() == 1
    scene.wait(TRAVELLING_MS)
    scene.sweep()  # after so long, a clock is believed some minutes later
    scene.wait(10 * MINUTE)


# Schedules


@way("fire", "unschedule", "settle")
def schedules_that_fired(scene: Scene) -> None:
    put(scene.ledger)
    scene.wait(MINUTE)
    fire(scene.ledger)
    assert scene.work() == 1
    scene.ledger.drop_schedule(QUEUE, "s")


@way("fire", "unschedule")
def schedules_with_an_occurrence_that_waits(scene: Scene) -> None:
    put(scene.ledger, overlap=Overlap.QUEUE, payload=LARGE)
    for _ in range(2):
        scene.wait(MINUTE)
        fire(scene.ledger)
    scene.ledger.drop_schedule(QUEUE, "s")
    scene.wait(LEASE_MS)
    assert scene.work() == 1


@way("fire", "unschedule")
def schedules_whose_occurrences_are_cancelled(scene: Scene) -> None:
    put(scene.ledger, overlap=Overlap.REPLACE, kind="ghost")
    for _ in range(3):
        scene.wait(MINUTE)
        fire(scene.ledger)
        assert scene.claim(kinds=["work"]) == []
    scene.bulk(Act.CANCEL, Status.SCHEDULED)
    assert kept(scene.ledger)
    scene.ledger.drop_schedule(QUEUE, "s")


READ_ONLY = {"coming_kinds", "dead", "outlook", "page", "schedules", "show", "stats", "tenant_stats", "throttle"}
"""Scripts that change nothing."""
OTHERS = {
    "close": "pauses a shard, whose tasks stay",
    "reopen": "opens it again",
    "extend": "makes leases longer",
    "save": "keeps a state",
    "regain": "answers a lost claim again",
    "take_in": "takes tasks in",
    "take_in_history": "takes numbers over time in",
    "schedule": "adds a schedule, or changes it",
    "leave": "forgets a queue without tasks: tests/queues/test_forgotten_shards.py",
    **dict.fromkeys(["recount", "register", "unregister"], "the record of shards"),
    **dict.fromkeys(["request_begin", "request_end", "request_forget"], "requests with an Idempotency-Key"),
    **dict.fromkeys(["admit", "dismiss"], "queries in flight"),
    **dict.fromkeys(["deploy", "idle_functions", "rekey", "schedule_file"], "what deployments note"),
}
"""Scripts by which no task leaves its place, each with what it does."""


def test_every_script_is_in_the_table_or_lets_no_task_leave() -> None:
    """A script that is new must have a row."""
    every = {path.stem for path in script_calls.LUA.glob("*.lua")}
    in_the_table = frozenset[str]().union(*(verbs for _, verbs in WAYS.values()))
    assert in_the_table | READ_ONLY | set(OTHERS) == every


@contextmanager
def scene_of(kind: str, request: pytest.FixtureRequest, clock: HandClock) -> Iterator[Scene]:
    """An empty ledger, of which each death is told."""
    for ledger in opened(kind, request, clock, Sharding(), deaths=True):
        if isinstance(ledger, EmbeddedLedger):
            yield Scene(ledger, clock, ledger.client)
        else:
            with connect(servers(kind, request).url) as client:
                yield Scene(ledger, clock, client)


def left(scene: Scene, shard: Shard = SHARD) -> Mapping[str, object]:
    """What each key of the shard holds, without what may stay."""
    keys, client = keys_of("duecourse", shard), scene.client
    sets = {name: getattr(keys, name) for name in ("heads", "ring", "leased", "done", "dead", "groups", "parked")}
    sets |= {name: getattr(keys, name) for name in ("log", "waiting")}
    sets |= {f"due:{tenant}": keys.due(tenant) for tenant in TENANTS}
    found: dict[str, object] = {name: client.zrange(key, 0, -1, withscores=True) for name, key in sets.items()}
    meta = {name.decode(): value for name, value in client.hgetall(keys.meta).items()}
    stay = {name for name in meta if name in STAY or f"{name.partition(':')[0]}:*" in STAY}
    found["meta"] = {name: value for name, value in meta.items() if name not in stay}
    found["tasks"] = client.hgetall(keys.tasks)
    found["bell"] = scene.ledger.stats(shard).bell_at
    found["shards"] = client.smembers(shards_key("duecourse"))
    return found


def empty(scene: Scene) -> Mapping[str, object]:
    """What a ledger holds to which one task was added, and from which it was deleted."""
    scene.add(new("first", delay_ms=LATER_MS))
    scene.bulk(Act.DELETE, Status.SCHEDULED)
    return left(scene)


def end_all(scene: Scene) -> None:
    """Have notifications sent, and sweeps forget what ended."""
    while scene.work():
        pass
    scene.wait(LATER_MS)
    while scene.work():
        pass
    scene.sweep(0)
    scene.sweep(0)


def forget(scene: Scene) -> None:
    """Have sweeps forget the queue, which nobody uses."""
    scene.sweep()
    scene.wait(FORGET_MS)
    scene.sweep()


@pytest.mark.parametrize("name", WAYS)
def test_nothing_stays_of_tasks_that_left(
    kind_of_store: str, name: str, request: pytest.FixtureRequest, clock: HandClock
) -> None:
    with scene_of(kind_of_store, request, clock) as scene:
        before = empty(scene)
        WAYS[name][0](scene)
        end_all(scene)
        assert left(scene) == before
        forget(scene)
        assert set(scene.client.hkeys(keys_of("duecourse", SHARD).meta)) == FORGOTTEN
        assert scene.client.hgetall(keys_of("duecourse", SHARD).history) == {}
        assert left(scene) == {**before, "shards": set(), "meta": {**before["meta"], "leaving": b"1"}}


def test_every_ending_is_a_way() -> None:
    """An ending that is new must have a row, and so must what callers do to a task that is there."""
    source = Path(__file__).read_text()
    for member in (*Ending, *OnDuplicate, Status.SCHEDULED, Act.DELETE, Act.CANCEL):
        if member not in {OnDuplicate.KEEP, OnDuplicate.REJECT}:
            assert f"{type(member).__name__}.{member.name}" in source, member
    assert {one for one in QueueSettings.__slots__ if one.startswith("tenant_max") and one not in source} == set()


@pytest.mark.parametrize("name", [name for name in WAYS if name.startswith(("put_aside", "without_room"))])
def test_the_oldest_overdue_is_of_a_task_that_waits(clock: HandClock, name: str) -> None:
    """Numbers say nothing of tasks that have left, before any sweep."""
    ledger = EmbeddedLedger(clock)
    WAYS[name][0](Scene(ledger, clock, ledger.client))
    stats = ledger.stats(SHARD)
    assert (stats.scheduled, stats.oldest_due_at) == (0, 0)


def test_the_oldest_overdue_is_found_behind_tasks_that_left(ledger: Ledger, clock: HandClock) -> None:
    scene_ids = [f"a{n:03}" for n in range(150)]
    ledger.add([new(id, kind="ghost") for id in scene_ids])
    clock.advance(5)
    ledger.add([new("stays", kind="ghost"), new("moved", kind="ghost")])
    while ledger.claim(SHARD, 100, lease_ms=LEASE_MS, kinds=["work"]).aside:
        pass
    ledger.cancel(QUEUE, scene_ids)
    ledger.move(QUEUE, [Move("moved", delay_ms=HOUR_MS)])
    assert ledger.stats(SHARD).oldest_due_at == clock.at


def test_a_sweep_forgets_them_in_bounded_steps_whoevers_they_are(ledger: Ledger) -> None:
    tenants = [f"t{n:03}" for n in range(200)]
    for tenant in tenants:
        ledger.add([new(f"a{n}", kind="ghost", tenant=tenant) for n in range(4)])
    claims = 0
    while ledger.claim(SHARD, 500, lease_ms=LEASE_MS, kinds=["work"]).aside:
        claims += 1
        assert claims < 100
    for tenant in tenants[1:]:
        ledger.bulk(QUEUE, Bulk(Act.DELETE, (Status.SCHEDULED,), limit=10), tenant=tenant)
    steps = 1
    while ledger.sweep(SHARD, retention_ms=HOUR_MS).more:
        steps += 1
        assert steps < 20
    got = ledger.claim(SHARD, 100, lease_ms=LEASE_MS, kinds=["ghost"])
    assert {task.tenant for task in got.tasks} == {"t000"}
    assert (len(got.tasks), got.backlog) == (4, 0)
