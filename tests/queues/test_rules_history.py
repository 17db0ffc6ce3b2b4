"""History of a queue: numbers by minute, hour and day, bounded in size, whose sums are exact."""

import pytest

from duecourse.base.times import DAY_MS
from duecourse.ledger.operation_types import Delivery
from duecourse.ledger.operations.ledger import Ledger
from duecourse.ledger.queue_history import (
    COUNTS,
    HistoryLine,
    HistorySpan,
    QueueHistory,
    QueueNumbers,
    history_of,
)
from duecourse.ledger.task import Ending, OnDuplicate, Shard, Task
from tests.support.clock import HandClock
from tests.support.ledger import LATER_MS, LEASE_MS, SHARD, claim, claim_one, ending, lease_of, new, settle
from tests.support.schedules import fire, put

MINUTE_MS, HOUR_MS = 60_000, 3_600_000
MOST_BYTES = 4_096
LONG = 160
"""More bytes than a minute of few kinds of numbers has."""


def history(ledger: Ledger, span: HistorySpan = "1h", queue: str = "default") -> QueueHistory:
    """The history of a queue with all its shards."""
    shards = [shard for shard in ledger.shards() if shard.queue == queue]
    return history_of(queue, span, ledger.history_of(shards), ledger.now())


def counts(numbers: QueueNumbers) -> dict[str, int]:
    """The counts that are not 0, by name."""
    return {name: getattr(numbers, name) for name in COUNTS if getattr(numbers, name)}


def total(ledger: Ledger, span: HistorySpan = "1h") -> dict[str, int]:
    return counts(history(ledger, span).total)


def shown(ledger: Ledger, span: HistorySpan) -> dict[int, int]:
    """Number of tasks done by how many lines ago."""
    lines = history(ledger, span).lines
    return {len(lines) - 1 - n: line.numbers.done for n, line in enumerate(lines) if line.numbers.done}


def work(ledger: Ledger, id: str = "a", *, late_ms: int = 0) -> None:
    """Add, claim and end one task."""
    task = claim_one(ledger, id)
    ledger.settle(SHARD, [ending(task, Ending.DONE).with_lateness(task, late_ms)])


def test_a_queue_without_tasks_has_lines_without_numbers(ledger: Ledger) -> None:
    assert [counts(line.numbers) for line in history(ledger).lines] == [{}] * 60


ENDS: dict[str, tuple[Ending, dict[str, int]]] = {
    "done": (Ending.DONE, {"done": 1}),
    "again": (Ending.AGAIN, {"again": 1}),
    "retry": (Ending.RETRY, {"retried": 1}),
    "drop": (Ending.DROP, {"dead": 1}),
    "release": (Ending.RELEASE, {}),
}


@pytest.mark.parametrize("how", ENDS)
@pytest.mark.parametrize("result", ["", '{"rows":3}'])
def test_each_end_of_a_run_is_counted_once(ledger: Ledger, how: str, result: str) -> None:
    task = claim_one(ledger)
    kind, expected = ENDS[how]
    for _ in range(2):  # the second is a repeat, whose answer was lost
        settle(ledger, task, kind, result=result if how == "done" else "", delay_ms=LATER_MS)
    assert total(ledger) == {"added": 1, "claimed": 1, **expected}


def test_the_durations_of_a_run_are_counted_by_powers_of_two(ledger: Ledger, clock: HandClock) -> None:
    ledger.add([new("a")])
    clock.advance(300)
    [task] = claim(ledger)
    clock.advance(5_000)
    ledger.settle(SHARD, [ending(task, Ending.DONE).with_lateness(task, 700)])
    found = history(ledger).total
    assert found.lateness == {10: 1}, "1,000 ms is under 2^10"
    assert found.run_time == {13: 1}, "4,300 ms is under 2^13"
    assert found.wait == {10: 1}, "700 ms is under 2^10"


@pytest.mark.parametrize("how", ["done", "again", "retry", "drop"])
def test_the_run_time_of_each_end_is_counted(ledger: Ledger, clock: HandClock, how: str) -> None:
    task = claim_one(ledger)
    clock.advance(40)
    settle(ledger, task, ENDS[how][0], delay_ms=LATER_MS)
    assert history(ledger).total.run_time == {6: 1}


def test_a_run_that_is_given_back_has_no_run_time(ledger: Ledger, clock: HandClock) -> None:
    task = claim_one(ledger)
    clock.advance(40)
    settle(ledger, task, Ending.RELEASE, delay_ms=LATER_MS)
    assert history(ledger).total.run_time == {}


def test_a_task_that_a_function_works_has_the_durations_of_its_run(ledger: Ledger, clock: HandClock) -> None:
    ledger.add([new("a", kind="report")])
    clock.advance(100)
    [task] = ledger.claim(
        SHARD, 1, lease_ms=LEASE_MS, deliveries={"report": Delivery("lambda:report", 1, LATER_MS)}
    ).tasks
    clock.advance(20)
    [begun] = ledger.begin(SHARD, [lease_of(task)], LEASE_MS, [bytes(8)])
    clock.advance(3)
    settle(ledger, begun.under(task), Ending.DONE)
    found = history(ledger).total
    assert counts(found) == {"added": 1, "claimed": 1, "done": 1}
    assert (found.wait, found.lateness, found.run_time) == ({5: 1}, {7: 1}, {2: 1})


def test_a_task_that_is_taken_by_hand_is_counted(ledger: Ledger) -> None:
    ledger.add([new("a")])
    task = ledger.take("default", "a", lease_ms=LEASE_MS)
    assert task
    settle(ledger, task, Ending.DONE)
    assert total(ledger) == {"added": 1, "claimed": 1, "done": 1}


def test_a_lease_that_lapses_is_a_retry_and_at_last_a_death(ledger: Ledger, clock: HandClock) -> None:
    claim_one(ledger)
    for _ in range(3):  # of three attempts
        clock.advance(LEASE_MS)
        ledger.sweep(SHARD, retention_ms=DAY_MS)
        clock.advance(10 * MINUTE_MS)
        claim(ledger)
    assert total(ledger) == {"added": 1, "claimed": 3, "retried": 2, "dead": 1}


def test_a_replacement_of_a_task_that_fails_for_good_is_no_death(ledger: Ledger) -> None:
    task = claim_one(ledger)
    ledger.add([new("a", delay_ms=LATER_MS, on_duplicate=OnDuplicate.REPLACE)])
    settle(ledger, task, Ending.DROP)
    assert total(ledger) == {"added": 2, "claimed": 1}
    assert history(ledger).total.run_time == {0: 1}


def test_a_task_that_expires_unclaimed_is_dead(ledger: Ledger, clock: HandClock) -> None:
    ledger.add([new("a", deadline_ms=1)])
    clock.advance(2)
    claim(ledger)
    assert total(ledger) == {"added": 1, "dead": 1}


def test_a_delivery_that_begins_after_its_deadline_is_dead(ledger: Ledger, clock: HandClock) -> None:
    ledger.add([new("a", kind="report", deadline_ms=5)])
    deliveries = {"report": Delivery("lambda:report", 1, LATER_MS)}
    [task] = ledger.claim(SHARD, 1, lease_ms=LEASE_MS, deliveries=deliveries).tasks
    clock.advance(5)
    ledger.begin(SHARD, [lease_of(task)], LEASE_MS, [bytes(8)])
    assert total(ledger) == {"added": 1, "claimed": 1, "dead": 1}


@pytest.mark.parametrize("times", [1, 2])
def test_adds_count_what_they_add(ledger: Ledger, times: int) -> None:
    for _ in range(times):
        ledger.add([new("soon"), new("later", delay_ms=LATER_MS)])  # the second time, both are there
        ledger.add([new("alone", delay_ms=2 * LATER_MS)])
    assert total(ledger) == {"added": 3}


def test_a_replacement_counts_and_a_debounce_does_not(ledger: Ledger) -> None:
    ledger.add([new("a", delay_ms=LATER_MS)])
    ledger.add([new("a", delay_ms=LATER_MS, on_duplicate=OnDuplicate.REPLACE)])
    ledger.add([new("a", delay_ms=LATER_MS, on_duplicate=OnDuplicate.DEBOUNCE)])
    assert total(ledger) == {"added": 2}


def test_numbers_are_in_the_line_of_their_minute(ledger: Ledger, clock: HandClock) -> None:
    work(ledger, "a")
    clock.advance(MINUTE_MS)
    work(ledger, "b")
    work(ledger, "c")
    clock.advance(2 * MINUTE_MS)
    assert shown(ledger, "1h") == {3: 1, 2: 2}
    work(ledger, "d")
    assert shown(ledger, "1h") == {3: 1, 2: 2, 0: 1}
    line: HistoryLine = history(ledger).lines[-1]
    assert line.at == clock.now() // MINUTE_MS * MINUTE_MS


LONG_LEASE_MS = 60 * MINUTE_MS


def by_minute(ledger: Ledger) -> dict[int, dict[str, int]]:
    """Counts by how many minutes ago, of the minutes in which there are any."""
    lines = enumerate(reversed(history(ledger).lines))
    return {ago: found for ago, line in lines if (found := counts(line.numbers))}


def test_an_add_a_claim_and_a_settle_count_in_their_own_minutes(ledger: Ledger, clock: HandClock) -> None:
    ledger.add([new("a")])
    clock.advance(MINUTE_MS)
    [task] = claim(ledger, lease_ms=LONG_LEASE_MS)
    clock.advance(MINUTE_MS)
    settle(ledger, task, Ending.DONE)
    assert by_minute(ledger) == {2: {"added": 1}, 1: {"claimed": 1}, 0: {"done": 1}}
    clock.advance(MINUTE_MS)
    ledger.add([new("b", delay_ms=10 * MINUTE_MS)])
    ledger.add([new("c", delay_ms=11 * MINUTE_MS)])
    clock.advance(MINUTE_MS)
    ledger.add([new("d", delay_ms=11 * MINUTE_MS)])
    assert by_minute(ledger) == {4: {"added": 1}, 3: {"claimed": 1}, 2: {"done": 1}, 1: {"added": 2}, 0: {"added": 1}}


def test_a_take_a_begin_a_lapse_and_an_occurrence_count_in_their_own_minutes(ledger: Ledger, clock: HandClock) -> None:
    ledger.add([new("a"), new("b", kind="report")])
    clock.advance(MINUTE_MS)
    assert ledger.take("default", "a", lease_ms=LONG_LEASE_MS)
    clock.advance(MINUTE_MS)
    [task] = ledger.claim(SHARD, 9, lease_ms=1, deliveries={"report": Delivery("lambda:r", 1, LONG_LEASE_MS)}).tasks
    clock.advance(MINUTE_MS)
    ledger.begin(SHARD, [lease_of(task)], 1_000, [bytes(8)])
    waits = [line.numbers.wait for line in history(ledger).lines[-4:]]
    assert waits == [{}, {}, {}, {16: 1}]
    clock.advance(MINUTE_MS)
    for _ in range(2):  # what lapsed unattended gets some seconds more
        ledger.sweep(SHARD, retention_ms=DAY_MS)
        clock.advance(10_000)
    put(ledger, at=clock.now())
    clock.advance(MINUTE_MS)
    fire(ledger)
    once = [{"claimed": 1}, {"claimed": 1}, {"retried": 1}, {"added": 1}]
    assert by_minute(ledger) == {5: {"added": 2}, **dict(zip((4, 3, 1, 0), once, strict=True))}


@pytest.mark.parametrize(
    ("span", "unit_ms", "kept"),
    [("1h", MINUTE_MS, 60), ("1d", HOUR_MS, 24), ("7d", HOUR_MS, 168), ("90d", DAY_MS, 90)],
)
def test_lines_are_kept_for_their_span(
    ledger: Ledger, clock: HandClock, span: HistorySpan, unit_ms: int, kept: int
) -> None:
    clock.at = clock.at // DAY_MS * DAY_MS
    work(ledger)
    for unit in range(1, kept + 2):
        clock.advance(unit_ms)
        if unit % 7 == 0:  # else the first stays in the minute that is counted
            work(ledger, f"t{unit}")
        ago = {unit - n for n in range(0, unit + 1, 7) if unit - n < kept}
        assert shown(ledger, span) == dict.fromkeys(sorted(ago, reverse=True), 1)


def test_minutes_add_up_to_hours_and_days(ledger: Ledger, clock: HandClock) -> None:
    clock.at = clock.at // DAY_MS * DAY_MS
    for n in range(50):
        work(ledger, f"t{n}", late_ms=2**n % 1_000)
        clock.advance(HOUR_MS // 2)
    assert shown(ledger, "1d") == dict.fromkeys([*range(23, 0, -1)], 2)
    assert shown(ledger, "7d") == dict.fromkeys([*range(25, 0, -1)], 2)
    assert shown(ledger, "90d") == {1: 48, 0: 2}
    week, days = history(ledger, "7d").total, history(ledger, "90d").total
    assert week == days
    assert sum(week.lateness.values()) == sum(week.run_time.values()) == 50


def test_the_lines_of_shards_add_up(sharded: Ledger, clock: HandClock) -> None:
    for _ in range(2):
        for n in range(40):
            sharded.add([new(f"{clock.now()}-{n}", tenant="ab"[n % 2])])
        clock.advance(9)
        for shard in sharded.shards():
            tasks = sharded.claim(shard, 100, lease_ms=LEASE_MS).tasks
            sharded.settle(shard, [ending(task, Ending.DONE).with_lateness(task, 0) for task in tasks])
        clock.advance(MINUTE_MS)
    found = history(sharded)
    assert [counts(line.numbers) for line in found.lines[-3:]] == [
        {"added": 40, "claimed": 40, "done": 40},
        {"added": 40, "claimed": 40, "done": 40},
        {},
    ]
    assert found.total.lateness == {4: 80}


# Bounds.


def texts(ledger: Ledger, shard: Shard = SHARD) -> dict[str, int]:
    """Bytes of each text of the history."""
    keys = ledger._runner.keys(shard)
    [found] = ledger._scripts.read(("HGETALL", keys.history))
    return {name.decode(): len(text) for name, text in found.items()}


def numbers_of(ledger: Ledger, shard: Shard = SHARD) -> bytes:
    """The numbers of the current minute, as they are kept."""
    [found] = ledger._scripts.read(("HGET", ledger._runner.keys(shard).meta, "numbers"))
    return bytes(found)


def crowd(ledger: Ledger, n: int) -> int:
    """A run whose durations are in other buckets than those before; answers how many tasks it ended."""
    ids = [f"{n}-{k}" for k in range(4)]
    ledger.add([new(id) for id in ids])
    tasks: list[Task] = claim(ledger)
    ledger.settle(
        SHARD,
        [ending(task, Ending.DONE).with_lateness(task, 2 ** ((n * 5 + k * 7) % 32)) for k, task in enumerate(tasks)],
    )
    ledger.sweep(SHARD, retention_ms=0)
    return len(tasks)


def test_a_history_is_bounded_and_its_sums_stay_exact(ledger: Ledger, clock: HandClock) -> None:
    clock.at = clock.at // DAY_MS * DAY_MS
    done = 0
    for hour in range(120):
        for _ in range(3):
            done += crowd(ledger, done)
            clock.advance(MINUTE_MS)
        clock.advance(HOUR_MS - 3 * MINUTE_MS)
        assert sum(texts(ledger).values()) < MOST_BYTES * 3 // 4, hour
    assert done == 120 * 3 * 4
    work(ledger, "closes the last minute")
    assert texts(ledger)["hours"] > 1_000, "the bound was met"
    for span in ("7d", "90d"):
        assert total(ledger, span)["done"] == done + 1  # type: ignore[arg-type]
        assert sum(history(ledger, span).total.lateness.values()) == done + 1  # type: ignore[arg-type]


def test_the_newest_lines_keep_their_detail(ledger: Ledger, clock: HandClock) -> None:
    clock.at = clock.at // DAY_MS * DAY_MS
    done = 0
    for _ in range(100):
        for _ in range(4):
            done += crowd(ledger, done)
        clock.advance(HOUR_MS)
    work(ledger, "closes the last minute")
    lines = history(ledger, "7d").lines
    assert [line.numbers.done for line in lines[-7:]] == [16] * 6 + [1]
    [found] = ledger.history_of([SHARD])
    widths = [line.width for line in found.lines["hours"]]
    assert widths[0] == 1
    assert max(widths) > 2
    assert widths.index(max(widths)) > len(widths) // 2, "the widest are among the older ones"


def test_a_busy_minute_is_bounded_too(ledger: Ledger, clock: HandClock) -> None:
    clock.at = clock.at // MINUTE_MS * MINUTE_MS
    for n in range(200):
        work(ledger, f"t{n}", late_ms=n % 7)
        assert len(numbers_of(ledger)) <= LONG
    assert total(ledger) == dict.fromkeys(["added", "claimed", "done"], 200)
    assert sum(history(ledger).total.lateness.values()) == 200


def test_lines_that_are_older_than_their_span_are_dropped(ledger: Ledger, clock: HandClock) -> None:
    for _ in range(3):
        for n in range(20):
            work(ledger, f"{clock.now()}-{n}", late_ms=2**n)
            clock.advance(MINUTE_MS)
        clock.advance(8 * DAY_MS)
        work(ledger, f"{clock.now()}")
        clock.advance(MINUTE_MS)
        work(ledger, f"{clock.now()}")
        [found] = ledger.history_of([SHARD])
        assert [len(found.lines[field]) for field in ("minutes", "hours")] == [1, 1]
    assert total(ledger, "90d")["done"] == 66


# A clock that is wrong.


@pytest.mark.parametrize("back_ms", [1, MINUTE_MS, 30 * MINUTE_MS, 3 * DAY_MS])
def test_what_was_counted_under_a_clock_that_was_ahead_is_in_the_current_line(
    ledger: Ledger, clock: HandClock, back_ms: int
) -> None:
    clock.at = clock.at // DAY_MS * DAY_MS + 20 * MINUTE_MS
    work(ledger, "before")
    clock.advance(back_ms)
    work(ledger, "ahead")
    clock.advance(MINUTE_MS)
    work(ledger, "ahead too")
    clock.advance(-back_ms - MINUTE_MS)
    spans: list[HistorySpan] = ["7d", "90d"]
    assert [total(ledger, span)["done"] for span in spans] == [3, 3]
    work(ledger, "back")
    clock.advance(MINUTE_MS)
    work(ledger, "later")
    assert [total(ledger, span)["done"] for span in spans] == [5, 5]
    assert shown(ledger, "1h").keys() == {0, 1}
    clock.advance(2 * HOUR_MS)
    work(ledger, "much later")
    assert shown(ledger, "1h") == {0: 1}
    assert shown(ledger, "1d") == {2: 5, 0: 1}
