"""URLs that lead where no call may go, from lists of SSRF tricks, through each door that takes one.

Sources: PayloadsAllTheThings, "Server Side Request Forgery"; OWASP, "SSRF Prevention Cheat Sheet"; PortSwigger, "URL
validation bypass cheat sheet"; Orange Tsai, "A New Era of SSRF" (2017); IANA's registries of special addresses.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from typing import Any, NamedTuple

import pytest

from duecourse.app import App
from duecourse.client.client import Client
from duecourse.errors import InvalidInput
from duecourse.guard.http_client import GuardedHttpClient
from duecourse.ledger.api_query import host_of
from duecourse.ledger.embedded.ledger import EmbeddedLedger
from duecourse.ledger.many_tasks import TaskFilter
from duecourse.ledger.task import Ending, Shard, Status, Task
from tests.support.brokers import sqs_event
from tests.support.connections import dialled
from tests.support.cpu import is_soon
from tests.support.engine import ample
from tests.support.functions import invoke
from tests.support.kinds import Outbox
from tests.support.ledger import settle
from tests.support.names import Names
from tests.support.requests import ask, wrong
from tests.support.wired import wired_with

NOT_HTTP = [
    "file:///etc/passwd",
    "gopher://127.0.0.1:6379/_FLUSHALL",
    "dict://127.0.0.1:6379/info",
    "ftp://127.0.0.1/",
    "ldap://127.0.0.1/",
    "jar:http://127.0.0.1!/",
    "//127.0.0.1/",
    "http:127.0.0.1/",
    "http:/127.0.0.1/",
    "http:///127.0.0.1/",
    "http://",
    "http://?@127.0.0.1/",
    "\thttp://127.0.0.1/",
    "url:http://127.0.0.1/",
]
"""No http or https URL at all."""
BROKEN = [
    "http://127.0.0.1\\@public.example/",
    "http://public.example\\@127.0.0.1/",
    "http://public.example\r\nHost:127.0.0.1/",
    "http://public.example/\r\nX-Injected:%20yes",
    "http://127.0.0.1\t/",
    "http://127.0.0.1 /",
    "http://127.0.0.1\x00.public.example/",
    "http://127.0.0.1:99999/",
    "http://127.0.0.1:0/",
    "http://127.0.0.1:80:80/",
    "http://[::1/",
    "http://public.example\uff0f@127.0.0.1/",
]
"""Parsers differ over these."""
WITH_USER = [
    "http://public.example@127.0.0.1/",
    "http://public.example:80@127.0.0.1/",
    "http://public.example%2f@127.0.0.1/",
    "http://127.0.0.1@public.example/",
    "http://user:password@public.example/",
    "http://a@b@127.0.0.1/",
    "http://@127.0.0.1/",
    "http://127.1.1.1:80:@127.2.2.2:80/",
]
"""With userinfo, which names one host to a reader and another to a program."""
SPELLED = [
    "http://127.0.0.1/",
    "https://127.0.0.1/",
    "HTTP://127.0.0.1:6379/",
    "http://127.0.0.1:22/",
    "http://127.1/",
    "http://127.0.1/",
    "http://127.127.127.127/",
    "http://2130706433/",
    "http://017700000001/",
    "http://0x7f000001/",
    "http://0x7f.0x0.0x0.0x1/",
    "http://0177.0.0.01/",
    "http://00000177.1/",
    "http://0/",
    "http://0.0.0.0:80/",
    "http://127.0.0.1./",
    "http://%31%32%37.0.0.1/",
    "http://127%2e0%2e0%2e1/",
    "http://127\u30020\u30020\u30021/",
    "http://\uff11\uff12\uff17.\uff10.\uff10.\uff11/",
    "http://\u2460\u2461\u2466.\u24ea.\u24ea.\u2460/",
    "http://localhost/",
    "http://LOCALHOST:8080/",
    "http://localhost./",
    "http://app.localhost/",
    "http://10.0.0.1/",
    "http://172.16.0.1/",
    "http://172.31.255.255/",
    "http://192.168.0.1/",
    "http://100.64.0.1/",
    "http://192.0.0.8/",
    "http://198.18.0.1/",
    "http://192.0.2.1/",
    "http://192.88.99.1/",
    "http://224.0.0.1/",
    "http://255.255.255.255/",
    "http://240.0.0.1/",
    "http://[::1]/",
    "http://[::]/",
    "http://[0:0:0:0:0:0:0:1]:80/",
    "http://[::ffff:127.0.0.1]/",
    "http://[::ffff:7f00:1]/",
    "http://[::127.0.0.1]/",
    "http://[::ffff:0:127.0.0.1]/",
    "http://[64:ff9b::10.0.0.1]/",
    "http://[64:ff9b:1::10.0.0.1]/",
    "http://[2002:7f00:1::]/",
    "http://[2002:a00:1::1]/",
    "http://[2001:0:a00:1::1]/",
    "http://[2001:db8::1]/",
    "http://[fc00::1]/",
    "http://[fd12:3456::1]/",
    "http://[fec0::1]/",
    "http://[ff02::1]/",
    "http://[3fff::1]/",
    "http://[5f00::1]/",
    "http://169.254.169.254/latest/meta-data/iam/security-credentials/",
    "http://2852039166/",
    "http://0xa9fea9fe/",
    "http://0251.0376.0251.0376/",
    "http://169.254.43518/",
    "http://169.254.170.2/v2/credentials/",
    "http://169.254.170.23/v1/credentials",
    "http://[fd00:ec2::254]/",
    "http://[fd00:ec2::23]/",
    "http://[::ffff:a9fe:a9fe]/",
    "http://[64:ff9b::a9fe:a9fe]/",
    "http://[2002:a9fe:a9fe::]/",
    "http://[fe80::1]/",
    "http://[fe80::1%25lo]/",
    "http://168.63.129.16/metadata/",
    "http://[::ffff:168.63.129.16]/",
    "http://100.100.100.200/latest/meta-data/",
    "http://192.0.0.192/opc/v2/",
    "http://[fd20:ce::254]/",
]
"""Addresses that are not public, in each spelling and form."""
NAMED: dict[str, Sequence[str]] = {
    "http://localtest.example/": ["127.0.0.1"],
    "https://localtest.example/": ["127.0.0.1"],
    "http://127.0.0.1.nip.example/": ["127.0.0.1"],
    "http://7f000001.nip.example:6379/": ["127.0.0.1"],
    "http://10-0-0-1.sslip.example/": ["10.0.0.1"],
    "http://metadata.google.internal/computeMetadata/v1/": ["169.254.169.254"],
    "http://METADATA.google.internal./": ["169.254.169.254"],
    "http://instance-data/latest/": ["169.254.169.254"],
    "http://redis:6379/": ["172.18.0.2"],
    "http://kubernetes.default.svc/": ["10.96.0.1"],
    "http://wireserver.example/": ["168.63.129.16"],
    "http://six.example/": ["::1"],
    "http://mapped.example/": ["::ffff:10.0.0.1"],
    "http://nat64.example/": ["64:ff9b::a00:1"],
    "http://6to4.example/": ["2002:a00:1::1"],
    "http://zone.example/": ["fe80::1%lo"],
    "http://both.example/": ["10.0.0.1", "fd00::1"],
    "http://b\u00fccher.example/": ["192.168.1.1"],
    "http://1.2.3.4.5/": ["10.0.0.1"],
}
"""Names that lead to such an address, by the answer of a resolver."""
AT_THE_DOOR = [*NOT_HTTP, *BROKEN, *WITH_USER, *SPELLED]


def name_of(url: str) -> str:
    """A URL's host as the table has it."""
    host = url.partition("://")[2].partition("/")[0].partition(":")[0]
    return host.lower().removesuffix(".").encode("idna").decode()


TABLE = {name_of(url): [addresses] for url, addresses in NAMED.items()}


class Door(NamedTuple):
    """A way in for a URL: the request, the field that is named where the URL is rejected, and the task's queue."""

    path: str
    body: Callable[[str], Any]
    field: str
    queue: str = "default"


POLL = {"interval": 5, "until": "ready"}
PUBLIC = "https://93.184.216.34/"
DOORS = {
    "poll": Door("/tasks", lambda url: {"id": "a", "kind": "poll", "payload": {"url": url, **POLL}}, "payload.url"),
    "webhook": Door("/tasks", lambda url: {"id": "a", "kind": "webhook", "payload": {"url": url}}, "payload.url"),
    "batch": Door(
        "/tasks/batch",
        lambda url: {"tasks": [{"id": "a", "kind": "webhook", "payload": {"url": url}}]},
        "tasks.0.payload.url",
    ),
    "notification": Door(
        "/tasks",
        lambda url: {"id": "a", "kind": "webhook", "payload": {"url": PUBLIC}, "notify_done": {"url": url}},
        "notify_done.url",
    ),
    "reminder": Door(
        "/reminders",
        lambda url: {
            "id": "a",
            "subject": "s",
            "starts_at": "2026-09-22T14:13:20Z",
            "remind_before": ["P1D"],
            "recipients": [{"name": "Ada", "email": "ada@example.com"}, {"name": "Eve", "webhook": url}],
        },
        "recipients.1.webhook",
        "reminders",
    ),
    "query": Door("/queries", lambda url: {"url": url, **POLL}, "url"),
}


@pytest.fixture
def names() -> Names:
    return Names(TABLE)


@pytest.fixture(autouse=True)
def app(ledger: EmbeddedLedger, names: Names) -> Iterator[App]:
    """The deployed default: nothing is listed, and the caller is the real one, over a resolver of the test's."""
    senders = dict.fromkeys(("email", "phone"), Outbox())
    with (
        closing(GuardedHttpClient(4, resolve=names.resolver)) as http,
        wired_with(ledger=ledger, http=http, senders=senders) as app,
    ):
        yield app


def dead_of(ledger: EmbeddedLedger, queue: str) -> list[Task]:
    return ledger.page(queue, TaskFilter(Status.DEAD), None, 10).tasks


def test_there_are_enough_of_them() -> None:
    assert len({*AT_THE_DOOR, *NAMED}) >= 120


@pytest.mark.parametrize("url", AT_THE_DOOR, ids=ascii)
@pytest.mark.parametrize("door", DOORS)
def test_a_url_that_can_be_judged_is_rejected_by_its_fields_name_and_changes_nothing(
    ledger: EmbeddedLedger, door: str, url: str
) -> None:
    seen, way = dialled(), DOORS[door]
    assert list(wrong(ask("POST", way.path, way.body(url)))) == [way.field]
    queues = [shard.queue for shard in ledger.shards()]
    assert (queues, seen) == ([], [])


def worked(app: App, ledger: EmbeddedLedger, door: str) -> Task:
    """The task of a door, dead once something has tried to work it."""
    queue = DOORS[door].queue
    if door == "notification":
        (task,) = ledger.claim(Shard(), 1, lease_ms=1_000).tasks
        settle(ledger, task, Ending.DONE)
    app.drainer.drain([Shard(queue)], ample)
    (dead,) = dead_of(ledger, queue)
    return dead


@pytest.mark.parametrize("url", NAMED, ids=ascii)
@pytest.mark.parametrize("door", [door for door in DOORS if door != "query"])
def test_a_name_that_leads_there_ends_its_task_dead_for_egress_and_nobody_is_dialled(
    app: App, ledger: EmbeddedLedger, names: Names, door: str, url: str
) -> None:
    seen, way = dialled(), DOORS[door]
    answer = ask("POST", way.path, way.body(url))
    assert answer.status in {200, 201}, answer
    dead = worked(app, ledger, door)
    assert dead.error.startswith("egress: leads to an address ")
    assert seen == []
    assert [name.removesuffix(".") for name in names.asked] == [name_of(url)], "it is looked up once"
    assert not any(address in dead.error for address in NAMED[url]), "whom it leads to is nobody's business"


@pytest.mark.parametrize("url", NAMED, ids=ascii)
def test_a_query_to_such_a_name_fails_and_says_why(url: str) -> None:
    seen = dialled()
    answer = ask("POST", "/queries", DOORS["query"].body(url))
    assert (answer.status, seen) == (502, [])
    assert answer.body["detail"].startswith("egress: leads to an address ")


def test_a_task_that_died_of_it_can_be_replayed(app: App, ledger: EmbeddedLedger) -> None:
    ask("POST", "/tasks", DOORS["webhook"].body("http://redis:6379/"))
    assert worked(app, ledger, "webhook").id == "a"
    assert ask("POST", "/tasks/a/replay").body["task"]["state"] == "scheduled"


HEADERS = [
    "Host", "HOST", "Connection", "Keep-Alive", "TE", "Trailer", "Transfer-Encoding", "transfer-encoding", "Upgrade",
    "Proxy-Authorization", "Proxy-Connection", "Content-Length", "Expect", "webhook-id", "Webhook-Signature",
    "WEBHOOK-TIMESTAMP", "Webhook.Signature", "webhook~id", "content.length",
    "Webhook_Id", "webhook_signature", "Transfer_Encoding", "content_length", "Proxy_X", "x y", "x\r\nHost", "x:", "",
]  # fmt: skip
"""Headers that frame a request, route it, or vouch for its sender; and names that are none."""


@pytest.mark.parametrize("name", HEADERS, ids=ascii)
@pytest.mark.parametrize("door", ["poll", "webhook", "batch", "query"])
def test_a_header_that_is_not_a_callers_to_give_is_rejected_by_its_fields_name(
    ledger: EmbeddedLedger, door: str, name: str
) -> None:
    way = DOORS[door]
    body = way.body("https://public.example/")
    payload = body["tasks"][0]["payload"] if door == "batch" else body.get("payload", body)
    payload["headers"] = {"accept": "a/b", name: "1"}
    assert list(wrong(ask("POST", way.path, body))) == [way.field.replace("url", "headers")]
    assert ledger.shards() == []


@pytest.mark.parametrize("value", ["1\r\nHost: internal", "1\nx: y", "\x00", "caf\u00e9", "x" * 4_097], ids=ascii)
def test_a_headers_value_that_would_begin_another_one_is_rejected(value: str) -> None:
    body = DOORS["webhook"].body("https://public.example/")
    body["payload"]["headers"] = {"x": value}
    assert list(wrong(ask("POST", "/tasks", body))) == ["payload.headers"]


@pytest.mark.parametrize(
    "url", ["http://\uff4dapped.example/", "http://a..b/", "http://[v1.x]/", f"http://{'a' * 64}/"]
)
def test_a_host_that_no_resolver_takes_ends_its_task_dead(app: App, ledger: EmbeddedLedger, url: str) -> None:
    seen = dialled()
    ask("POST", "/tasks", DOORS["webhook"].body(url))
    assert worked(app, ledger, "webhook").error.startswith("url: ")
    assert seen == []


@pytest.mark.parametrize("url", AT_THE_DOOR, ids=ascii)
def test_the_client_and_a_queues_messages_are_judged_alike(ledger: EmbeddedLedger, url: str) -> None:
    body = DOORS["webhook"].body(url)
    with pytest.raises(InvalidInput) as caught:
        Client.from_env().add(**body)
    assert [problem.field for problem in caught.value.problems] == ["payload.url"]
    answer = invoke("enqueue_message", sqs_event(json.dumps(body)))
    assert answer == {"batchItemFailures": [{"itemIdentifier": "m-0"}]}
    assert ledger.shards() == []


@pytest.mark.usefixtures("app")
def test_hosts_that_no_dns_has_cost_their_tasks_nothing() -> None:
    """A thousand hosts of 2,000 letters, 36,000 as IDNA writes them out, took two minutes at the door."""
    urls = [f"http://{chr(0xFDFA) * 2_000}{number}/" for number in range(20)]
    tasks = [{"kind": "webhook", "payload": {"url": url}} for url in urls]

    def add() -> None:
        assert ask("POST", "/tasks/batch", {"tasks": tasks}).status == 200
        assert host_of(urls[0]) != host_of(urls[1])

    assert is_soon(add, 0.5)
