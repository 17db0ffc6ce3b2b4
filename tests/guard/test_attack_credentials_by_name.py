"""Credentials by name through the real ways in: each arrives at its own hosts, and is found nowhere else at all."""

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import pytest
import urllib3

from duecourse.guard.http_types import CredentialName
from duecourse_local.harness.aws.task_credentials import Keyring
from duecourse_local.harness.options import Options
from duecourse_local.harness.stack import Stack
from tests.support.emulator import local_stack
from tests.support.http_server import ReceivedRequest, Reply, Server, answering
from tests.support.matrix import MATRIX
from tests.support.wait import until

TOKEN, NEWER, OTHERS = "tok/en-of-billing", "newer-token-of-billing", "token-of-globex"
PASSWORD, CLIENT_SECRET, ISSUED = "pass+word-of-crm", "client-secret-of-erp", "issued-to-erp"
SECRETS = (TOKEN, NEWER, OTHERS, PASSWORD, CLIENT_SECRET, ISSUED)
PREFIX = "duecourse/auth/"


class Ours(NamedTuple):
    """A stack, a server that is in each credential's hosts, and one that is in none."""

    stack: Stack
    folder: Path
    bound: Server
    other: Server
    ring: Keyring
    http: urllib3.PoolManager

    def call(self, method: str, path: str, body: Any = None, tenant: str = "-") -> tuple[int, Any]:
        answer = self.http.request(method, self.stack.api + path, json=body, headers={"x-tenant": tenant})
        return answer.status, answer.json() if answer.data else None

    def ended(self, id: str, state: str = "done", tenant: str = "-", queue: str = "default") -> Any:
        """The task, once it has ended so."""

        def look() -> Any:
            status, shown = self.call("GET", f"/tasks/{id}?queue={queue}", tenant=tenant)
            assert status != 200 or state == "dead" or shown["task"]["state"] != "dead", shown
            return shown["task"] if status == 200 and shown["task"]["state"] == state else None

        return until(look, every=0.05)

    def add(self, id: str, payload: Any, tenant: str = "-", kind: str = "webhook", **more: Any) -> None:
        status, shown = self.call("POST", "/tasks", {"id": id, "kind": kind, "payload": payload, **more}, tenant)
        assert status == 201, shown

    def seen(self, server: Server, path: str) -> list[str | None]:
        """Authorization of each request to a path."""
        return [asked.headers.get("authorization") for asked in server.asked if urlsplit(asked.path).path == path]


def receive(asked: ReceivedRequest) -> Reply:
    """Tokens at /token; else every header that came, as an answer that a poll and a query can end with."""
    if asked.path == "/token":
        return Reply(200, json.dumps({"access_token": ISSUED, "expires_in": 3_600}).encode())
    if asked.path.startswith("/away="):
        return Reply(307, b"", {"location": asked.path.removeprefix("/away=")})
    if asked.path == "/newer-alone" and asked.headers.get("authorization") != f"Bearer {NEWER}":
        return Reply(401, json.dumps(dict(asked.headers)).encode())
    if asked.path == "/angry":
        return Reply(410, f"I do not take {asked.headers.get('authorization')}".encode())
    return Reply(200, json.dumps({"done": True, "echo": dict(asked.headers)}).encode())


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ours]:
    folder = tmp_path_factory.mktemp("stack")
    with ExitStack() as opened:
        bound, other = (opened.enter_context(answering(receive)) for _ in range(2))
        http = opened.enter_context(urllib3.PoolManager(retries=False, timeout=20))
        given = Options(tick=0, state=folder / "state", environment={"DUECOURSE_DEAD_TARGET": "sqs:dead"})
        stack = opened.enter_context(local_stack(given))
        ring = Keyring(stack.aws, PREFIX)
        hosts = {"hosts": [urlsplit(bound.url).netloc]}
        ring.put(CredentialName("-", "billing"), {"type": "bearer", "token": TOKEN, **hosts})
        ring.put(CredentialName("globex", "billing"), {"type": "bearer", "token": OTHERS, **hosts})
        ring.put(CredentialName("-", "crm"), {"type": "basic", "user": "ada", "password": PASSWORD, **hosts})
        client = {"token_url": f"{bound.url}/token", "client_id": "due", "client_secret": CLIENT_SECRET}
        ring.put(CredentialName("-", "erp"), {"type": "oauth", **client, **hosts})
        stack.session().client("sqs").create_queue(QueueName="dead")
        yield Ours(stack, folder, bound, other, ring, http)


def test_a_credential_arrives_by_each_kind_of_call(ours: Ours) -> None:
    ours.add("hook", {"url": f"{ours.bound.url}/hook", "auth": "billing", "body": {}})
    ours.add("poll", {"url": f"{ours.bound.url}/poll", "auth": "erp", "interval": 1, "until": "done"}, kind="poll")
    ours.add("end", {"url": f"{ours.other.url}/end"}, notify_done={"url": f"{ours.bound.url}/told", "auth": "billing"})
    query = {"url": f"{ours.bound.url}/query", "auth": "crm", "interval": 1, "until": "done"}
    status, answer = ours.call("POST", "/queries", query)
    meeting = {"id": "m", "subject": "s", "starts_at": "2100-01-04T09:30:00Z", "remind_before": ["P36500D"]}
    person = {"name": "Ada", "webhook": f"{ours.bound.url}/meeting", "auth": "billing"}
    assert ours.call("POST", "/reminders", {**meeting, "recipients": [person]})[0] == 201
    assert (status, answer["status"]) == (200, "done")
    for id in ("hook", "poll", "end"):
        ours.ended(id)
    until(lambda: ours.seen(ours.bound, "/told") and ours.seen(ours.bound, "/meeting"))
    for path in ("/hook", "/told", "/meeting"):
        assert ours.seen(ours.bound, path) == [f"Bearer {TOKEN}"], path
    assert ours.seen(ours.bound, "/poll") == [f"Bearer {ISSUED}"]
    assert ours.seen(ours.bound, "/query") == ["Basic YWRhOnBhc3Mrd29yZC1vZi1jcm0="]


def test_what_is_shown_has_the_credentials_name(ours: Ours) -> None:
    payload = {"url": f"{ours.bound.url}/x", "auth": "billing"}
    ours.add("named", payload, delay=3_600, notify_done={"url": f"{ours.bound.url}/x", "auth": "crm"})
    _, shown = ours.call("GET", "/tasks/named")
    assert (shown["task"]["payload"]["auth"], shown["task"]["notify_done"]["auth"]) == ("billing", "crm")


@pytest.mark.parametrize("kind", ["webhook", "poll"])
def test_another_host_gets_nothing_and_the_task_is_dead_with_the_credentials_name(ours: Ours, kind: str) -> None:
    """The same address, but another port than that of the credential's host."""
    id = f"elsewhere-{kind}"
    more = {"interval": 1, "until": "done"} if kind == "poll" else {}
    ours.add(id, {"url": f"{ours.other.url}/{id}", "auth": "billing", **more}, kind=kind)
    assert ours.ended(id, "dead")["error"].startswith("auth billing: is not for this host")
    assert ours.seen(ours.other, f"/{id}") == []
    assert ours.call("POST", f"/tasks/{id}/replay")[0] == 200


def test_a_query_at_another_host_gets_nothing(ours: Ours) -> None:
    query = {"url": f"{ours.other.url}/query", "auth": "billing", "interval": 1, "until": "done"}
    status, answer = ours.call("POST", "/queries", query)
    assert (status, "auth billing: is not for this host" in json.dumps(answer)) == (502, True)
    assert ours.seen(ours.other, "/query") == []


def test_queries_of_two_tenants_and_two_names_are_calls_of_their_own(ours: Ours) -> None:
    query = {"url": f"{ours.bound.url}/shared", "interval": 1, "until": "done"}
    for tenant, auth in (("-", "billing"), ("globex", "billing"), ("-", "erp"), ("-", "billing"), ("-", None)):
        status, answer = ours.call("POST", "/queries", {**query, "auth": auth}, tenant)
        assert (status, answer["status"]) == (200, "done")
    tokens = [f"Bearer {token}" for token in (TOKEN, OTHERS, ISSUED)]
    assert ours.seen(ours.bound, "/shared") == [*tokens, None]


def test_a_redirect_takes_no_credential_along(ours: Ours) -> None:
    url = f"{ours.bound.url}/away={ours.other.url}/landed"
    ours.add("away", {"url": url, "auth": "billing"}, retry={"max_attempts": 1})
    assert "answered 307" in ours.ended("away", "dead")["error"]
    assert ours.seen(ours.other, "/landed") == []


def test_an_answer_that_repeats_a_credential_is_kept_without_it(ours: Ours) -> None:
    ours.add("echo", {"url": f"{ours.bound.url}/e", "auth": "erp", "interval": 1, "until": "done"}, kind="poll")
    assert ours.ended("echo")["result"]["echo"]["authorization"] == "Bearer •••"
    ours.add("angry", {"url": f"{ours.bound.url}/angry", "auth": "crm"})
    assert ours.ended("angry", "dead")["error"].endswith("I do not take Basic •••")


def test_a_tenant_has_its_own_credentials_alone(ours: Ours) -> None:
    payload = {"url": f"{ours.bound.url}/globex", "auth": "billing"}
    ours.add("own", payload, tenant="globex")
    ours.ended("own", tenant="globex")
    assert ours.seen(ours.bound, "/globex") == [f"Bearer {OTHERS}"]
    ours.add("foreign", payload, tenant="acme")
    error = ours.ended("foreign", "dead", tenant="acme")["error"]
    assert error.startswith("auth billing: names a secret that does not exist")
    assert len(ours.seen(ours.bound, "/globex")) == 1


@pytest.mark.parametrize(
    "name",
    ["../globex/billing", "globex/billing", "-/billing", "..", "a b", "", "billing\n", "x" * 65, TOKEN, "${x}", "*", 1],
)
def test_a_name_that_could_lead_elsewhere_is_rejected_by_its_field(ours: Ours, name: Any) -> None:
    if name == "..":
        ours.add("dots", {"url": f"{ours.bound.url}/x", "auth": name})
        assert f"({PREFIX}-/..)" in ours.ended("dots", "dead")["error"]
        return
    status, answer = ours.call("POST", "/tasks", {"kind": "webhook", "payload": {"url": "https://a.b", "auth": name}})
    assert (status, [error["field"] for error in answer["errors"]]) == (422, ["payload.auth"])
    assert TOKEN not in json.dumps(answer)


def test_a_caller_gives_a_name_or_a_header_of_its_own_and_not_both(ours: Ours) -> None:
    both = {"url": f"{ours.bound.url}/x", "auth": "billing", "headers": {"AUTHORIZATION": "Bearer mine"}}
    poll = {**both, "interval": 1, "until": "done"}
    for path, body, field in (
        ("/tasks", {"kind": "webhook", "payload": both}, "payload.headers"),
        ("/tasks", {"kind": "poll", "payload": poll}, "payload.headers"),
        ("/queries", poll, "headers"),
        ("/tasks", {"kind": "webhook", "payload": {"url": "https://a.b"}, "notify_done": {"target": "a", "auth": "b"}},
         "notify_done.auth"),
    ):  # fmt: skip
        status, answer = ours.call("POST", path, body)
        assert (status, [error["field"] for error in answer["errors"]]) == (422, [field])
    ours.add("apart", {"url": f"{ours.bound.url}/apart", "auth": "billing", "headers": {"X-Team": "a"}})
    ours.ended("apart")
    assert ours.seen(ours.bound, "/apart") == [f"Bearer {TOKEN}"]


def test_plain_http_takes_a_credential_to_listed_hosts_alone(ours: Ours) -> None:
    """The stack lists this machine, and nothing else."""
    payload = {"url": "http://93.184.215.14/x", "auth": "billing"}
    status, answer = ours.call("POST", "/tasks", {"kind": "webhook", "payload": payload})
    assert (status, answer["errors"][0]["field"]) == (422, "payload.url")
    assert "plain http" in answer["errors"][0]["problem"]


def test_nothing_of_any_credential_is_anywhere_else(ours: Ours) -> None:
    """After all of the above, in whatever order: reads, notifications, dead letters, Redis's files and every log."""
    notified = {"notify_done": {"url": f"{ours.other.url}/notified", "include": ["payload"]}}
    ours.add("last", {"url": f"{ours.other.url}/x", "auth": "billing"}, **notified)
    ours.add("least", {"url": f"{ours.bound.url}/angry", "auth": "billing"}, **notified)
    for id in ("last", "least"):
        ours.ended(id, "dead")
    until(lambda: len(ours.seen(ours.other, "/notified")) == 2)
    sqs = ours.stack.session().client("sqs")
    url = sqs.get_queue_url(QueueName="dead")["QueueUrl"]
    letters = until(lambda: sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10).get("Messages"))
    paths = [
        "/tasks/last",
        "/tasks/last/why",
        "/tasks/least",
        "/tasks/least/why",
        "/tasks?state=dead",
        "/tasks?state=done",
    ]
    shown = {path: json.dumps(ours.call("GET", path)) for path in paths}
    files = {str(path): path.read_bytes().decode(errors="replace") for path in ours.folder.rglob("*") if path.is_file()}
    assert any("appendonly" in path for path in files)
    assert any("payload" in text and "billing" in text for path, text in files.items() if "appendonly" in path)
    everywhere = {**shown, **files, "letters": json.dumps(letters), "other": repr(ours.other.asked)}
    assert [(place, secret) for place, text in everywhere.items() for secret in SECRETS if secret in text] == []


@MATRIX
def test_a_token_is_rotated_while_the_stack_runs(ours: Ours) -> None:
    """Seen from its receiver, which takes the new one alone: first before the secret has it, then with it."""
    hosts = {"hosts": [urlsplit(ours.bound.url).netloc]}
    retry = {"max_attempts": 1_000, "backoff": "PT0.2S", "factor": 1, "jitter": False}
    ours.add("turn", {"url": f"{ours.bound.url}/newer-alone", "auth": "billing"}, retry=retry)
    until(lambda: f"Bearer {TOKEN}" in ours.seen(ours.bound, "/newer-alone"))
    ours.ring.put(CredentialName("-", "billing"), {"type": "bearer", "token": NEWER, **hosts})
    ours.ended("turn")
    assert ours.seen(ours.bound, "/newer-alone")[-1] == f"Bearer {NEWER}"
    ours.ring.put(CredentialName("-", "billing"), {"type": "bearer", "token": TOKEN, **hosts})
    assert NEWER not in "".join(path.read_text() for path in (ours.folder / "state" / "logs").iterdir())


@MATRIX
def test_a_stack_in_one_process_sends_them_too(ours: Ours, tmp_path: Path) -> None:
    given = Options(store="memory://", tick=0, state=tmp_path / "state")
    with local_stack(given) as stack:
        one = ours._replace(stack=stack)
        hosts = {"hosts": [urlsplit(ours.bound.url).netloc]}
        Keyring(stack.aws, PREFIX).put(CredentialName("-", "own"), {"type": "bearer", "token": NEWER, **hosts})
        one.add("hook", {"url": f"{ours.bound.url}/in-threads", "auth": "own"})
        one.ended("hook")
    assert ours.seen(ours.bound, "/in-threads") == [f"Bearer {NEWER}"]
