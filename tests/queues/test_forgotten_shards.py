"""Shards without tasks or settings are forgotten, and come back with the next task: nothing added meanwhile is lost."""

from threading import Event, Thread
from typing import Any

import pytest
import redis

from duecourse.errors import StoreMisused, StoreUnavailable
from duecourse.ledger.keys import keys_of, leaving_key
from duecourse.ledger.operations import FORGET_MS, Reply, Swept
from duecourse.ledger.queue import QueueSettings, Rate
from duecourse.ledger.sharding import Sharding
from duecourse.ledger.store.base import ScriptRunner
from duecourse.ledger.store.ledger import Ledger
from duecourse.ledger.task import Ending, Shard
from tests.support.clock import HandClock
from tests.support.ledger import ending, new

HOST = Shard("query:api.example.com")
SET = QueueSettings(True, 9, Rate(10, 1_000), 8, 0, 60_000, 5_000, 7, 8, 9, 10)
TERMS = {"retention_ms": 0, "dead_retention_ms": 0}


@pytest.fixture
def store(redis_client: redis.Redis, clock: HandClock) -> Ledger:
    return Ledger(redis_client, travel=clock)


def sweep(store: Ledger) -> list[Swept | StoreUnavailable | StoreMisused]:
    """What a tick does."""
    return store.sweep_all(store.shards(), **TERMS)


def be_used(store: Ledger) -> int:
    """Have a task come and go; answers its generation."""
    [added] = store.add([new("a", queue=HOST.queue)], echo=True)
    assert added.reply is Reply.CREATED
    store.cancel(HOST.queue, ["a"])
    sweep(store)
    sweep(store)
    assert store.get(HOST.queue, "a") is None
    assert added.task
    return added.task.generation


def leave_alone(store: Ledger, clock: HandClock) -> None:
    """Have a tick come before and after the time is over."""
    sweep(store)
    clock.advance(FORGET_MS)
    sweep(store)


def test_a_shard_that_has_been_empty_for_long_is_forgotten_but_for_its_fence(
    store: Ledger, redis_client: redis.Redis, clock: HandClock
) -> None:
    store.configure(HOST.queue, {"max_running": 4}, default=True)
    first = max(be_used(store) for _ in range(5))
    clock.advance(FORGET_MS - 1)
    sweep(store)
    assert store.shards() == [HOST]
    clock.advance(1)
    sweep(store)
    assert store.shards() == []
    left = [key for key in redis_client.scan_iter() if b"query:" in key]
    assert left == [keys_of("duecourse", HOST).meta.encode()]
    assert store.settings_of([HOST.queue])[0].max_running is None
    assert be_used(store) > first, "no fence comes twice"
    assert store.shards() == [HOST]


def test_what_comes_meanwhile_begins_that_time_anew(store: Ledger, clock: HandClock) -> None:
    be_used(store)
    clock.advance(FORGET_MS - 1)
    be_used(store)
    clock.advance(FORGET_MS - 1)
    sweep(store)
    assert store.shards() == [HOST]


def test_a_default_said_anew_keeps_a_queue_as_long_as_it_is_trusted(store: Ledger, clock: HandClock) -> None:
    be_used(store)
    clock.advance(FORGET_MS)
    store.configure(HOST.queue, {"max_running": 4}, default=True)
    sweep(store)
    assert (store.shards(), store.settings_of([HOST.queue])[0].max_running) == ([HOST], 4)


@pytest.mark.parametrize("changes", [{"max_running": 4}, {"paused": True}, {"priority": 9}])
def test_a_queue_that_somebody_set_stays(store: Ledger, clock: HandClock, changes: dict[str, int]) -> None:
    store.configure(HOST.queue, {"max_running": 4}, default=True)
    store.configure(HOST.queue, changes)
    leave_alone(store, clock)
    assert store.shards() == [HOST]
    store.configure(HOST.queue, {"max_running": 7}, default=True)
    assert store.settings_of([HOST.queue])[0].max_running == 4, "what is set stays, and so does an earlier default"


def test_a_queue_that_was_made_and_never_used_is_forgotten_too(
    store: Ledger, redis_client: redis.Redis, clock: HandClock
) -> None:
    store.configure(HOST.queue, {"priority": 5})
    leave_alone(store, clock)
    assert store.shards() == []
    store.configure(HOST.queue, {"max_running": 4}, default=True)
    assert store.shards() == [HOST]
    assert be_used(store)
    leave_alone(store, clock)
    assert store.shards() == []
    assert [key for key in redis_client.scan_iter() if b"query:" in key] == [keys_of("duecourse", HOST).meta.encode()]


@pytest.mark.parametrize("field", QueueSettings.__slots__)
def test_any_setting_alone_keeps_its_queue(store: Ledger, clock: HandClock, field: str) -> None:
    store.configure(HOST.queue, {field: getattr(SET, field)})
    leave_alone(store, clock)
    assert store.shards() == [HOST]


@pytest.mark.parametrize("state", ["scheduled", "leased", "done", "dead"])
def test_a_shard_with_a_task_in_whatever_state_stays(store: Ledger, clock: HandClock, state: str) -> None:
    store.add([new("a", queue=HOST.queue, delay_ms=9 * FORGET_MS if state == "scheduled" else 0)])
    for task in store.claim(HOST, 1, lease_ms=9 * FORGET_MS).tasks:
        if state != "leased":
            store.settle(HOST, [ending(task, Ending.DONE if state == "done" else Ending.DROP)])
    for _ in range(3):
        store.sweep(HOST, retention_ms=9 * FORGET_MS)
        clock.advance(FORGET_MS)
    store.sweep(HOST, retention_ms=9 * FORGET_MS)
    assert store.shards() == [HOST]


class Overtaken(ScriptRunner):
    """The verbs of a store whose queue another one forgets: just before it is set."""

    def run(self, verb: str, shard: Shard, *args: Any) -> Any:
        if verb == "configure":
            self.registry.forget(shard, lambda: bool(super(Overtaken, self).run("leave", shard, (), (FORGET_MS,))[2]))
            assert self.registry.members() == []
        return super().run(verb, shard, *args)


def test_a_queue_that_is_set_while_it_is_forgotten_is_registered(
    store: Ledger, redis_client: redis.Redis, clock: HandClock
) -> None:
    be_used(store)
    clock.advance(FORGET_MS)
    setting = Ledger(redis_client, travel=clock)
    setting._runner = Overtaken(redis_client, "duecourse", Sharding(), clock)
    setting._registry = setting._runner.registry
    setting.configure(HOST.queue, {"paused": True})
    assert (store.shards(), store.settings_of([HOST.queue])[0].paused) == ([HOST], True)


def test_a_queue_of_several_shards_stays(redis_client: redis.Redis, clock: HandClock) -> None:
    store = Ledger(redis_client, travel=clock, sharding=Sharding({"default": 2}))
    ids = [f"t{n}" for n in range(20)]
    store.add([new(id) for id in ids])
    store.cancel("default", ids)
    for _ in range(3):
        leave_alone(store, clock)
    assert len(store.shards()) == 2


class Adding(Ledger):
    """A store to which a task is added just when a shard has left, before it is off the record; or just before."""

    at = ""

    def _leave(self, shard: Shard) -> bool:
        if self.at == "before":
            self.add([new("b", queue=shard.queue)])
        left = super()._leave(shard)
        if self.at == "between":
            self.add([new("b", queue=shard.queue)])
        return left


@pytest.mark.parametrize("at", ["before", "between"])
def test_a_task_that_is_added_while_its_shard_is_forgotten_is_registered(
    redis_client: redis.Redis, clock: HandClock, at: str
) -> None:
    store = Adding(redis_client, travel=clock)
    be_used(store)
    clock.advance(FORGET_MS)
    store.at = at
    sweep(store)
    assert store.shards() == [HOST]
    assert not redis_client.exists(leaving_key("duecourse"))
    assert [task.id for task in store.claim(HOST, 10, lease_ms=1_000).tasks] == ["b"]


@pytest.mark.parametrize("kills", [1, 9_000])
def test_one_who_is_killed_while_forgetting_leaves_a_shard_that_takes_tasks(
    redis_client: redis.Redis, clock: HandClock, kills: int
) -> None:
    store = Ledger(redis_client, travel=clock)
    be_used(store)
    clock.advance(FORGET_MS)
    redis_client.sadd("{duecourse:shards}:leaving", *[f"{HOST}/1#{n:016x}" for n in range(kills)])
    assert store._leave(HOST)
    store.add([new("b", queue=HOST.queue)])
    sweep(store)
    assert store.shards() == [HOST]
    assert len(store.claim(HOST, 10, lease_ms=1_000).tasks) == 1


def test_of_two_who_forget_a_shard_at_once_neither_takes_it_off_the_record_by_the_mark_of_the_other(
    redis_client: redis.Redis, clock: HandClock
) -> None:
    store, other = (Ledger(redis_client, travel=clock) for _ in range(2))
    be_used(store)
    clock.advance(FORGET_MS)
    left, marked = Event(), Event()

    def leave_first() -> bool:
        assert store._leave(HOST)
        left.set()
        return marked.wait(10)

    def leave_second() -> bool:
        marked.set()
        first.join()
        return other._leave(HOST)

    first = Thread(target=store._registry.forget, args=(HOST, leave_first))
    first.start()
    assert left.wait(10)
    other._registry.register(HOST)  # as an add does, before it is sent again
    other._registry.forget(HOST, leave_second)
    assert store.shards() == [HOST]
