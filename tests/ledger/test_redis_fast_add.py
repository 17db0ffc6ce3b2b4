"""The short way of an add's script, a schedule's too: it does as the long way, and the usual add takes it."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import redis

from duecourse.ledger import script_codec
from duecourse.ledger.connect import connect
from duecourse.ledger.keys import FIXED, Keys, keys_of
from duecourse.ledger.layout import INSIDE, VERSION
from duecourse.ledger.operations.ledger import Ledger
from duecourse.ledger.record import pack_schedule, stored_schedule
from duecourse.ledger.schedule import NEVER, TENANT
from duecourse.ledger.script_calls import load
from duecourse.ledger.task import DEFAULT_TENANT, Ending, NewTask
from tests.support.clock import HandClock
from tests.support.ledger import LATER_MS, LEASE_MS, SHARD, add, claim, new, settle
from tests.support.redis_server import RedisServer
from tests.support.schedules import begun, put, series

OTHER = "other"
GUARDS = {"if #ARGV ~= 14 or": "if true or", "if #ARGV == 10 and": "if false and"}
"""Conditions of the short way, and what stands there where nothing is to take it."""
ORIGIN = b"origin\0\0"
RANDOM = 63
"""Where in a record the origin ends, which is each call's own."""
NEXT = LATER_MS + 1
"""A due time behind the tasks that wait, in these tests."""

STANDING: dict[str, Callable[[Ledger], object]] = {
    "nothing": lambda _ledger: None,
    "a task before it": lambda ledger: add(ledger, "b", delay_ms=LATER_MS),
    "a task after it": lambda ledger: add(ledger, "b", delay_ms=3 * LATER_MS),
    "the same id": lambda ledger: add(ledger, "a", delay_ms=LATER_MS),
    "the same id, done": lambda ledger: settle(ledger, _leased(ledger, "a"), Ending.DONE),
    "one that runs": lambda ledger: (_leased(ledger, "b"), add(ledger, "c", delay_ms=LATER_MS)),
    "one that is due": lambda ledger: add(ledger, "b"),
    "a paused queue": lambda ledger: (
        add(ledger, "b", delay_ms=LATER_MS), ledger.configure("default", {"paused": True})
    ),
    "a full queue": lambda ledger: (
        ledger.configure("default", {"max_running": 1}), _leased(ledger, "b"), add(ledger, "c", delay_ms=LATER_MS)
    ),
    "another tenant's task": lambda ledger: ledger.add([new("b", delay_ms=LATER_MS, tenant="other")]),
    "another tenant's task before it, and a task after it": lambda ledger: ledger.add(
        [new("b", delay_ms=LATER_MS, tenant="other"), new("c", delay_ms=3 * LATER_MS)]
    ),
    "records of another version": lambda ledger: _waits_with(ledger, layout=VERSION - 1),
    "a shard that is being forgotten": lambda ledger: _waits_with(ledger, leaving=1),
    "a place that is free again": lambda ledger: _waits_with(ledger, wake=1),
    "a quota": lambda ledger: (
        add(ledger, "b", delay_ms=LATER_MS), ledger.configure("default", {"tenant_max_pending": 1})
    ),
    "a quota of bytes": lambda ledger: (
        add(ledger, "b", delay_ms=LATER_MS), ledger.configure("default", {"tenant_max_bytes": 10**6})
    ),
    "another number of shards": lambda ledger: _waits_with(ledger, shards=3),
    "a clock that does not travel": lambda ledger: _waits_with(ledger, clock=None),
    "more that is due than was claimed": lambda ledger: (
        ledger.add([new(id, tenant="other") for id in "bc"]), ledger.claim(SHARD, 1, lease_ms=LEASE_MS),
        _waits_with(ledger, "d", bell_at=ledger.now() + 2_000),
    ),
    "a bell that hangs after the end of a lease": lambda ledger: (
        _leased(ledger, "b"), _waits_with(ledger, "c", bell_at=ledger.now() + LEASE_MS + 1),
    ),
    "a bell that hangs too late": lambda ledger: _waits_with(ledger, bell_at=NEXT + ledger.now()),
    "a bell whose time is over": lambda ledger: _waits_with(ledger, bell_at=ledger.now() - 1),
    "one that is due, as its bell is": lambda ledger: (add(ledger, "c"), _waits_with(ledger, bell_at=ledger.now())),
    "a schedule that is due, as its bell is": lambda ledger: (
        put(ledger, "b", ledger.now()), _waits_with(ledger, bell_at=ledger.now())
    ),
    "a schedule before it": lambda ledger: put(ledger, "b", ledger.now() + LATER_MS),
    "a schedule after it": lambda ledger: put(ledger, "b", ledger.now() + 3 * LATER_MS),
    "a schedule before it, and a task before that": lambda ledger: (
        put(ledger, "b", ledger.now() + LATER_MS), add(ledger, "b", delay_ms=LATER_MS - 1)
    ),
    "a schedule before it, and a task after it": lambda ledger: (
        put(ledger, "b", ledger.now() + LATER_MS), add(ledger, "b", delay_ms=3 * LATER_MS)
    ),
    "a schedule that is due": lambda ledger: put(ledger, "b", ledger.now()),
    "a schedule that never fires": lambda ledger: put(ledger, "b", NEVER),
    "a schedule of the same id": lambda ledger: put(ledger, "a", ledger.now() + LATER_MS, tenant=OTHER),
    "a schedule of the same id before it, sent before": lambda ledger: (
        put(ledger, "b", ledger.now() + LATER_MS),
        _put(ledger, ledger._client, load("schedule").text, ledger.now() + NEXT),
    ),
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


def _waits_with(ledger: Ledger, id: str = "b", **meta: Any) -> None:
    """A task that waits, and these fields in the shard's meta; None for a field that is not there."""
    add(ledger, id, delay_ms=LATER_MS)
    for field, value in meta.items():
        if value is None:
            ledger._client.hdel(keys_of(ledger._namespace, SHARD).meta, field)
        else:
            ledger._client.hset(keys_of(ledger._namespace, SHARD).meta, field, value)


def _leased(ledger: Ledger, id: str) -> Any:
    add(ledger, id)
    [task] = claim(ledger)
    return task


@pytest.mark.parametrize("asked", ASKED)
@pytest.mark.parametrize("standing", STANDING)
def test_the_short_way_does_as_the_long_way(redis_client: redis.Redis, standing: str, asked: str) -> None:
    short, long = (_outcome(redis_client, way, STANDING[standing], ASKED[asked]) for way in ("short", "long"))
    assert short == long


@pytest.mark.parametrize(("at", "size"), [(0, 2), (LATER_MS - 1, 2), (NEXT, 2), (NEXT, INSIDE + 1), (NEVER, 2)])
@pytest.mark.parametrize("standing", STANDING)
def test_the_short_way_of_a_schedule_does_as_the_long_way(
    redis_client: redis.Redis, standing: str, at: int, size: int
) -> None:
    def later(ledger: Ledger) -> int:
        return ledger.now() + LATER_MS

    def outcome(way: str) -> object:
        ledger = _standing(
            redis_client, way, lambda ledger: (put(ledger, "d", later(ledger)), STANDING[standing](ledger))
        )
        answer = _put(ledger, redis_client, _of(way, "schedule"), min(ledger.now() + at, NEVER), size)
        keys = keys_of(way, SHARD)
        data = redis_client.hget(keys.tasks, stored_schedule(OTHER, "a"))
        return answer, data and data[: RANDOM - len(ORIGIN)] + data[RANDOM:], _held(redis_client, keys)

    assert outcome("short") == outcome("long")


@pytest.mark.parametrize("computed_ms", [60_001, -61_000])
def test_the_short_way_rejects_what_a_wrong_clock_computed_as_the_long_way_does(
    redis_client: redis.Redis, computed_ms: int
) -> None:
    def answer(way: str) -> object:
        ledger = _standing(redis_client, way, STANDING["a schedule before it"])
        _, _, reply, _ = _put(ledger, redis_client, _of(way, "schedule"), ledger.now() + NEXT, computed_ms=computed_ms)
        return reply

    assert answer("short") == answer("long") == -2


def _put(ledger: Ledger, client: redis.Redis, script: str, at: int, size: int = 2, *, computed_ms: int = 0) -> Any:
    """What a put by this script answers; it was computed that much later."""
    payload = '"' + (size - 2) * "x" + '"'
    rest = pack_schedule(series("a", payload=payload, tenant=OTHER), begun(at), ORIGIN)
    every = (1, stored_schedule(OTHER, "a"), OTHER, "", at, rest, ledger.now() + computed_ms)
    keys = keys_of(ledger._namespace, SHARD)
    count, words = ledger._scripts.request(keys, [TENANT, OTHER], every, 1)
    return client.execute_command("EVAL", script, count, *words)  # type: ignore[no-untyped-call]


def _of(way: str, verb: str) -> str:
    text = load(verb).text
    for guard, shut in GUARDS.items():
        assert guard in text
        text = text if way == "short" else text.replace(guard, shut)
    return text


def _standing(client: redis.Redis, namespace: str, stand: Callable[[Ledger], object]) -> Ledger:
    """A ledger with something in its shard, whose clock travels."""
    ledger = Ledger(client, namespace, travel=HandClock())
    client.hset(keys_of(namespace, SHARD).meta, "clock", "travel")
    stand(ledger)
    return ledger


def _outcome(client: redis.Redis, namespace: str, stand: Callable[[Ledger], object], task: NewTask) -> object:
    """What an add answers, and what the shard's keys hold then but for random bytes; its namespace says which way."""
    ledger, keys = _standing(client, namespace, stand), keys_of(namespace, SHARD)
    every = (1, 1, "", 0, *script_codec.pack_new_task(task, ORIGIN, 0).arguments)
    count, words = ledger._scripts.request(keys, [task.tenant], every, 1)
    answer = client.execute_command("EVAL", _of(namespace, "add"), count, *words)  # type: ignore[no-untyped-call]
    if isinstance(answer, int):
        return answer, _held(client, keys)
    now, bell_at, replies, records, bodies = answer
    added = ledger.get("default", task.id, task.tenant)
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
    sets = [name for name in FIXED if name not in ("tasks", "meta", "bell", "late", "history")]
    places = {name: client.zrange(getattr(keys, name), 0, -1, withscores=True) for name in sets}
    due = {
        tenant: client.zrange(keys.due(tenant), 0, -1, withscores=True) for tenant in (DEFAULT_TENANT, "other", TENANT)
    }
    return client.hkeys(keys.tasks), client.hgetall(keys.meta), places, due


def test_the_usual_add_takes_it(redis_server: RedisServer) -> None:
    with connect(redis_server.url) as client:
        assert isinstance(client, redis.Redis)
        ledger = Ledger(client)
        add(ledger, "first", delay_ms=LATER_MS)
        with redis_server.client() as other:
            other.config_resetstat()
            ledger.add([new("second", delay_ms=NEXT)])
            stats = other.info("commandstats")
            assert stats["cmdstat_zadd"]["calls"] == 1
            assert "cmdstat_hexists" in stats, "the long way looks by HMGET"
            put(ledger, "first", ledger.now() + LATER_MS)
            other.config_resetstat()
            put(ledger, "second", ledger.now() + NEXT)
            assert "cmdstat_hexists" in other.info("commandstats"), "the long way looks by HGET"
