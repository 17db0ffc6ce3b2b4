"""History of a queue in Redis: how large it may be, and that another program's values in its place hold up no task."""

import re
from collections.abc import Callable

import pytest
import redis

from duecourse.base.times import DAY_MS
from duecourse.ledger.keys import keys_of
from duecourse.ledger.operations.ledger import Ledger
from duecourse.ledger.script_calls import LUA, script_text
from duecourse.ledger.task import Ending
from tests.queues.test_rules_history import HOUR_MS, MINUTE_MS, shown, total, work
from tests.support.clock import HandClock
from tests.support.ledger import SHARD, claim, ending, new

KEYS = keys_of("duecourse", SHARD)
MOST_BYTES = 4_096


@pytest.fixture
def ledger(redis_client: redis.Redis, clock: HandClock) -> Ledger:
    return Ledger(redis_client, travel=clock)


def test_a_history_whose_lines_have_every_number_takes_at_most_four_kilobytes(
    ledger: Ledger, redis_client: redis.Redis, clock: HandClock
) -> None:
    clock.at = clock.at // DAY_MS * DAY_MS
    largest = 0
    for n in range(200):
        late = [2 ** (k % 32) for k in range(n, n + 64)]
        ledger.add([new(f"{n}-{k}") for k in range(64)])
        tasks = claim(ledger)
        clock.advance(2 ** (n % 24))
        ledger.settle(SHARD, [ending(t, Ending.DONE).with_lateness(t, ms) for t, ms in zip(tasks, late, strict=True)])
        ledger.sweep(SHARD, retention_ms=0)
        numbers = redis_client.hstrlen(KEYS.meta, "numbers")
        largest = max(largest, (redis_client.memory_usage(KEYS.history) or 0) + numbers)
        clock.advance((MINUTE_MS, 20 * MINUTE_MS, 2 * HOUR_MS)[n % 3])
    assert 3_000 < largest <= MOST_BYTES


GATHERED = re.compile(r"shard\.entries(, added)? = shard\.entries")


def test_a_number_of_a_minute_that_no_entry_holds_is_in_several(
    ledger: Ledger, redis_client: redis.Redis, clock: HandClock
) -> None:
    work(ledger, "before")
    minute = redis_client.hget(KEYS.meta, "numbers")[:5]
    redis_client.hset(KEYS.meta, "numbers", minute + b"\0\2\xff\xff" * 200)  # 200 times 65,535 done
    work(ledger, "after")
    assert redis_client.hstrlen(KEYS.meta, "numbers") > 800
    assert total(ledger, "1h")["done"] == 200 * 65_535 + 1
    clock.advance(MINUTE_MS)
    work(ledger, "another")
    assert total(ledger, "1h")["done"] == 200 * 65_535 + 2


SPOILT: dict[str, Callable[[redis.Redis], object]] = {
    "numbers that are none": lambda client: client.hset(KEYS.meta, "numbers", b"junk of another"),
    "numbers that are cut off": lambda client: client.hset(
        KEYS.meta, "numbers", client.hget(KEYS.meta, "numbers")[:-1]
    ),
    "a key of another type": lambda client: (client.delete(KEYS.history), client.set(KEYS.history, "x")),
    "a text that is cut off": lambda client: client.hset(
        KEYS.history, "minutes", (client.hget(KEYS.history, "minutes") or b"")[:-1]
    ),
    "a text of another program": lambda client: client.hset(KEYS.history, "days", b"\xff" * 9),
}


@pytest.mark.parametrize("spoil", SPOILT.values(), ids=SPOILT)
def test_what_another_program_leaves_in_its_place_holds_up_no_task_and_is_forgotten(
    ledger: Ledger, redis_client: redis.Redis, clock: HandClock, spoil: Callable[[redis.Redis], object]
) -> None:
    for n in range(3):
        work(ledger, f"before-{n}")
        clock.advance(MINUTE_MS)
    spoil(redis_client)
    for n in range(3):
        work(ledger, f"after-{n}")
        clock.advance(MINUTE_MS)
    assert ledger.stats(SHARD).done == 6
    assert {ago: done for ago, done in shown(ledger, "1h").items() if ago <= 3} == {3: 1, 2: 1, 1: 1}
    assert total(ledger, "90d")["done"] >= 3


NO_DEATHS = {"bulk", "cancel", "move", "replay", "unschedule"}
"""Scripts that write records as those do by which tasks die, and let none die."""


def test_each_script_that_gathers_numbers_writes_them() -> None:
    texts = {path.stem: script_text(path.stem) for path in LUA.glob("*.lua")}
    gathering = {verb for verb, text in texts.items() if GATHERED.search(text)}
    assert gathering >= {"add", "begin", "claim", "fire", "settle", "sweep", "take"}
    for verb in gathering - NO_DEATHS:
        assert "numbers.write()" in texts[verb], verb
        assert "lines.close(minute)" in texts[verb], verb
