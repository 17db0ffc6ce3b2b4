"""Calls with credentials by name: what is sent where, when a secret or a token is found anew, and what is shown."""

import json
import time
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, suppress
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from botocore.exceptions import ConnectTimeoutError

from duecourse.api.credential_secrets import read_credential
from duecourse.base import secret_cache
from duecourse.errors import CallFailed, CallTimedOut, InvalidInput, SecretUnavailable
from duecourse.guard import call_credentials as authorized
from duecourse.guard.call_credentials import AuthenticatingCaller, OAuth
from duecourse.guard.egress import Egress
from duecourse.guard.http_client import GuardedHttpClient
from duecourse.guard.http_types import CredentialName, HttpAnswer, HttpRequest
from duecourse.services.secrets import ManagedCredentials
from tests.support.egress import HERE
from tests.support.http_server import ReceivedRequest, Reply, Server, answering
from tests.support.names import Names
from tests.support.vault import PREFIX, Vault, refusal

TOKEN, NEWER = "a-first-token", "a-second-token"
HOSTS = ["127.0.0.1"]
BEARER = {"type": "bearer", "token": TOKEN, "hosts": HOSTS}
OPEN = 200

Answer = Callable[[ReceivedRequest], Reply]
Serve = Callable[[Answer], Server]
Out = Callable[..., AuthenticatingCaller]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Servers on this machine, each with its answer."""
    with ExitStack() as opened:
        yield lambda answer: opened.enter_context(answering(answer))


@pytest.fixture
def out() -> Iterator[Out]:
    """A way out with the credentials of a vault."""
    with ExitStack() as opened:

        def make(vault: Vault, egress: Egress = HERE, names: Names | None = None) -> AuthenticatingCaller:
            http = GuardedHttpClient(4, egress, names.resolver if names else None)
            opened.callback(http.close)
            return AuthenticatingCaller(http, vault.credentials())

        yield make


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is rejected may be found anew at once."""
    monkeypatch.setattr(secret_cache, "AGAIN_S", 0.0)


def request(server: Server | str, auth: str = "key", tenant: str = "-", **changes: Any) -> HttpRequest:
    url = server if isinstance(server, str) else f"{server.url}/x"
    given = HttpRequest("GET", url, {}, None, 5_000, 1_000, CredentialName(tenant, auth))
    return given._replace(**changes)


def taking(token: str) -> Answer:
    return lambda asked: Reply(OPEN if asked.headers.get("authorization") == f"Bearer {token}" else 401)


def sent(server: Server, header: str = "authorization") -> list[str | None]:
    return [asked.headers.get(header) for asked in server.asked]


def why(call: Callable[[], HttpAnswer]) -> str:
    with pytest.raises(InvalidInput) as caught:
        call()
    return str(caught.value)


@pytest.mark.parametrize(
    ("secret", "header", "value"),
    [
        ({"type": "bearer", "token": TOKEN}, "authorization", f"Bearer {TOKEN}"),
        (
            {"type": "basic", "user": "ada", "password": "a long one"},
            "authorization",
            f"Basic {b64encode(b'ada:a long one').decode()}",
        ),
        ({"type": "header", "name": "X-Team", "value": "a long one"}, "x-team", "a long one"),
    ],
)
def test_a_call_carries_its_credential(serve: Serve, out: Out, secret: dict[str, Any], header: str, value: str) -> None:
    server = serve(lambda _: Reply(OPEN))
    assert out(Vault(key={**secret, "hosts": HOSTS})).call(request(server, headers={"x-own": "1"})).status == OPEN
    assert (sent(server, header), sent(server, "x-own")) == ([value], ["1"])


def test_a_call_without_one_asks_for_no_secret(serve: Serve, out: Out) -> None:
    server, vault = serve(lambda _: Reply(OPEN)), Vault(key=BEARER)
    assert out(vault).call(request(server)._replace(auth=None)).status == OPEN
    assert (vault.asked, sent(server)) == ([], [None])


def test_a_secret_is_read_once_for_many_calls(serve: Serve, out: Out) -> None:
    server, vault = serve(lambda _: Reply(OPEN)), Vault(key=BEARER)
    caller = out(vault)
    for _ in range(5):
        caller.call(request(server))
    assert vault.asked == [f"{PREFIX}-/key"]


def test_two_tenants_have_credentials_of_their_own_under_one_name(serve: Serve, out: Out) -> None:
    server, vault = serve(lambda _: Reply(OPEN)), Vault()
    for tenant in ("acme", "globex"):
        vault.secrets[f"{PREFIX}{tenant}/key"] = {**BEARER, "token": f"token-of-{tenant}"}
    caller = out(vault)
    for tenant in ("acme", "globex", "acme"):
        caller.call(request(server, tenant=tenant))
    assert sent(server) == ["Bearer token-of-acme", "Bearer token-of-globex", "Bearer token-of-acme"]
    assert "names a secret that does not exist" in why(lambda: caller.call(request(server, tenant="initech")))
    assert len(server.asked) == 3


@pytest.mark.parametrize(
    ("secret", "said"),
    [
        (refusal("ResourceNotFoundException"), "auth key: names a secret that does not exist"),
        (refusal("AccessDeniedException"), "auth key: names a secret that this role may not read"),
        (refusal("DecryptionFailure"), "auth key: names a secret whose KMS key"),
        (TOKEN, "auth key: names a secret whose value is wrong: value: must be JSON such as"),
        ("", "auth key: names a secret whose value is wrong: value: must be JSON such as"),
        ({**BEARER, "hosts": []}, "auth key: names a secret whose value is wrong: hosts: "),
        ({**BEARER, "hosts": ["api.example.com"]}, "auth key: is not for this host"),
    ],
)
def test_what_cannot_be_sent_is_a_wrong_request_that_names_the_credential(
    serve: Serve, out: Out, secret: Any, said: str
) -> None:
    server = serve(lambda _: Reply(OPEN))
    problem = why(lambda: out(Vault(key=secret)).call(request(server)))
    assert problem.startswith(said)
    assert TOKEN not in problem
    assert server.asked == []


@pytest.mark.parametrize(
    "answer", [refusal("ThrottlingException"), refusal("InternalServiceError"), ConnectTimeoutError(endpoint_url="x")]
)
def test_a_manager_that_is_away_is_no_fault_of_the_request(serve: Serve, out: Out, answer: Exception) -> None:
    server = serve(lambda _: Reply(OPEN))
    with pytest.raises(SecretUnavailable, match=r"duecourse/auth/-/key cannot be read: Secrets Manager"):
        out(Vault(key=answer)).call(request(server))
    assert server.asked == []


def test_a_manager_that_is_away_is_asked_once_for_many_names_and_again_after_seconds() -> None:
    vault, now = Vault(), [1_000.0]
    vault.secrets |= {f"{PREFIX}-/{n}": refusal("InternalServiceError") for n in range(9)} | {f"{PREFIX}-/9": BEARER}
    credentials = ManagedCredentials(PREFIX, read_credential, vault, lambda: now[0])
    for n in range(10):
        with pytest.raises(SecretUnavailable):
            credentials.get(CredentialName("-", str(n)), 1.0)
    assert len(vault.asked) == 1
    now[0] += secret_cache.AGAIN_S
    assert credentials.get(CredentialName("-", "9"), 1.0) == read_credential(json.dumps(BEARER))


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.2:{port}/x",
        "http://127.0.0.1@127.0.0.2:{port}/x",
        "http://127.0.0.1#@127.0.0.2:{port}/x",
        "http://127.0.0.2:{port}\\@127.0.0.1/x",
        "http://127.0.0.1\\@127.0.0.2:{port}/x",
        "http://127.0.0.2:{port}?@127.0.0.1/",
        "http://127.0.0.1.evil.example:{port}/",
    ],
)
def test_however_a_url_is_written_the_host_that_is_connected_to_is_the_one_that_counts(out: Out, url: str) -> None:
    """A second server has the same port of another address of this machine."""
    names = Names({"127.0.0.1.evil.example": [["127.0.0.2"]]})
    with answering(lambda _: Reply(OPEN), ("127.0.0.1", 0)) as bound:
        port = urlsplit(bound.url).port or 0
        with answering(lambda _: Reply(OPEN), ("127.0.0.2", port)) as other:
            caller = out(Vault(key=BEARER), Egress.of("127.0.0.0/8,.example"), names)
            with suppress(InvalidInput, CallFailed):
                caller.call(request(url.format(port=port), timeout_ms=500))
            assert [value for value in sent(other) if value] == []


def test_a_redirect_is_not_followed_and_takes_the_credential_nowhere(serve: Serve, out: Out) -> None:
    other = serve(lambda _: Reply(OPEN))
    server = serve(lambda _: Reply(307, b"", {"location": f"{other.url}/x"}))
    assert out(Vault(key=BEARER)).call(request(server)).status == 307
    assert other.asked == []


@pytest.mark.parametrize("header", ["Authorization", "X-Team"])
def test_no_credential_goes_out_in_clear_whatever_its_header(serve: Serve, out: Out, header: str) -> None:
    """The server's address is public to this policy, but not listed."""
    server = serve(lambda _: Reply(OPEN))
    names = Names({"api.example": [["127.0.0.1"]]})
    where = f"http://api.example:{urlsplit(server.url).port}/x"
    secret = {"type": "header", "name": header, "value": "a long one", "hosts": ["api.example"]}
    listed = out(Vault(key=secret), Egress.of("api.example"), names)
    assert listed.call(request(where)).status == OPEN
    assert sent(server, header.lower()) == ["a long one"]
    unlisted = out(Vault(key={**secret, "hosts": ["1.1.1.1"]}), Egress(), names)
    assert "plain http" in why(lambda: unlisted.call(request("http://1.1.1.1/x")))


def test_a_header_that_both_give_is_a_wrong_request(serve: Serve, out: Out) -> None:
    server = serve(lambda _: Reply(OPEN))
    vault = Vault(key={"type": "header", "name": "X-Key", "value": "a long one", "hosts": HOSTS})
    assert "auth key: sets the header x-key" in why(lambda: out(vault).call(request(server, headers={"x-key": "b"})))
    assert server.asked == []


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("status", [401, 403])
def test_a_token_that_was_rotated_is_read_again_and_the_call_repeated_at_once(
    serve: Serve, out: Out, status: int
) -> None:
    token = [TOKEN]
    server = serve(lambda a: Reply(OPEN if a.headers["authorization"] == f"Bearer {token[0]}" else status))
    vault = Vault(key=BEARER)
    caller = out(vault)
    assert caller.call(request(server)).status == OPEN
    token[0], vault.secrets[f"{PREFIX}-/key"] = NEWER, {**BEARER, "token": NEWER}
    assert caller.call(request(server)).status == OPEN
    assert sent(server) == [f"Bearer {TOKEN}", f"Bearer {TOKEN}", f"Bearer {NEWER}"]
    assert len(vault.asked) == 2


@pytest.mark.usefixtures("at_once")
def test_a_rejection_that_comes_late_is_the_answer(serve: Serve, out: Out, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(authorized, "RETRY_WITHIN_S", 0.0)
    server, vault = serve(taking(NEWER)), Vault(key=BEARER)
    assert out(vault).call(request(server)).status == 401
    assert len(vault.asked) == 1


@pytest.mark.usefixtures("at_once")
def test_a_rejection_that_stays_is_answered_after_one_look_at_the_secret(serve: Serve, out: Out) -> None:
    server, vault = serve(taking(NEWER)), Vault(key=BEARER)
    assert out(vault).call(request(server)).status == 401
    assert (len(server.asked), len(vault.asked)) == (1, 2)


@pytest.mark.usefixtures("at_once")
def test_a_newer_secret_that_is_rejected_too_is_not_tried_a_third_time(serve: Serve, out: Out) -> None:
    server, vault = serve(lambda _: Reply(401)), Vault(key=BEARER)
    caller = out(vault)
    caller.call(request(server))
    vault.secrets[f"{PREFIX}-/key"] = {**BEARER, "token": NEWER}
    assert caller.call(request(server)).status == 401
    assert sent(server) == [f"Bearer {TOKEN}"] * 2 + [f"Bearer {NEWER}"]


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize(
    "now", [refusal("InternalServiceError"), refusal("ResourceNotFoundException"), {**BEARER, "hosts": ["a.example"]}]
)
def test_a_secret_that_cannot_be_found_anew_leaves_the_rejection_as_it_was(serve: Serve, out: Out, now: Any) -> None:
    server, vault = serve(taking(NEWER)), Vault(key=BEARER)
    caller = out(vault)
    caller.call(request(server))
    vault.secrets[f"{PREFIX}-/key"] = now
    assert caller.call(request(server)).status == 401
    assert sent(server) == [f"Bearer {TOKEN}"] * 2


def test_an_answer_that_repeats_the_credential_is_masked(serve: Serve, out: Out) -> None:
    server = serve(lambda asked: Reply(OPEN, json.dumps(dict(asked.headers)).encode()))
    body = out(Vault(key=BEARER)).call(request(server)).body.decode()
    assert TOKEN not in body
    assert json.loads(body)["authorization"] == "Bearer •••"


def test_time_that_a_secret_takes_is_the_calls_own(out: Out) -> None:
    class Slow(Vault):
        def get_secret_value(self, *, SecretId: str) -> dict[str, Any]:  # noqa: N803
            time.sleep(0.06)
            return super().get_secret_value(SecretId=SecretId)

    with pytest.raises(CallTimedOut, match=r"its credential took all of 0\.05 s"):
        out(Slow(key=BEARER)).call(request("http://127.0.0.1:9/", timeout_ms=50))


class Issuer:
    """An issuer of tokens, which are numbered; `answer` changes what it says."""

    def __init__(self, serve: Serve, **answer: Any) -> None:
        self.answer = {"token_type": "Bearer", "expires_in": 3_600, **answer}
        self.status, self.issued = 200, 0
        self.server = serve(self._answer)

    def _answer(self, _asked: ReceivedRequest) -> Reply:
        self.issued += 1
        given = {"access_token": f"issued-token-{self.issued}", **self.answer}
        return Reply(self.status, json.dumps({k: v for k, v in given.items() if v is not None}).encode())

    def secret(self, **more: Any) -> dict[str, Any]:
        given = {"token_url": f"{self.server.url}/token", "client_id": "due", "client_secret": "a cli:ent's secret"}
        return {"type": "oauth", **given, "hosts": HOSTS, **more}


def test_a_token_is_fetched_once_for_many_calls(serve: Serve, out: Out) -> None:
    server, issuer = serve(lambda _: Reply(OPEN)), Issuer(serve)
    caller = out(Vault(key=issuer.secret(scope="read write", audience="https://api.example.com")))
    for _ in range(3):
        assert caller.call(request(server)).status == OPEN
    assert sent(server) == ["Bearer issued-token-1"] * 3
    [asked] = issuer.server.asked
    login = b64encode(b"due:a+cli%3Aent%27s+secret").decode()
    assert (asked.method, asked.headers["authorization"]) == ("POST", f"Basic {login}")
    assert asked.headers["content-type"] == "application/x-www-form-urlencoded"
    assert parse_qs(asked.body.decode()) == {
        "grant_type": ["client_credentials"],
        "scope": ["read write"],
        "audience": ["https://api.example.com"],
    }


def test_a_client_may_prove_itself_in_the_body(serve: Serve, out: Out) -> None:
    server, issuer = serve(lambda _: Reply(OPEN)), Issuer(serve)
    out(Vault(key=issuer.secret(client_auth="body"))).call(request(server))
    [asked] = issuer.server.asked
    assert "authorization" not in asked.headers
    assert parse_qs(asked.body.decode())["client_secret"] == ["a cli:ent's secret"]


@pytest.mark.parametrize(
    ("expires_in", "kept_s"),
    [
        (3_600, 3_540),
        ("3600", 3_540),
        (60, 30),
        (0, 0),
        (-5, 0),
        (None, 300),
        ("soon", 300),
        (10**9, 86_340),
        (float("nan"), 300),
        ("nan", 300),
        ("1_000", 300),
        (" 60 ", 300),
        (True, 300),
        (float("inf"), 86_340),
        pytest.param(10**400, 86_340, id="huge"),
        ("000060", 30),
    ],
)
def test_a_token_is_fetched_anew_before_its_end(serve: Serve, expires_in: Any, kept_s: float) -> None:
    issuer, now, name = Issuer(serve, expires_in=expires_in), [1_000.0], CredentialName("-", "key")
    oauth = Vault(key=issuer.secret()).credentials().get(name, 1.0)
    assert isinstance(oauth, OAuth)
    with closing(GuardedHttpClient(1, HERE)) as http:
        ours = authorized.Tokens(http, lambda: now[0])
        found = [ours.get(name, oauth, 5.0)]
        for step_s in (max(kept_s - 1, 0), 1):
            now[0] += step_s
            found.append(ours.get(name, oauth, 5.0))
    numbers = (1, 1, 2) if kept_s else (1, 2, 3)
    assert found == [f"issued-token-{number}" for number in numbers]


@pytest.mark.usefixtures("at_once")
def test_a_token_that_was_revoked_is_fetched_anew_and_the_call_repeated_once(serve: Serve, out: Out) -> None:
    issuer = Issuer(serve)
    good = ["issued-token-1"]
    server = serve(lambda a: Reply(OPEN if a.headers["authorization"] == f"Bearer {good[0]}" else 401))
    caller = out(Vault(key=issuer.secret()))
    assert caller.call(request(server)).status == OPEN
    good[0] = "issued-token-2"
    assert caller.call(request(server)).status == OPEN
    good[0] = "never"
    assert caller.call(request(server)).status == 401
    assert [str(value)[-1] for value in sent(server)] == ["1", "1", "2", "2", "3"]


@pytest.mark.usefixtures("at_once")
def test_a_403_says_nothing_against_a_token(serve: Serve, out: Out) -> None:
    server, issuer = serve(lambda _: Reply(403)), Issuer(serve)
    assert out(Vault(key=issuer.secret())).call(request(server)).status == 403
    assert (issuer.issued, len(server.asked)) == (1, 1)


@pytest.mark.usefixtures("at_once")
def test_a_client_that_was_changed_gets_a_token_of_its_own(serve: Serve, out: Out) -> None:
    issuer, vault = Issuer(serve), Vault()
    server = serve(lambda a: Reply(OPEN if a.headers["authorization"].endswith("2") else 403))
    vault.secrets[f"{PREFIX}-/key"] = issuer.secret()
    caller = out(vault)
    assert caller.call(request(server)).status == 403
    vault.secrets[f"{PREFIX}-/key"] = issuer.secret(client_id="other")
    assert caller.call(request(server)).status == OPEN


@pytest.mark.parametrize(
    ("status", "answer", "said"),
    [
        (401, {"error": "invalid_client", "error_description": "a cli:ent's secret"}, "answered 401 (invalid_client)"),
        (400, {"error": "a cli:ent's secret"}, "answered 400"),
        (500, {}, "answered 500"),
        (302, {}, "answered 302"),
        (200, {"access_token": None}, "without an access_token"),
        (200, {"access_token": "a\r\nb: c"}, "without an access_token"),
        (200, {"access_token": 7}, "without an access_token"),
        (200, {"token_type": "mac"}, "another type than Bearer"),
    ],
)
def test_a_token_that_is_not_issued_fails_the_call_without_a_word_of_the_secret(
    serve: Serve, out: Out, status: int, answer: dict[str, Any], said: str
) -> None:
    server, issuer = serve(lambda _: Reply(OPEN)), Issuer(serve, **answer)
    issuer.status = status
    with pytest.raises(CallFailed) as caught:
        out(Vault(key=issuer.secret())).call(request(server))
    assert str(caught.value).startswith(f"no token: POST {issuer.server.url}/token ")
    assert said in str(caught.value)
    assert "ent's" not in str(caught.value)
    assert server.asked == []


@pytest.mark.parametrize("url", ["http://10.0.0.1/token", "http://169.254.169.254/token", "http://93.184.215.14/token"])
def test_a_token_is_fetched_where_calls_may_go_and_nowhere_else(serve: Serve, out: Out, url: str) -> None:
    server, issuer = serve(lambda _: Reply(OPEN)), Issuer(serve)
    vault = Vault(key=issuer.secret(token_url=url, client_auth="body"))
    assert "auth key: has a token_url that" in why(lambda: out(vault).call(request(server)))
    assert server.asked == []


def test_no_token_is_fetched_for_a_host_that_may_not_have_it(serve: Serve, out: Out) -> None:
    server, issuer = serve(lambda _: Reply(OPEN)), Issuer(serve)
    vault = Vault(key=issuer.secret(hosts=["api.example.com"]))
    assert "is not for this host" in why(lambda: out(vault).call(request(server)))
    assert issuer.issued == 0
