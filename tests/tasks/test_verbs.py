"""The verbs on tasks: what each raises, and where the result comes from."""

import pytest

from duecourse import errors
from duecourse.ledger.embedded.ledger import EmbeddedLedger
from duecourse.ledger.operation_types import Move, Result
from duecourse.ledger.task import Ending, Status, Task
from duecourse.tasks.kinds import OwnKinds
from duecourse.tasks.verbs import REJECTIONS, Tasks
from tests.support.clock import START
from tests.support.egress import anywhere
from tests.support.ledger import bring, claim_one, new, settle
from tests.support.seals import seals_of

KINDS = OwnKinds({"work", "poll"})
QUEUE = "default"


class Table:
    """A table with one result in it."""

    place = "table@eu-west-1"

    def __init__(self, fence: int = 0, value: object = None) -> None:
        self._result = Result(value, fence, 0)

    def put(self, task: Task, result_json: str, now: int) -> bool:
        raise NotImplementedError((task, result_json, now))

    def get(self, queue: str, id: str, tenant: str) -> Result | None:
        return self._result if (queue, id, tenant) == (QUEUE, "a", "-") else None


class Away(Table):
    """A results database that does not answer."""

    def get(self, queue: str, id: str, tenant: str) -> Result | None:
        raise errors.ResultsUnavailable(f"{queue}/{tenant}/{id}")


@pytest.fixture
def tasks(ledger: EmbeddedLedger) -> Tasks:
    return Tasks(ledger, None, KINDS, anywhere, seals_of(ledger))


def test_an_added_task_is_answered_as_it_stands(tasks: Tasks) -> None:
    taken = tasks.add(new(delay_ms=5_000))
    assert taken.created
    assert (taken.task.id, taken.task.due_at, taken.task.status) == ("a", START + 5_000, Status.SCHEDULED)


def test_the_same_id_again_is_kept_and_answered_as_it_stands(tasks: Tasks) -> None:
    tasks.add(new(delay_ms=5_000))
    taken = tasks.add(new(delay_ms=9_000))
    assert (taken.created, taken.task.due_at) == (False, START + 5_000)


def test_a_kind_that_nothing_runs_is_refused_with_those_that_are_known(tasks: Tasks, ledger: EmbeddedLedger) -> None:
    with pytest.raises(errors.InvalidInput, match="known kinds: poll, work") as caught:
        tasks.add(new(kind="toil"))
    assert caught.value.problems[0].field == "kind"
    assert ledger.get(QUEUE, "a") is None


@pytest.mark.parametrize(
    "fields",
    [
        {"due_at": START + 10, "deadline_at": START + 10},
        {"delay_ms": 10, "deadline_at": START + 10},
        {"deadline_at": START},
        {"deadline_ms": 0},
    ],
)
def test_a_deadline_that_is_not_after_the_due_time_is_refused(tasks: Tasks, fields: dict[str, int]) -> None:
    with pytest.raises(errors.InvalidInput) as caught:
        tasks.add(new(**fields))
    assert caught.value.problems[0].field == "deadline"


def test_a_poll_is_given_up_after_a_day_unless_it_says_otherwise(tasks: Tasks) -> None:
    assert tasks.add(new("a", kind="poll", delay_ms=5)).task.deadline_at == START + 5 + 86_400_000
    assert tasks.add(new("b", kind="poll", deadline_ms=7)).task.deadline_at == START + 7
    assert tasks.add(new("c", kind="poll", deadline_at=START + 9)).task.deadline_at == START + 9
    assert tasks.add(new("d")).task.deadline_at == 0


RAISED = {"absent": errors.TaskNotFound, **{reply.value: error for reply, error in REJECTIONS.items()}}


@pytest.mark.parametrize("state", ["absent", "leased", "done", "cancelled", "dead"])
def test_a_refused_move_raises_what_its_state_says(tasks: Tasks, ledger: EmbeddedLedger, state: str) -> None:
    bring(ledger, state)
    with pytest.raises(RAISED[state]):
        tasks.move(QUEUE, Move("a", delay_ms=5))


@pytest.mark.parametrize("state", ["absent", "leased", "done", "cancelled"])
def test_a_refused_cancel_raises_what_its_state_says(tasks: Tasks, ledger: EmbeddedLedger, state: str) -> None:
    bring(ledger, state)
    with pytest.raises(RAISED[state]):
        tasks.cancel(QUEUE, "a")


@pytest.mark.parametrize("state", ["absent", "scheduled", "leased", "done", "cancelled"])
def test_a_refused_replay_raises_what_its_state_says(tasks: Tasks, ledger: EmbeddedLedger, state: str) -> None:
    bring(ledger, state)
    with pytest.raises(RAISED[state]):
        tasks.replay(QUEUE, "a")


def test_adding_a_dead_tasks_id_is_refused(tasks: Tasks, ledger: EmbeddedLedger) -> None:
    bring(ledger, "dead")
    with pytest.raises(errors.TaskDead):
        tasks.add(new())


def test_a_moved_task_is_answered_as_it_stands(tasks: Tasks) -> None:
    tasks.add(new(delay_ms=5_000))
    assert tasks.move(QUEUE, Move("a", delay_ms=70)).due_at == START + 70


def test_a_cancelled_task_stands_as_cancelled(tasks: Tasks) -> None:
    tasks.add(new(delay_ms=5_000))
    tasks.cancel(QUEUE, "a")
    assert tasks.get(QUEUE, "a").status is Status.CANCELLED


def test_force_takes_a_leased_task(tasks: Tasks, ledger: EmbeddedLedger) -> None:
    claim_one(ledger, "a")
    tasks.cancel(QUEUE, "a", force=True)
    claim_one(ledger, "b")
    assert tasks.move(QUEUE, Move("b", delay_ms=70, force=True)).status is Status.SCHEDULED


def test_a_replayed_task_is_due_at_once(tasks: Tasks, ledger: EmbeddedLedger) -> None:
    bring(ledger, "dead")
    task = tasks.replay(QUEUE, "a")
    assert (task.status, task.due_at, task.attempt) == (Status.SCHEDULED, START, 1)


def test_a_result_comes_from_the_ledger_where_no_table_keeps_it(tasks: Tasks, ledger: EmbeddedLedger) -> None:
    settle(ledger, claim_one(ledger), Ending.DONE, result='{"n":1}')
    assert tasks.get(QUEUE, "a").result == {"n": 1}


def test_a_result_comes_from_the_table_where_one_keeps_it(ledger: EmbeddedLedger) -> None:
    task = claim_one(ledger)
    settle(ledger, task, Ending.DONE)
    assert Tasks(ledger, Table(task.fence, {"n": 2}), KINDS, anywhere, seals_of(ledger)).get(QUEUE, "a").result == {
        "n": 2
    }


def test_an_earlier_generations_result_is_not_shown(ledger: EmbeddedLedger) -> None:
    first = claim_one(ledger)
    settle(ledger, first, Ending.DONE)
    settle(ledger, claim_one(ledger), Ending.DONE)
    assert Tasks(ledger, Table(first.fence, "old"), KINDS, anywhere, seals_of(ledger)).get(QUEUE, "a").result is None


def test_only_a_done_task_is_looked_up_in_the_table(ledger: EmbeddedLedger) -> None:
    ledger.add([new()])
    assert Tasks(ledger, Table(0, "an earlier one's"), KINDS, anywhere, seals_of(ledger)).get(QUEUE, "a").result is None
    assert Tasks(ledger, Away(), KINDS, anywhere, seals_of(ledger)).get(QUEUE, "a").status is Status.SCHEDULED


def test_a_table_that_is_away_is_told(ledger: EmbeddedLedger) -> None:
    settle(ledger, claim_one(ledger), Ending.DONE)
    with pytest.raises(errors.ResultsUnavailable):
        Tasks(ledger, Away(), KINDS, anywhere, seals_of(ledger)).get(QUEUE, "a")
