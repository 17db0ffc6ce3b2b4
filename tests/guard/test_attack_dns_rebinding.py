"""Names whose answers change, redirects and credentials in clear: what is checked is what is called."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any
from urllib.parse import urlsplit

import pytest

from duecourse.app import App
from duecourse.guard.egress import Egress
from duecourse.guard.http_client import GuardedHttpClient
from duecourse.ledger.embedded.ledger import EmbeddedLedger
from duecourse.ledger.task import Shard, Status, Task
from duecourse.settings import Settings
from duecourse_local.harness.options import LOOPBACK
from tests.support.connections import dialled
from tests.support.engine import ample
from tests.support.http_server import Reply, Server, answering
from tests.support.ledger import stored_task
from tests.support.names import Names
from tests.support.requests import ask, wrong
from tests.support.wired import wired_with

GOOD, SECRET = "127.0.0.2", "127.0.0.1"
"""An address that is listed, and one that is not, with a server at the same port of each."""
AUTHORIZED = {"headers": {"Authorization": "Bearer HIDDEN"}}

Wiring = Callable[..., App]


@pytest.fixture
def wiring(ledger: EmbeddedLedger) -> Iterator[Wiring]:
    """An App with these exceptions, and a resolver over a table of names."""
    with ExitStack() as opened:

        def wire(listed: str, names: Names) -> App:
            http = GuardedHttpClient(4, Egress.of(listed), names.resolver)
            opened.callback(http.close)
            return opened.enter_context(wired_with(Settings(egress_allow=listed), ledger=ledger, http=http))

        yield wire


@pytest.fixture
def servers() -> Iterator[tuple[Server, Server]]:
    """The two servers; each hangs up after its answer, so that each call is a connection of its own."""
    hang_up = Reply(200, b"{}", {"Connection": "close"})
    with answering(lambda _: hang_up, (GOOD, 0)) as good:
        port = urlsplit(good.url).port or 0
        with answering(lambda _: hang_up, (SECRET, port)) as secret:
            yield good, secret


def at(server: Server, host: str) -> str:
    return f"http://{host}:{urlsplit(server.url).port}/x"


def hook(url: str, **more: Any) -> dict[str, Any]:
    return {"id": "a", "kind": "webhook", "payload": {"url": url, **more}, "on_duplicate": "replace"}


def work(app: App, ledger: EmbeddedLedger, url: str, **more: Any) -> Task:
    """A webhook to this URL, added over HTTP and tried once."""
    assert ask("POST", "/tasks", hook(url, **more)).status in {200, 201}
    app.drainer.drain([Shard()], ample)
    return stored_task(ledger)


def test_a_name_that_would_lead_elsewhere_at_a_second_look_up_is_looked_up_once(
    wiring: Wiring, ledger: EmbeddedLedger, servers: tuple[Server, Server]
) -> None:
    good, secret = servers
    names = Names({"rebind.example": [[GOOD], [SECRET]]})
    assert work(wiring(GOOD, names), ledger, at(good, "rebind.example")).status is Status.DONE
    assert (len(good.asked), secret.asked, names.asked) == (1, [], ["rebind.example"])


def test_the_next_connection_is_judged_by_its_own_look_up(
    wiring: Wiring, ledger: EmbeddedLedger, servers: tuple[Server, Server]
) -> None:
    good, secret = servers
    app = wiring(GOOD, Names({"rebind.example": [[GOOD], [SECRET]]}))
    work(app, ledger, at(good, "rebind.example"))
    seen = dialled()
    task = work(app, ledger, at(good, "rebind.example"))
    assert (task.status, task.error[:27]) == (Status.DEAD, "egress: leads to an address")
    assert (len(good.asked), secret.asked, seen) == (1, [], [])


def test_of_a_names_addresses_only_those_that_may_be_called_are_dialled(
    wiring: Wiring, ledger: EmbeddedLedger, servers: tuple[Server, Server]
) -> None:
    good, secret = servers
    app, seen = wiring(GOOD, Names({"mixed.example": [[SECRET, "169.254.169.254", GOOD]]})), dialled()
    assert work(app, ledger, at(good, "mixed.example")).status is Status.DONE
    assert ({address for address, *_ in seen}, secret.asked) == ({GOOD}, [])


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_to_where_no_call_may_go_is_not_followed(
    wiring: Wiring, ledger: EmbeddedLedger, status: int
) -> None:
    with answering(lambda _: Reply(), (SECRET, 0)) as secret:
        away = Reply(status, headers={"Location": f"{secret.url}/latest/meta-data/"})
        with answering(lambda _: away, (GOOD, 0)) as good:
            task = work(wiring(GOOD, Names({})), ledger, good.url)
    assert (task.status, f"answered {status}" in task.error) == (Status.SCHEDULED, True)
    assert (len(good.asked), secret.asked) == (1, [])


@pytest.mark.parametrize("variable", ["AWS_LAMBDA_RUNTIME_API", "AWS_CONTAINER_CREDENTIALS_FULL_URI"])
@pytest.mark.parametrize("own", ["localhost", "127.0.0.1", "0.0.0.0", "[::1]"])
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "2130706433", "app.example", "127.9.9.9", "0"])
def test_where_the_function_gets_its_events_and_credentials_no_setting_allows(
    wiring: Wiring, ledger: EmbeddedLedger, monkeypatch: pytest.MonkeyPatch, variable: str, own: str, host: str
) -> None:
    app, seen = (
        wiring(f"{LOOPBACK},0.0.0.0/0,::/0", Names({"app.example": [[SECRET]], "localhost": [[SECRET]]})),
        dialled(),
    )
    scheme = "" if variable == "AWS_LAMBDA_RUNTIME_API" else "http://"
    monkeypatch.setenv(variable, f"{scheme}{own}:9003")
    task = work(app, ledger, f"http://{host}:9003/2018-06-01/runtime/invocation/next")
    assert (
        task.error == "egress: leads to an address for the machine's own use, such as metadata, which is never called"
    )
    assert seen == []


OWN = ["169.254.169.254", "169.254.170.2", "fe80::1", "fd00:ec2::254", "168.63.129.16", "::ffff:169.254.169.254"]


@pytest.mark.parametrize("address", OWN)
@pytest.mark.parametrize("listed", ["0.0.0.0/0,::/0", ".example"])
def test_metadata_no_setting_allows(wiring: Wiring, ledger: EmbeddedLedger, address: str, listed: str) -> None:
    app, seen = wiring(listed, Names({"own.example": [[address]]})), dialled()
    literal = f"[{address}]" if ":" in address else address
    assert list(wrong(ask("POST", "/tasks", hook(f"http://{literal}/")))) == ["payload.url"]
    assert work(app, ledger, "http://own.example/").error.startswith(
        "egress: leads to an address for the machine's own"
    )
    assert seen == []


def test_a_listed_port_is_that_port_alone(
    wiring: Wiring, ledger: EmbeddedLedger, servers: tuple[Server, Server]
) -> None:
    good, _ = servers
    port = urlsplit(good.url).port or 0
    app = wiring(f"{GOOD}:{port}, .corp.example:{port + 1}", Names({"a.corp.example": [[GOOD]]}))
    assert work(app, ledger, good.url).status is Status.DONE
    assert list(wrong(ask("POST", "/tasks", hook(f"http://{GOOD}:{port + 1}/")))) == ["payload.url"]
    assert work(app, ledger, at(good, "a.corp.example")).status is Status.DONE, "by its address"


def test_credentials_in_clear_are_rejected_at_the_door_unless_the_host_may_be_listed(wiring: Wiring) -> None:
    wiring("", Names({}))
    problem = "would carry a header with credentials over plain http"
    for name in ("Authorization", "Cookie", "X-Api-Key", "x-amz-security-token"):
        rejected = wrong(ask("POST", "/tasks", hook("http://public.example/", headers={name: "HIDDEN"})))
        assert rejected["payload.url"].startswith(problem)
        assert "HIDDEN" not in str(rejected)
    assert ask("POST", "/tasks", hook("https://public.example/", **AUTHORIZED)).status == 201
    assert ask("POST", "/tasks", hook("http://public.example/", headers={"Idempotency-Key": "k"})).status in {200, 201}


def test_credentials_in_clear_go_to_a_listed_host_and_to_no_other(
    wiring: Wiring, ledger: EmbeddedLedger, servers: tuple[Server, Server]
) -> None:
    good, _ = servers
    app = wiring(GOOD, Names({"in.example": [[GOOD]], "public.example": [["93.184.216.34"]]}))
    assert work(app, ledger, at(good, "in.example"), **AUTHORIZED).status is Status.DONE
    assert good.asked[0].headers["authorization"] == "Bearer HIDDEN"
    seen = dialled()
    task = work(app, ledger, "http://public.example/", **AUTHORIZED)
    assert (task.status, task.error[:40]) == (Status.DEAD, "egress: would carry a header with creden")
    assert seen == [], "no connection is made in vain"
