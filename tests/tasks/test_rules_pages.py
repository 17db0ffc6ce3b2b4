"""A queue's tasks in pages: in order, each once however others move, with bounded work, each tenant's alone."""

import pytest

from duecourse.ledger.many_tasks import MAX_PAGE, Page, PagePosition, TaskFilter
from duecourse.ledger.operation_types import Move
from duecourse.ledger.operations import tasks as group_steps
from duecourse.ledger.operations.ledger import Ledger
from duecourse.ledger.task import Ending, Status, Task
from tests.support.clock import HandClock
from tests.support.ledger import SHARD, add, bring, claim, new, settle, stored_task

QUEUE = SHARD.queue
ALL = TaskFilter()


def pages(ledger: Ledger, wanted: TaskFilter = ALL, limit: int = 3, tenant: str = "-") -> list[Page]:
    """Every page there is."""
    found = [ledger.page(QUEUE, wanted, None, limit, tenant)]
    while found[-1].next:
        found.append(ledger.page(QUEUE, wanted, found[-1].next, limit, tenant))
    return found


def ids(ledger: Ledger, wanted: TaskFilter = ALL, limit: int = 3, tenant: str = "-") -> list[str]:
    """The ids of every page."""
    return [task.id for page in pages(ledger, wanted, limit, tenant) for task in page.tasks]


def test_tasks_come_by_state_and_in_each_by_time(ledger: Ledger, clock: HandClock) -> None:
    for n, state in enumerate(("done", "dead", "leased", "cancelled", "done")):
        bring(ledger, state, f"{state}-{n}")
        clock.advance(1)
    ledger.add([new("later", delay_ms=90), new("sooner", delay_ms=80)])
    expected = ["sooner", "later", "leased-2", "done-0", "cancelled-3", "done-4", "dead-1"]
    for limit in (1, 2, 3, 7, 100):
        assert ids(ledger, limit=limit) == expected
    assert [len(page.tasks) for page in pages(ledger, limit=2)] == [2, 2, 2, 1]


def test_what_is_shown_is_the_task_as_it_stands(ledger: Ledger) -> None:
    for state in ("scheduled", "leased", "done", "dead"):
        bring(ledger, state, state)
    assert {task.id: task for task in ledger.page(QUEUE, ALL, None, 9).tasks} == {
        state: stored_task(ledger, state) for state in ("scheduled", "leased", "done", "dead")
    }


@pytest.mark.parametrize("state", Status)
def test_one_state_is_told_alone(ledger: Ledger, state: Status) -> None:
    for each in Status:
        bring(ledger, each, each)
    assert ids(ledger, TaskFilter(status=state)) == [state]


def test_a_group_is_found_by_its_index_in_however_long_a_queue(ledger: Ledger, clock: HandClock) -> None:
    for n in range(3):
        ledger.add([new(f"{n}-{i}", delay_ms=5) for i in range(900)])
    ledger.add([new(id, group="g", delay_ms=at) for id, at in (("z", 7), ("y", 9), ("x", 9), ("w", 1))])
    ledger.add([new("v", group="g", tenant="t"), new("u", group="g1", delay_ms=1)])
    clock.advance(1)
    settle(ledger, next(task for task in claim(ledger) if task.id == "w"), Ending.DONE)
    ledger.cancel(QUEUE, ["y"])
    found = pages(ledger, TaskFilter(group="g"), limit=2)
    assert [[task.id for task in page.tasks] for page in found if page.tasks] == [["z", "x"], ["w", "y"]]
    assert len(found) <= 3
    assert pages(ledger, TaskFilter(group="none")) == [Page([], None)]


@pytest.mark.parametrize("size", [499, 500, 501, 1_001])
def test_a_great_group_comes_in_pages_each_task_once(ledger: Ledger, size: int) -> None:
    names = [f"t{n:04}" for n in range(size)]
    for first in range(0, size, 1_000):
        ledger.add([new(id, group="g", delay_ms=_third(id)) for id in names[first : first + 1_000]])
    assert ids(ledger, TaskFilter(group="g"), MAX_PAGE) == sorted(names, key=lambda name: (_third(name), name))


def _third(name: str) -> int:
    return 7 + int(name[1:]) % 3


@pytest.mark.parametrize("size", [3, 4, 5, 8, 9])
def test_a_group_is_read_in_steps_and_each_task_of_it_comes_once(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    monkeypatch.setattr(group_steps, "MEMBERS", 4)
    ledger.add([new(f"t{n}", group="g", delay_ms=9 - n) for n in range(size)])
    assert ids(ledger, TaskFilter(group="g"), 2) == [f"t{n}" for n in reversed(range(size))]


def test_a_kind_or_a_group_is_told_alone(ledger: Ledger) -> None:
    ledger.add(
        [new("a", kind="k"), new("b", group="g"), new("c", kind="k", group="g"), new("d", notify="k", group="g")]
    )
    settle(ledger, next(task for task in claim(ledger) if task.id == "d"), Ending.DONE)
    assert ids(ledger, TaskFilter(kind="k", status=Status.LEASED)) == ["a", "c"]
    assert ids(ledger, TaskFilter(group="g")) == ["b", "c", "d"]
    assert ids(ledger, TaskFilter(kind="k", group="g")) == ["c"]


def test_of_many_at_one_instant_each_is_told_once(ledger: Ledger, clock: HandClock) -> None:
    names = sorted(f"t{n}" for n in range(230))
    ledger.add([new(name, due_at=clock.at + 5) for name in names])
    assert ids(ledger, limit=7) == names


@pytest.mark.parametrize("cut", [3, 5])
def test_what_does_not_move_is_told_once_while_others_move(ledger: Ledger, clock: HandClock, cut: int) -> None:
    names = [f"t{n:02}" for n in range(30)]
    ledger.add([new(name, due_at=clock.at + 1_000 + n // 10) for n, name in enumerate(names)])
    shown: list[Task] = []
    moved: set[str] = set()
    after: PagePosition | None = None
    for turn in range(30):
        page = ledger.page(QUEUE, ALL, after, cut)
        shown += page.tasks
        moving = {*(task.id for task in page.tasks[-1:]), names[(7 * turn) % 30]} - {"t11", "t29"}
        ledger.move(QUEUE, [Move(name, delay_ms=1_000 + (turn * 37) % 40) for name in moving])
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
def test_each_tenants_tasks_are_its_own(ledger: Ledger, other: str) -> None:
    ledger.add([new(f"x{n}", tenant=other) for n in range(620)])
    ledger.add([new(f"own{n}", tenant="m") for n in range(5)])
    for _ in range(4):
        ledger.claim(SHARD, 500, lease_ms=60_000)
    found = pages(ledger, tenant="m", limit=2)
    assert [task.id for page in found for task in page.tasks] == [f"own{n}" for n in range(5)]
    assert {task.tenant for page in found for task in page.tasks} == {"m"}
    places = [page.next.id for page in found if page.next]
    assert set(places) <= {"", *(f"own{n}" for n in range(5))}
    assert len(ids(ledger, tenant=other, limit=100)) == 620
    assert ids(ledger, tenant="nobody", limit=100) == []


def test_a_page_where_little_fits_is_short_and_goes_on(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_steps, "MAX_PAGE_STEPS", 1)
    ledger.add([new(f"t{n:04}", delay_ms=n + 1, kind="rare" if n % 600 == 599 else "k") for n in range(1_000)])
    ledger.add([new(f"u{n:04}", delay_ms=n + 1_001, kind="rare" if n == 500 else "k") for n in range(800)])
    found = pages(ledger, TaskFilter(kind="rare"), limit=50)
    assert [task.id for page in found for task in page.tasks] == ["t0599", "u0500"]
    assert [len(page.tasks) for page in found] == [0, 1, 0, 1]


def test_large_tasks_make_a_page_short(ledger: Ledger) -> None:
    big = '"' + "x" * 250_000 + '"'
    ledger.add([new(f"t{n}", payload=big, delay_ms=n) for n in range(9)])
    found = pages(ledger, limit=100)
    assert [len(page.tasks) for page in found] == [5, 4]


def test_a_page_has_a_bound(ledger: Ledger) -> None:
    for limit in (0, MAX_PAGE + 1):
        with pytest.raises(ValueError, match=str(MAX_PAGE)):
            ledger.page(QUEUE, ALL, None, limit)


def test_looking_changes_nothing(ledger: Ledger) -> None:
    add(ledger, delay_ms=5)
    before = ledger.stats(SHARD), stored_task(ledger)
    ids(ledger)
    assert (ledger.stats(SHARD), stored_task(ledger)) == before


def test_a_queue_that_was_never_added_to_has_no_tasks(ledger: Ledger) -> None:
    assert ledger.page(QUEUE, ALL, None, 5) == Page([], None)
    assert ledger.page(QUEUE, TaskFilter(Status.DEAD), PagePosition("due"), 5) == Page([], None)


def test_a_page_looks_on_behind_tasks_of_others(ledger: Ledger, clock: HandClock) -> None:
    ledger.add([new(f"t{n:04}", delay_ms=n + 1, tenant="others") for n in range(1_000)])
    ledger.cancel(QUEUE, [f"t{n:04}" for n in range(1_000)], tenant="others")
    clock.advance(1)
    bring(ledger, "done", "mine")
    [only] = pages(ledger)
    assert [task.id for task in only.tasks] == ["mine"]


def test_a_cursor_behind_tasks_of_others_does_not_tell_when_those_ended(
    ledger: Ledger, clock: HandClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_steps, "MAX_PAGE_STEPS", 1)
    ledger.add([new(f"t{n:04}", tenant="others", delay_ms=n) for n in range(1_000)])
    ends = []
    for n in range(0, 1_000, 100):
        ledger.cancel(QUEUE, [f"t{m:04}" for m in range(n, n + 100)], tenant="others")
        ends.append(ledger.now())
        clock.advance(60_000)
    bring(ledger, "done", "mine")
    done = TaskFilter(Status.DONE)
    found = pages(ledger, done)
    cursors = [page.next for page in found if page.next]
    assert cursors
    assert [task.id for page in found for task in page.tasks] == ["mine"]
    assert all(place.at == 0 for place in cursors)
    assert not [end for end in ends for place in cursors if f"{end:012x}" in place.id]
    again = ledger.page(QUEUE, done, None, 3).next
    assert (again, again and again.id) != (cursors[0], cursors[0].id), "two of one place have nothing in common"


@pytest.mark.parametrize("text", ["~", "~zz", "~" + "0" * 28, "~" + "f" * 60])
def test_a_hidden_place_that_nobody_made_begins_somewhere(ledger: Ledger, text: str) -> None:
    bring(ledger, "done", "mine")
    assert len(ledger.page(QUEUE, ALL, PagePosition("done", 0, text), 3).tasks) <= 1
