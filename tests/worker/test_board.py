"""The board of a worker's process, which outlives it, and the leases that are given back by it."""

import sys
from collections.abc import Iterator
from dataclasses import replace
from types import FrameType
from typing import Any

import pytest

from duecourse.errors import DuecourseError, StoreMisused, StoreUnavailable
from duecourse.ledger.embedded.ledger import EmbeddedLedger
from duecourse.ledger.task import Run, Status, Task
from duecourse.running import leases as lease_module
from duecourse.running.leases import LeaseExtender, LeaseReturner, LeaseState, ProcessLease
from duecourse.running.run import DIED, STOPPED, UNSETTLED, is_suspect
from duecourse.worker.child import SLOT, SLOTS, Board
from tests.support.clock import HandClock
from tests.support.kinds import leased
from tests.support.ledger import LEASE_MS, claim, new, stored_task


@pytest.fixture
def board() -> Iterator[Board]:
    made = Board.make()
    yield made
    made.close()


def shown(task: Task, state: LeaseState = LeaseState.RUNS) -> ProcessLease:
    return ProcessLease(task.queue, task.id, task.tenant, task.group, task.token, state)


def test_a_board_shows_each_lease_from_its_claim_to_its_settle_to_whoever_has_its_file(
    board: Board, ledger: EmbeddedLedger
) -> None:
    theirs = Board(board.file)
    a, b = leased("work", {}, id="a", token="a"), leased("work", {}, id="b", token="b")
    assert (theirs.held(), theirs.left_out) == ([], 0)
    board.left_out = 7
    board.hold([a, b])
    assert theirs.held() == [shown(a, LeaseState.WAITS), shown(b, LeaseState.WAITS)]
    extender = LeaseExtender(ledger, mark=board.mark)
    with extender.while_running(a), extender.while_running(b, LeaseState.ISOLATED):
        assert theirs.held() == [shown(a), shown(b, LeaseState.ISOLATED)]
    assert theirs.held() == [shown(a, LeaseState.ENDED), shown(b, LeaseState.ENDED)]
    board.drop(["a", "another"])
    assert (theirs.held(), theirs.left_out) == ([shown(b, LeaseState.ENDED)], 7)


def test_a_slot_has_room_for_the_longest_names_and_what_has_no_slot_is_not_shown(board: Board) -> None:
    long = leased("work", {}, id="i" * 160, queue="q" * 70, tenant="t" * 64, group="g" * 128, token="f" * 28)
    many = [replace(long, token=f"{n:028}") for n in range(SLOTS + 1)]
    assert len(str(shown(long))) < SLOT
    board.hold(many)
    assert board.held() == [shown(task, LeaseState.WAITS) for task in many[:SLOTS]]
    board.mark(many[-1].token, LeaseState.RUNS)
    board.drop([task.token for task in many])
    board.hold(many[-1:])
    assert board.held() == [shown(many[-1], LeaseState.WAITS)]


def test_wherever_its_process_is_killed_a_lease_is_shown_whole_or_not_at_all(board: Board) -> None:
    theirs, seen = Board(board.file), list[list[ProcessLease]]()
    before = [leased("work", {}, id="i" * 160, token=f"{n:028}") for n in range(SLOTS)]
    board.hold(before)
    board.drop([task.token for task in before])
    short = leased("work", {}, id="a", token="a")

    def look(_frame: FrameType, _event: str, _argument: Any) -> Any:
        seen.append(theirs.held())
        return look

    tracing = sys.gettrace()
    sys.settrace(lambda frame, *_: look if frame.f_code is Board.hold.__code__ else None)
    try:
        board.hold([short])
    finally:
        sys.settrace(tracing)
    assert len(seen) > 3, "the process may end before each line"
    assert [one for one in seen if one] == [[shown(short, LeaseState.WAITS)]] * sum(map(bool, seen))
    assert (seen[0], seen[-1]) == ([], [shown(short, LeaseState.WAITS)])


class Away(EmbeddedLedger):
    """A ledger that raises `error` at the first `misses` lookups."""

    def __init__(self, clock: HandClock) -> None:
        super().__init__(clock)
        self.misses = 0
        self.error: DuecourseError = StoreUnavailable()

    def get(self, queue: str, id: str, tenant: str = "-") -> Task | None:
        self.misses -= 1
        if self.misses >= 0:
            raise self.error
        return super().get(queue, id, tenant)


def run(ledger: EmbeddedLedger, *ids: str) -> list[ProcessLease]:
    ledger.add([new(id) for id in ids])
    return [shown(task) for task in claim(ledger)]


def attempts(ledger: EmbeddedLedger, *ids: str) -> list[tuple[Status, int, str]]:
    found = [stored_task(ledger, id) for id in ids]
    return [(task.status, task.attempt, task.error) for task in found]


def test_of_several_tasks_that_ran_in_a_dead_process_none_spends_an_attempt(ledger: EmbeddedLedger) -> None:
    LeaseReturner(lambda: ledger).give_back(run(ledger, "a", "b"), "signal 9")
    assert attempts(ledger, "a", "b") == [(Status.SCHEDULED, 1, "")] * 2
    for id in ("a", "b"):
        [last] = stored_task(ledger, id).log
        assert isinstance(last, Run)
        assert last.detail == DIED


def test_one_that_ran_alone_spends_an_attempt_and_those_that_ran_apart_do_not_count(ledger: EmbeddedLedger) -> None:
    one, isolated = run(ledger, "a", "b")
    LeaseReturner(lambda: ledger).give_back([one, isolated._replace(state=LeaseState.ISOLATED)], "signal 9")
    assert attempts(ledger, "a", "b") == [(Status.SCHEDULED, 2, f"{DIED}: signal 9"), (Status.SCHEDULED, 1, "")]


def test_what_had_not_begun_and_what_had_ended_is_due_again_at_once_and_no_suspect(ledger: EmbeddedLedger) -> None:
    waits, ran, ended = run(ledger, "a", "b", "c")
    held = [waits._replace(state=LeaseState.WAITS), ran, ended._replace(state=LeaseState.ENDED)]
    LeaseReturner(lambda: ledger).give_back(held, "signal 9")
    assert attempts(ledger, "a", "b", "c") == [
        (Status.SCHEDULED, 1, ""), (Status.SCHEDULED, 2, f"{DIED}: signal 9"), (Status.SCHEDULED, 1, ""),
    ]  # fmt: skip
    assert [is_suspect(stored_task(ledger, id)) for id in ("a", "b", "c")] == [False, True, False]
    [last] = stored_task(ledger, "c").log
    assert isinstance(last, Run)
    assert last.detail == UNSETTLED


def test_a_stop_that_kills_a_process_spends_no_attempt_and_says_what_it_ended(ledger: EmbeddedLedger) -> None:
    ran, ended = run(ledger, "a", "b")
    LeaseReturner(lambda: ledger).release([ran, ended._replace(state=LeaseState.ENDED)], STOPPED)
    assert attempts(ledger, "a", "b") == [(Status.SCHEDULED, 1, "")] * 2
    for id, detail in (("a", STOPPED), ("b", UNSETTLED)):
        [last] = stored_task(ledger, id).log
        assert isinstance(last, Run)
        assert last.detail == detail


def test_a_lease_that_is_no_longer_that_of_the_dead_process_is_left_alone(ledger: EmbeddedLedger) -> None:
    [old] = run(ledger, "a")
    ledger.cancel("default", ["a"], force=True)
    LeaseReturner(lambda: ledger).give_back([old, old._replace(id="gone")], "signal 9")
    assert attempts(ledger, "a") == [(Status.CANCELLED, 1, "")]


def test_a_lease_that_another_process_has_by_now_is_left_alone(ledger: EmbeddedLedger, clock: HandClock) -> None:
    [old] = run(ledger, "a")
    clock.advance(LEASE_MS)
    [again] = claim(ledger)
    LeaseReturner(lambda: ledger).give_back([old], "signal 9")
    assert stored_task(ledger) == again


@pytest.mark.parametrize("error", [StoreUnavailable(), StoreMisused()])
def test_a_store_that_is_away_is_asked_again(
    clock: HandClock, monkeypatch: pytest.MonkeyPatch, error: DuecourseError
) -> None:
    monkeypatch.setattr(lease_module, "PAUSE_S", 0.0)
    ledger = Away(clock)
    leases = run(ledger, "a")
    ledger.misses, ledger.error = 3, error
    LeaseReturner(lambda: ledger).give_back(leases, "signal 9")
    assert stored_task(ledger, "a").attempt == 2
