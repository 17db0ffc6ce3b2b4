"""The engine's warmer: which functions get an event without tasks, and how those in use are noted."""

import pytest

from duecourse.errors import DuecourseError, InvocationRejected, StoreMisused, StoreUnavailable
from duecourse.ledger.embedded.ledger import EmbeddedLedger
from duecourse.ledger.operations.namespace_records import Warmth
from duecourse.ledger.task import Shard
from duecourse.ringing.warming import UsageRecorder, Warmer
from tests.support.clock import HandClock
from tests.support.engine import Lambda
from tests.support.ledger import SHARD, new

TARGETS = {"report": "lambda:Report", "bill": "lambda:Bill", "again": "lambda:Bill", "mail": "sqs:mails"}
IDLE_MS = 300_000
NO_TASKS = {"source": "duecourse", "version": "1", "tasks": []}


class Away:
    """A Warmth whose shards are away, or reject what they are asked."""

    def __init__(self, why: type[DuecourseError] = StoreUnavailable) -> None:
        self.why = why

    def coming(self, *_: object) -> list[str]:
        raise self.why

    def idle(self, *_: object) -> list[str]:
        raise self.why


@pytest.fixture
def service() -> Lambda:
    return Lambda()


def warmer(warmth: Warmth, service: Lambda) -> Warmer:
    return Warmer(warmth, service, TARGETS, within_ms=15_000, idle_ms=IDLE_MS)


def test_the_functions_of_the_kinds_that_come_next_get_an_event_without_tasks(
    ledger: EmbeddedLedger, service: Lambda
) -> None:
    ledger.add([new("a", kind="bill", delay_ms=9_000), new("b", kind="again", delay_ms=9_000)])
    ledger.add([new("c", kind="mail", delay_ms=9_000), new("d", kind="webhook", delay_ms=9_000)])
    ledger.add([new("e", kind="report", delay_ms=60_000)])
    assert warmer(ledger.warmth(), service).warm([SHARD, Shard("empty")]) == ["Bill"]
    assert service.sent == [("Bill", NO_TASKS)]
    assert service.prepared


def test_a_function_is_warmed_once_a_spell(ledger: EmbeddedLedger, service: Lambda, clock: HandClock) -> None:
    delays = [9_000, 100_000, 200_000, 200_000 + IDLE_MS, 300_000 + IDLE_MS]
    ledger.add([new(f"a{n}", kind="bill", delay_ms=delay) for n, delay in enumerate(delays)])
    warming, warmed, start = warmer(ledger.warmth(), service), [], clock.at
    for delay in delays:
        clock.at = start + delay - 9_000
        warmed.append(warming.warm([SHARD]))
    assert warmed == [["Bill"], [], [], ["Bill"], []]


def test_a_function_that_is_in_use_is_not_warmed(ledger: EmbeddedLedger, service: Lambda, clock: HandClock) -> None:
    ledger.add([new("a", kind="bill", delay_ms=9_000)])
    UsageRecorder(Lambda().send, ledger.warmth(), IDLE_MS).send("Bill", NO_TASKS)
    clock.advance(IDLE_MS - 1)
    assert warmer(ledger.warmth(), service).warm([SHARD]) == []


def test_what_is_refused_was_not_warmed(ledger: EmbeddedLedger, caplog: pytest.LogCaptureFixture) -> None:
    ledger.add([new("a", kind="bill", delay_ms=9_000), new("b", kind="report", delay_ms=9_000)])
    service = Lambda(InvocationRejected("throttled"))
    assert warmer(ledger.warmth(), service).warm([SHARD]) == []
    assert [function for function, _ in service.sent] == ["Bill", "Report"]
    assert "function Bill is not warmed" in caplog.text


def test_a_shard_that_is_away_warms_nothing_and_is_told(service: Lambda, caplog: pytest.LogCaptureFixture) -> None:
    assert warmer(Away(), service).warm([SHARD]) == []
    assert "shard default/0 are not warmed" in caplog.text


def test_without_functions_nothing_is_looked_at() -> None:
    assert Warmer(Away(), Lambda(), {"mail": "sqs:mails"}, within_ms=1, idle_ms=IDLE_MS).warm([SHARD]) == []


@pytest.mark.parametrize("why", [StoreUnavailable, StoreMisused])
def test_a_hand_over_goes_on_where_it_cannot_be_noted(
    service: Lambda, caplog: pytest.LogCaptureFixture, why: type[DuecourseError]
) -> None:
    UsageRecorder(service.send, Away(why), IDLE_MS).send("Bill", NO_TASKS)
    assert service.sent == [("Bill", NO_TASKS)]
    assert "use of function Bill could not be recorded" in caplog.text


def test_functions_in_use_are_noted_seldom(ledger: EmbeddedLedger, service: Lambda) -> None:
    class Counting:
        asked = 0

        def idle(self, functions: list[str], idle_ms: int) -> list[str]:
            self.asked += 1
            return ledger.warmth().idle(functions, idle_ms)

    counting = Counting()
    noting = UsageRecorder(service.send, counting, IDLE_MS)  # type: ignore[arg-type]
    for _ in range(100):
        noting.send("Bill", NO_TASKS)
        noting.send("Report", NO_TASKS)
    assert counting.asked == 2
    assert len(service.sent) == 200
