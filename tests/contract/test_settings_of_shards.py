"""Settings of a queue of several shards: one record, which is whole when a change is cut off, and sweeps carry on."""

import logging
from collections.abc import Sequence
from contextlib import suppress
from threading import Thread
from typing import cast

import pytest

from duecourse.adapters.redis.keys import keys_of
from duecourse.adapters.redis.queues import RECORD
from duecourse.adapters.redis.store import RedisStore
from duecourse.domain.queues import QueueChanges, QueueSettings, Rate, changed, share
from duecourse.domain.task import Shard
from duecourse.engine.queues import Queues
from duecourse.errors import StoreUnavailable
from duecourse.ports.store import Store
from tests.contract.conftest import SHARDS
from tests.support.clock import HandClock
from tests.support.cut_short import Cut, cut_after

BEFORE: QueueChanges = {"max_running": 80, "rate": Rate(160, 1_000), "priority": 3}
AFTER: QueueChanges = {"paused": True, "max_running": 16, "rate": None, "tenant_max_running": 9}
OLD = changed(QueueSettings(), BEFORE)
NEW = changed(OLD, AFTER)


def shards() -> list[Shard]:
    return [Shard("default", number) for number in range(SHARDS)]


def sweep(store: Store) -> None:
    store.sweep_all(shards(), retention_ms=1_000)


def settings(store: Store) -> tuple[QueueSettings, Sequence[QueueSettings]]:
    """Those of the queue, and those of each shard."""
    [whole] = store.settings_of(["default"])
    return whole, [store.stats(shard).settings for shard in shards()]


def parts(whole: QueueSettings) -> list[QueueSettings]:
    return [share(whole, number, SHARDS) for number in range(SHARDS)]


def test_a_change_that_is_cut_off_anywhere_is_made_whole_or_not_at_all(sharded: Store, clock: HandClock) -> None:
    steps, lagged, finished = 0, 0, False
    while not finished:
        sharded.configure("default", {**dict.fromkeys(AFTER), **BEFORE})
        clock.advance(1)
        with cut_after(cast(RedisStore, sharded), steps), suppress(Cut):
            sharded.configure("default", AFTER)
            finished = True
        seen = Queues(sharded).get("default")
        assert seen.settings in (OLD, NEW), steps
        lagged += bool(seen.lagging)
        sweep(sharded)
        assert settings(sharded) == (seen.settings, parts(seen.settings)), steps
        assert Queues(sharded).get("default").lagging == []
        steps += 1
    assert settings(sharded)[0] == NEW
    assert lagged >= SHARDS - 1


def test_a_second_try_reaches_every_shard(sharded: Store) -> None:
    with cut_after(cast(RedisStore, sharded), 2 * SHARDS), suppress(Cut):
        sharded.configure("default", AFTER)
    sharded.configure("default", AFTER)
    whole = changed(QueueSettings(), AFTER)
    assert settings(sharded) == (whole, parts(whole))


def test_a_change_is_made_once_its_record_is_and_what_it_did_not_reach_is_named(
    sharded: Store, caplog: pytest.LogCaptureFixture
) -> None:
    sharded.configure("default", BEFORE)
    short = cut_after(cast(RedisStore, sharded), 2 * SHARDS - 1, StoreUnavailable)
    with caplog.at_level(logging.WARNING), short, suppress(StoreUnavailable):  # of putting them on record again
        sharded.configure("default", {"paused": True})
    lagging = Queues(sharded).get("default").lagging
    assert lagging
    assert {f"default/{number} has the new settings" in caplog.text for number in lagging} == {True}
    sweep(sharded)
    assert all(one.paused for one in settings(sharded)[1])


def test_what_a_slow_writer_carries_on_takes_nothing_back(sharded: Store, clock: HandClock) -> None:
    verbs = cast(RedisStore, sharded)._verbs
    sharded.configure("default", {"priority": 1})
    [late] = verbs.scripts.read(("HMGET", keys_of("duecourse", Shard()).meta, *RECORD))
    clock.advance(1)
    sharded.configure("default", {"priority": 2})
    fields = [part for pair in zip(RECORD, late, strict=True) for part in (pair[0], pair[1] or b"")]
    for seen in (">", late[-1]):
        verbs.run("configure", Shard("default", 3), ["-"], ("r", seen, *fields))
    assert {one.priority for one in settings(sharded)[1]} == {2}


def test_of_two_writers_at_a_time_one_has_every_shard(sharded: Store) -> None:
    def write(priority: int) -> None:
        for paused in (True, False) * 5:
            sharded.configure("default", {"priority": priority, "paused": paused})

    writers = [Thread(target=write, args=(priority,)) for priority in (1, 2)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    whole, each = settings(sharded)
    assert each == parts(whole)


def test_a_change_that_is_sent_again_compares_with_the_record_alone(sharded: Store, clock: HandClock) -> None:
    sharded.configure("default", BEFORE)
    seen, mark, newer = sharded.mark_of("default"), bytes(8), bytes(7) + b"\1"
    with cut_after(cast(RedisStore, sharded), 2 * SHARDS), suppress(Cut):
        sharded.configure("default", AFTER, mark=mark, seen=seen)
    assert settings(sharded)[0] == NEW
    assert Queues(sharded).get("default").lagging, "it was cut off behind the record"
    assert sharded.configure("default", AFTER, mark=mark, seen=seen), "it goes on with what it has begun"
    assert settings(sharded) == (NEW, parts(NEW))
    clock.advance(1)
    assert sharded.configure("default", {"paused": False}, mark=newer, seen=sharded.mark_of("default"))
    done = settings(sharded)
    assert not sharded.configure("default", AFTER, mark=mark, seen=seen), "another change came"
    assert settings(sharded) == done
    verbs = cast(RedisStore, sharded)._verbs
    marks = verbs.scripts.read(*(("HGET", verbs.keys(shard).meta, "set_by") for shard in shards()))
    assert [bool(mark) for mark in marks] == [shard.number == 0 for shard in shards()]


@pytest.mark.parametrize("swept", [True, False])
def test_a_record_that_a_failover_lost_holds_up_no_later_one(sharded: Store, clock: HandClock, swept: bool) -> None:
    verbs, meta = cast(RedisStore, sharded)._verbs, keys_of("duecourse", Shard()).meta
    sharded.configure("default", BEFORE)
    [kept] = verbs.scripts.read(("HMGET", meta, *RECORD))
    clock.advance(1)
    sharded.configure("default", AFTER)
    verbs.scripts.command("HDEL", meta, *RECORD)
    verbs.scripts.command("HSET", meta, *(part for pair in zip(RECORD, kept, strict=True) if pair[1] for part in pair))
    clock.advance(1)
    if swept:
        sweep(sharded)
        assert settings(sharded) == (OLD, parts(OLD))
    sharded.configure("default", AFTER)
    assert settings(sharded) == (NEW, parts(NEW))


def test_a_default_that_is_cut_off_is_carried_on_as_a_default(sharded: Store) -> None:
    with cut_after(cast(RedisStore, sharded), 2 * SHARDS), suppress(Cut):
        sharded.configure("default", {"max_running": 8, "tenant_max_running": 8}, default=True)
    sweep(sharded)
    whole = QueueSettings(max_running=8, tenant_max_running=8)
    assert settings(sharded) == (whole, parts(whole))
    sharded.configure("default", {"max_running": 16})
    whole = QueueSettings(max_running=16)
    assert settings(sharded) == (whole, parts(whole))


def test_a_queue_of_one_shard_has_no_version(store: Store) -> None:
    store.configure("default", BEFORE)
    store.configure("default", {"max_running": 1}, default=True)
    assert cast(RedisStore, store)._scripts.command("HGET", keys_of("duecourse", Shard()).meta, "revision") is None
