"""What is shown of credentials: that they are there."""

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duecourse.domain.history import Run, Trigger, cut_detail
from duecourse.domain.masking import MASK, is_secret, masked, masked_error, masked_text
from duecourse.domain.queues import Throttle
from duecourse.domain.timeline import Why, timeline, waiting
from duecourse.wire.http.tasks import show_payload, show_task
from duecourse.wire.http.why import show_why
from tests.support.clock import START
from tests.support.kinds import leased


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (
            "https://user:pw@h.example:8443/p/a?key=1&b=&c&d=e=f#top",
            "https://•••@h.example:8443/p/a?key=•••&b=&•••&d=•••#top",
        ),
        ("https://token@h.example", "https://•••@h.example"),
        ("https://a@b@h.example/?x", "https://•••@h.example/?•••"),
        ("https://h.example/#access_token=x", "https://h.example/#access_token=•••"),
        ("https://h.example/a/b", "https://h.example/a/b"),
        (
            "see http://a@b.example/c?d=e, and 'redis://:pw@x/0'",
            "see http://•••@b.example/c?d=••• and 'redis://•••@x/0'",
        ),
        ("client_secret=abc&grant_type=x&password=", "client_secret=•••&grant_type=x&password="),
        ("a=b&c=d", "a=b&c=d"),
        ("https://h.example/a;jsessionid=x;v=2/b;c", "https://h.example/a;jsessionid=•••;v=•••/b;c"),
        ('{"password": "a \\"b", "n": 1}', '{"password": "•••", "n": 1}'),
        ('{"api_key":17,"token":null,"note":"no token"}', '{"api_key":•••,"token":null,"note":"no token"}'),
        ("tokens are = secret things", "tokens are = secret things"),
        ("", ""),
    ],
)
def test_an_address_is_shown_without_what_opens_it(text: str, shown: str) -> None:
    assert masked_text(text) == shown
    assert masked_text(shown) == shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("401 for url: https://a:b@c.example/?k=v", "401 for url: https://•••@c.example/?k=•••"),
        ("{'Authorization': 'Bearer abc.def'}", "{'Authorization': '•••'}"),
        ("authorization: Basic Zm9vOmJhcg==", "authorization: Basic •••"),
        ("bearer abc is wrong", "bearer ••• is wrong"),
        ("answered 401: {'X-Api-Key': 'abc', 'host': 'h'}", "answered 401: {'X-Api-Key': '•••', 'host': 'h'}"),
        ('answered 400: {"client_secret": "cut off he', 'answered 400: {"client_secret": "•••"'),
        ("no connection (Connection refused)", "no connection (Connection refused)"),
    ],
)
def test_an_error_is_kept_without_credentials(text: str, shown: str) -> None:
    assert masked_error(text) == shown
    assert cut_detail(text) == shown


HEADERS = [
    "Authorization", "proxy-authorization", "Cookie", "SET-COOKIE", "x-api-key", "X-Amz-Security-Token", "X-Auth",
    "X-Hub-Signature-256", "Api-Secret", "PRIVATE-TOKEN", "x-password", "AWS-Credentials", "Ocp-Apim-Subscription-Key",
    "X-CSRF", "X-XSRF", "X-JWT", "x-sig", "X-HMAC",
]  # fmt: skip


@pytest.mark.parametrize("name", HEADERS)
def test_a_header_that_opens_something_is_masked_by_its_name(name: str) -> None:
    for kind in ("headers", "Headers"):
        assert masked({kind: {name: "hidden", "accept": "a/b"}}) == {kind: {name: MASK, "accept": "a/b"}}


SECRET = [
    "token", "API_KEY", "x-api-key", "apiKey", "accessToken", "client_secret", "Password", "passwordHash", "auth",
    "private_key", "JWT", "cookies", "sig", "connection_string", "otp",
]  # fmt: skip
PLAIN = [
    "key", "author", "authority", "idempotency_key", "public_key", "monkey", "keyword", "secretary", "tokenizer",
    "order", "session", "passing", "signal", "connection", "design",
]  # fmt: skip


@pytest.mark.parametrize("name", SECRET)
def test_a_field_is_masked_by_a_word_of_its_name(name: str) -> None:
    assert is_secret(name)
    assert masked([{"a": {name: {"deep": ["hidden", 7]}}}]) == [{"a": {name: MASK}}]
    assert masked({name: None}) == {name: None}
    assert masked({name: True}) == {name: True}


@pytest.mark.parametrize("name", PLAIN)
def test_any_other_field_is_shown(name: str) -> None:
    assert masked({name: "shown", "n": [1, {name: 2.5}]}) == {name: "shown", "n": [1, {name: 2.5}]}


@pytest.mark.parametrize(("inside", "shown"), [('"a"', True), ('"https://u:hidden@h"', False), ('{"token":1}', False)])
def test_a_payload_that_nests_too_deep_is_shown_whole_or_not_at_all(inside: str, shown: bool) -> None:
    text = "[" * 400 + inside + "]" * 400
    task = leased("report", {})._replace(payload_json=text)
    assert show_payload(task) == (text if shown else MASK)


@pytest.mark.parametrize(
    "text",
    ["://" * 80_000, "=" * 250_000, "a=&" * 80_000 + "token", "https://h/?" + "&" * 250_000, "https://" + "@" * 250_000,
     "authorization:" + " " * 250_000, "bearer" + " " * 250_000, "https://" + "#=" * 120_000,
     "authorization:" + "a " * 99_999, '"token' * 40_000, "'token':" + " " * 250_000, '"token":"' + "\\" * 250_000,
     '"token":' * 30_000, "https://h/" + ";" * 250_000],
)  # fmt: skip
def test_no_text_takes_long(text: str) -> None:
    began = time.thread_time()
    masked_error(text)
    cut_detail(text)
    assert time.thread_time() - began < 1


WORD = st.text("abcxyz019-._~%", min_size=1, max_size=12)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | WORD,
    lambda c: st.lists(c, max_size=3) | st.dictionaries(WORD, c, max_size=3),
)


@given(st.dictionaries(WORD, JSON, max_size=4), WORD, WORD, WORD)
def test_no_credential_is_shown_wherever_it_is(plain: dict[str, Any], host: str, name: str, path: str) -> None:
    url = f"https://me:HIDDEN@{host}/{path}?{name}=HIDDEN&HIDDEN#{name}=HIDDEN"
    payload = {"deep": [plain, {"url": url, "text": f"see {url} or {url}", "headers": {"X-Api-Key": "HIDDEN"}}]}
    payload["deep"] += [{"password": ["HIDDEN"], "form": "a=b&password=HIDDEN"}]
    text = json.dumps(masked(payload), ensure_ascii=False)
    assert "HIDDEN" not in text
    assert host in text
    assert masked(plain) == plain or any(is_secret(word) for word in json.dumps(plain).split('"'))


def test_an_error_that_an_older_version_kept_is_shown_without_credentials() -> None:
    run = Run(1, 8, START, START + 10, "retry", "401 for https://a:HIDDEN@b.example/?c=HIDDEN", Trigger.RING)
    task = leased("report", {})._replace(log=(run,), run=1)
    assert "HIDDEN" in task.error
    view, why = show_task(task), show_why(Why(task, timeline(task), waiting(task, Throttle(None))))
    errors = [view["error"], view["history"][0]["detail"], *(one["error"] for one in why["timeline"] if "error" in one)]
    assert errors == ["401 for https://•••@b.example/?c=•••"] * 3
    assert "HIDDEN" not in str(why)
