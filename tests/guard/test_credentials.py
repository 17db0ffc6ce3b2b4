"""Credentials: how a secret's text is read, where one may go, and what is left of it in an answer."""

import html
import json
from base64 import b64encode
from functools import partial
from typing import Any
from urllib.parse import quote, quote_plus

import pytest

from duecourse.api.credential_secrets import read_credential
from duecourse.errors import InvalidInput
from duecourse.guard.call_credentials import HeaderCredential, OAuth, is_bound, mask_secrets
from duecourse.guard.http_types import CredentialName
from tests.support.cpu import LINEAR, QUADRATIC, growth

HOSTS = ["api.example.com"]
TOKEN = "tok/en+1234"
BEARER = {"type": "bearer", "token": TOKEN, "hosts": HOSTS}
OAUTH = {
    "type": "oauth",
    "token_url": "https://id.example.com/token",
    "client_id": "due",
    "client_secret": "a client's secret",
    "hosts": HOSTS,
}


def key_of(**fields: Any) -> tuple[str, str]:
    found = read_credential(json.dumps({"hosts": HOSTS, **fields}))
    assert isinstance(found, HeaderCredential)
    return found.key.header, found.key.value


def test_each_type_becomes_its_header() -> None:
    login = b64encode("ada:a pass wörd".encode()).decode()
    assert key_of(type="bearer", token=TOKEN) == ("authorization", f"Bearer {TOKEN}")
    assert key_of(type="basic", user="ada", password="a pass wörd") == ("authorization", f"Basic {login}")
    assert key_of(type="header", name="X-Api-Key", value="0123 5678") == ("x-api-key", "0123 5678")


def test_a_client_is_kept_with_all_that_its_token_takes() -> None:
    found = read_credential(json.dumps({**OAUTH, "scope": "read", "audience": "api", "client_auth": "body"}))
    assert isinstance(found, OAuth)
    assert (found.token_url, found.client_id, found.scope) == ("https://id.example.com/token", "due", "read")
    assert (found.client_secret, found.audience, found.in_body) == ("a client's secret", "api", True)


def test_a_credential_shows_its_secret_in_no_description_of_itself() -> None:
    for value in (BEARER, OAUTH, {"type": "basic", "user": "ada", "password": "a client's secret", "hosts": HOSTS}):
        shown = repr(read_credential(json.dumps(value)))
        assert TOKEN not in shown
        assert "a client's secret" not in shown


@pytest.mark.parametrize(
    ("value", "field"),
    [
        (TOKEN, "value"),
        (json.dumps(TOKEN), "value"),
        ([BEARER], "value"),
        ('{"type": "bearer", "type": "bearer"}', "type"),
        ({**BEARER, "type": "magic"}, "type"),
        ({**BEARER, "type": []}, "type"),
        ({**BEARER, "token": ""}, "token"),
        ({**BEARER, "token": "1234567"}, "token"),
        ({**BEARER, "token": "with a space"}, "token"),
        ({**BEARER, "token": "with\r\na: line"}, "token"),
        ({**BEARER, "token": "not ascii ü"}, "token"),
        ({**BEARER, "token": 12345678}, "token"),
        ({"type": "bearer", "hosts": HOSTS}, "token"),
        ({**BEARER, "hosts": []}, "hosts"),
        ({**BEARER, "hosts": "api.example.com"}, "hosts"),
        ({**BEARER, "hosts": ["https://api.example.com"]}, "hosts.0"),
        ({**BEARER, "hosts": ["a.example", ""]}, "hosts.1"),
        ({**BEARER, "hosts": ["a.example,b.example"]}, "hosts.0"),
        ({**BEARER, "hosts": ["*"]}, "hosts.0"),
        ({**BEARER, "hosts": ["169.254.169.254"]}, "hosts.0"),
        ({**BEARER, "host": "api.example.com"}, "host"),
        ({"type": "basic", "user": "a:b", "password": "long enough", "hosts": HOSTS}, "user"),
        ({"type": "basic", "user": "ada", "password": "short", "hosts": HOSTS}, "password"),
        ({"type": "basic", "user": "a\n", "password": "long enough", "hosts": HOSTS}, "user"),
        ({"type": "header", "name": "Host", "value": "long enough", "hosts": HOSTS}, "name"),
        ({"type": "header", "name": "webhook-signature", "value": "long enough", "hosts": HOSTS}, "name"),
        ({"type": "header", "name": "Content-Type", "value": "long enough", "hosts": HOSTS}, "name"),
        ({"type": "header", "name": "a b", "value": "long enough", "hosts": HOSTS}, "name"),
        ({"type": "header", "name": "X-Key", "value": "a\r\nb: 12345", "hosts": HOSTS}, "value"),
        ({**OAUTH, "token_url": "ftp://id.example.com"}, "token_url"),
        ({**OAUTH, "token_url": "https://user:pass@id.example.com"}, "token_url"),
        ({**OAUTH, "client_auth": "jwt"}, "client_auth"),
        ({**OAUTH, "client_secret": None}, "client_secret"),
    ],
)
def test_a_wrong_secret_is_an_error_by_the_fields_name_and_shows_nothing_of_it(value: Any, field: str) -> None:
    text = value if isinstance(value, str) else json.dumps(value)
    with pytest.raises(InvalidInput) as caught:
        read_credential(text)
    assert field in [problem.field for problem in caught.value.problems]
    secrets = (TOKEN, "1234567", "with a space", "a: line", "short", "long enough", "a client's secret", "pass@")
    assert [secret for secret in secrets if secret in str(caught.value)] == []


@pytest.mark.parametrize(
    ("hosts", "host", "port", "goes"),
    [
        (["api.example.com"], "api.example.com", 443, True),
        (["api.example.com"], "API.Example.COM.", 443, True),
        (["API.example.com"], "api.example.com", 8443, True),
        (["api.example.com:443"], "api.example.com", 8443, False),
        (["api.example.com"], "example.com", 443, False),
        (["api.example.com"], "evil-api.example.com", 443, False),
        (["api.example.com"], "api.example.com.evil.test", 443, False),
        ([".example.com"], "eu.api.example.com", 443, True),
        ([".example.com"], "example.com", 443, False),
        ([".example.com"], "evilexample.com", 443, False),
        (["xn--bcher-kva.example"], "bücher.example", 443, True),
        (["10.0.0.1"], "10.0.0.1", 443, True),
        (["10.0.0.0/24"], "10.0.0.7", 443, True),
        (["10.0.0.0/24"], "10.0.1.7", 443, False),
        (["10.0.0.0/24"], "api.example.com", 443, False),
        (["0.0.0.0/0"], "api.example.com", 443, False),
        (["127.0.0.1"], "2130706433", 80, True),
        (["fd12::1"], "[fd12::1]", 443, True),
        (["localhost"], "localhost", 80, True),
        (["api.example.com"], "", 0, False),
    ],
)
def test_a_credential_goes_to_its_hosts_alone(hosts: list[str], host: str, port: int, goes: bool) -> None:
    if hosts == ["0.0.0.0/0"]:  # it has the machine's own addresses in it, which no list can have
        hosts = ["0.0.0.0/2"]
    assert is_bound(read_credential(json.dumps({**BEARER, "hosts": hosts})), host, port) == goes


def test_names_of_secrets_stay_within_their_tenants_part() -> None:
    named = {
        CredentialName(tenant, name).secret("duecourse/auth/")
        for tenant, name in [("-", "b"), ("acme", "b"), ("acme:eu", "b"), ("acme.eu", "b"), ("a", "cme"), ("ac", "me")]
    }
    assert len(named) == 6
    assert {"duecourse/auth/-/b", "duecourse/auth/acme/b", "duecourse/auth/acme+eu/b"} <= named


@pytest.mark.parametrize(
    "echo",
    [
        f"got {TOKEN}.",
        json.dumps({"authorization": f"Bearer {TOKEN}"}),
        json.dumps({"a": TOKEN}).replace("/", "\\/"),
        "token=tok%2Fen%2B1234&x=1",
        "<p>tok/en+1234</p>",
        "<p>tok&#47;en&#x2B;1234</p>",
        '{"a": "tok\\u002fen\\u002B1234"}',
    ],
)
def test_an_answer_that_repeats_the_secret_is_shown_without_it(echo: str) -> None:
    shown = mask_secrets(echo.encode(), [TOKEN]).decode()
    assert "en" not in shown.replace("Bearer", "").replace("token", "")
    assert "1234" not in shown
    assert "•••" in shown


@pytest.mark.parametrize("secret", ["passwörd & <co>", 'key==\\\'"x"', "😀😀😀😀😀😀😀😀", "ab.d*e+f?"])
def test_whatever_a_secret_is_made_of_it_is_hidden_in_each_spelling(secret: str) -> None:
    spelled = [
        secret,
        json.dumps(secret)[1:-1],
        json.dumps(secret, ensure_ascii=False)[1:-1],
        "".join(f"\\u{ord(c):04x}" if c in "=&<>'+\\" else c for c in secret),
        html.escape(secret),
        quote(secret, safe=""),
        quote(secret, safe="").lower(),
        quote_plus(secret),
    ]
    for text in spelled:
        assert mask_secrets(f"[{text}]".encode(), [secret]).decode() == "[•••]", text
    assert mask_secrets(b"abxd*e+f? ab.d", [secret]) == b"abxd*e+f? ab.d", "no pattern of its own"


def found_at_the_end(periods: int, repeats: int) -> None:
    """A long secret, in an answer that nearly has it again and again."""
    token = "eyJhbGciOi.J9_-=/+" * periods
    body = (f"{token[:-1]}! " * repeats).encode() + token.encode()
    assert mask_secrets(body, [token]).endswith("! •••".encode())


@pytest.mark.slow
def test_a_long_secret_is_found_in_a_large_answer_in_little_time() -> None:
    assert growth(partial(found_at_the_end, 112), 60) < LINEAR
    # Each of its periods may be a beginning, which is read up to where it differs.
    assert growth(partial(found_at_the_end, repeats=60), 112) < QUADRATIC


def read_in_many_ways(size: int) -> None:
    body = b"\\" * (3 * size // 2 + 1) + b"y"
    assert mask_secrets(body, ["\\" * size + "x"]) == body


@pytest.mark.slow
def test_an_answer_that_can_be_read_in_many_ways_takes_little_time() -> None:
    assert growth(read_in_many_ways, 1_500) < QUADRATIC, "each of its letters may be a beginning"
    assert mask_secrets(b"a" + b"\\" * 4 + b"b1234567", ["a\\\\b1234567"]) == "•••".encode()
    assert mask_secrets(b"a" + b"\\" * 2 + b"b1234567", ["a\\\\b1234567"]) == "•••".encode()


def test_a_login_is_hidden_in_both_its_forms_and_a_key_that_is_a_user_too() -> None:
    for user, password, secret in (("ada", "hunter2000", "hunter2000"), ("sk_live_1234", "", "sk_live_1234")):
        found = read_credential(json.dumps({"type": "basic", "user": user, "password": password, "hosts": HOSTS}))
        assert isinstance(found, HeaderCredential)
        assert secret not in mask_secrets(f"x {user} {password}".encode(), found.key.secrets).decode()
        assert mask_secrets(found.key.value.encode(), found.key.secrets) == "Basic •••".encode()
