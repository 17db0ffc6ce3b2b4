"""The adapters for AWS: DynamoDB as moto has it, the Invoke API by a server of a few lines."""

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import boto3
import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.session import get_session
from moto import mock_aws

from duecourse.errors import InvocationRejected, ResultsUnavailable
from duecourse.ledger.operation_types import PATIENCE_MS, Result
from duecourse.ledger.task import Task
from duecourse.services.aws import DynamoDbResults, LambdaInvoker
from tests.support.http_server import ReceivedRequest, Reply, Server, answering
from tests.support.kinds import leased
from tests.support.stalls import stalls

DAY_MS = 86_400_000


pytestmark = [pytest.mark.usefixtures("aws_account"), pytest.mark.slow]


@pytest.fixture
def dynamodb() -> Iterator[Any]:
    with mock_aws():
        client = boto3.client("dynamodb")
        client.create_table(
            TableName="results",
            KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
            AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
            BillingMode="PAY_PER_REQUEST",
        )
        yield client
        client.close()


@pytest.fixture
def results(dynamodb: Any) -> DynamoDbResults:
    return DynamoDbResults("results", 30 * DAY_MS, dynamodb)


def now() -> int:
    return time.time_ns() // 1_000_000


def ran(fence: int, **changes: object) -> Task:
    at = now() - 60_000
    task = leased("poll", {}, created_at=at, claimed_at=at, due_at=at, generation=1, token=f"{fence:012x}")
    return replace(task, **changes)


def kept(results: DynamoDbResults) -> object:
    found = results.get("default", "t-1", "-")
    return found and found.value


def test_a_result_is_kept_and_found(results: DynamoDbResults) -> None:
    at = now()
    assert results.put(ran(8), '{"sku":["ü"]}', at)
    assert results.get("default", "t-1", "-") == Result({"sku": ["ü"]}, 8, at)


def test_a_task_without_a_result_has_none(results: DynamoDbResults) -> None:
    results.put(ran(8), "1", now())
    assert results.get("default", "t-2", "-") is None
    assert results.get("other", "t-1", "-") is None
    assert results.get("default", "t-1", "team") is None


def test_the_item_is_as_the_docstring_says(results: DynamoDbResults, dynamodb: Any) -> None:
    at = now()
    results.put(ran(8, generation=5), "null", at)
    item = dynamodb.get_item(TableName="results", Key={"id": {"S": "default/-/t-1"}})["Item"]
    assert item == {
        "id": {"S": "default/-/t-1"},
        "generation": {"N": "5"},
        "fence": {"N": "8"},
        "result": {"S": "null"},
        "stored_at": {"N": str(at)},
        "expires_at": {"N": str((at + 30 * DAY_MS) // 1000)},
    }


def test_a_lower_fence_changes_nothing(results: DynamoDbResults) -> None:
    assert results.put(ran(9), '"newer"', now())
    assert not results.put(ran(8), '"older"', now())
    assert kept(results) == "newer"


def test_a_higher_fence_overwrites_and_the_same_may_write_again(results: DynamoDbResults) -> None:
    assert results.put(ran(8), '"first"', now())
    assert results.put(ran(8), '"again"', now())
    assert kept(results) == "again"
    assert results.put(ran(9), '"second"', now())
    assert kept(results) == "second"


def test_fences_are_compared_as_numbers(results: DynamoDbResults) -> None:
    assert results.put(ran(9), '"nine"', now())
    assert results.put(ran(10), '"ten"', now())
    assert not results.put(ran(9), '"nine"', now())
    assert kept(results) == "ten"


def test_a_result_is_read_as_it_was_last_written(results: DynamoDbResults, dynamodb: Any) -> None:
    asked: list[Any] = []
    dynamodb.meta.events.register(
        "provide-client-params.dynamodb.GetItem", lambda params, **_: asked.append(params["ConsistentRead"])
    )
    results.get("default", "t-1", "-")
    assert asked == [True]


def test_a_result_past_its_time_counts_as_absent_and_bars_nothing(dynamodb: Any) -> None:
    results = DynamoDbResults("results", 1_000, dynamodb)
    assert results.put(ran(9), '"old"', now() - 10_000)
    assert kept(results) is None
    assert results.put(ran(8), '"new"', now())
    assert kept(results) == "new"


def test_a_result_from_before_the_task_was_made_bars_nothing(results: DynamoDbResults) -> None:
    # So it is after a ledger was lost: its counter begins anew, and the table remembers high fences.
    assert results.put(ran(900), '"from the lost ledger"', now() - 10_000)
    assert results.put(ran(3, created_at=now() - 5_000), '"from the new one"', now())
    assert kept(results) == "from the new one"


def test_a_table_that_is_not_there_is_unavailable(dynamodb: Any) -> None:
    results = DynamoDbResults("nosuch", DAY_MS, dynamodb)
    with pytest.raises(ResultsUnavailable):
        results.put(ran(8), "1", now())
    with pytest.raises(ResultsUnavailable):
        results.get("default", "t-1", "-")


def test_a_service_that_is_away_is_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    results = DynamoDbResults("results", DAY_MS)
    with pytest.raises(ResultsUnavailable):
        results.put(ran(8), "1", now())
    with pytest.raises(ResultsUnavailable):
        results.get("default", "t-1", "-")


def test_a_service_that_hangs_is_unavailable_within_its_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    over = threading.Event()

    def hang(_asked: ReceivedRequest) -> Reply:
        over.wait(30)
        return Reply(200, b"{}")

    with answering(hang) as server, stalls() as added_s:
        monkeypatch.setenv("AWS_ENDPOINT_URL", server.url)
        results = DynamoDbResults("results", DAY_MS)
        began = time.monotonic()
        try:
            with pytest.raises(ResultsUnavailable):
                results.put(ran(8), "1", now())
            assert time.monotonic() - began < PATIENCE_MS / 1000 + 0.5 + added_s()
        finally:
            over.set()
            results._client().close()
        assert len(server.asked) == 2


def test_no_region_is_unavailable_and_not_a_surprise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_DEFAULT_REGION")
    monkeypatch.delenv("AWS_REGION", raising=False)
    with pytest.raises(ResultsUnavailable):
        DynamoDbResults("results", DAY_MS).get("default", "t-1", "-")


@contextmanager
def functions(
    answer: Callable[[ReceivedRequest], Reply], monkeypatch: pytest.MonkeyPatch, timeout_ms: int = 10_000
) -> Iterator[tuple[LambdaInvoker, Server]]:
    """An invoker that finds a Lambda of ours by AWS's own variable."""
    with answering(answer) as server:
        monkeypatch.setenv("AWS_ENDPOINT_URL_LAMBDA", server.url)
        invoker = LambdaInvoker(timeout_ms)
        yield invoker, server
        invoker._calls.close()


def test_invoke_sends_the_event_and_returns_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    with functions(lambda asked: Reply(body=asked.body), monkeypatch) as (invoker, server):
        assert invoker.invoke("on_expired", {"rings": ["ü"]}) == {"rings": ["ü"]}
    asked = server.asked[0]
    assert asked.path == "/2015-03-31/functions/on_expired/invocations"
    assert asked.headers["x-amz-invocation-type"] == "RequestResponse"


def test_an_empty_answer_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    with functions(lambda _: Reply(), monkeypatch) as (invoker, _):
        assert invoker.invoke("f", {}) is None


def test_a_function_that_fails_is_a_refusal_with_its_own_words(monkeypatch: pytest.MonkeyPatch) -> None:
    error = json.dumps({"errorType": "KeyError", "errorMessage": "'order'"}).encode()
    failed = Reply(200, error, {"X-Amz-Function-Error": "Unhandled"})
    with (
        functions(lambda _: failed, monkeypatch) as (invoker, _),
        pytest.raises(InvocationRejected, match=r"^f failed: KeyError: 'order'$"),
    ):
        invoker.invoke("f", {})


@pytest.mark.parametrize(("status", "kind"), [(429, "TooManyRequestsException"), (500, "ServiceException"), (404, "X")])
def test_a_refused_invocation_is_sent_once_and_told(monkeypatch: pytest.MonkeyPatch, status: int, kind: str) -> None:
    refused = Reply(status, b'{"Message": "no"}', {"X-Amzn-ErrorType": kind})
    with functions(lambda _: refused, monkeypatch) as (invoker, server):
        with pytest.raises(InvocationRejected, match=kind):
            invoker.invoke("f", {})
        with pytest.raises(InvocationRejected, match=kind):
            invoker.send("f", {})
    assert len(server.asked) == 2


def test_an_answer_that_is_not_json_is_a_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    with (
        functions(lambda _: Reply(body=b"<html>"), monkeypatch) as (invoker, _),
        pytest.raises(InvocationRejected, match="not JSON"),
    ):
        invoker.invoke("f", {})


def test_an_answer_that_does_not_come_in_time_is_a_refusal_and_is_not_asked_for_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    go = threading.Event()

    def late(_: ReceivedRequest) -> Reply:
        go.wait(30)
        return Reply(body=b"{}")

    with functions(late, monkeypatch, timeout_ms=200) as (invoker, server):
        with pytest.raises(InvocationRejected, match="was not invoked"):
            invoker.invoke("f", {})
        go.set()
    assert len(server.asked) == 1


def test_send_has_the_event_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    with functions(lambda _: Reply(202), monkeypatch) as (invoker, server):
        invoker.send("send_reminder", {"tasks": []})
    assert server.asked[0].headers["x-amz-invocation-type"] == "Event"
    assert json.loads(server.asked[0].body) == {"tasks": []}


def test_an_event_that_was_run_instead_of_accepted_is_a_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    with (
        functions(lambda _: Reply(200, b"{}"), monkeypatch) as (invoker, _),
        pytest.raises(InvocationRejected, match="status 200"),
    ):
        invoker.send("f", {})


def test_lambda_away_is_a_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    with pytest.raises(InvocationRejected):
        LambdaInvoker(1_000).invoke("f", {})


def test_an_invocation_is_signed_for_its_region_and_tells_the_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_LAMBDA_FUNCTION_NAME", "on_expired")
    monkeypatch.setenv("_X_AMZN_TRACE_ID", "Root=1-5759e988-bd862e3fe1be46a994272793;Lineage=a:1")
    arn = "arn:aws:lambda:eu-central-1:123456789012:function:Report:live"
    with functions(lambda _: Reply(202), monkeypatch) as (invoker, server):
        invoker.send(arn, {})
    headers = server.asked[0].headers
    assert headers["x-amzn-trace-id"] == "Root=1-5759e988-bd862e3fe1be46a994272793;Lineage=a:1"
    assert headers["authorization"].startswith("AWS4-HMAC-SHA256 Credential=")
    assert "/eu-central-1/lambda/aws4_request" in headers["authorization"]
    assert server.asked[0].path == f"/2015-03-31/functions/{arn.replace(':', '%3A')}/invocations"


def test_the_signature_is_the_one_that_aws_own_client_makes(monkeypatch: pytest.MonkeyPatch) -> None:
    """But for the headers that each signs, and the time: both are told the same here."""
    with functions(lambda _: Reply(202), monkeypatch) as (invoker, server):
        invoker.send("a:b", {"tasks": []})
        ours = server.asked[0]
    request = AWSRequest("POST", server.url + ours.path, data=ours.body, headers=_signed(ours.headers))
    request.context["timestamp"] = ours.headers["x-amz-date"]
    signer = SigV4Auth(get_session().get_credentials().get_frozen_credentials(), "lambda", "eu-central-1")
    text = signer.string_to_sign(request, signer.canonical_request(request))
    assert "a%253Ab" in signer.canonical_request(request)
    assert ours.headers["authorization"].endswith(f"Signature={signer.signature(text, request)}")


def _signed(headers: Mapping[str, str]) -> dict[str, str]:
    names = headers["authorization"].partition("SignedHeaders=")[2].partition(",")[0].split(";")
    return {name: headers[name] for name in names}


def test_without_credentials_nothing_is_invoked(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nowhere")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nowhere")
    with pytest.raises(InvocationRejected, match="credentials"):
        LambdaInvoker(1_000).invoke("f", {})
