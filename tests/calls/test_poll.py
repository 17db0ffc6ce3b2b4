"""What a poll makes of each answer."""

import json
from dataclasses import replace
from functools import partial

import pytest

from duecourse.base.cpu_turns import Turns
from duecourse.base.json_text import Json
from duecourse.calls.jmespath_eval import is_true
from duecourse.calls.poll import Poll
from duecourse.errors import CallFailed, Crowded, FieldError, InvalidInput
from duecourse.guard.call_credentials import WRONG_NAME
from duecourse.guard.http_types import CredentialName, HttpAnswer
from duecourse.ledger.task import MAX_RESULT_BYTES, Again, Done, Drop, Outcome, Retry
from tests.support.cpu import is_soon
from tests.support.kinds import Web, answer, leased
from tests.support.turns import beside_a_holder, take, waiting
from tests.support.wait import until

URL = "https://user:hidden@api.example/orders/7?key=hidden"
PROCESSED = {"status": "processed", "items": [{"sku": "a"}, {"sku": "b"}]}


def poll(given: HttpAnswer | Exception, **payload: Json) -> Outcome:
    fields = {"url": URL, "interval": 5, "until": "status == 'processed'", **payload}
    return Poll(Web(given), timeout_ms=10_000)(leased("poll", {k: v for k, v in fields.items() if v is not None}))


def test_a_task_of_an_older_version_asks_no_more_often_than_is_allowed() -> None:
    payload = {"url": URL, "interval": "PT0.1S", "until": "ready"}
    kind = Poll(Web(answer(200, {}), answer(200, {})), timeout_ms=10_000)
    assert kind(leased("poll", payload)) == Again(after=1)
    assert kind(leased("poll", {**payload, "interval": "PT2S"})) == Again(after=2)


def test_it_polls_until_done_and_keeps_the_part_that_was_asked_for() -> None:
    web = Web(answer(body={"status": "processing"}), answer(body={"status": "processing"}), answer(body=PROCESSED))
    payload = {"url": URL, "interval": "PT0.2S", "until": "status == 'processed'", "result": "items[].sku"}
    kind = Poll(web, timeout_ms=10_000, least_interval_ms=200)
    outcomes = [kind(leased("poll", payload)) for _ in range(3)]
    assert outcomes == [Again(after=0.2), Again(after=0.2), Done(["a", "b"])]


def test_without_result_the_whole_answer_is_kept() -> None:
    assert poll(answer(body=PROCESSED)) == Done(PROCESSED)


def test_it_asks_as_the_payload_says() -> None:
    web = Web(answer(body={}))
    payload = {
        "url": URL, "interval": 1, "until": "done", "method": "POST", "timeout": "PT2S",
        "headers": {"Authorization": "Bearer x", "Content-Length": "999"}, "body": {"a": 1},
    }  # fmt: skip
    Poll(web, timeout_ms=10_000)(leased("poll", payload))
    request = web.asked[0]
    assert (request.method, request.url, request.timeout_ms, request.body) == ("POST", URL, 2_000, b'{"a":1}')
    assert request.headers == {"content-type": "application/json", "authorization": "Bearer x"}


def test_it_asks_with_the_credential_of_its_tenant_that_the_payload_names() -> None:
    web = Web(answer(body={}))
    payload = {"url": URL, "interval": 1, "until": "done", "auth": "billing"}
    Poll(web, timeout_ms=10_000)(leased("poll", payload, tenant="acme"))
    assert web.asked[0].auth == CredentialName("acme", "billing")


@pytest.mark.parametrize("name", ["a/b", "", "a b", 7, {"a": 1}])
def test_a_name_that_is_none_is_a_wrong_payload(name: Json) -> None:
    assert poll(answer(), auth=name) == Drop(f"payload.auth: {WRONG_NAME}")


@pytest.mark.parametrize("status", [401, 403])
def test_a_credential_by_name_that_is_rejected_may_be_changed_yet(status: int) -> None:
    outcome = poll(answer(status, b"no"), auth="billing")
    assert isinstance(outcome, Retry)
    assert isinstance(poll(answer(status, b"no")), Drop)
    assert isinstance(poll(answer(410, b"no"), auth="billing"), Drop)


def test_it_asks_with_get_and_the_default_timeout_unless_told_otherwise() -> None:
    web = Web(answer(body={}))
    Poll(web, timeout_ms=10_000)(leased("poll", {"url": URL, "interval": 1, "until": "done"}))
    assert web.asked[0][:1] + web.asked[0][2:5] == ("GET", {}, None, 10_000)


def test_a_body_that_is_text_goes_out_as_it_stands() -> None:
    web = Web(answer(body={}))
    Poll(web, timeout_ms=1)(leased("poll", {"url": URL, "interval": 1, "until": "x", "method": "POST", "body": "<q/>"}))
    assert (web.asked[0].body, web.asked[0].headers) == (b"<q/>", {"content-type": "text/plain; charset=utf-8"})


def test_failed_when_drops_with_the_answer_as_the_reason_even_if_until_holds() -> None:
    outcome = poll(answer(body={"status": "failed", "why": "no stock"}), until="status", failed_when="status=='failed'")
    assert isinstance(outcome, Drop)
    assert "no stock" in outcome.reason
    assert "hidden" not in outcome.reason


def test_a_false_failed_when_changes_nothing() -> None:
    assert poll(answer(body=PROCESSED), failed_when="error") == Done(PROCESSED)


@pytest.mark.parametrize("value", [0, 0.0, 1, "no", [0], {"a": None}, True])
def test_true_is_what_jmespath_calls_true(value: Json) -> None:
    assert is_true(value)
    assert isinstance(poll(answer(body={"v": value}), until="v"), Done)


@pytest.mark.parametrize("value", [None, False, "", [], {}])
def test_false_null_and_empty_are_not_true(value: Json) -> None:
    assert not is_true(value)
    assert isinstance(poll(answer(body={"v": value}), until="v"), Again)


def test_a_retry_after_that_is_longer_than_the_interval_wins() -> None:
    assert poll(answer(body={}, headers={"retry-after": "30"})) == Again(after=30)
    assert poll(answer(body={}, headers={"retry-after": "3"})) == Again(after=5)


def test_a_retry_after_is_never_more_than_a_day() -> None:
    for value in ("999999", "9" * 400, "Fri, 31 Dec 9999 23:59:59 GMT"):
        assert poll(answer(body={}, headers={"retry-after": value})) == Again(after=86_400)


def test_a_retry_after_date_is_counted_from_the_answers_own_date() -> None:
    headers = {"retry-after": "Wed, 21 Oct 2015 07:28:40 GMT", "date": "Wed, 21 Oct 2015 07:28:00 GMT"}
    assert poll(answer(429, headers=headers)) == Retry(after=40, error="GET https://api.example/orders/7 answered 429")


def test_a_retry_after_date_without_a_date_is_counted_from_the_claim() -> None:
    # The claim of `leased` was at 2026-09-21T14:13:20.025Z.
    assert poll(answer(body={}, headers={"retry-after": "Mon, 21 Sep 2026 14:14:20 GMT"})) == Again(after=59.975)


@pytest.mark.parametrize(
    ("value", "seconds"),
    [("0000000120", 120), ("0" * 400 + "7", 7), ("7.25", 7.25), (" 30 ", 30), ("1" + "0" * 5_000, 86_400), ("6.", 5)],
)
def test_a_retry_after_is_read_whole(value: str, seconds: float) -> None:
    assert poll(answer(body={}, headers={"retry-after": value})) == Again(after=seconds)


@pytest.mark.parametrize(
    "value",
    [
        "soon",
        "-50",
        "+50",
        "1e3",
        "1_000",
        "inf",
        "nan",
        "0x50",
        "50, 60",
        "50s",
        "",
        "Wed, 99 Oct 2015 07:28:00 GMT",
        "\u0663",
    ],
)
def test_a_retry_after_that_makes_no_sense_is_ignored(value: str) -> None:
    assert poll(answer(body={}, headers={"retry-after": value})) == Again(after=5)


@pytest.mark.parametrize("status", [202, 204])
def test_accepted_or_no_content_without_a_body_means_not_yet(status: int) -> None:
    assert poll(answer(status)) == Again(after=5)


def test_accepted_with_a_body_is_judged_by_it() -> None:
    assert poll(answer(202, PROCESSED)) == Done(PROCESSED)


@pytest.mark.parametrize("status", [302, 404, 408, 425, 429, 500, 502, 503])
def test_what_may_pass_is_retried(status: int) -> None:
    outcome = poll(answer(status, b"try later"))
    assert outcome == Retry(error=f"GET https://api.example/orders/7 answered {status}: try later")


@pytest.mark.parametrize("status", [400, 401, 403, 405, 410, 422])
def test_what_the_same_request_will_meet_again_is_dropped(status: int) -> None:
    assert poll(answer(status, b"no")) == Drop(f"GET https://api.example/orders/7 answered {status}: no")


@pytest.mark.parametrize("body", [b"", b"<html>", b"{", b"\xff", b"NaN", b'{"a": Infinity}', b"[" * 100_000])
def test_an_answer_that_is_not_json_is_retried(body: bytes) -> None:
    outcome = poll(answer(200, body))
    assert isinstance(outcome, Retry)
    assert outcome.error.endswith("(the answer is not JSON)")


def test_an_answer_that_was_cut_is_retried_and_not_taken_for_whole() -> None:
    outcome = poll(HttpAnswer(200, {}, json.dumps(PROCESSED).encode(), whole=False))
    assert isinstance(outcome, Retry)
    assert "over 1 MiB" in outcome.error


def test_no_answer_is_retried_with_the_reason() -> None:
    assert poll(CallFailed("GET https://x failed: no connection")) == Retry(error="GET https://x failed: no connection")


def test_a_request_that_can_never_be_sent_is_dropped() -> None:
    assert poll(InvalidInput([FieldError("url", "is bad")])) == Drop("url: is bad")


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"url": None}, "payload.url"),
        ({"until": None}, "payload.until"),
        ({"until": "a ||"}, "payload.until"),
        ({"until": ""}, "payload.until"),
        ({"failed_when": "'"}, "payload.failed_when"),
        ({"result": "["}, "payload.result"),
        ({"interval": None}, "payload.interval"),
        ({"interval": "P1Y"}, "payload.interval"),
        ({"interval": [1]}, "payload.interval"),
        ({"timeout": "long"}, "payload.timeout"),
        ({"headers": ["a"]}, "payload.headers"),
        ({"headers": {"a": 1}}, "payload.headers"),
        ({"method": 1}, "payload.method"),
    ],
)
def test_a_payload_that_cannot_be_worked_is_dropped_by_the_fields_name(changes: dict[str, Json], field: str) -> None:
    outcome = poll(answer(), **changes)
    assert isinstance(outcome, Drop)
    assert outcome.reason.startswith(f"{field}: ")


def test_a_payload_that_is_no_object_is_dropped() -> None:
    assert Poll(Web(), 1)(leased("poll", [1])) == Drop("payload: must be an object")


@pytest.mark.parametrize("expression", ["nosuch(@)", "length(a, b)"])
def test_an_expression_that_can_never_be_applied_is_dropped(expression: str) -> None:
    assert isinstance(poll(answer(body=PROCESSED), until=expression), Drop)


def test_an_expression_that_does_not_fit_this_answer_is_retried() -> None:
    assert isinstance(poll(answer(body={}), until="length(items) > `1`"), Retry)


def test_a_result_over_64_kib_is_dropped_and_one_at_the_limit_is_kept() -> None:
    longest = "x" * (MAX_RESULT_BYTES - 2)
    assert poll(answer(body={"v": longest}), until="v", result="v") == Done(longest)
    outcome = poll(answer(body={"v": longest + "x"}), until="v", result="v")
    assert isinstance(outcome, Drop)
    assert "65537 bytes" in outcome.reason


@pytest.mark.parametrize("depth", [102, 900])
def test_a_result_that_no_answer_can_carry_for_its_depth_is_dropped(depth: int) -> None:
    outcome = poll(answer(200, b'{"v": %s%s}' % (b"[" * depth, b"]" * depth)), until="v", result="v")
    assert outcome == Drop("the result nests deeper than 100: narrow it by `result`")


def test_a_result_that_is_not_unicode_is_dropped() -> None:
    assert isinstance(poll(answer(200, b'{"v": "\\ud800"}'), until="v"), Drop)


def test_a_long_answer_is_cut_in_an_error_and_is_one_readable_line() -> None:
    outcome = poll(answer(500, ("é\r\n\x00" * 1_000).encode()))
    assert isinstance(outcome, Retry)
    assert outcome.error.isprintable()
    assert len(outcome.error) < 260


@pytest.mark.parametrize("part", ["[@,@][]", "to_string([@,@])"])
@pytest.mark.parametrize("field", ["until", "failed_when", "result"])
def test_an_expression_that_doubles_the_answer_with_each_part_is_stopped(field: str, part: str) -> None:
    fields = {"until": "`true`", field: "|".join([part] * 50)}
    outcome = poll(answer(body=PROCESSED), **fields)
    assert isinstance(outcome, Drop)
    assert "more than 8 MiB of the answer" in outcome.reason or "more than 500,000 steps" in outcome.reason


def test_while_a_tenants_answers_wait_to_be_judged_its_polls_come_later_and_anothers_do_not() -> None:
    large, turns = answer(body=["x" * 300_000]), Turns()
    web = Web(large, large)
    kind = Poll(web, 1_000, turns)
    task = leased("poll", {"url": URL, "interval": 1, "until": "`false`"}, tenant="noisy")
    with beside_a_holder(turns, partial(take, turns, "noisy")):
        until(lambda: waiting(turns) == 1)
        with pytest.raises(Crowded):
            kind(task)
        with pytest.raises(Crowded):
            kind(task)
        assert len(web.asked) == 1, "the second is not even called"
    assert kind(replace(task, tenant="quiet")) == Again(after=1.0)


@pytest.mark.parametrize("part", ["[@,@]", "{a: @, b: @}"])
def test_a_result_that_holds_one_part_ever_so_often_is_not_written_out(part: str) -> None:
    def end() -> None:
        outcome = poll(answer(body=PROCESSED), until="`true`", result="|".join([part] * 60))
        assert outcome == Drop("the result is over 64 KiB: narrow it by `result`")

    assert is_soon(end, 0.25)


@pytest.mark.parametrize("body", [b"[]," * 349_000, b"{}," * 349_000, b"1," * 524_000, b'"",' * 349_000])
def test_a_whole_answer_of_a_megabyte_is_not_kept_and_soon_over(body: bytes) -> None:
    """Also where the machine is so slow that the bound on time ends it."""

    def end() -> None:
        outcome = poll(answer(200, b"[" + body + b"1]"), until="@")
        assert isinstance(outcome, Drop)
        assert "narrow it" in outcome.reason

    assert is_soon(end, 0.25)


def test_a_large_answer_can_be_taken_apart() -> None:
    body = {"items": [{"id": number, "text": "x" * 20} for number in range(20_000)]}
    outcome = poll(answer(body=body), until="items", result="length(items[].{id: id, text: text})")
    assert outcome == Done(20_000)


@pytest.mark.parametrize("field", ["until", "failed_when", "result"])
def test_an_expression_that_looks_at_too_much_is_stopped_and_says_so(field: str) -> None:
    """It ran for 15 seconds over a megabyte, and held up whatever ran beside it."""
    fields = {"until": "`true`", field: "|".join(["[?@]"] * 10)}
    outcome = poll(answer(body=[1] * (512 * 1024)), **fields)
    assert outcome == Drop("an expression is wrong: it takes more than 500,000 steps for this answer: narrow it")
