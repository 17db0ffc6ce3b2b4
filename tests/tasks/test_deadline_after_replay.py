"""A dead task that is replayed is given up again: as long after its replay as it was after its add."""

import pytest

from duecourse.ledger.api_query import DEADLINE_MS, QueryState
from duecourse.ledger.embedded.ledger import EmbeddedLedger
from duecourse.ledger.many_tasks import Replay
from duecourse.ledger.task import DEADLINES_MS, Again, Ending, Shard, Status, Task
from duecourse.tasks.kinds import OwnKinds
from duecourse.tasks.verbs import Tasks
from tests.calls.test_queries import QUERY, QUEUE, ask, asking, task_of
from tests.support.clock import HandClock
from tests.support.egress import anywhere
from tests.support.ledger import SHARD, claim_one, ending, new, stored_task
from tests.support.seals import seals_of

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
WEEK_MS = 7 * DAY_MS


@pytest.fixture
def tasks(ledger: EmbeddedLedger) -> Tasks:
    return Tasks(ledger, None, OwnKinds({"poll", "webhook"}), anywhere, seals_of(ledger))


def live(ledger: EmbeddedLedger, clock: HandClock, shard: Shard) -> int:
    """How long (ms) the one task of a shard is worked before it is given up: each hour, and it is never ready."""
    began = clock.now()
    while claimed := ledger.claim(shard, 1, lease_ms=60_000).tasks:
        ledger.settle(shard, [ending(task, Ending.AGAIN, delay_ms=HOUR_MS) for task in claimed])
        clock.advance(HOUR_MS)
        assert clock.now() - began < WEEK_MS, "it goes on without end"
    return clock.now() - began


def replay(tasks: Tasks, task: Task, *, one: bool) -> None:
    if one:
        tasks.replay(task.queue, task.id)
    else:
        assert len(tasks.replay_dead(task.queue, Replay(10)).tasks) == 1


@pytest.mark.parametrize("one", [True, False], ids=["replayed", "with its queue"])
def test_a_replayed_query_is_given_up_again_however_often(
    ledger: EmbeddedLedger, clock: HandClock, tasks: Tasks, one: bool
) -> None:
    queries, _ = asking(ledger, None, Again(after=HOUR_MS // 1_000))
    ask(queries)
    clock.advance(HOUR_MS)
    live(ledger, clock, Shard(QUEUE))
    for _ in range(3):
        assert task_of(ledger).status is Status.DEAD
        clock.advance(WEEK_MS)
        replay(tasks, task_of(ledger), one=one)
        assert queries.get(QUERY.id).status is QueryState.PROCESSING
        assert task_of(ledger).deadline_at == clock.now() + DEADLINE_MS
        assert live(ledger, clock, Shard(QUEUE)) == DEADLINE_MS
    assert queries.get(QUERY.id).status is QueryState.FAILED


@pytest.mark.parametrize("one", [True, False], ids=["replayed", "with its queue"])
def test_a_replayed_task_has_as_long_as_it_had_at_first(
    ledger: EmbeddedLedger, clock: HandClock, tasks: Tasks, one: bool
) -> None:
    tasks.add(new(kind="poll", deadline_ms=3 * HOUR_MS))
    for _ in range(3):
        assert live(ledger, clock, SHARD) == 3 * HOUR_MS
        clock.advance(WEEK_MS)
        replay(tasks, stored_task(ledger), one=one)


def test_a_poll_that_had_no_end_has_the_usual_one_when_it_is_replayed(
    ledger: EmbeddedLedger, clock: HandClock, tasks: Tasks
) -> None:
    ledger.settle(SHARD, [ending(claim_one(ledger, kind="poll"), Ending.DROP)])
    assert tasks.replay("default", "a").deadline_at == clock.now() + DEADLINES_MS["poll"]


def test_a_task_without_a_deadline_has_none_when_it_is_replayed(ledger: EmbeddedLedger, tasks: Tasks) -> None:
    ledger.settle(SHARD, [ending(claim_one(ledger, kind="webhook"), Ending.DROP)])
    assert tasks.replay("default", "a").deadline_at == 0


def test_a_deadline_that_had_passed_when_its_task_was_added_is_not_what_it_has_again(
    ledger: EmbeddedLedger, clock: HandClock, tasks: Tasks
) -> None:
    tasks.add(new(kind="poll", due_at=clock.now() - WEEK_MS, deadline_ms=HOUR_MS))
    assert ledger.claim(SHARD, 1, lease_ms=1).tasks == []
    assert tasks.replay("default", "a").deadline_at == clock.now() + DEADLINES_MS["poll"]
