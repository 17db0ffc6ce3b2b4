"""How a webhook is delivered."""

from collections.abc import Callable

import pytest

from duecourse.base.json_text import Json
from duecourse.calls.webhook import Webhook
from duecourse.errors import CallFailed
from duecourse.guard.http_client import GuardedHttpClient
from duecourse.guard.http_types import CredentialName, HttpAnswer, HttpRequest
from duecourse.ledger.task import Done, Drop, Outcome, Retry, Span
from tests.support.clock import START
from tests.support.egress import HERE
from tests.support.http_server import Reply, answering
from tests.support.kinds import Web, answer, leased

URL = "https://hooks.example/in?token=hidden"


def deliver(given: HttpAnswer | Exception, **payload: Json) -> Outcome:
    return Webhook(Web(given), timeout_ms=10_000)(leased("webhook", {"url": URL, **payload}))


def asked_with(**payload: Json) -> Callable[[str], object]:
    web = Web(answer())
    Webhook(web, timeout_ms=10_000)(leased("webhook", {"url": URL, **payload}))
    return lambda field: getattr(web.asked[0], field)


def test_it_posts_the_body_as_json_under_the_tasks_idempotency_key() -> None:
    asked = asked_with(body={"order": "ü"})
    assert (asked("method"), asked("url"), asked("body")) == ("POST", URL, '{"order":"ü"}'.encode())
    assert asked("headers") == {
        "content-type": "application/json",
        "webhook-id": "t-1:7",
        "webhook-timestamp": "1790000000",
    }


def test_an_id_has_no_dot_which_would_let_the_signed_text_be_cut_elsewhere() -> None:
    web = Web(answer())
    Webhook(web, timeout_ms=10_000)(leased("webhook", {"url": URL}, id="a.1790009999.b"))
    assert web.asked[0].headers["webhook-id"] == "a%2E1790009999%2Eb:7"


def test_a_task_that_was_handed_over_has_the_time_of_its_call_since_it_does_not_know_its_claim() -> None:
    web = Web(answer(503, headers={"retry-after": "Mon, 21 Sep 2026 14:13:27 GMT"}))
    kind = Webhook(web, timeout_ms=10_000, now=lambda: START)
    assert wait_of(kind(leased("webhook", {"url": URL}, claimed_at=0))) == 7
    assert web.asked[0].headers["webhook-timestamp"] == "1790000000"


def test_the_request_is_signed_for_its_tenant_once_it_is_as_it_will_be_sent() -> None:
    def sign(tenant: str, request: HttpRequest) -> HttpRequest:
        assert (tenant, request.body, request.headers["webhook-id"]) == ("acme", b'{"order":7}', "default/acme/t-1:7")
        return request._replace(headers={**request.headers, "webhook-signature": "v1,ours"})

    web = Web(answer())
    payload = {"url": URL, "body": {"order": 7}, "headers": {"webhook-signature": "v1,mine"}}
    Webhook(web, timeout_ms=10_000, sign=sign)(leased("webhook", payload, tenant="acme"))
    assert web.asked[0].headers["webhook-signature"] == "v1,ours"


def test_a_body_that_is_text_is_json_text() -> None:
    assert asked_with(body="hello")("body") == b'"hello"'


def test_it_names_the_credential_of_its_tenant() -> None:
    assert asked_with(auth="billing")("auth") == CredentialName("-", "billing")
    assert asked_with()("auth") is None


def test_no_body_sends_none() -> None:
    assert asked_with(method="PUT")("body") is None


def test_headers_of_the_users_are_added_but_none_that_is_not_theirs_to_give() -> None:
    """Nobody can add such a task any more; one of an older version is sent without them."""
    foreign = {"Webhook-Id": "mine", "WEBHOOK-TIMESTAMP": "1", "webhook-signature": "v1,mine", "Host": "b", "TE": "x"}
    headers = asked_with(headers={"X-Team": "a", **foreign})("headers")
    assert headers == {"x-team": "a", "webhook-id": "t-1:7", "webhook-timestamp": "1790000000"}


def test_it_waits_as_long_as_its_function_says_or_its_payload() -> None:
    assert asked_with()("timeout_ms") == 10_000
    assert asked_with(timeout="PT2S")("timeout_ms") == 2_000


@pytest.mark.parametrize("status", [200, 201, 202, 204])
def test_any_2xx_is_done(status: int) -> None:
    assert deliver(answer(status)) == Done({"status": status})


def test_gone_is_dropped() -> None:
    assert deliver(answer(410, b"unsubscribed")) == Drop("POST https://hooks.example/in answered 410: unsubscribed")


@pytest.mark.parametrize("status", [301, 307, 400, 401, 404, 409, 429, 500, 503])
def test_everything_else_is_retried_with_the_beginning_of_the_answer(status: int) -> None:
    assert deliver(answer(status, b"no")) == Retry(error=f"POST https://hooks.example/in answered {status}: no")


def wait_of(outcome: Outcome | None) -> Span | None:
    assert isinstance(outcome, Retry)
    return outcome.after


def test_retry_after_is_honoured() -> None:
    assert wait_of(deliver(answer(503, headers={"retry-after": "7"}))) == 7


def test_a_retry_after_of_nothing_means_the_tasks_own_backoff() -> None:
    assert wait_of(deliver(answer(503, headers={"retry-after": "0"}))) is None


def test_no_answer_is_retried() -> None:
    assert deliver(CallFailed("nobody there")) == Retry(error="nobody there")


def test_a_payload_that_can_never_be_sent_is_dropped() -> None:
    assert deliver(answer(), url=None) == Drop("payload.url: must be text")


def test_a_receiver_that_fails_twice_gets_the_same_id_three_times() -> None:
    replies = [Reply(500, b"down"), Reply(503), Reply(204)]
    out = GuardedHttpClient(1, HERE)
    with answering(lambda _: replies.pop(0)) as server:
        kind = Webhook(out, timeout_ms=5_000)
        outcomes = [kind(leased("webhook", {"url": server.url, "body": {}}, attempt=n)) for n in (1, 2, 3)]
        out.close()
    assert [type(outcome) for outcome in outcomes] == [Retry, Retry, Done]
    assert {asked.headers["webhook-id"] for asked in server.asked} == {"t-1:7"}
