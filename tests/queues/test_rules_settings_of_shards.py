"""Settings of a queue of several shards: one record, which is whole when a change is cut off, and sweeps carry on."""

import logging
from collections.abc import Sequence
from contextlib import suppress
from threading import Thread
from typing import cast

import pytest

from duecourse.errors import StoreUnavailable
from duecourse.ledger.keys import keys_of
from duecourse.ledger.operations.ledger import Ledger
from duecourse.ledger.operations.queues import RECORD
from duecourse.ledger.queue import QueueChanges, QueueSettings, Rate, apply_changes, share
from duecourse.ledger.task import Shard
from duecourse.queues.http import show_queue
from duecourse.queues.verbs import Queues
from tests.support.clock import HandClock
from tests.support.crashes import Crash, cut_after
from tests.support.stores import SHARDS

BEFORE: QueueChanges = {"max_running": 80, "rate": Rate(160, 1_000), "priority": 3}
AFTER: QueueChanges = {"paused": True, "max_running": 16, "rate": None, "tenant_max_running": 9}
OLD = apply_changes(QueueSettings(), BEFORE)
NEW = apply_changes(OLD, AFTER)


def shards() -> list[Shard]:
    return [Shard("default", number) for number in range(SHARDS)]


def sweep(ledger: Ledger) -> None:
    ledger.sweep_all(shards(), retention_ms=1_000)


def settings(ledger: Ledger) -> tuple[QueueSettings, Sequence[QueueSettings]]:
    """Those of the queue, and those of each shard."""
    [whole] = ledger.settings_of(["default"])
    return whole, [ledger.stats(shard).settings for shard in shards()]


def parts(whole: QueueSettings) -> list[QueueSettings]:
    return [share(whole, number, SHARDS) for number in range(SHARDS)]


def test_a_change_that_is_cut_off_anywhere_is_made_whole_or_not_at_all(sharded: Ledger, clock: HandClock) -> None:
    steps, lagged, finished = 0, 0, False
    while not finished:
        sharded.configure("default", {**dict.fromkeys(AFTER), **BEFORE})
        clock.advance(1)
        with cut_after(cast(Ledger, sharded), steps), suppress(Crash):
            sharded.configure("default", AFTER)
            finished = True
        seen = Queues(sharded).get("default")
        assert seen.settings in (OLD, NEW), steps
        lagged += bool(seen.lagging)
        assert show_queue(seen).get("lagging", []) == seen.lagging
        sweep(sharded)
        assert settings(sharded) == (seen.settings, parts(seen.settings)), steps
        assert Queues(sharded).get("default").lagging == []
        steps += 1
    assert settings(sharded)[0] == NEW
    assert lagged >= SHARDS - 1


def test_a_second_try_reaches_every_shard(sharded: Ledger) -> None:
    with cut_after(cast(Ledger, sharded), 2 * SHARDS), suppress(Crash):
        sharded.configure("default", AFTER)
    sharded.configure("default", AFTER)
    whole = apply_changes(QueueSettings(), AFTER)
    assert settings(sharded) == (whole, parts(whole))


def test_a_change_is_made_once_its_record_is_and_what_it_did_not_reach_is_named(
    sharded: Ledger, caplog: pytest.LogCaptureFixture
) -> None:
    sharded.configure("default", BEFORE)
    short = cut_after(cast(Ledger, sharded), 2 * SHARDS - 1, StoreUnavailable)
    with caplog.at_level(logging.WARNING), short, suppress(StoreUnavailable):  # of registering them again
        sharded.configure("default", {"paused": True})
    lagging = Queues(sharded).get("default").lagging
    assert lagging
    assert {f"default/{number} has the new settings" in caplog.text for number in lagging} == {True}
    sweep(sharded)
    assert all(one.paused for one in settings(sharded)[1])


def test_what_a_slow_writer_carries_on_takes_nothing_back(sharded: Ledger, clock: HandClock) -> None:
    verbs = cast(Ledger, sharded)._runner
    sharded.configure("default", {"priority": 1})
    [late] = verbs.scripts.read(("HMGET", keys_of("duecourse", Shard()).meta, *RECORD))
    clock.advance(1)
    sharded.configure("default", {"priority": 2})
    fields = [part for pair in zip(RECORD, late, strict=True) for part in (pair[0], pair[1] or b"")]
    for seen in (">", late[-1]):
        verbs.run("configure", Shard("default", 3), ["-"], ("r", seen, *fields))
    assert {one.priority for one in settings(sharded)[1]} == {2}


def test_of_two_writers_at_a_time_one_has_every_shard(sharded: Ledger) -> None:
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


def test_a_change_that_is_sent_again_compares_with_the_record_alone(sharded: Ledger, clock: HandClock) -> None:
    sharded.configure("default", BEFORE)
    seen, mark, newer = sharded.mark_of("default"), bytes(8), bytes(7) + b"\1"
    with cut_after(cast(Ledger, sharded), 2 * SHARDS), suppress(Crash):
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
    verbs = cast(Ledger, sharded)._runner
    marks = verbs.scripts.read(*(("HGET", verbs.keys(shard).meta, "set_by") for shard in shards()))
    assert [bool(mark) for mark in marks] == [shard.number == 0 for shard in shards()]


@pytest.mark.parametrize("swept", [True, False])
def test_a_record_that_a_failover_lost_holds_up_no_later_one(sharded: Ledger, clock: HandClock, swept: bool) -> None:
    verbs, meta = cast(Ledger, sharded)._runner, keys_of("duecourse", Shard()).meta
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
    sharded.configure("default", {"priority": 7})
    later = apply_changes(OLD, {"priority": 7})
    assert settings(sharded) == (later, parts(later)), "a version that shards have already would not reach them"


def test_a_default_that_is_cut_off_is_carried_on_as_a_default(sharded: Ledger) -> None:
    with cut_after(cast(Ledger, sharded), 2 * SHARDS), suppress(Crash):
        sharded.configure("default", {"max_running": 8, "tenant_max_running": 8}, default=True)
    sweep(sharded)
    whole = QueueSettings(max_running=8, tenant_max_running=8)
    assert settings(sharded) == (whole, parts(whole))
    sharded.configure("default", {"max_running": 16})
    whole = QueueSettings(max_running=16)
    assert settings(sharded) == (whole, parts(whole))


def test_a_queue_of_one_shard_has_no_version(ledger: Ledger) -> None:
    ledger.configure("default", BEFORE)
    ledger.configure("default", {"max_running": 1}, default=True)
    assert cast(Ledger, ledger)._scripts.command("HGET", keys_of("duecourse", Shard()).meta, "revision") is None
