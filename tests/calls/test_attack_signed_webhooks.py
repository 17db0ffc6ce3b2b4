"""Receivers know who calls: what is delivered is signed, whichever way it was asked for, and no caller can sign for us.

Row 6 of the attacks that were tried: no signature, and a caller's own `webhook-signature` was passed on.
"""

import json
import re
import stat
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import urllib3
from standardwebhooks import Webhook
from standardwebhooks.webhooks import WebhookVerificationError

from duecourse import Client
from duecourse.calls.webhook import webhook_id
from duecourse.errors import InvalidInput, WrongSignature
from duecourse.guard.signing_secrets import check_secret, new_secret
from duecourse.ledger.embedded.ledger import EmbeddedLedger
from duecourse.ledger.task import NewTask
from duecourse.settings import Settings
from duecourse.webhooks import verify
from duecourse_local.harness.aws import secrets
from duecourse_local.harness.options import LOOPBACK, Options
from duecourse_local.harness.stack import Stack
from tests.support.brokers import sqs_event
from tests.support.clock import HandClock
from tests.support.commands import in_this_process
from tests.support.emulator import local_stack
from tests.support.engine import ample
from tests.support.functions import invoke
from tests.support.http_server import ReceivedRequest, Reply, Server, answering
from tests.support.kinds import Outbox
from tests.support.ledger import SHARD
from tests.support.project import ROOT
from tests.support.requests import ask, wrong
from tests.support.wait import until
from tests.support.wired import wired_with

OURS, NEW, OLD = new_secret(), new_secret(), new_secret()
KNOWN = {"-": [OURS], "acme": [NEW, OLD]}
"""The secrets of the stack: those of acme are being rotated."""
TASK = {"kind": "webhook", "payload": {"body": {"order": "ü", "total": 1.5}}}


def good(asked: ReceivedRequest, *known: str, body: bytes | None = None) -> bool:
    """True if the verifier of duecourse, and that of Standard Webhooks itself, take a request by one of the secrets."""
    body = asked.body if body is None else body
    return all([_ours_takes(asked, body, known), any(_theirs_takes(asked, body, secret) for secret in known)])


def bad(asked: ReceivedRequest, *known: str, body: bytes | None = None) -> bool:
    """True if neither takes it."""
    body = asked.body if body is None else body
    return not any([_ours_takes(asked, body, known), *(_theirs_takes(asked, body, secret) for secret in known)])


def _ours_takes(asked: ReceivedRequest, body: bytes, known: tuple[str, ...]) -> bool:
    try:
        return verify(body, asked.headers, known) == asked.headers["webhook-id"]
    except WrongSignature:
        return False


def _theirs_takes(asked: ReceivedRequest, body: bytes, secret: str) -> bool:
    try:
        Webhook(secret).verify(body, dict(asked.headers), json_parse=False)
    except WebhookVerificationError:
        return False
    return True


class Running(NamedTuple):
    """A stack with secrets of its own for webhooks, and a receiver that takes a request only if it verifies it."""

    stack: Stack
    receiver: Server
    http: urllib3.PoolManager
    state: Path
    first: str

    def ask(self, path: str, body: Any, tenant: str = "") -> None:
        headers = {"x-tenant": tenant} if tenant else {}
        answer = self.http.request("POST", self.stack.api + path, json=body, headers=headers)
        assert answer.status in {200, 201}, answer.data

    def got(self, path: str) -> ReceivedRequest:
        """The one request at a path, once it is there."""
        found = until(lambda: [asked for asked in self.receiver.asked if asked.path == path])
        return found[0]

    def webhook(self, path: str, **fields: Any) -> dict[str, Any]:
        return TASK | {"payload": {**TASK["payload"], "url": self.receiver.url + path}} | fields  # type: ignore[dict-item]


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    def take(asked: ReceivedRequest) -> Reply:
        return Reply(204 if good(asked, OURS) or good(asked, NEW) else 401)

    state = tmp_path_factory.mktemp("stack") / "state"
    with (
        answering(take) as receiver,
        local_stack(Options(tick=0, state=state)) as stack,
        urllib3.PoolManager(retries=False, timeout=30) as http,
    ):
        first = stack.session().client("secretsmanager").get_secret_value(SecretId=secrets.SIGNING)["SecretString"]
        secrets.put_secrets(stack.aws, {secrets.SIGNING: json.dumps(KNOWN)})  # no process has read its own by now
        yield Running(stack, receiver, http, state, first)


def test_a_local_stack_has_a_secret_of_its_own_which_a_command_prints(running: Running) -> None:
    printed = in_this_process("signing", "--state", str(running.state)).stdout.strip()
    assert json.loads(running.first) == {"-": [printed]}
    [file] = [path for path in running.state.iterdir() if path.is_file() and path.read_bytes() == printed.encode()]
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    made = {in_this_process("signing", "--new").stdout.strip() for _ in range(3)}
    assert len({check_secret(secret) for secret in made} - {printed}) == 3


def to_the_intake(of: Running) -> None:
    sqs = of.stack.session().client("sqs")
    [queue] = [url for url in sqs.list_queues()["QueueUrls"] if "Intake" in url and "Dead" not in url]
    sqs.send_message(QueueUrl=queue, MessageBody=json.dumps(of.webhook("/intake", id="intake")))


def by_a_client(of: Running) -> None:
    with wired_with(Settings(store=of.stack.store, egress_allow=LOOPBACK)):
        Client.from_env().add(**of.webhook("/client", id="client"))


def remind(of: Running) -> None:
    starts = datetime.now(UTC) + timedelta(minutes=5)
    to = {"name": "Ops", "webhook": f"{of.receiver.url}/reminder"}
    reminder = {"id": "review", "subject": "Review", "starts_at": starts.isoformat(), "remind_before": ["PT10M"]}
    of.ask("/reminders", reminder | {"recipients": [to]})


def notify(of: Running) -> None:
    of.ask("/tasks", of.webhook("/ended", id="ended", notify_done={"url": f"{of.receiver.url}/notification"}))


WAYS: dict[str, Callable[[Running], None]] = {
    "task": lambda of: of.ask("/tasks", of.webhook("/task", id="one.two.3")),
    "batch": lambda of: of.ask("/tasks/batch", {"tasks": [of.webhook("/batch")]}),
    "intake": to_the_intake,
    "client": by_a_client,
    "reminder": remind,
    "notification": notify,
}


@pytest.mark.parametrize("way", WAYS)
def test_what_is_delivered_is_signed_whichever_way_it_was_asked_for(running: Running, way: str) -> None:
    WAYS[way](running)
    asked = running.got(f"/{way}")
    assert good(asked, OURS)
    assert abs(int(asked.headers["webhook-timestamp"]) - time.time()) < 30
    assert "." not in asked.headers["webhook-id"]
    assert bad(asked, NEW, OLD), "another tenant's secrets"


def test_a_tenants_webhooks_have_both_of_its_signatures_while_it_changes_its_secret(running: Running) -> None:
    running.ask("/tasks", running.webhook("/acme"), tenant="acme")
    asked = running.got("/acme")
    assert [good(asked, one) for one in (NEW, OLD)] == [True, True]
    assert bad(asked, OURS), "nobody else's"
    running.ask("/tasks", running.webhook("/globex"), tenant="globex")
    assert good(running.got("/globex"), OURS), "of a tenant without secrets of its own"


def test_what_was_signed_and_then_changed_or_kept_for_later_is_rejected(running: Running) -> None:
    running.ask("/tasks", running.webhook("/forged"))
    asked = running.got("/forged")
    sent_at = int(asked.headers["webhook-timestamp"])

    def with_header(name: str, value: str) -> ReceivedRequest:
        return asked._replace(headers={**asked.headers, name: value})

    assert good(asked, OURS)
    assert bad(asked, OURS, body=asked.body.replace(b"1.5", b"0.5"))
    assert bad(asked, OURS, body=b"")
    assert bad(with_header("webhook-id", "another:1"), OURS)
    assert bad(with_header("webhook-timestamp", str(sent_at + 1)), OURS)
    assert bad(with_header("webhook-signature", Webhook(OLD).sign("a:1", datetime.now(UTC), "{}")), OURS)
    with pytest.raises(WrongSignature, match="too old"):
        verify(asked.body, asked.headers, OURS, now=lambda: sent_at + 301)


def test_the_example_of_the_page_does_so(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (ROOT / "docs" / "how-to" / "signed-webhooks.md").read_text()
    [example] = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    there: dict[str, Any] = {}
    exec(example, there)  # noqa: S102 - as a user would
    running.ask("/tasks", running.webhook("/example"))
    asked = running.got("/example")
    monkeypatch.setenv("WEBHOOK_SECRET", OURS)
    assert there["receive"](asked.body, asked.headers) == 204
    assert there["receive"](asked.body + b" ", asked.headers) == 401


HEADERS = [
    "webhook-signature", "Webhook-Signature", "WEBHOOK-SIGNATURE", "webhook-id", "webhook-timestamp", "webhook-x",
    "webhook_signature", "Webhook_Id", "WEBHOOK-timestamp", "webhook.signature", "webhook!id", "webhook~x",
]  # fmt: skip
PUBLIC = "https://93.184.216.34/"
REMINDER = {
    "id": "a", "subject": "s", "starts_at": "2099-03-02T08:00:00Z", "remind_before": ["PT5M"],
    "recipients": [{"name": "Ops", "webhook": PUBLIC}],
}  # fmt: skip


def of_kind(kind: str, headers: dict[str, str]) -> dict[str, Any]:
    asking = {"interval": 5, "until": "ready"} if kind == "poll" else {}
    return {"kind": kind, "payload": {"url": PUBLIC, "headers": headers, **asking}}


DOORS: dict[str, tuple[str, Callable[[dict[str, str]], Any], str]] = {
    "webhook": ("/tasks", lambda headers: of_kind("webhook", headers), "payload.headers"),
    "poll": ("/tasks", lambda headers: of_kind("poll", headers), "payload.headers"),
    "batch": ("/tasks/batch", lambda headers: {"tasks": [of_kind("webhook", headers)]}, "tasks.0.payload.headers"),
    "query": ("/queries", lambda headers: of_kind("poll", headers)["payload"], "headers"),
    "notification": (
        "/tasks",
        lambda headers: of_kind("webhook", {}) | {"notify_done": {"url": PUBLIC, "headers": headers}},
        "notify_done.headers",
    ),
    "reminder": (
        "/reminders",
        lambda headers: REMINDER | {"recipients": [{"name": "Ops", "webhook": PUBLIC, "headers": headers}]},
        "recipients.0.headers",
    ),
}


@pytest.mark.parametrize("name", HEADERS)
@pytest.mark.parametrize("door", DOORS)
def test_a_callers_own_header_is_rejected_by_its_fields_name_and_nothing_is_kept(
    ledger: EmbeddedLedger, door: str, name: str
) -> None:
    path, body, field = DOORS[door]
    with wired_with(ledger=ledger, senders=dict.fromkeys(("email", "phone"), Outbox())):
        assert list(wrong(ask("POST", path, body({name: "v1,mine"})))) == [field]
    assert ledger.shards() == []


@pytest.mark.parametrize("name", HEADERS)
def test_the_client_and_messages_of_a_queue_reject_it_too(ledger: EmbeddedLedger, name: str) -> None:
    body = of_kind("webhook", {name: "v1,mine"})
    with wired_with(ledger=ledger):
        with pytest.raises(InvalidInput, match=r"payload\.headers"):
            Client.from_env().add(**body)
        answer = invoke("enqueue_message", sqs_event(json.dumps(body)))
    assert answer == {"batchItemFailures": [{"itemIdentifier": "m-0"}]}
    assert ledger.shards() == []


CLOSE = {"connection": "close"}
"""A server of a test that fails waits for nobody's idle connection."""


class Manager(NamedTuple):
    """Secrets Manager as a small server, which answers what a test sets, and the receiver of webhooks."""

    answer: list[Reply]
    receiver: Server

    def keep(self, known: Any) -> None:
        self.answer[:] = [Reply(200, json.dumps({"SecretString": json.dumps(known)}).encode(), CLOSE)]

    def lose(self) -> None:
        self.answer[:] = [Reply(400, b'{"__type": "ResourceNotFoundException", "message": "none"}', CLOSE)]


@pytest.fixture
def manager(monkeypatch: pytest.MonkeyPatch) -> Iterator[Manager]:
    given: list[Reply] = []
    with answering(lambda _: given[0]) as server, answering(lambda _: Reply(204, headers=CLOSE)) as receiver:
        place = {"AWS_ENDPOINT_URL": server.url, "AWS_DEFAULT_REGION": "us-east-1"}
        for name, value in {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x", **place}.items():
            monkeypatch.setenv(name, value)
        yield Manager(given, receiver)


SIGNED = Settings(signing_secret="duecourse/signing", egress_allow=LOOPBACK)


def former(id: str, url: str) -> NewTask:
    """A task of a release that took any header, straight into the ledger."""
    mine = {"webhook-signature": "v1,mine", "Webhook_Signature": "v1,mine", "webhook-id": "mine"}
    return NewTask(id, "webhook", payload=json.dumps({"url": url, "body": {}, "headers": mine}))


def test_a_header_that_is_in_the_ledger_already_is_replaced_by_ours(manager: Manager) -> None:
    ledger = EmbeddedLedger()
    manager.keep({"-": [OURS]})
    ledger.add([former("a", manager.receiver.url)])
    with wired_with(SIGNED, ledger=ledger) as app:
        assert app.drainer.drain([SHARD], ample).done == 1
    [asked] = manager.receiver.asked
    assert good(asked, OURS)
    assert "mine" not in json.dumps(dict(asked.headers))


def test_nothing_goes_out_unsigned_while_the_secret_cannot_be_read_and_nothing_is_lost(
    clock: HandClock, ledger: EmbeddedLedger, manager: Manager
) -> None:
    manager.lose()
    ledger.add([former("a", manager.receiver.url)])
    with wired_with(SIGNED, ledger=ledger) as app:
        for _ in range(20):  # more often than it has attempts
            app.drainer.drain([SHARD], ample)
            clock.advance(60_000)
        assert manager.receiver.asked == []
        waiting = ledger.get("default", "a")
        assert waiting
        assert (waiting.status, waiting.attempt) == ("scheduled", 1)
        shown = ask("GET", "/tasks/a/why").text
        assert "DUECOURSE_SIGNING_SECRET: names a secret that does not exist in this account and region" in shown
    manager.keep({"-": [OURS]})
    with wired_with(SIGNED, ledger=ledger) as app:  # a later process, or this one five seconds later
        assert app.drainer.drain([SHARD], ample).done == 1
    assert len(manager.receiver.asked) == 1


def test_polls_and_queries_are_not_signed_for_they_deliver_nothing(ledger: EmbeddedLedger, manager: Manager) -> None:
    manager.keep({"-": [OURS]})
    asking = {"url": manager.receiver.url, "interval": 5, "until": "ready"}
    with wired_with(SIGNED, ledger=ledger) as app:
        ask("POST", "/tasks", {"kind": "poll", "payload": asking})
        app.drainer.drain([SHARD], ample)
        ask("POST", "/queries", asking)
    assert len(manager.receiver.asked) == 2
    assert all(not name.startswith("webhook-") for asked in manager.receiver.asked for name in asked.headers)


def test_without_the_setting_nothing_is_signed_and_nothing_is_read(ledger: EmbeddedLedger, manager: Manager) -> None:
    ledger.add([former("a", manager.receiver.url)])
    with wired_with(Settings(egress_allow=LOOPBACK), ledger=ledger) as app:
        assert app.drainer.drain([SHARD], ample).done == 1
    [asked] = manager.receiver.asked
    assert "webhook-signature" not in asked.headers


def test_no_task_of_another_tenant_or_queue_has_the_same_webhook_id(ledger: EmbeddedLedger) -> None:
    """A receiver that works each id once would take the second webhook for a copy of the first."""
    places = [("default", "-"), ("default", "acme"), ("other", "-"), ("other", "acme"), ("acme", "other")]
    added = [
        ledger.add([NewTask(id, "webhook", queue=queue, tenant=tenant)], echo=True)[0].task
        for id in ("order-1", "acme:order-1", "a.b")
        for queue, tenant in places
    ]
    tasks = [task for task in added if task]
    assert len({task.idempotency_key for task in tasks}) < len(tasks), "they are made within one millisecond"
    ids = {webhook_id(task) for task in tasks}
    assert len(ids) == len(tasks) == 15
    assert not any("." in id for id in ids)
