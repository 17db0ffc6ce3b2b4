"""One tenant's part of a queue in numbers: its own, whatever the others have."""

from duecourse.ledger.operation_types import LOOKED_AT, Move
from duecourse.ledger.operations.ledger import Ledger
from duecourse.ledger.queue import QueueSettings, Stats
from duecourse.ledger.task import BY_LENGTH, Ending, Shard
from tests.support.clock import HandClock
from tests.support.ledger import LATER_MS, LEASE_MS, SHARD, ending, new

NOTHING = Stats(0, 0, 0, 0, 0, 0, QueueSettings(), 0)


def part(ledger: Ledger, tenant: str) -> Stats:
    [found] = ledger.stats_of_tenant([SHARD], tenant)
    assert isinstance(found, Stats)
    return found


def ended(ledger: Ledger, how: Ending, *tasks: tuple[str, str]) -> None:
    """Add tasks, claim them, and end them."""
    ledger.add([new(id, tenant=tenant) for tenant, id in tasks])
    claimed = ledger.claim(SHARD, 500, lease_ms=LEASE_MS).tasks
    assert len(claimed) == len(tasks)
    ledger.settle(SHARD, [ending(task, how) for task in claimed])


def test_each_state_is_counted_for_its_tenant(ledger: Ledger, clock: HandClock) -> None:
    ended(ledger, Ending.DONE, ("acme", "a"), ("acme", "b"), ("globex", "a"))
    ended(ledger, Ending.DROP, ("acme", "c"), ("globex", "c"), ("globex", "d"))
    ledger.add([new("e", tenant="acme"), new("e", tenant="globex")])
    ledger.claim(SHARD, 2, lease_ms=LEASE_MS)
    ledger.add([new("f", tenant="acme"), new("g", tenant="acme", delay_ms=LATER_MS), new("f", tenant="globex")])
    due_at = clock.now()
    clock.advance(1_500)
    settings = QueueSettings()
    assert part(ledger, "acme") == Stats(2, 1, 2, 1, due_at, 0, settings, clock.now())
    assert part(ledger, "globex") == Stats(1, 1, 1, 2, due_at, 0, settings, clock.now())
    whole = ledger.stats(SHARD)
    assert (whole.scheduled, whole.leased, whole.done, whole.dead) == (3, 2, 3, 3)


def test_whose_the_dead_are_is_known(ledger: Ledger) -> None:
    assert ledger.dead_by_tenant([]) == ledger.dead_by_tenant([SHARD]) == {}
    ended(ledger, Ending.DROP, ("acme", "c"), ("globex", "c"), ("globex", "d"))
    ended(ledger, Ending.DONE, ("-", "a"))
    assert ledger.dead_by_tenant([SHARD]) == {"acme": 1, "globex": 2}


def test_a_tenant_without_tasks_has_none_even_if_its_name_begins_as_another_does(
    ledger: Ledger, clock: HandClock
) -> None:
    ended(ledger, Ending.DONE, ("acme", "a"))
    ledger.add([new("b", tenant="acme")])
    for stranger in ("acm", "acme2", "-", "acme:x"):
        assert part(ledger, stranger) == NOTHING._replace(now=clock.now())


def test_the_settings_are_the_part_of_the_shard(sharded: Ledger) -> None:
    sharded.configure("default", {"max_running": 17})
    parts = sharded.stats_of_tenant(sharded.shards(), "acme")
    assert [one.settings.max_running for one in parts if isinstance(one, Stats)] == [3, *[2] * 7]


def test_what_others_finished_later_hides_what_is_old(ledger: Ledger) -> None:
    ended(ledger, Ending.DONE, ("acme", "a"))
    ledger.add([new("b", tenant="acme", delay_ms=LATER_MS)])
    for first in range(0, LOOKED_AT - 1, 333):
        ended(ledger, Ending.DONE, *(("globex", f"g-{n}") for n in range(first, first + 333)))
    assert (part(ledger, "acme").done, part(ledger, "globex").done) == (1, LOOKED_AT - 1)
    ended(ledger, Ending.DONE, ("globex", "last"))
    assert (part(ledger, "acme").done, part(ledger, "globex").done) == (0, LOOKED_AT)
    assert part(ledger, "acme").scheduled == 1


def test_the_longest_name_of_a_source_is_kept_by_each_change(ledger: Ledger) -> None:
    by = "http:arn:aws:sts::123456789012:assumed-role/" + "r" * 64 + "/" + "s" * 64
    assert len(by) < BY_LENGTH
    ledger.add([new("a", by=by, delay_ms=LATER_MS)])
    for number in range(25):
        ledger.move("default", [Move("a", delay_ms=LATER_MS + number, by=by)])
    ledger.cancel("default", ["a"], by=by)
    task = ledger.get("default", "a")
    assert task is not None
    assert {entry.by for entry in task.log} | {task.by} == {by}  # type: ignore[union-attr]
    assert (len(task.log), task.forgotten) == (20, 6)


def test_a_shard_that_does_not_exist_is_empty(ledger: Ledger, clock: HandClock) -> None:
    assert ledger.stats_of_tenant([], "acme") == []
    assert ledger.stats_of_tenant([Shard("nowhere")], "acme") == [NOTHING._replace(now=clock.now())]
