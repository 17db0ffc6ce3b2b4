"""What the payloads of the built-in kinds may hold when they are enqueued."""

import pytest
from pydantic import ValidationError

from duecourse.api.fields import field_errors, read
from duecourse.errors import FieldError, InvalidInput
from duecourse.queries.http import AskQuery
from duecourse.tasks.http import AddTask

POLL = {"url": "https://api.example.com/x", "interval": "PT10S", "until": "status == 'done'"}
HOOK = {"url": "http://hooks.example.com:8080/x?y=1", "body": [1]}


def fields(kind: str, payload: dict[str, object]) -> set[str]:
    """The fields refused, none where the payload is taken."""
    try:
        AddTask.model_validate({"kind": kind, "payload": payload})
    except ValidationError as error:
        return {problem.field for problem in field_errors(error.errors())}
    return set()


def test_the_least_and_the_most_of_each_kind_are_taken() -> None:
    more = {"method": "POST", "headers": {"accept": "a/b"}, "body": {"a": 1}, "timeout": 5}
    assert not fields("poll", POLL)
    assert not fields("poll", POLL | more | {"failed_when": "failed", "result": "{a: b}"})
    assert not fields("webhook", HOOK | more)
    assert not fields("webhook", {"url": HOOK["url"]})


def test_the_payload_is_kept_as_it_was_sent() -> None:
    task = AddTask.model_validate({"kind": "poll", "payload": POLL}).task()
    assert task.payload == '{"url":"https://api.example.com/x","interval":"PT10S","until":"status == \'done\'"}'


def test_missing_and_unknown_fields_are_named() -> None:
    assert fields("poll", {}) == {"payload.url", "payload.interval", "payload.until"}
    assert fields("webhook", HOOK | {"verb": "PUT"}) == {"payload.verb"}


@pytest.mark.parametrize(
    "url",
    [
        "",
        "example.com",
        "ftp://example.com",
        "http://",
        "http:///x",
        "http://a b/",
        "http://a/\r\nhost: b",
        "http://a:99999/",
        "http://[::1/",
        "http://a/" + "x" * 2_048,
        7,
        None,
    ],
)
def test_a_url_that_cannot_be_called_is_refused(url: object) -> None:
    assert fields("webhook", HOOK | {"url": url}) == {"payload.url"}


@pytest.mark.parametrize("headers", [{"a b": "c"}, {"": "c"}, {"a": "b\r\nc: d"}, {"a": "ü"}, {"a:": "b"}])
def test_a_header_that_would_break_the_request_is_refused(headers: dict[str, str]) -> None:
    assert fields("webhook", HOOK | {"headers": headers}) == {"payload.headers"}


RESERVED = [
    "Host", "host", "Content-Length", "TRANSFER-ENCODING", "Connection", "Keep-Alive", "TE", "Trailer", "Upgrade",
    "Proxy-Connection", "Proxy-Authorization", "proxy-x", "Expect", "webhook-id", "Webhook-Timestamp",
    "webhook-signature", "WEBHOOK-x",
]  # fmt: skip


@pytest.mark.parametrize("name", RESERVED)
def test_a_header_that_is_not_a_callers_to_give_is_refused_by_its_name(name: str) -> None:
    headers = {"accept": "a/b", name: "1"}
    assert fields("poll", POLL | {"headers": headers}) == {"payload.headers"}
    with pytest.raises(InvalidInput) as refused:
        read(AddTask, {"kind": "webhook", "payload": HOOK | {"headers": headers}})
    problem = f"must not contain {name}, which duecourse or the connection sets: leave it out"
    assert refused.value.problems == [FieldError("payload.headers", problem)]
    with pytest.raises(InvalidInput):
        read(AskQuery, POLL | {"headers": headers})


@pytest.mark.parametrize("name", ["X-Host", "Hosts", "X-Webhook-Id", "Authorization", "Tea", "Upgrade-X"])
def test_any_other_header_is_taken(name: str) -> None:
    assert not fields("poll", POLL | {"headers": {name: "1"}})


def test_a_call_names_a_credential_or_authorizes_itself() -> None:
    for kind, payload in (("poll", POLL), ("webhook", HOOK)):
        assert not fields(kind, payload | {"auth": "billing", "headers": {"X-Api-Key": "k"}})
        assert not fields(kind, payload | {"auth": None, "headers": {"Authorization": "k"}})
        assert fields(kind, payload | {"auth": "billing", "headers": {"authoriZation": "k"}}) == {"payload.headers"}
        for name in ("a/b", "", "x" * 65, 7, "a\n"):
            assert fields(kind, payload | {"auth": name}) == {"payload.auth"}


def test_a_headers_value_must_be_text() -> None:
    assert fields("webhook", HOOK | {"headers": {"a": 1}}) == {"payload.headers.a"}


@pytest.mark.parametrize("expression", ["", "status ==", "][", "(" * 900, "x" * 1_001])
@pytest.mark.parametrize("field", ["until", "failed_when", "result"])
def test_an_expression_that_does_not_compile_is_refused(field: str, expression: str) -> None:
    assert fields("poll", POLL | {field: expression}) == {f"payload.{field}"}


@pytest.mark.parametrize(
    ("expression", "problem"),
    [
        ("lenght(rows) == `2`", "must call functions of JMESPath only: lenght is unknown"),
        ("rows[?a].{n: map(&nope(@), b[])[0]}", "must call functions of JMESPath only: nope is unknown"),
        ("sort(a, b)", "must call sort with 1 argument, not 2"),
        ("a || merge()", "must call merge with at least 1 argument, not 0"),
    ],
)
def test_an_expression_that_could_judge_no_answer_is_refused(expression: str, problem: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        read(AddTask, {"kind": "poll", "payload": POLL | {"until": expression}})
    assert refused.value.problems == [FieldError("payload.until", problem)]


@pytest.mark.parametrize("expression", ["merge(a, b, c).d", "max_by(rows[1:], &n).id", '`{"type": 1}` || @', "a.*[0]"])
def test_one_that_may_is_taken(expression: str) -> None:
    assert not fields("poll", POLL | {"until": expression})


@pytest.mark.parametrize(
    "wrong", [{"interval": 0}, {"interval": "P31D"}, {"timeout": 0}, {"timeout": 61}, {"method": "GET "}]
)
def test_bounds_are_kept(wrong: dict[str, object]) -> None:
    assert fields("poll", POLL | wrong) == {f"payload.{name}" for name in wrong}


@pytest.mark.parametrize("timeout", [0, 61, "long"])
def test_a_webhooks_time_has_the_same_bounds(timeout: object) -> None:
    assert fields("webhook", HOOK | {"timeout": timeout}) == {"payload.timeout"}


def test_a_users_own_kind_takes_any_object() -> None:
    assert not fields("report", {"url": "whatever"})
