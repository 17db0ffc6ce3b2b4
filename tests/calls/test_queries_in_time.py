"""A query is answered within its request's time, however the results database hangs."""

import pytest

from duecourse.errors import ResultsUnavailable
from duecourse.ledger.api_query import QueryState
from duecourse.ledger.embedded.ledger import EmbeddedLedger
from duecourse.ledger.operation_types import PATIENCE_MS, Result
from duecourse.ledger.task import Done, Task
from duecourse.queries.verbs import RESERVE_MS
from duecourse.services.aws import BACKOFF_MS, CONNECT_MS, READ_MS, TABLE_ATTEMPTS
from tests.calls.test_queries import QUERY, asking
from tests.support.clock import START, HandClock
from tests.support.engine import ResultsInMemory
from tests.support.template import properties

REQUEST_MS = properties("EnqueueHttpFunction")["Timeout"] * 1_000
API_GATEWAY_MS = 29_000


class Hanging(ResultsInMemory):
    """A database that takes all the time a verb may take, and then answers, or does not."""

    def __init__(self, clock: HandClock, *, answers: bool) -> None:
        super().__init__()
        self._clock = clock
        self._answers = answers
        self.hangs = False

    def put(self, task: Task, result_json: str, now: int) -> bool:
        self._hang()
        return super().put(task, result_json, now)

    def get(self, queue: str, id: str, tenant: str) -> Result | None:
        self._hang()
        return super().get(queue, id, tenant)

    def _hang(self) -> None:
        self._clock.advance(PATIENCE_MS if self.hangs else 0)
        if self.hangs and not self._answers:
            raise ResultsUnavailable


@pytest.mark.parametrize("answers", [True, False], ids=["late", "never"])
@pytest.mark.parametrize("since_its_call", [True, False], ids=["after the call", "throughout"])
def test_a_query_whose_database_hangs_is_answered_within_its_requests_time(
    ledger: EmbeddedLedger, clock: HandClock, answers: bool, since_its_call: bool
) -> None:
    results = Hanging(clock, answers=answers)
    queries, api = asking(ledger, results, Done("ready"))

    def call_for_as_long_as_it_may() -> None:
        clock.advance(api.asked[-1][1])
        results.hangs = True

    api.meanwhile = call_for_as_long_as_it_may
    results.hangs = not since_its_call
    try:
        asked = queries.ask(QUERY, lambda: START + REQUEST_MS - clock.now())
    except ResultsUnavailable:
        assert not answers
    else:
        assert asked.status.status is QueryState.DONE
    assert clock.now() <= START + REQUEST_MS
    assert REQUEST_MS < API_GATEWAY_MS


def test_the_databases_client_gives_up_within_its_patience() -> None:
    assert TABLE_ATTEMPTS * (CONNECT_MS + READ_MS) + BACKOFF_MS <= PATIENCE_MS
    assert READ_MS >= 1_000


def test_a_deployed_query_has_time_for_a_call_of_the_usual_length() -> None:
    assert REQUEST_MS - RESERVE_MS == 11_000, "as docs/how-to/queries.md says"
