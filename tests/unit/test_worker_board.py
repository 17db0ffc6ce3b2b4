"""The board of a worker's process, which outlives it, and the leases that are given back by it."""

from collections.abc import Iterator

import pytest

from duecourse.adapters.embedded.store import MemoryStore
from duecourse.domain.history import Run
from duecourse.domain.task import Status, Task
from duecourse.engine import bereft
from duecourse.engine.bereft import Bereft, Running
from duecourse.engine.interrupted import DIED, STOPPED
from duecourse.errors import DuecourseError, StoreMisused, StoreUnavailable
from duecourse.worker.board import SLOT, SLOTS, Board
from tests.support.clock import HandClock
from tests.support.kinds import leased
from tests.support.ledger import claim, new, standing


@pytest.fixture
def board() -> Iterator[Board]:
    made = Board.make()
    yield made
    made.close()


def shown(task: Task, *, apart: bool = False) -> Running:
    return Running(task.queue, task.id, task.tenant, task.group, task.token, apart)


def test_a_board_shows_what_runs_to_whoever_has_its_file(board: Board) -> None:
    theirs = Board(board.file)
    a, b = leased("work", {}, id="a", token="a"), leased("work", {}, id="b", token="b")
    assert (theirs.running(), theirs.left_out) == ([], 0)
    board.left_out = 7
    with board.showing(a):
        with board.showing(b, apart=True):
            assert sorted(theirs.running()) == [shown(a), shown(b, apart=True)]
        assert theirs.running() == [shown(a)]
    assert (theirs.running(), theirs.left_out) == ([], 7)


def test_a_slot_has_room_for_the_longest_names_and_there_is_one_for_each_thread(board: Board) -> None:
    long = leased("work", {}, id="i" * 160, queue="q" * 70, tenant="t" * 64, group="g" * 128, token="f" * 28)
    assert len(str(shown(long))) < SLOT
    contexts = [board.showing(long) for _ in range(SLOTS)]
    for context in contexts:
        context.__enter__()
    assert board.running() == [shown(long)] * SLOTS


class Away(MemoryStore):
    """A store that raises `error` at the first `misses` lookups."""

    def __init__(self, clock: HandClock) -> None:
        super().__init__(clock)
        self.misses = 0
        self.error: DuecourseError = StoreUnavailable()

    def get(self, queue: str, id: str, tenant: str = "-") -> Task | None:
        self.misses -= 1
        if self.misses >= 0:
            raise self.error
        return super().get(queue, id, tenant)


def run(store: MemoryStore, *ids: str) -> list[Running]:
    store.add([new(id) for id in ids])
    return [shown(task) for task in claim(store)]


def attempts(store: MemoryStore, *ids: str) -> list[tuple[Status, int, str]]:
    found = [standing(store, id) for id in ids]
    return [(task.status, task.attempt, task.error) for task in found]


def test_of_several_tasks_that_ran_in_a_dead_process_none_spends_an_attempt(store: MemoryStore) -> None:
    Bereft(lambda: store).give_back(run(store, "a", "b"), "signal 9")
    assert attempts(store, "a", "b") == [(Status.SCHEDULED, 1, "")] * 2
    for id in ("a", "b"):
        [last] = standing(store, id).log
        assert isinstance(last, Run)
        assert last.detail == DIED


def test_one_that_ran_alone_spends_an_attempt_and_those_that_ran_apart_do_not_count(store: MemoryStore) -> None:
    one, apart = run(store, "a", "b")
    Bereft(lambda: store).give_back([one, apart._replace(apart=True)], "signal 9")
    assert attempts(store, "a", "b") == [(Status.SCHEDULED, 2, f"{DIED}: signal 9"), (Status.SCHEDULED, 1, "")]


def test_a_stop_that_kills_a_process_spends_no_attempt(store: MemoryStore) -> None:
    Bereft(lambda: store).release(run(store, "a"), STOPPED)
    assert attempts(store, "a") == [(Status.SCHEDULED, 1, "")]


def test_a_lease_that_is_no_longer_that_of_the_dead_process_is_left_alone(store: MemoryStore) -> None:
    [old] = run(store, "a")
    store.cancel("default", ["a"], force=True)
    Bereft(lambda: store).give_back([old, old._replace(id="gone")], "signal 9")
    assert attempts(store, "a") == [(Status.CANCELLED, 1, "")]


@pytest.mark.parametrize("error", [StoreUnavailable(), StoreMisused()])
def test_a_store_that_is_away_is_asked_again(
    clock: HandClock, monkeypatch: pytest.MonkeyPatch, error: DuecourseError
) -> None:
    monkeypatch.setattr(bereft, "PAUSE_S", 0.0)
    store = Away(clock)
    leases = run(store, "a")
    store.misses, store.error = 3, error
    Bereft(lambda: store).give_back(leases, "signal 9")
    assert standing(store, "a").attempt == 2
