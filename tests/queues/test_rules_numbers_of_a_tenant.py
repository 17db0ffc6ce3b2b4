"""One tenant's part of a queue in numbers: its own, whatever the others have."""

from duecourse.ledger.operations import LOOKED_AT, Move
from duecourse.ledger.queue import QueueSettings, Stats
from duecourse.ledger.store.ledger import Ledger
from duecourse.ledger.task import BY_LENGTH, Ending, Shard
from tests.support.clock import HandClock
from tests.support.ledger import LATER_MS, LEASE_MS, SHARD, ending, new

NOTHING = Stats(0, 0, 0, 0, 0, 0, QueueSettings(), 0)


def part(store: Ledger, tenant: str) -> Stats:
    [found] = store.stats_of_tenant([SHARD], tenant)
    assert isinstance(found, Stats)
    return found


def ended(store: Ledger, how: Ending, *tasks: tuple[str, str]) -> None:
    """Add tasks, claim them, and end them."""
    store.add([new(id, tenant=tenant) for tenant, id in tasks])
    claimed = store.claim(SHARD, 500, lease_ms=LEASE_MS).tasks
    assert len(claimed) == len(tasks)
    store.settle(SHARD, [ending(task, how) for task in claimed])


def test_each_state_is_counted_for_its_tenant(store: Ledger, clock: HandClock) -> None:
    ended(store, Ending.DONE, ("acme", "a"), ("acme", "b"), ("globex", "a"))
    ended(store, Ending.DROP, ("acme", "c"), ("globex", "c"), ("globex", "d"))
    store.add([new("e", tenant="acme"), new("e", tenant="globex")])
    store.claim(SHARD, 2, lease_ms=LEASE_MS)
    store.add([new("f", tenant="acme"), new("g", tenant="acme", delay_ms=LATER_MS), new("f", tenant="globex")])
    due_at = clock.now()
    clock.advance(1_500)
    settings = QueueSettings()
    assert part(store, "acme") == Stats(2, 1, 2, 1, due_at, 0, settings, clock.now())
    assert part(store, "globex") == Stats(1, 1, 1, 2, due_at, 0, settings, clock.now())
    whole = store.stats(SHARD)
    assert (whole.scheduled, whole.leased, whole.done, whole.dead) == (3, 2, 3, 3)


def test_whose_the_dead_are_is_known(store: Ledger) -> None:
    assert store.dead_by_tenant([]) == store.dead_by_tenant([SHARD]) == {}
    ended(store, Ending.DROP, ("acme", "c"), ("globex", "c"), ("globex", "d"))
    ended(store, Ending.DONE, ("-", "a"))
    assert store.dead_by_tenant([SHARD]) == {"acme": 1, "globex": 2}


def test_a_tenant_without_tasks_has_none_even_if_its_name_begins_as_another_does(
    store: Ledger, clock: HandClock
) -> None:
    ended(store, Ending.DONE, ("acme", "a"))
    store.add([new("b", tenant="acme")])
    for stranger in ("acm", "acme2", "-", "acme:x"):
        assert part(store, stranger) == NOTHING._replace(now=clock.now())


def test_the_settings_are_the_part_of_the_shard(sharded: Ledger) -> None:
    sharded.configure("default", {"max_running": 17})
    parts = sharded.stats_of_tenant(sharded.shards(), "acme")
    assert [one.settings.max_running for one in parts if isinstance(one, Stats)] == [3, *[2] * 7]


def test_what_others_finished_later_hides_what_is_old(store: Ledger) -> None:
    ended(store, Ending.DONE, ("acme", "a"))
    store.add([new("b", tenant="acme", delay_ms=LATER_MS)])
    for first in range(0, LOOKED_AT - 1, 333):
        ended(store, Ending.DONE, *(("globex", f"g-{n}") for n in range(first, first + 333)))
    assert (part(store, "acme").done, part(store, "globex").done) == (1, LOOKED_AT - 1)
    ended(store, Ending.DONE, ("globex", "last"))
    assert (part(store, "acme").done, part(store, "globex").done) == (0, LOOKED_AT)
    assert part(store, "acme").scheduled == 1


def test_the_longest_name_of_a_source_is_kept_by_each_change(store: Ledger) -> None:
    by = "http:arn:aws:sts::123456789012:assumed-role/" + "r" * 64 + "/" + "s" * 64
    assert len(by) < BY_LENGTH
    store.add([new("a", by=by, delay_ms=LATER_MS)])
    for number in range(25):
        store.move("default", [Move("a", delay_ms=LATER_MS + number, by=by)])
    store.cancel("default", ["a"], by=by)
    task = store.get("default", "a")
    assert task is not None
    assert {entry.by for entry in task.log} | {task.by} == {by}  # type: ignore[union-attr]
    assert (len(task.log), task.forgotten) == (20, 6)


def test_a_shard_that_does_not_exist_is_empty(store: Ledger, clock: HandClock) -> None:
    assert store.stats_of_tenant([], "acme") == []
    assert store.stats_of_tenant([Shard("nowhere")], "acme") == [NOTHING._replace(now=clock.now())]
