"""The short way of an add's script: it does as the long way, whatever stands there, and the usual add takes it."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import redis

from duecourse.adapters.redis import arguments
from duecourse.adapters.redis.connect import connect
from duecourse.adapters.redis.keys import FIXED, Keys, keys_of
from duecourse.adapters.redis.layout import NEWEST, OLDEST
from duecourse.adapters.redis.scripts import Scripts, load
from duecourse.adapters.redis.store import RedisStore
from duecourse.domain.outcomes import Ending
from duecourse.domain.task import DEFAULT_TENANT, NewTask
from tests.support.clock import HandClock
from tests.support.ledger import LATER_MS, LEASE_MS, SHARD, add, claim, new, settle
from tests.support.redis_server import RedisServer

GUARD = "if #ARGV ~= 14 or"
ORIGIN = b"origin\0\0"
RANDOM = 63
"""Where in a record the origin ends, which is each call's own."""
NEXT = LATER_MS + 1
"""A due time behind the tasks that wait, in these tests."""

STANDING: dict[str, Callable[[RedisStore], object]] = {
    "nothing": lambda _store: None,
    "a task before it": lambda store: add(store, "b", delay_ms=LATER_MS),
    "a task after it": lambda store: add(store, "b", delay_ms=3 * LATER_MS),
    "the same id": lambda store: add(store, "a", delay_ms=LATER_MS),
    "the same id, done": lambda store: settle(store, _leased(store, "a"), Ending.DONE),
    "one that runs": lambda store: (_leased(store, "b"), add(store, "c", delay_ms=LATER_MS)),
    "one that is due": lambda store: add(store, "b"),
    "a paused queue": lambda store: (
        add(store, "b", delay_ms=LATER_MS), store.configure("default", {"paused": True})
    ),
    "a full queue": lambda store: (
        store.configure("default", {"max_running": 1}), _leased(store, "b"), add(store, "c", delay_ms=LATER_MS)
    ),
    "another tenant's task": lambda store: store.add([new("b", delay_ms=LATER_MS, tenant="other")]),
    "another tenant's task before it, and a task after it": lambda store: store.add(
        [new("b", delay_ms=LATER_MS, tenant="other"), new("c", delay_ms=3 * LATER_MS)]
    ),
    "records of the oldest version": lambda store: _waits_with(store, layout=OLDEST),
    "a shard that is being forgotten": lambda store: _waits_with(store, leaving=1),
    "a place that is free again": lambda store: _waits_with(store, wake=1),
    "a quota": lambda store: (
        add(store, "b", delay_ms=LATER_MS), store.configure("default", {"tenant_max_pending": 1})
    ),
    "another number of shards": lambda store: _waits_with(store, shards=3),
    "a clock that does not travel": lambda store: _waits_with(store, clock=None),
    "more that is due than was claimed": lambda store: (
        store.add([new(id, tenant="other") for id in "bc"]), store.claim(SHARD, 1, lease_ms=LEASE_MS),
        _waits_with(store, "d", bell_at=store.now() + 2_000),
    ),
    "a bell that hangs after the end of a lease": lambda store: (
        _leased(store, "b"), _waits_with(store, "c", bell_at=store.now() + LEASE_MS + 1),
    ),
    "a bell that hangs too late": lambda store: _waits_with(store, bell_at=NEXT + store.now()),
    "a bell whose time is over": lambda store: _waits_with(store, bell_at=store.now() - 1),
}  # fmt: skip
ASKED = {
    "later": new(delay_ms=NEXT),
    "at the same time": new(delay_ms=LATER_MS),
    "at an instant": new(due_at=10**13),
    "now": new(),
    "another's": new(delay_ms=NEXT, tenant="other"),
    "of a group": new(delay_ms=NEXT, group="g"),
    "with a deadline": new(delay_ms=NEXT, deadline_ms=5),
}


def _waits_with(store: RedisStore, id: str = "b", **meta: Any) -> None:
    """A task that waits, and these fields in the shard's meta; None for a field that is not there."""
    add(store, id, delay_ms=LATER_MS)
    for field, value in meta.items():
        if value is None:
            store._client.hdel(keys_of(store._namespace, SHARD).meta, field)
        else:
            store._client.hset(keys_of(store._namespace, SHARD).meta, field, value)


def _leased(store: RedisStore, id: str) -> Any:
    add(store, id)
    [task] = claim(store)
    return task


@pytest.mark.parametrize("asked", ASKED)
@pytest.mark.parametrize("standing", STANDING)
def test_the_short_way_does_as_the_long_way(redis_client: redis.Redis, standing: str, asked: str) -> None:
    short, long = (_outcome(redis_client, way, STANDING[standing], ASKED[asked], _of(way)) for way in ("short", "long"))
    assert short == long


def _of(way: str) -> str:
    text = load("add").text
    assert GUARD in text
    return text if way == "short" else text.replace(GUARD, "if true or")


def _outcome(
    client: redis.Redis, namespace: str, stand: Callable[[RedisStore], object], task: NewTask, script: str
) -> object:
    """What an add by this script answers, and what the shard's keys hold then but for random bytes."""
    clock = HandClock()
    store = RedisStore(client, namespace, travel=clock)
    keys = keys_of(namespace, SHARD)
    client.hset(keys.meta, "clock", "travel")
    stand(store)
    every = (NEWEST, 1, *arguments.alone(DEFAULT_TENANT, None), *arguments.new_task(task, ORIGIN))
    count, words = Scripts(client, clock).request(keys, [task.tenant], every, 1)
    answer = client.execute_command("EVAL", script, count, *words)  # type: ignore[no-untyped-call]
    if isinstance(answer, int):
        return answer, _held(client, keys)
    now, bell_at, replies, records, bodies = answer
    added = store.get("default", task.id, task.tenant)
    return (
        now,
        bell_at,
        replies,
        [data[RANDOM:] for data in records],
        bodies,
        added and replace(added, token=""),
        _held(client, keys),
    )


def _held(client: redis.Redis, keys: Keys) -> object:
    sets = [name for name in FIXED if name not in ("tasks", "meta", "bell", "late")]
    places = {name: client.zrange(getattr(keys, name), 0, -1, withscores=True) for name in sets}
    due = {tenant: client.zrange(keys.due(tenant), 0, -1, withscores=True) for tenant in (DEFAULT_TENANT, "other")}
    return client.hkeys(keys.tasks), client.hgetall(keys.meta), places, due


def test_the_usual_add_takes_it(redis_server: RedisServer) -> None:
    with connect(redis_server.url) as client:
        assert isinstance(client, redis.Redis)
        store = RedisStore(client)
        add(store, "first", delay_ms=LATER_MS)
        with redis_server.client() as other:
            other.config_resetstat()
            store.add([new("second", delay_ms=NEXT)])
            stats = other.info("commandstats")
        assert stats["cmdstat_zadd"]["calls"] == 1
        assert "cmdstat_hexists" in stats, "the long way looks by HMGET"
