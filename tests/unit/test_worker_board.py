"""The board of a worker's process, which outlives it, and the leases that are given back by it."""

from collections.abc import Iterator

import pytest

from duecourse.adapters.embedded.store import MemoryStore
from duecourse.domain.history import Run
from duecourse.domain.task import Status, Task
from duecourse.domain.values import replaced
from duecourse.engine import bereft
from duecourse.engine.bereft import Bereft, Held, State
from duecourse.engine.interrupted import DIED, STOPPED, UNSETTLED, is_suspect
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


def shown(task: Task, state: State = State.RUNS) -> Held:
    return Held(task.queue, task.id, task.tenant, task.group, task.token, state)


def test_a_board_shows_each_lease_from_its_claim_to_its_settle_to_whoever_has_its_file(board: Board) -> None:
    theirs = Board(board.file)
    a, b = leased("work", {}, id="a", token="a"), leased("work", {}, id="b", token="b")
    assert (theirs.held(), theirs.left_out) == ([], 0)
    board.left_out = 7
    board.hold([a, b])
    assert theirs.held() == [shown(a, State.WAITS), shown(b, State.WAITS)]
    with board.running(a), board.running(b, apart=True):
        assert theirs.held() == [shown(a), shown(b, State.APART)]
    assert theirs.held() == [shown(a, State.ENDED), shown(b, State.ENDED)]
    board.drop(["a", "another"])
    assert (theirs.held(), theirs.left_out) == ([shown(b, State.ENDED)], 7)


def test_a_slot_has_room_for_the_longest_names_and_what_has_no_slot_is_not_shown(board: Board) -> None:
    long = leased("work", {}, id="i" * 160, queue="q" * 70, tenant="t" * 64, group="g" * 128, token="f" * 28)
    many = [replaced(long, token=f"{n:028}") for n in range(SLOTS + 1)]
    assert len(str(shown(long))) < SLOT
    board.hold(many)
    assert board.held() == [shown(task, State.WAITS) for task in many[:SLOTS]]
    with board.running(many[-1]):
        board.drop([task.token for task in many])
    board.hold(many[-1:])
    assert board.held() == [shown(many[-1], State.WAITS)]


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


def run(store: MemoryStore, *ids: str) -> list[Held]:
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
    Bereft(lambda: store).give_back([one, apart._replace(state=State.APART)], "signal 9")
    assert attempts(store, "a", "b") == [(Status.SCHEDULED, 2, f"{DIED}: signal 9"), (Status.SCHEDULED, 1, "")]


def test_what_had_not_begun_and_what_had_ended_is_due_again_at_once_and_no_suspect(store: MemoryStore) -> None:
    waits, ran, ended = run(store, "a", "b", "c")
    held = [waits._replace(state=State.WAITS), ran, ended._replace(state=State.ENDED)]
    Bereft(lambda: store).give_back(held, "signal 9")
    assert attempts(store, "a", "b", "c") == [
        (Status.SCHEDULED, 1, ""), (Status.SCHEDULED, 2, f"{DIED}: signal 9"), (Status.SCHEDULED, 1, ""),
    ]  # fmt: skip
    assert [is_suspect(standing(store, id)) for id in ("a", "b", "c")] == [False, True, False]
    [last] = standing(store, "c").log
    assert isinstance(last, Run)
    assert last.detail == UNSETTLED


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
