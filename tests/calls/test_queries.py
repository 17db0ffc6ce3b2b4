"""The verbs on queries: called at once where that is allowed, answered from what is known, one task each."""

import random
from collections.abc import Callable
from typing import Any

import pytest

from duecourse import errors
from duecourse.ledger.api_query import KNOWN, Known, Query, QueryState, QueryStatus, limits_of, queue_of
from duecourse.ledger.embedded.ledger import EmbeddedLedger
from duecourse.ledger.operation_types import Result, Results
from duecourse.ledger.operations.namespace_records import InFlight
from duecourse.ledger.sharding import Sharding
from duecourse.ledger.task import (
    DEFAULT_TENANT,
    Action,
    Again,
    Change,
    Done,
    Drop,
    Outcome,
    Retry,
    Settlement,
    Shard,
    Status,
    Task,
)
from duecourse.queries.verbs import GRACE_MS, RESERVE_MS, Queries, QueryLimits
from duecourse.running.run import Runner
from tests.support.clock import START, HandClock
from tests.support.egress import anywhere
from tests.support.engine import ResultsInMemory, ample
from tests.support.seals import seals_of

PAYLOAD = {"url": "https://api.example.com/reports/7", "method": "GET", "interval": "PT10S", "until": "ready"}
QUEUE = "query:api.example.com"
AGE_MS = 60_000
QUERY = Query(PAYLOAD, AGE_MS)
BUSY = Again(after=10)


class Api:
    """What is asked: it answers in turn, the last again and again, and keeps what it was asked and how hurried."""

    def __init__(self, ledger: EmbeddedLedger, results: Results | None, *outcomes: Outcome) -> None:
        self.asked: list[tuple[Task, int]] = []
        self.meanwhile: Callable[[], object] = lambda: None
        self._outcomes = list(outcomes)
        self._runner = Runner(lambda _kind: self._next, results, ledger.now, random.Random(7))

    def call(self, task: Task, left_ms: int) -> Settlement:
        self.asked.append((task, left_ms))
        self.meanwhile()
        return self._runner.run(task)

    def _next(self, _task: Task) -> Outcome:
        return self._outcomes.pop(0) if len(self._outcomes) > 1 else self._outcomes[0]


class Overtaken(EmbeddedLedger):
    """A ledger where another comes first once, between a look and an add."""

    by: Callable[[], object] | None = None

    def add(self, *args: Any, **fields: Any) -> Any:
        first, self.by = self.by, None
        if first:
            first()
        return super().add(*args, **fields)


@pytest.fixture(params=["ledger", "database"])
def results(request: pytest.FixtureRequest) -> ResultsInMemory | None:
    """Where answers are kept."""
    return ResultsInMemory() if request.param == "database" else None


def asking(
    ledger: EmbeddedLedger, results: Results | None, *outcomes: Outcome, parallel: int = 4, at_once: int = 0
) -> tuple[Queries, Api]:
    api = Api(ledger, results, *outcomes)
    limits = QueryLimits(lambda _queue: {"max_running": parallel}, at_once)
    return Queries(ledger, results, api.call, limits, anywhere, seals_of(ledger)), api


def ask(queries: Queries, query: Query = QUERY, remaining_ms: int = 15_000) -> QueryStatus:
    return queries.ask(query, lambda: remaining_ms).status


def other(number: int, **fields: Any) -> Query:
    return Query({**PAYLOAD, "url": f"https://api.example.com/reports/{number}", **fields}, AGE_MS)


def task_of(ledger: EmbeddedLedger, query: Query = QUERY, tenant: str = DEFAULT_TENANT) -> Task:
    task = ledger.get(queue_of(query.id), query.id, tenant)
    assert task is not None
    return task


def poll_on(ledger: EmbeddedLedger, api: Api) -> None:
    """What a drain does with what is due."""
    for task in ledger.claim(Shard(QUEUE), 10, lease_ms=30_000).tasks:
        ledger.settle(Shard(QUEUE), [api.call(task, 30_000)])
    api.asked.pop()


def test_an_answer_that_comes_at_once_is_told_at_once(ledger: EmbeddedLedger, results: ResultsInMemory | None) -> None:
    queries, api = asking(ledger, results, Done({"rows": 3}))
    seen = ask(queries)
    assert seen == QueryStatus(QUERY.id, QUEUE, QueryState.DONE, Known({"rows": 3}, START))
    assert queries.get(QUERY.id) == seen
    assert len(api.asked) == 1


def test_one_that_is_not_there_yet_is_polled_on_and_found_by_its_id(
    ledger: EmbeddedLedger, clock: HandClock, results: ResultsInMemory | None
) -> None:
    queries, api = asking(ledger, results, BUSY, Done("ready"))
    seen = ask(queries)
    assert seen == QueryStatus(QUERY.id, QUEUE, QueryState.PROCESSING, None, "", START + 10_000)
    assert ask(queries) == seen
    assert len(api.asked) == 1
    clock.advance(10_000)
    poll_on(ledger, api)
    assert queries.get(QUERY.id).known == Known("ready", START + 10_000)


def test_the_same_query_under_way_is_one_job(ledger: EmbeddedLedger, results: ResultsInMemory | None) -> None:
    queries, api = asking(ledger, results, Done("first"))
    meanwhile: list[QueryStatus] = []
    api.meanwhile = lambda: meanwhile.append(ask(queries))
    assert ask(queries).status is QueryState.DONE
    assert [seen.status for seen in meanwhile] == [QueryState.PROCESSING]
    assert len(api.asked) == 1


def test_two_that_looked_at_the_same_time_are_one_job(clock: HandClock, results: ResultsInMemory | None) -> None:
    """One looks, and by the time it adds the other has asked and been answered: it is told that answer."""
    ledger = Overtaken(clock)
    queries, api = asking(ledger, results, Done("theirs"), Done("ours"))
    ledger.by = lambda: ask(queries, Query(PAYLOAD, 0))
    assert ask(queries, Query(PAYLOAD, 0)).known == Known("theirs", START)
    assert len(api.asked) == 1


def test_one_that_another_has_asked_meanwhile_waits_for_its_next_turn(
    clock: HandClock, results: ResultsInMemory | None
) -> None:
    ledger = Overtaken(clock)
    queries, api = asking(ledger, results, BUSY)
    ledger.by = lambda: ask(queries)
    assert ask(queries).due_at == START + 10_000
    assert len(api.asked) == 1


def test_a_young_answer_is_told_again_and_an_old_one_asked_anew(
    ledger: EmbeddedLedger, clock: HandClock, results: ResultsInMemory | None
) -> None:
    queries, api = asking(ledger, results, Done(1), Done(2), Done(3))
    ask(queries)
    clock.advance(AGE_MS - 1)
    assert ask(queries).known == Known(1, START)
    clock.advance(1)
    assert ask(queries).known == Known(2, START + AGE_MS)
    assert ask(queries, Query(PAYLOAD, 0)).known == Known(3, START + AGE_MS)
    assert len(api.asked) == 3


def test_one_who_asks_anew_takes_from_nobody_else_an_answer_that_is_young_enough(
    ledger: EmbeddedLedger, clock: HandClock, results: ResultsInMemory | None
) -> None:
    queries, api = asking(ledger, results, Done("young"), BUSY)
    told = ask(queries)
    assert ask(queries, Query(PAYLOAD, 0)).status is QueryState.PROCESSING
    assert ask(queries) == told
    clock.advance(AGE_MS)
    assert ask(queries).status is QueryState.PROCESSING
    assert len(api.asked) == 2


def test_a_clock_that_is_set_back_keeps_no_answer_young(
    ledger: EmbeddedLedger, clock: HandClock, results: ResultsInMemory | None
) -> None:
    queries, _ = asking(ledger, results, Done(1), Done(2))
    ask(queries)
    clock.advance(1 - AGE_MS)
    assert ask(queries).known == Known(1, START)
    clock.advance(-1)
    assert ask(queries).known == Known(2, START - AGE_MS)


def test_while_it_is_asked_anew_what_was_known_is_told(
    ledger: EmbeddedLedger, clock: HandClock, results: ResultsInMemory | None
) -> None:
    queries, _ = asking(ledger, results, Done("old"), BUSY, Drop("gone"), BUSY)
    ask(queries)
    clock.advance(AGE_MS)
    seen = ask(queries)
    assert (seen.status, seen.known) == (QueryState.PROCESSING, Known("old", START))
    assert (KNOWN in task_of(ledger).payload) is (results is None)
    ledger.cancel(QUEUE, [QUERY.id])
    assert queries.get(QUERY.id) == QueryStatus(
        QUERY.id, QUEUE, QueryState.FAILED, Known("old", START), "it was cancelled"
    )
    assert ask(queries) == QueryStatus(QUERY.id, QUEUE, QueryState.FAILED, Known("old", START), "gone")
    assert ask(queries).known == Known("old", START)
    assert queries.get(QUERY.id).status is QueryState.PROCESSING


def test_an_answer_of_null_is_one(ledger: EmbeddedLedger, clock: HandClock, results: ResultsInMemory | None) -> None:
    queries, _ = asking(ledger, results, Done("old"), Done(None))
    ask(queries)
    clock.advance(AGE_MS)
    assert ask(queries).known == Known(None, START + AGE_MS)
    assert queries.get(QUERY.id).known == Known(None, START + AGE_MS)


def test_an_answer_outlives_its_task_where_a_database_keeps_it(ledger: EmbeddedLedger, clock: HandClock) -> None:
    queries, api = asking(ledger, ResultsInMemory(), Done("kept"))
    ask(queries)
    clock.advance(AGE_MS - 1)
    ledger.sweep(Shard(QUEUE), retention_ms=1)
    assert ledger.get(QUEUE, QUERY.id) is None
    assert queries.get(QUERY.id) == QueryStatus(QUERY.id, QUEUE, QueryState.DONE, Known("kept", START))
    assert ask(queries).known == Known("kept", START)
    assert len(api.asked) == 1


def test_a_null_outlives_its_task_too_and_is_not_taken_for_the_answer_before_it(
    ledger: EmbeddedLedger, clock: HandClock
) -> None:
    queries, _ = asking(ledger, ResultsInMemory(), Done("old"), Done(None))
    ask(queries)
    clock.advance(AGE_MS)
    ask(queries)
    clock.advance(2)
    ledger.sweep(Shard(QUEUE), retention_ms=1)
    assert queries.get(QUERY.id).known == Known(None, START + AGE_MS)


def test_an_answer_whose_time_in_the_database_is_over_is_none(ledger: EmbeddedLedger) -> None:
    """Its task stands for longer where a queue's retention says so, and must not be taken for an answer of null."""
    kept = ResultsInMemory()
    queries, api = asking(ledger, kept, Done("old"), Done("new"))
    ask(queries)
    kept.results.clear()
    with pytest.raises(errors.QueryNotFound):
        queries.get(QUERY.id)
    assert ask(queries).known == Known("new", START)
    assert len(api.asked) == 2


def test_a_database_that_is_added_later_hides_no_answer_and_brings_no_older_one_back(
    ledger: EmbeddedLedger, clock: HandClock
) -> None:
    before, _ = asking(ledger, None, Done("old"), BUSY)
    ask(before)
    kept = ResultsInMemory()
    after, api = asking(ledger, kept, Done("new"))
    assert after.get(QUERY.id).known == Known("old", START)
    ask(before, Query(PAYLOAD, 0))
    assert after.get(QUERY.id).known == Known("old", START)
    clock.advance(10_000)
    poll_on(ledger, api)
    assert after.get(QUERY.id).known == Known("new", clock.at)
    kept.results.clear()
    with pytest.raises(errors.QueryNotFound):
        after.get(QUERY.id)


def test_an_answer_that_comes_between_a_look_at_the_task_and_one_at_the_database_is_told(
    ledger: EmbeddedLedger,
) -> None:
    class Late(ResultsInMemory):
        before: Callable[[], object] | None = None

        def get(self, queue: str, id: str, tenant: str) -> Result | None:
            first, self.before = self.before, None
            if first:
                first()
            return super().get(queue, id, tenant)

    kept = Late()
    queries, _ = asking(ledger, kept, Done("old"), Done("new"))
    ask(queries)
    kept.before = lambda: ask(queries, Query(PAYLOAD, 0))
    assert queries.get(QUERY.id).known == Known("new", START)


def test_while_the_database_is_away_no_query_is_asked_and_no_answer_costs_an_attempt(
    ledger: EmbeddedLedger, clock: HandClock
) -> None:
    class Away(ResultsInMemory):
        away = False

        def put(self, task: Task, result_json: str, now: int) -> bool:
            if self.away:
                raise errors.ResultsUnavailable
            return super().put(task, result_json, now)

        def get(self, queue: str, id: str, tenant: str) -> Result | None:
            if self.away:
                raise errors.ResultsUnavailable
            return super().get(queue, id, tenant)

    kept = Away()
    queries, api = asking(ledger, kept, Done("kept"))
    kept.away = True
    with pytest.raises(errors.ResultsUnavailable):
        ask(queries)
    assert (api.asked, ledger.shards()) == ([], [])
    kept.away, api.meanwhile = False, lambda: setattr(kept, "away", True)
    with pytest.raises(errors.ResultsUnavailable):
        ask(queries)
    assert (task_of(ledger).status, task_of(ledger).attempt) == (Status.SCHEDULED, 1)
    kept.away, api.meanwhile = False, lambda: None
    assert ask(queries).status is QueryState.PROCESSING
    clock.advance(1_000)
    poll_on(ledger, api)
    assert queries.get(QUERY.id).known == Known("kept", clock.at)


def test_one_that_is_gone_before_its_request_looks_again_failed(ledger: EmbeddedLedger) -> None:
    queries, api = asking(ledger, None, Drop("no"))
    api.meanwhile = lambda: ledger.cancel(QUEUE, [QUERY.id], force=True) and ledger.sweep(Shard(QUEUE), retention_ms=-1)
    assert ask(queries) == QueryStatus(QUERY.id, QUEUE, QueryState.FAILED, None, "it was removed meanwhile")


def test_one_that_is_never_answered_is_given_up_after_a_day(ledger: EmbeddedLedger, clock: HandClock) -> None:
    queries, _ = asking(ledger, None, BUSY)
    ask(queries)
    clock.advance(86_400_000 + 1_000)
    assert queries.get(QUERY.id).status is QueryState.PROCESSING
    clock.advance(1)
    ledger.claim(Shard(QUEUE), 10, lease_ms=1_000)
    assert queries.get(QUERY.id).status is QueryState.FAILED


def test_what_was_never_asked_is_not_found(ledger: EmbeddedLedger, results: ResultsInMemory | None) -> None:
    queries, _ = asking(ledger, results, Done(1))
    with pytest.raises(errors.QueryNotFound):
        queries.get(QUERY.id)


def test_a_failed_call_is_told_and_tried_again(ledger: EmbeddedLedger, results: ResultsInMemory | None) -> None:
    queries, _ = asking(ledger, results, Retry(after=5, error="answered 503"))
    assert ask(queries) == QueryStatus(QUERY.id, QUEUE, QueryState.PROCESSING, None, "answered 503", START + 5_000)


def test_the_error_is_of_the_call_that_is_asked_now_and_of_none_before_it(
    ledger: EmbeddedLedger, results: ResultsInMemory | None
) -> None:
    queries, _ = asking(ledger, results, Drop("answered 403"), BUSY, Retry(after=5, error="answered 503"))
    ask(queries)
    seen = ask(queries)
    assert (seen.status, seen.error) == (QueryState.PROCESSING, "")
    ledger.cancel(QUEUE, [QUERY.id])
    assert ask(queries).error == "answered 503"


def test_what_died_does_not_stand_in_the_way(ledger: EmbeddedLedger, results: ResultsInMemory | None) -> None:
    queries, api = asking(ledger, results, Drop("answered 403"), Done("let in"))
    assert ask(queries) == QueryStatus(QUERY.id, QUEUE, QueryState.FAILED, None, "answered 403")
    assert task_of(ledger).status is Status.DEAD
    assert ask(queries).known == Known("let in", START)
    assert len(api.asked) == 2


def test_no_more_than_so_many_call_a_host_and_the_rest_are_due_at_once(
    ledger: EmbeddedLedger, results: ResultsInMemory | None
) -> None:
    queries, api = asking(ledger, results, BUSY, parallel=2)
    inner: list[QueryStatus] = []

    def more() -> None:
        if len(api.asked) < 4:
            inner.append(ask(queries, other(len(api.asked) + len(inner))))

    api.meanwhile = more
    ask(queries)
    assert len(api.asked) == 2
    waiting = [task for task in (task_of(ledger, other(n)) for n in (1, 2)) if task.run == 0]
    assert [(task.status, task.due_at) for task in waiting] == [(Status.SCHEDULED, START)]
    elsewhere = Query({**PAYLOAD, "url": "https://other.example.com/"}, 0)
    ask(queries, elsewhere)
    assert task_of(ledger, elsewhere).run == 1


def test_of_a_queue_of_several_shards_each_query_is_found_in_its_own(
    clock: HandClock, results: ResultsInMemory | None
) -> None:
    ledger = EmbeddedLedger(clock, sharding=Sharding({QUEUE: 3}))
    queries, api = asking(ledger, results, Done(1), parallel=3)
    assert [ask(queries, other(n)).known for n in range(9)] == [Known(1, START)] * 9
    assert len({ledger.shard_of(QUEUE, task.id, task.group) for task, _ in api.asked}) == 3
    unhurried = [ask(queries, other(n), remaining_ms=0) for n in range(10, 19)]
    assert [(seen.status, seen.due_at) for seen in unhurried] == [(QueryState.PROCESSING, START)] * 9


def test_a_host_s_limit_is_set_once_and_an_operator_s_stays(
    ledger: EmbeddedLedger, results: ResultsInMemory | None
) -> None:
    queries, _ = asking(ledger, results, BUSY, parallel=2)
    ask(queries)
    assert ledger.settings_of([QUEUE])[0].max_running == 2
    ledger.configure(QUEUE, {"max_running": 7})
    ask(asking(ledger, results, BUSY, parallel=2)[0], other(8))
    assert ledger.settings_of([QUEUE])[0].max_running == 7
    ledger.configure(QUEUE, {"max_running": None})
    ask(queries, other(9))
    assert ledger.settings_of([QUEUE])[0].max_running is None


def test_a_host_s_limit_is_set_anew_once_its_queue_may_have_been_forgotten(
    ledger: EmbeddedLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("duecourse.queries.verbs.REMEMBERED_S", 0)
    queries, _ = asking(ledger, None, BUSY, parallel=2)
    ask(queries)
    ledger.configure(QUEUE, {"max_running": None})
    ask(queries, other(8))
    assert ledger.settings_of([QUEUE])[0].max_running == 2


def test_a_process_that_has_met_many_hosts_forgets_them(
    ledger: EmbeddedLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("duecourse.queries.verbs.MAX_REMEMBERED_QUEUES", 1)
    queries, _ = asking(ledger, None, BUSY, parallel=2)
    ask(queries)
    ask(queries, Query({**PAYLOAD, "url": "https://other.example.com/"}, 0))
    ledger.configure(QUEUE, {"max_running": None})
    ask(queries, other(8))
    assert ledger.settings_of([QUEUE])[0].max_running == 2


def test_nobody_else_may_have_a_new_query_before_its_request(clock: HandClock) -> None:
    class Cut(EmbeddedLedger):
        """A ledger that a request loses once it has added its task."""

        def take(self, *_: Any, **_fields: Any) -> Any:
            raise errors.StoreUnavailable

    ledger = Cut(clock)
    queries, _ = asking(ledger, None, Done(1))
    with pytest.raises(errors.StoreUnavailable):
        ask(queries)
    assert ledger.claim(Shard(QUEUE), 10, lease_ms=1_000).tasks == []
    clock.advance(1_000)
    assert len(ledger.claim(Shard(QUEUE), 10, lease_ms=1_000).tasks) == 1


def test_the_call_ends_within_the_request_and_the_lease_outlasts_it(ledger: EmbeddedLedger) -> None:
    queries, api = asking(ledger, None, BUSY)
    ask(queries, remaining_ms=15_000)
    [(task, left_ms)] = api.asked
    assert left_ms == 15_000 - RESERVE_MS
    assert task.lease_expires_at == START + 16_000


def test_a_request_without_time_leaves_its_query_to_others(ledger: EmbeddedLedger) -> None:
    queries, api = asking(ledger, None, BUSY)
    seen = ask(queries, remaining_ms=RESERVE_MS)
    assert (api.asked, seen.status, seen.due_at) == ([], QueryState.PROCESSING, START)
    assert task_of(ledger).log == (Change(START, Action.MOVED, "http", START + 1_000, START),)


def test_tenants_ask_for_themselves_within_the_same_limit(
    ledger: EmbeddedLedger, results: ResultsInMemory | None
) -> None:
    queries, api = asking(ledger, results, BUSY, parallel=1)
    api.meanwhile = lambda: queries.ask(QUERY, ample, "b")
    queries.ask(QUERY, ample, "a")
    assert [task.tenant for task, _ in api.asked] == ["a"]
    assert task_of(ledger, tenant="b").status is Status.SCHEDULED
    with pytest.raises(errors.QueryNotFound):
        queries.get(QUERY.id)


class Undismissed(InFlight):
    """A count of queries that counts none off: the ledger does not answer."""

    def dismiss(self, *_: str) -> None:
        raise errors.StoreUnavailable


class Forgetful(EmbeddedLedger):
    def in_flight(self) -> InFlight:
        return Undismissed(self._scripts, self._runner.namespace)


def test_beyond_its_bound_a_tenants_query_is_due_at_once_and_nobody_waits_for_it(ledger: EmbeddedLedger) -> None:
    queries, api = asking(ledger, None, Done(1), at_once=1)
    inner: list[QueryState] = []

    def nested() -> None:
        api.meanwhile = lambda: None
        inner.extend(queries.ask(other(1), ample, tenant).status.status for tenant in ("acme", "globex"))

    api.meanwhile = nested
    assert queries.ask(QUERY, ample, "acme").status.status is QueryState.DONE
    assert inner == [QueryState.PROCESSING, QueryState.DONE]
    waiting = task_of(ledger, other(1), "acme")
    assert (waiting.status, waiting.due_at, waiting.attempt) == (Status.SCHEDULED, START, 1)
    assert queries.ask(other(2), ample, "acme").status.status is QueryState.DONE, "the first is in flight no more"


@pytest.mark.parametrize(("at_once", "tenant"), [(1, DEFAULT_TENANT), (0, "acme")])
def test_callers_without_a_tenant_or_without_a_bound_all_wait(
    ledger: EmbeddedLedger, at_once: int, tenant: str
) -> None:
    queries, api = asking(ledger, None, Done(1), at_once=at_once)
    inner: list[QueryState] = []

    def nested() -> None:
        api.meanwhile = lambda: None
        inner.append(queries.ask(other(1), ample, tenant).status.status)

    api.meanwhile = nested
    queries.ask(QUERY, ample, tenant)
    assert inner == [QueryState.DONE]


def test_a_full_host_takes_no_place_of_its_tenant(ledger: EmbeddedLedger) -> None:
    queries, _ = asking(ledger, None, Done(1), at_once=1)
    ledger.configure(QUEUE, {"paused": True})
    assert queries.ask(QUERY, ample, "acme").status.status is QueryState.PROCESSING
    ledger.configure(QUEUE, {"paused": False})
    assert queries.ask(other(1), ample, "acme").status.status is QueryState.DONE


def test_an_answer_is_given_though_the_ledger_does_not_count_it_off(clock: HandClock) -> None:
    ledger = Forgetful(clock)
    queries, _ = asking(ledger, None, Done(1), at_once=1)
    assert queries.ask(QUERY, lambda: 15_000, "acme").status.status is QueryState.DONE
    assert queries.ask(other(1), lambda: 15_000, "acme").status.status is QueryState.PROCESSING
    clock.advance(15_000 + GRACE_MS)
    assert queries.ask(other(2), lambda: 15_000, "acme").status.status is QueryState.DONE, "it ended by itself"


@pytest.mark.parametrize(
    ("parallel", "shards", "apart", "tenant_limit"),
    [(4, 1, True, 3), (1, 1, True, 1), (4, 4, True, 4), (4, 2, True, 3), (4, 1, False, None)],
)
def test_one_call_of_a_host_is_left_for_another_tenant_where_each_shard_has_its_part(
    clock: HandClock, parallel: int, shards: int, apart: bool, tenant_limit: int | None
) -> None:
    ledger = EmbeddedLedger(clock, sharding=Sharding({QUEUE: shards}))
    ledger.configure(QUEUE, limits_of(parallel, shards, are_apart=apart), default=True)
    settings = ledger.settings_of([QUEUE])[0]
    assert (settings.max_running, settings.tenant_max_running) == (parallel, tenant_limit)
