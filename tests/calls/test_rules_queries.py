"""Queries on every store: what they rely on of the ledger, put together."""

import random
from collections.abc import Callable

from duecourse.ledger.api_query import Known, Query, QueryState, queue_of
from duecourse.ledger.operations.ledger import Ledger
from duecourse.ledger.task import Again, Done, Drop, Outcome, Settlement, Shard, Task
from duecourse.queries.verbs import Queries, QueryLimits
from duecourse.running.run import Runner
from tests.support.clock import HandClock
from tests.support.egress import anywhere
from tests.support.engine import ample
from tests.support.seals import seals_of


def query(number: int, max_age_ms: int = 60_000) -> Query:
    return Query({"url": f"http://api:8080/{number}", "interval": "PT5S", "until": "ready"}, max_age_ms)


def asking(ledger: Ledger, outcome: Outcome, meanwhile: Callable[[], object] = lambda: None) -> Queries:
    runner = Runner(lambda _name: lambda _task: outcome, None, ledger.now, random.Random(7))

    def call(task: Task, _left_ms: int) -> Settlement:
        meanwhile()
        return runner.run(task)

    return Queries(
        ledger,
        None,
        call,
        limits=QueryLimits(lambda _queue: {"max_running": 1}),
        url_policy=anywhere,
        seals=seals_of(ledger),
    )


def test_a_query_goes_from_asked_to_answered_and_is_asked_anew(ledger: Ledger, clock: HandClock) -> None:
    asked = asking(ledger, Again(after=5)).ask(query(1), ample)
    assert (asked.created, asked.status.status, asked.status.due_at) == (
        True, QueryState.PROCESSING, clock.at + 5_000
    )  # fmt: skip
    assert asking(ledger, Done(1)).ask(query(1), ample) == (asked.status, False)
    shard = Shard(queue_of(query(1).id))
    clock.advance(5_000)
    [task] = ledger.claim(shard, 10, lease_ms=1_000).tasks
    runner = Runner(lambda _name: lambda _task: Done("x" * 60_000), None, ledger.now, random.Random(7))
    ledger.settle(shard, [runner.run(task)])
    known = Known("x" * 60_000, clock.at)
    assert asking(ledger, Done(2)).get(query(1).id).known == known
    dead = asking(ledger, Drop("no")).ask(query(1, max_age_ms=0), ample).status
    assert (dead.status, dead.known, dead.error) == (QueryState.FAILED, known, "no")
    assert asking(ledger, Done(3)).ask(query(1), ample).status.known == Known(3, clock.at)


def test_beyond_a_hosts_limit_a_query_waits_due_and_one_under_way_is_nobody_elses(
    ledger: Ledger, clock: HandClock
) -> None:
    second = asking(ledger, Done(2))
    waiting: list[object] = []
    first = asking(ledger, Done(1), lambda: waiting.append(second.ask(query(2), ample).status))
    assert first.ask(query(1), ample).status.known == Known(1, clock.at)
    [seen] = waiting
    assert seen == second.get(query(2).id)
    assert (second.get(query(2).id).status, second.get(query(2).id).due_at) == (QueryState.PROCESSING, clock.at)
    assert len(ledger.claim(Shard(queue_of(query(2).id)), 10, lease_ms=1_000).tasks) == 1
