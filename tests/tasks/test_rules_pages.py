"""A queue's tasks in pages: in order, each once however others move, with bounded work, each tenant's alone."""

import pytest

from duecourse.ledger.many_tasks import MAX_PAGE, Page, PagePosition, TaskFilter
from duecourse.ledger.operations import Move
from duecourse.ledger.store import tasks as group_steps
from duecourse.ledger.store.ledger import Ledger
from duecourse.ledger.task import Ending, Status, Task
from tests.support.clock import HandClock
from tests.support.ledger import SHARD, add, bring, claim, new, settle, stored_task

QUEUE = SHARD.queue
ALL = TaskFilter()


def pages(store: Ledger, wanted: TaskFilter = ALL, limit: int = 3, tenant: str = "-") -> list[Page]:
    """Every page there is."""
    found = [store.page(QUEUE, wanted, None, limit, tenant)]
    while found[-1].next:
        found.append(store.page(QUEUE, wanted, found[-1].next, limit, tenant))
    return found


def ids(store: Ledger, wanted: TaskFilter = ALL, limit: int = 3, tenant: str = "-") -> list[str]:
    """The ids of every page."""
    return [task.id for page in pages(store, wanted, limit, tenant) for task in page.tasks]


def test_tasks_come_by_state_and_in_each_by_time(store: Ledger, clock: HandClock) -> None:
    for n, state in enumerate(("done", "dead", "leased", "cancelled", "done")):
        bring(store, state, f"{state}-{n}")
        clock.advance(1)
    store.add([new("later", delay_ms=90), new("sooner", delay_ms=80)])
    expected = ["sooner", "later", "leased-2", "done-0", "cancelled-3", "done-4", "dead-1"]
    for limit in (1, 2, 3, 7, 100):
        assert ids(store, limit=limit) == expected
    assert [len(page.tasks) for page in pages(store, limit=2)] == [2, 2, 2, 1]


def test_what_is_shown_is_the_task_as_it_stands(store: Ledger) -> None:
    for state in ("scheduled", "leased", "done", "dead"):
        bring(store, state, state)
    assert {task.id: task for task in store.page(QUEUE, ALL, None, 9).tasks} == {
        state: stored_task(store, state) for state in ("scheduled", "leased", "done", "dead")
    }


@pytest.mark.parametrize("state", Status)
def test_one_state_is_told_alone(store: Ledger, state: Status) -> None:
    for each in Status:
        bring(store, each, each)
    assert ids(store, TaskFilter(status=state)) == [state]


def test_a_group_is_found_by_its_index_in_however_long_a_queue(store: Ledger, clock: HandClock) -> None:
    for n in range(3):
        store.add([new(f"{n}-{i}", delay_ms=5) for i in range(900)])
    store.add([new(id, group="g", delay_ms=at) for id, at in (("z", 7), ("y", 9), ("x", 9), ("w", 1))])
    store.add([new("v", group="g", tenant="t"), new("u", group="g1", delay_ms=1)])
    clock.advance(1)
    settle(store, next(task for task in claim(store) if task.id == "w"), Ending.DONE)
    store.cancel(QUEUE, ["y"])
    found = pages(store, TaskFilter(group="g"), limit=2)
    assert [[task.id for task in page.tasks] for page in found if page.tasks] == [["z", "x"], ["w", "y"]]
    assert len(found) <= 3
    assert pages(store, TaskFilter(group="none")) == [Page([], None)]


@pytest.mark.parametrize("size", [499, 500, 501, 1_001])
def test_a_great_group_comes_in_pages_each_task_once(store: Ledger, size: int) -> None:
    names = [f"t{n:04}" for n in range(size)]
    for first in range(0, size, 1_000):
        store.add([new(id, group="g", delay_ms=_third(id)) for id in names[first : first + 1_000]])
    assert ids(store, TaskFilter(group="g"), MAX_PAGE) == sorted(names, key=lambda name: (_third(name), name))


def _third(name: str) -> int:
    return 7 + int(name[1:]) % 3


@pytest.mark.parametrize("size", [3, 4, 5, 8, 9])
def test_a_group_is_read_in_steps_and_each_task_of_it_comes_once(
    store: Ledger, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    monkeypatch.setattr(group_steps, "MEMBERS", 4)
    store.add([new(f"t{n}", group="g", delay_ms=9 - n) for n in range(size)])
    assert ids(store, TaskFilter(group="g"), 2) == [f"t{n}" for n in reversed(range(size))]


def test_a_kind_or_a_group_is_told_alone(store: Ledger) -> None:
    store.add([new("a", kind="k"), new("b", group="g"), new("c", kind="k", group="g"), new("d", notify="k", group="g")])
    settle(store, next(task for task in claim(store) if task.id == "d"), Ending.DONE)
    assert ids(store, TaskFilter(kind="k", status=Status.LEASED)) == ["a", "c"]
    assert ids(store, TaskFilter(group="g")) == ["b", "c", "d"]
    assert ids(store, TaskFilter(kind="k", group="g")) == ["c"]


def test_of_many_at_one_instant_each_is_told_once(store: Ledger, clock: HandClock) -> None:
    names = sorted(f"t{n}" for n in range(230))
    store.add([new(name, due_at=clock.at + 5) for name in names])
    assert ids(store, limit=7) == names


@pytest.mark.parametrize("cut", [3, 5])
def test_what_does_not_move_is_told_once_while_others_move(store: Ledger, clock: HandClock, cut: int) -> None:
    names = [f"t{n:02}" for n in range(30)]
    store.add([new(name, due_at=clock.at + 1_000 + n // 10) for n, name in enumerate(names)])
    shown: list[Task] = []
    moved: set[str] = set()
    after: PagePosition | None = None
    for turn in range(30):
        page = store.page(QUEUE, ALL, after, cut)
        shown += page.tasks
        moving = {*(task.id for task in page.tasks[-1:]), names[(7 * turn) % 30]} - {"t11", "t29"}
        store.move(QUEUE, [Move(name, delay_ms=1_000 + (turn * 37) % 40) for name in moving])
        moved |= moving
        after = page.next
        if after is None:
            break
    told = [task.id for task in shown]
    still = [name for name in names if name not in moved]
    assert [told.count(name) for name in still] == [1] * len(still)
    assert "t11" in still


def test_the_shards_of_a_queue_are_told_as_one(sharded: Ledger, clock: HandClock) -> None:
    names = [f"t{n}" for n in range(60)]
    sharded.add([new(name, due_at=clock.at + 100 + (n * 37) % 50) for n, name in enumerate(names)])
    told = [task for page in pages(sharded, limit=9) for task in page.tasks]
    assert [(task.due_at, task.id) for task in told] == sorted((task.due_at, task.id) for task in told)
    assert sorted(task.id for task in told) == sorted(names)
    sharded.add([new("m1", group="g"), new("m2", group="g")])
    assert ids(sharded, TaskFilter(group="g")) == ["m1", "m2"]


@pytest.mark.parametrize("other", ["-", "a", "zz"])
def test_each_tenants_tasks_are_its_own(store: Ledger, other: str) -> None:
    store.add([new(f"x{n}", tenant=other) for n in range(620)])
    store.add([new(f"own{n}", tenant="m") for n in range(5)])
    for _ in range(4):
        store.claim(SHARD, 500, lease_ms=60_000)
    found = pages(store, tenant="m", limit=2)
    assert [task.id for page in found for task in page.tasks] == [f"own{n}" for n in range(5)]
    assert {task.tenant for page in found for task in page.tasks} == {"m"}
    places = [page.next.id for page in found if page.next]
    assert set(places) <= {"", *(f"own{n}" for n in range(5))}
    assert len(ids(store, tenant=other, limit=100)) == 620
    assert ids(store, tenant="nobody", limit=100) == []


def test_a_page_where_little_fits_is_short_and_goes_on(store: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_steps, "MAX_PAGE_STEPS", 1)
    store.add([new(f"t{n:04}", delay_ms=n + 1, kind="rare" if n % 600 == 599 else "k") for n in range(1_000)])
    store.add([new(f"u{n:04}", delay_ms=n + 1_001, kind="rare" if n == 500 else "k") for n in range(800)])
    found = pages(store, TaskFilter(kind="rare"), limit=50)
    assert [task.id for page in found for task in page.tasks] == ["t0599", "u0500"]
    assert [len(page.tasks) for page in found] == [0, 1, 0, 1]


def test_large_tasks_make_a_page_short(store: Ledger) -> None:
    big = '"' + "x" * 250_000 + '"'
    store.add([new(f"t{n}", payload=big, delay_ms=n) for n in range(9)])
    found = pages(store, limit=100)
    assert [len(page.tasks) for page in found] == [5, 4]


def test_a_page_has_a_bound(store: Ledger) -> None:
    for limit in (0, MAX_PAGE + 1):
        with pytest.raises(ValueError, match=str(MAX_PAGE)):
            store.page(QUEUE, ALL, None, limit)


def test_looking_changes_nothing(store: Ledger) -> None:
    add(store, delay_ms=5)
    before = store.stats(SHARD), stored_task(store)
    ids(store)
    assert (store.stats(SHARD), stored_task(store)) == before


def test_a_queue_that_was_never_added_to_has_no_tasks(store: Ledger) -> None:
    assert store.page(QUEUE, ALL, None, 5) == Page([], None)
    assert store.page(QUEUE, TaskFilter(Status.DEAD), PagePosition("due"), 5) == Page([], None)


def test_a_page_looks_on_behind_tasks_of_others(store: Ledger, clock: HandClock) -> None:
    store.add([new(f"t{n:04}", delay_ms=n + 1, tenant="others") for n in range(1_000)])
    store.cancel(QUEUE, [f"t{n:04}" for n in range(1_000)], tenant="others")
    clock.advance(1)
    bring(store, "done", "mine")
    [only] = pages(store)
    assert [task.id for task in only.tasks] == ["mine"]


def test_a_cursor_behind_tasks_of_others_does_not_tell_when_those_ended(
    store: Ledger, clock: HandClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_steps, "MAX_PAGE_STEPS", 1)
    store.add([new(f"t{n:04}", tenant="others", delay_ms=n) for n in range(1_000)])
    ends = []
    for n in range(0, 1_000, 100):
        store.cancel(QUEUE, [f"t{m:04}" for m in range(n, n + 100)], tenant="others")
        ends.append(store.now())
        clock.advance(60_000)
    bring(store, "done", "mine")
    done = TaskFilter(Status.DONE)
    found = pages(store, done)
    cursors = [page.next for page in found if page.next]
    assert cursors
    assert [task.id for page in found for task in page.tasks] == ["mine"]
    assert all(place.at == 0 for place in cursors)
    assert not [end for end in ends for place in cursors if f"{end:012x}" in place.id]
    again = store.page(QUEUE, done, None, 3).next
    assert (again, again and again.id) != (cursors[0], cursors[0].id), "two of one place have nothing in common"


@pytest.mark.parametrize("text", ["~", "~zz", "~" + "0" * 28, "~" + "f" * 60])
def test_a_hidden_place_that_nobody_made_begins_somewhere(store: Ledger, text: str) -> None:
    bring(store, "done", "mine")
    assert len(store.page(QUEUE, ALL, PagePosition("done", 0, text), 3).tasks) <= 1
