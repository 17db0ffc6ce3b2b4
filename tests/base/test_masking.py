"""What is shown of credentials: that they are there."""

import json
import time
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from duecourse.base.json_text import dump_json
from duecourse.base.masking import MASK, is_secret, is_suspect, masked, masked_error, masked_payload, masked_text
from duecourse.ledger.queue import Throttle
from duecourse.ledger.task import Run, Trigger, cut_detail
from duecourse.ledger.timeline import Why, timeline, waiting
from duecourse.tasks.http import show_payload, show_task, show_why
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
    "X-CSRF", "X-XSRF", "X-JWT", "x-sig", "X-HMAC", "X-Pin", "x_pin", "X-Ticket", "X-SID", "xSid", "X-Access-Code",
    "x-accesscode", "X-Otp", "X-TOTP-Code", "X-MFA", "X-Verification-Code",
]  # fmt: skip


@pytest.mark.parametrize("name", HEADERS)
def test_a_header_that_opens_something_is_masked_by_its_name(name: str) -> None:
    for kind in ("headers", "Headers"):
        assert masked({kind: {name: "hidden", "accept": "a/b"}}) == {kind: {name: MASK, "accept": "a/b"}}


@pytest.mark.parametrize(
    "name", ["X-Spin", "X-Side", "X-Country-Code", "X-Ticketing", "Considered", "X-Code", "pinned"]
)
def test_a_header_with_only_a_part_of_such_a_word_is_shown(name: str) -> None:
    assert masked({"headers": {name: "shown"}}) == {"headers": {name: "shown"}}


FORMS = [
    "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBg\n-----END PRIVATE KEY-----",
    "-----BEGIN RSA PRIVATE KEY-----\nMIIEvQIBADANBg",
    "-----BEGIN PGP PRIVATE KEY BLOCK-----\n\nlQOYBF\n-----END PGP PRIVATE KEY BLOCK-----",
    "sk_live_51H8a9b2c3d4e5f6g7", "rk_live_51H8a9b2c3d4e5f6g7", "ghp_16C7e42F292c6912E7710c838347Ae178B4a",
    "gho_16C7e42F292c6912E7710c838347Ae178B4a", "ghs_16C7e42F292c6912E7710c838347Ae178B4a",
    "github_pat_11ABCDEFG0abcdefghijkl_mnop", "glpat-abcdefghij0123456789", "xoxb-123456789012-abcdefghijkl",
    "xoxp-123456789012-abcdefghijkl", "AKIAIOSFODNN7EXAMPLE", "ASIAIOSFODNN7EXAMPLE",
    "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9P",
    "eyJhbGciOiJub25lIn0.eyJzdWIiOiIxMjM0NTY3ODkwIn0.",
]  # fmt: skip
NO_FORMS = [
    "-----BEGIN CERTIFICATE-----\nMIID\n-----END CERTIFICATE-----",
    "-----BEGIN PUBLIC KEY-----\nMIID",
    "sk_live_", "ghp_x", "xoxo", "AKIA", "MAKIAIOSFODNN7EXAMPLE", "eyJhbGciOiJIUzI1NiJ9", "eyJ.eyJ.x",
    "sk_test_51H8a9b2c3d4e5f6g7",
    "BEGIN PRIVATE KEY",
]  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
def test_what_is_a_credential_by_its_form_is_masked_wherever_it_is(form: str) -> None:
    payload = {
        "url": "https://a.example/in", "headers": {"x-trace": form}, "body": {"note": f"see: {form}", "list": [form]},
        "form": f"a={form.partition(chr(10))[0]}",
    }  # fmt: skip
    shown = masked_payload("webhook", payload)
    assert form not in dump_json(shown)
    assert shown["url"] == payload["url"]
    assert shown["headers"] == {"x-trace": MASK}
    assert shown["body"] == {"note": f"see: {MASK}", "list": [MASK]}
    for field in ("headers", "body", "form"):
        assert is_suspect(dump_json({field: payload[field]})), "what is not suspect is not sealed"
    assert form not in masked_error(f"answered 400: {form}")


@pytest.mark.parametrize("form", [form for form in FORMS if "\n" not in form])
def test_it_is_masked_in_the_path_of_an_address_too(form: str) -> None:
    assert masked_text(f"https://a.example/in/{form}") == f"https://a.example/in/{MASK}"
    assert is_suspect(f"https://a.example/in/{form}")


@pytest.mark.parametrize("text", NO_FORMS)
def test_what_only_looks_like_one_is_shown(text: str) -> None:
    assert masked({"body": text}) == {"body": text}


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
    task = replace(leased("report", {}), payload_json=text)
    assert show_payload(task) == (text if shown else MASK)


@pytest.mark.parametrize(
    "text",
    ["://" * 80_000, "=" * 250_000, "a=&" * 80_000 + "token", "https://h/?" + "&" * 250_000, "https://" + "@" * 250_000,
     "authorization:" + " " * 250_000, "bearer" + " " * 250_000, "https://" + "#=" * 120_000,
     "authorization:" + "a " * 99_999, '"token' * 40_000, "'token':" + " " * 250_000, '"token":"' + "\\" * 250_000,
     '"token":' * 30_000, "https://h/" + ";" * 250_000, "eyJ" * 80_000, "eyJaaaaaaaa." * 20_000,
     "eyJaaaaaaaa.eyJ" * 16_000, " eyJ" + "a" * 250_000, "-----BEGIN " * 22_000, "-----BEGIN A PRIVATE KEY" * 10_000,
     "-----BEGIN PRIVATE KEY-----END " * 8_000,
     "sk_live_" * 30_000, " AKIA" * 50_000, "xoxb-" * 50_000, "github_pat_" * 20_000, "whsec_" * 40_000],
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


PIECES = st.sampled_from(
    [
        "https://",
        "redis://",
        "u:p@",
        "h.example",
        "/a",
        ";x=1",
        "?k=v",
        "&b=1",
        "#t=1",
        '"',
        " ",
        "<",
        "sealed:a:",
        "é",
        "eyJaaaaaaaa.",
        "eyJbbbbbbbb",
        "ghp_0123456789abcdefghij",
    ]
)


@given(st.lists(PIECES, max_size=8).map("".join))
@example("https://u:p@h.example")
@example("https://h.example/a;x=1")
@example("https://h.example/a?k=v")
@example("https://h.example/a#t=1")
@example("sealed:a:https://h.example")
def test_whatever_an_address_hides_is_found_in_its_payloads_text(text: str) -> None:
    assert masked_text(text) == text or is_suspect(dump_json({"url": text}))


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
    task = replace(leased("report", {}), log=(run,), run=1)
    assert "HIDDEN" in task.error
    view, why = show_task(task), show_why(Why(task, timeline(task), waiting(task, Throttle(None))))
    errors = [view["error"], view["history"][0]["detail"], *(one["error"] for one in why["timeline"] if "error" in one)]
    assert errors == ["401 for https://•••@b.example/?c=•••"] * 3
    assert "HIDDEN" not in str(why)


def test_the_name_of_a_credential_is_shown_where_it_is_one_and_nowhere_else() -> None:
    call = {"url": "https://a.example", "auth": "api-token", "headers": {"auth": "secret"}, "body": {"auth": "secret"}}
    shown = {**call, "headers": {"auth": MASK}, "body": {"auth": MASK}}
    assert [masked_payload(kind, call) for kind in ("poll", "webhook")] == [shown, shown]
    assert masked_payload("report", call)["auth"] == MASK
    assert masked_payload("webhook", {"url": "a", "auth": {"token": "x"}})["auth"] == MASK
    recipient = {"name": "Ada", "auth": "api-token", "token": "x"}
    assert masked_payload("reminder", {"recipient": recipient})["recipient"] == {**recipient, "token": MASK}
    assert masked_payload("webhook", ["auth"]) == ["auth"]
