"""What the front of a slow API answers, request by request."""

import json
from typing import Any

import pytest

from duecourse.errors import CallFailed, CallTimedOut, ResultsUnavailable
from duecourse.ledger.embedded.ledger import EmbeddedLedger
from duecourse.ledger.operation_types import Result
from duecourse.ledger.task import Status
from duecourse.ledger.timeline import timeline
from tests.support.clock import HandClock
from tests.support.engine import ResultsInMemory
from tests.support.functions import Context, invoke, saved
from tests.support.kinds import Web, answer
from tests.support.wired import Wire

QUEUE = "query:nobody.invalid"
"""Of the saved request: wherever it is replayed for real, nobody is called."""
READY = answer(200, {"status": "ready", "report": {"rows": 3}})
PENDING = answer(200, {"status": "pending"})
REFUSED = answer(403, {"error": "no such key"})


@pytest.fixture
def web(request: pytest.FixtureRequest) -> Web:
    """The slow API, answering as the test says."""
    return Web(*request.param)


def answering(*answers: Any) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("web", [answers], indirect=True)


def ask(case: str = "ask_query", remaining_ms: int = 22_000, **fields: Any) -> tuple[int, Any]:
    """The status and the document that a saved request, some of its fields others, is answered with."""
    event = saved(f"enqueue_http/{case}")
    if fields:
        event["body"] = json.dumps(json.loads(event["body"]) | fields)
    told = invoke("enqueue_http", event, Context(remaining_ms))
    return told["statusCode"], json.loads(told["body"])


def show() -> Any:
    status, document = ask("show_query")
    assert status == 200
    return document


@answering(READY)
def test_what_is_there_at_once_is_answered_at_once_and_told_again(
    web: Web, ledger: EmbeddedLedger, capsys: pytest.CaptureFixture[str]
) -> None:
    status, told = ask()
    assert (status, told["data"], told["status"]) == (200, {"rows": 3}, "done")
    assert not told.keys() & {"due_at", "error"}
    assert told["fetched_at"] == "2026-09-21T14:13:20.000Z"
    assert ask() == (200, told)
    assert show() == told
    assert len(web.asked) == 1
    task = ledger.get(QUEUE, told["task"])
    assert task is not None
    assert task.status is Status.DONE
    measured = [json.loads(line)["Added"] for line in capsys.readouterr().out.splitlines() if "_aws" in line]
    assert measured == [1, 0]


@answering(READY, READY)
def test_an_answer_is_told_again_for_a_minute_where_its_query_does_not_say(web: Web, clock: HandClock) -> None:
    event = saved("enqueue_http/ask_query")
    event["body"] = json.dumps({key: value for key, value in json.loads(event["body"]).items() if key != "max_age"})
    for ms, calls in ((0, 1), (59_999, 1), (1, 2)):
        clock.advance(ms)
        assert invoke("enqueue_http", event)["statusCode"] == 200
        assert len(web.asked) == calls


@answering(PENDING, READY)
def test_the_same_query_under_way_is_not_asked_twice(web: Web) -> None:
    status, told = ask()
    assert (status, told["due_at"]) == (202, "2026-09-21T14:13:30.000Z")
    assert ask() == (202, told)
    assert len(web.asked) == 1


@answering(READY, answer(503))
def test_while_it_is_asked_anew_the_last_answer_and_the_error_are_told(web: Web, clock: HandClock) -> None:
    ask()
    clock.advance(1)
    status, told = ask(max_age=0)
    assert (status, told["status"], told["data"]) == (202, "processing", {"rows": 3})
    assert told["error"] == "GET http://nobody.invalid/reports answered 503"
    assert len(web.asked) == 2


@answering(READY)
def test_its_story_tells_that_its_own_request_called(web: Web, ledger: EmbeddedLedger) -> None:
    _, told = ask()
    task = ledger.get(QUEUE, told["task"])
    assert task is not None
    claims = [one.text for one in timeline(task) if one.event == "claimed"]
    assert claims == ["Claimed by the request that asked, and begun 0 seconds after it was due: run 1."]
    assert len(web.asked) == 1


@answering(REFUSED, READY)
def test_a_refusal_is_a_bad_gateway_and_the_next_request_begins_anew(web: Web) -> None:
    status, problem = ask()
    assert status == 502
    assert problem["type"] == "urn:duecourse:problem:query-failed"
    assert problem["detail"].startswith("GET http://nobody.invalid/reports answered 403")
    assert problem["queue"] == QUEUE
    seen = show()
    assert (seen["status"], seen["task"], seen["data"]) == ("failed", problem["task"], None)
    assert ask()[0] == 200
    assert len(web.asked) == 2


@answering(CallTimedOut("no answer within 11 s"))
def test_a_call_is_cut_to_the_time_that_is_left_and_made_again_with_its_own(web: Web, ledger: EmbeddedLedger) -> None:
    status, told = ask(timeout="PT20S")
    assert (status, "error" in told) == (202, False)
    assert web.asked[0].timeout_ms == 11_000
    task = ledger.get(QUEUE, told["task"])
    assert task is not None
    assert (task.status, task.attempt, task.payload["timeout"]) == (Status.SCHEDULED, 1, "PT20S")
    assert told["due_at"] == "2026-09-21T14:13:20.100Z"


@pytest.mark.parametrize(
    ("web", "timeout", "had_ms"),
    [([CallTimedOut("no answer")], "PT5S", 5_000), ([CallFailed("no answer")], "PT20S", 11_000)],
    indirect=["web"],
    ids=["it had its own time", "it ended before the request's time did"],
)
def test_a_call_that_was_not_cut_off_and_failed_is_a_failed_call(
    web: Web, ledger: EmbeddedLedger, timeout: str, had_ms: int
) -> None:
    status, told = ask(timeout=timeout)
    assert (status, told["error"], web.asked[0].timeout_ms) == (202, "no answer", had_ms)
    task = ledger.get(QUEUE, told["task"])
    assert task is not None
    assert task.attempt == 2


@answering(PENDING)
def test_one_that_is_cancelled_is_polled_no_more(web: Web) -> None:
    _, told = ask()
    event = saved("enqueue_http/cancel_webhook")
    path = f"/tasks/{told['task']}"
    event |= {
        "pathParameters": {"id": told["task"]},
        "rawPath": path,
        "queryStringParameters": {"queue": told["queue"]},
        "rawQueryString": "",
    }
    event["requestContext"]["http"]["path"] = path
    assert invoke("enqueue_http", event)["statusCode"] == 204
    seen = show()
    assert (seen["status"], seen["error"]) == ("failed", "it was cancelled")
    assert len(web.asked) == 1


@answering(READY)
def test_under_a_key_the_same_answer_comes_again(web: Web) -> None:
    event = saved("enqueue_http/ask_query")
    event["headers"]["idempotency-key"] = '"one"'
    event["body"] = json.dumps(json.loads(event["body"]) | {"max_age": 0})
    first, again = (invoke("enqueue_http", event) for _ in range(2))
    assert first["statusCode"] == 200
    assert (first["statusCode"], first["body"]) == (again["statusCode"], again["body"])
    assert len(web.asked) == 1


@answering(READY, READY)
def test_under_a_key_whose_answer_could_not_be_told_it_is_not_asked_again(
    web: Web, ledger: EmbeddedLedger, wire: Wire
) -> None:
    class Away(ResultsInMemory):
        def get(self, queue: str, id: str, tenant: str) -> Result | None:
            if len(web.asked) == 1 and not told:
                raise ResultsUnavailable
            return super().get(queue, id, tenant)

    told: list[Any] = []
    wire(ledger=ledger, results=Away(), http=web)
    event = saved("enqueue_http/ask_query")
    event["headers"]["idempotency-key"] = '"one"'
    event["body"] = json.dumps(json.loads(event["body"]) | {"max_age": 0})
    for status in (503, 200):
        told.append(invoke("enqueue_http", event))
        assert told[-1]["statusCode"] == status
    assert json.loads(told[-1]["body"])["data"] == {"rows": 3}
    assert len(web.asked) == 1


@answering()
def test_wrong_fields_are_named_and_nothing_is_asked(web: Web, ledger: EmbeddedLedger) -> None:
    status, problem = ask("bad_query")
    assert status == 422
    assert {error["field"] for error in problem["errors"]} == {"url", "interval", "until", "max_age", "colour"}
    assert (web.asked, ledger.shards()) == ([], [])


@answering()
@pytest.mark.parametrize(
    ("field", "value"), [("interval", "PT24.1H"), ("interval", "PT0.09S"), ("max_age", "P367D"), ("timeout", "PT21S")]
)
def test_what_a_query_can_never_come_to_is_refused(field: str, value: str) -> None:
    """Between two calls as far apart as its whole time there is no second."""
    status, problem = ask(**{field: value})
    assert (status, [error["field"] for error in problem["errors"]]) == (422, [field])


@answering()
def test_a_query_s_queue_is_for_queries_alone() -> None:
    event = saved("enqueue_http/add_webhook")
    event["body"] = json.dumps(json.loads(event["body"]) | {"queue": QUEUE})
    told = invoke("enqueue_http", event)
    assert told["statusCode"] == 422
    [error] = json.loads(told["body"])["errors"]
    assert (error["field"], error["problem"]) == (
        "queue", "query:… is reserved for POST /queries: choose another queue"
    )  # fmt: skip
