"""Shards without tasks or settings are forgotten, and come back with the next task: nothing added meanwhile is lost."""

from threading import Event, Thread
from typing import Any

import pytest
import redis

from duecourse.errors import StoreMisused, StoreUnavailable
from duecourse.ledger.keys import keys_of, leaving_key
from duecourse.ledger.operation_types import FORGET_MS, Reply, Swept
from duecourse.ledger.operations.base import ScriptRunner
from duecourse.ledger.operations.ledger import Ledger
from duecourse.ledger.queue import QueueSettings, Rate
from duecourse.ledger.sharding import Sharding
from duecourse.ledger.task import Ending, Shard
from tests.support.clock import HandClock
from tests.support.ledger import ending, new

HOST = Shard("query:api.example.com")
SET = QueueSettings(True, 9, Rate(10, 1_000), 8, 0, 60_000, 5_000, 7, 8, 9, 10)
TERMS = {"retention_ms": 0, "dead_retention_ms": 0}


@pytest.fixture
def ledger(redis_client: redis.Redis, clock: HandClock) -> Ledger:
    return Ledger(redis_client, travel=clock)


def sweep(ledger: Ledger) -> list[Swept | StoreUnavailable | StoreMisused]:
    """What a tick does."""
    return ledger.sweep_all(ledger.shards(), **TERMS)


def be_used(ledger: Ledger) -> int:
    """Have a task come and go; answers its generation."""
    [added] = ledger.add([new("a", queue=HOST.queue)], echo=True)
    assert added.reply is Reply.CREATED
    ledger.cancel(HOST.queue, ["a"])
    sweep(ledger)
    sweep(ledger)
    assert ledger.get(HOST.queue, "a") is None
    assert added.task
    return added.task.generation


def leave_alone(ledger: Ledger, clock: HandClock) -> None:
    """Have a tick come before and after the time is over."""
    sweep(ledger)
    clock.advance(FORGET_MS)
    sweep(ledger)


def test_a_shard_that_has_been_empty_for_long_is_forgotten_but_for_its_fence(
    ledger: Ledger, redis_client: redis.Redis, clock: HandClock
) -> None:
    ledger.configure(HOST.queue, {"max_running": 4}, default=True)
    first = max(be_used(ledger) for _ in range(5))
    clock.advance(FORGET_MS - 1)
    sweep(ledger)
    assert ledger.shards() == [HOST]
    clock.advance(1)
    sweep(ledger)
    assert ledger.shards() == []
    left = [key for key in redis_client.scan_iter() if b"query:" in key]
    assert left == [keys_of("duecourse", HOST).meta.encode()]
    assert ledger.settings_of([HOST.queue])[0].max_running is None
    assert be_used(ledger) > first, "no fence comes twice"
    assert ledger.shards() == [HOST]


def test_what_comes_meanwhile_begins_that_time_anew(ledger: Ledger, clock: HandClock) -> None:
    be_used(ledger)
    clock.advance(FORGET_MS - 1)
    be_used(ledger)
    clock.advance(FORGET_MS - 1)
    sweep(ledger)
    assert ledger.shards() == [HOST]


def test_a_default_said_anew_keeps_a_queue_as_long_as_it_is_trusted(ledger: Ledger, clock: HandClock) -> None:
    be_used(ledger)
    clock.advance(FORGET_MS)
    ledger.configure(HOST.queue, {"max_running": 4}, default=True)
    sweep(ledger)
    assert (ledger.shards(), ledger.settings_of([HOST.queue])[0].max_running) == ([HOST], 4)


@pytest.mark.parametrize("changes", [{"max_running": 4}, {"paused": True}, {"priority": 9}])
def test_a_queue_that_somebody_set_stays(ledger: Ledger, clock: HandClock, changes: dict[str, int]) -> None:
    ledger.configure(HOST.queue, {"max_running": 4}, default=True)
    ledger.configure(HOST.queue, changes)
    leave_alone(ledger, clock)
    assert ledger.shards() == [HOST]
    ledger.configure(HOST.queue, {"max_running": 7}, default=True)
    assert ledger.settings_of([HOST.queue])[0].max_running == 4, "what is set stays, and so does an earlier default"


def test_a_queue_that_was_made_and_never_used_is_forgotten_too(
    ledger: Ledger, redis_client: redis.Redis, clock: HandClock
) -> None:
    ledger.configure(HOST.queue, {"priority": 5})
    leave_alone(ledger, clock)
    assert ledger.shards() == []
    ledger.configure(HOST.queue, {"max_running": 4}, default=True)
    assert ledger.shards() == [HOST]
    assert be_used(ledger)
    leave_alone(ledger, clock)
    assert ledger.shards() == []
    assert [key for key in redis_client.scan_iter() if b"query:" in key] == [keys_of("duecourse", HOST).meta.encode()]


@pytest.mark.parametrize("field", QueueSettings.__slots__)
def test_any_setting_alone_keeps_its_queue(ledger: Ledger, clock: HandClock, field: str) -> None:
    ledger.configure(HOST.queue, {field: getattr(SET, field)})
    leave_alone(ledger, clock)
    assert ledger.shards() == [HOST]


@pytest.mark.parametrize("state", ["scheduled", "leased", "done", "dead"])
def test_a_shard_with_a_task_in_whatever_state_stays(ledger: Ledger, clock: HandClock, state: str) -> None:
    ledger.add([new("a", queue=HOST.queue, delay_ms=9 * FORGET_MS if state == "scheduled" else 0)])
    for task in ledger.claim(HOST, 1, lease_ms=9 * FORGET_MS).tasks:
        if state != "leased":
            ledger.settle(HOST, [ending(task, Ending.DONE if state == "done" else Ending.DROP)])
    for _ in range(3):
        ledger.sweep(HOST, retention_ms=9 * FORGET_MS)
        clock.advance(FORGET_MS)
    ledger.sweep(HOST, retention_ms=9 * FORGET_MS)
    assert ledger.shards() == [HOST]


class Overtaken(ScriptRunner):
    """The verbs of a store whose queue another one forgets: just before it is set."""

    def run(self, verb: str, shard: Shard, *args: Any) -> Any:
        if verb == "configure":
            self.registry.forget(shard, lambda: bool(super(Overtaken, self).run("leave", shard, (), (FORGET_MS,))[2]))
            assert self.registry.members() == []
        return super().run(verb, shard, *args)


def test_a_queue_that_is_set_while_it_is_forgotten_is_registered(
    ledger: Ledger, redis_client: redis.Redis, clock: HandClock
) -> None:
    be_used(ledger)
    clock.advance(FORGET_MS)
    setting = Ledger(redis_client, travel=clock)
    setting._runner = Overtaken(redis_client, "duecourse", Sharding(), clock)
    setting._registry = setting._runner.registry
    setting.configure(HOST.queue, {"paused": True})
    assert (ledger.shards(), ledger.settings_of([HOST.queue])[0].paused) == ([HOST], True)


def test_a_queue_of_several_shards_stays(redis_client: redis.Redis, clock: HandClock) -> None:
    ledger = Ledger(redis_client, travel=clock, sharding=Sharding({"default": 2}))
    ids = [f"t{n}" for n in range(20)]
    ledger.add([new(id) for id in ids])
    ledger.cancel("default", ids)
    for _ in range(3):
        leave_alone(ledger, clock)
    assert len(ledger.shards()) == 2


class Adding(Ledger):
    """A ledger to which a task is added just when a shard has left, before it is off the record; or just before."""

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
    ledger = Adding(redis_client, travel=clock)
    be_used(ledger)
    clock.advance(FORGET_MS)
    ledger.at = at
    sweep(ledger)
    assert ledger.shards() == [HOST]
    assert not redis_client.exists(leaving_key("duecourse"))
    assert [task.id for task in ledger.claim(HOST, 10, lease_ms=1_000).tasks] == ["b"]


@pytest.mark.parametrize("kills", [1, 9_000])
def test_one_who_is_killed_while_forgetting_leaves_a_shard_that_takes_tasks(
    redis_client: redis.Redis, clock: HandClock, kills: int
) -> None:
    ledger = Ledger(redis_client, travel=clock)
    be_used(ledger)
    clock.advance(FORGET_MS)
    redis_client.sadd("{duecourse:shards}:leaving", *[f"{HOST}/1#{n:016x}" for n in range(kills)])
    assert ledger._leave(HOST)
    ledger.add([new("b", queue=HOST.queue)])
    sweep(ledger)
    assert ledger.shards() == [HOST]
    assert len(ledger.claim(HOST, 10, lease_ms=1_000).tasks) == 1


def test_of_two_who_forget_a_shard_at_once_neither_takes_it_off_the_record_by_the_mark_of_the_other(
    redis_client: redis.Redis, clock: HandClock
) -> None:
    ledger, other = (Ledger(redis_client, travel=clock) for _ in range(2))
    be_used(ledger)
    clock.advance(FORGET_MS)
    left, marked = Event(), Event()

    def leave_first() -> bool:
        assert ledger._leave(HOST)
        left.set()
        return marked.wait(10)

    def leave_second() -> bool:
        marked.set()
        first.join()
        return other._leave(HOST)

    first = Thread(target=ledger._registry.forget, args=(HOST, leave_first))
    first.start()
    assert left.wait(10)
    other._registry.register(HOST)  # as an add does, before it is sent again
    other._registry.forget(HOST, leave_second)
    assert ledger.shards() == [HOST]
